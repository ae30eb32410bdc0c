package postgres

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A reader takes the values of a row one after the other, in the binary format. NULL is the zero
// value.
type reader struct{ values [][]byte }

func (r *reader) next() []byte {
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *reader) text() string { return string(r.next()) }

func (r *reader) bool() bool {
	v := r.next()
	return len(v) == 1 && v[0] != 0
}

func (r *reader) int() int { return int(r.int64()) }

// int64 reads a number of any size.
func (r *reader) int64() int64 {
	switch v := r.next(); len(v) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (r *reader) id() (id job.ID) {
	copy(id[:], r.next())
	return id
}

// ids reads an array of ids.
func (r *reader) ids() []job.ID {
	const header, entry = 20, 4 + 16 // of one dimension; the length of an entry stands before it
	v := r.next()
	var ids []job.ID
	for at := header; at+entry <= len(v); at += entry {
		ids = append(ids, job.ID(v[at+4:at+entry]))
	}
	return ids
}

// texts reads an array of texts.
func (r *reader) texts() (texts []string) {
	const header = 20
	v := r.next()
	for at := header; at+4 <= len(v); {
		end := at + 4 + int(binary.BigEndian.Uint32(v[at:]))
		texts = append(texts, string(v[at+4:end]))
		at = end
	}
	return texts
}

// epoch is the beginning of PostgreSQL's time.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func (r *reader) time() time.Time {
	v := r.next()
	if len(v) != 8 {
		return time.Time{}
	}
	return time.UnixMicro(epoch + int64(binary.BigEndian.Uint64(v))).UTC()
}

// json reads a document. (The binary format of json is its text.)
func (r *reader) json() json.RawMessage { return slices.Clone(r.next()) }

func (r *reader) labels() map[string]string {
	var m map[string]string
	if v := r.next(); v != nil {
		json.Unmarshal(v, &m) //nolint:errcheck // written from such a map
	}
	return m
}
