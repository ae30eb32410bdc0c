package pgnotify

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// A notification is four words, parted by spaces:
//
//	TAG jobs QUEUE KIND
//	TAG message TOPIC CONTENT
//	TAG row TOPIC ID
//
// A tag is the sender's random name, a dot and a number: PostgreSQL drops the second of two equal
// notifications in one transaction, and no two are equal so. Queue, kind and topic are escaped as
// in the query of a URL, which keeps every byte of any text, and the usual ones readable. Content
// is base64. A row's id names a row of the table messages.
const (
	queueKindWord = "jobs"
	messageWord   = "message"
	rowWord       = "row"
)

const (
	maxPayload    = 7999    // bytes of a notification: it must be shorter than 8000
	maxTag        = 26 + 14 // of rand.Text, and of a dot and 64 bits in base 36
	maxInline     = 1 << 10 // bytes of a message that travels in its notification
	maxIdentifier = 63      // bytes of a name in PostgreSQL
)

// An announcement is something to tell the other processes.
type announcement struct {
	text    string // the notification behind its tag
	merged  bool   // to be told twice is as good as once
	repeats bool   // it is an empty message, and told less often
	id      job.ID // of the row with content; zero: there is none
	content []byte
}

func ofJobs(l job.QueueKind) announcement {
	return announcement{text: words(queueKindWord, url.QueryEscape(l.Queue), url.QueryEscape(l.Kind)), merged: true}
}

func ofMessage(topic string, message []byte) announcement {
	topic = url.QueryEscape(topic)
	if len(message) > maxInline {
		id := job.NewID()
		return announcement{text: words(rowWord, topic, id.String()), id: id, content: append([]byte(nil), message...)}
	}
	empty := len(message) == 0
	return announcement{
		text: words(messageWord, topic, base64.RawStdEncoding.EncodeToString(message)), merged: empty,
		repeats: empty,
	}
}

func (n announcement) fits() bool { return maxTag+1+len(n.text) <= maxPayload }

func words(w ...string) string { return strings.Join(w, " ") }

// A notice is what a notification says.
type notice struct {
	sender    string
	word      string
	queueKind job.QueueKind
	topic     string // of a message or row
	content   []byte // of a message
	id        job.ID // of a row
}

// parse reads a notification. Anyone who may connect to the database can send anything.
func parse(payload string) (n notice, ok bool) {
	w := strings.Split(payload, " ")
	if len(w) != 4 {
		return n, false
	}
	n.word = w[1]
	n.sender, _, ok = strings.Cut(w[0], ".")
	name, err := url.QueryUnescape(w[2])
	if !ok || err != nil {
		return n, false
	}
	switch n.word {
	case queueKindWord:
		n.queueKind.Queue = name
		n.queueKind.Kind, err = url.QueryUnescape(w[3])
	case messageWord:
		n.topic = name
		n.content, err = base64.RawStdEncoding.DecodeString(w[3])
	case rowWord:
		n.topic = name
		n.id, err = job.ParseID(w[3])
	default:
		return n, false
	}
	return n, err == nil
}

// channel is the name on which the brokers of a schema hear each other. A long one would be
// refused.
func channel(schema string) string {
	if name := "pawl/" + schema; len(name) <= maxIdentifier {
		return name
	}
	sum := sha256.Sum256([]byte(schema))
	return "pawl/" + hex.EncodeToString(sum[:16])
}
