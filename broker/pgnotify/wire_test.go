package pgnotify

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// What comes over the channel is anyone's. What is understood of it is what its sender would have
// meant by it.
func FuzzParse(f *testing.F) {
	f.Add("x.1 line red paint")
	f.Add("x.1 line %22 %00+")
	f.Add("x.1 message news aGVsbG8")
	f.Add("x.1 message  ")
	f.Add("x.1 row news 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	f.Add("x.1 row news 1")
	f.Add("x line a b")
	f.Add("   ")
	f.Fuzz(func(t *testing.T, payload string) {
		n, ok := parse(payload)
		if !ok {
			return
		}
		var again announcement
		switch n.word {
		case queueKindWord:
			again = ofJobs(n.queueKind)
		case messageWord:
			again = ofMessage(n.topic, n.content)
		case rowWord:
			return
		default:
			t.Fatalf("understood %q as %q", payload, n.word)
		}
		if len(n.content) > maxInline {
			return // no sender of ours
		}
		m, ok := parse(words(n.sender+".1", again.text))
		if !ok || m.word != n.word || m.queueKind != n.queueKind || m.topic != n.topic || !bytes.Equal(m.content, n.content) {
			t.Errorf("%q: understood %v, and said again %v", payload, n, m)
		}
	})
}

// Any names come through, as text that PostgreSQL takes.
func FuzzNames(f *testing.F) {
	f.Add("red", "paint")
	f.Add("", "\x00\xff %+é")
	f.Fuzz(func(t *testing.T, a, b string) {
		n := ofJobs(job.QueueKind{Queue: a, Kind: b})
		got, ok := parse(words("x.1", n.text))
		if !ok || got.queueKind != (job.QueueKind{Queue: a, Kind: b}) {
			t.Errorf("%q %q: understood %v", a, b, got)
		}
		m := ofMessage(a, []byte(b))
		got, ok = parse(words("x.1", m.text))
		if !ok || got.topic != a || len(b) <= maxInline && string(got.content) != b {
			t.Errorf("%q %q: understood %v", a, b, got)
		}
		for _, text := range []string{n.text, m.text} {
			for i := range len(text) {
				if text[i] < ' ' || text[i] >= utf8.RuneSelf {
					t.Fatalf("%q has a byte that is not of ASCII", text)
				}
			}
		}
	})
}
