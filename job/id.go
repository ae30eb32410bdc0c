package job

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"
)

// An ID names a job, a session, a claim or a rate. It is a UUID of version 7 (RFC 9562): the first
// 48 bits are milliseconds of Unix time, so ids made later sort later. The caller makes it, never
// the database, so that a call whose answer was lost can be repeated.
type ID [16]byte

// NewID returns a fresh id. The ids that one process makes are strictly increasing. It is safe for
// concurrent use.
func NewID() ID { return newIDs.next(time.Now()) }

var newIDs idSource

// idSource makes ids increase within one process: the 12 bits after the version count fractions of
// a millisecond (RFC 9562, section 6.2, method 3), and the last value is never given twice.
type idSource struct {
	mu   sync.Mutex
	last uint64 // guarded by mu: milliseconds << 12 | fraction
}

func (s *idSource) next(now time.Time) ID {
	ns := uint64(now.UnixNano())
	ms, sub := ns/1e6, ns%1e6
	tick := ms<<12 | sub<<12/1e6

	s.mu.Lock()
	if tick <= s.last {
		tick = s.last + 1
	}
	s.last = tick
	s.mu.Unlock()

	var id ID
	rand.Read(id[8:]) // never fails, see crypto/rand
	binary.BigEndian.PutUint64(id[:8], tick>>12<<16|0x7000|tick&0xfff)
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ParseID reads the canonical form that [ID.String] writes.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, Errorf(Invalid, "%q is not an id: want 36 characters such as 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", s)
	}
	if _, err := hex.Decode(id[:], []byte(s[0:8]+s[9:13]+s[14:18]+s[19:23]+s[24:])); err != nil {
		return ID{}, Errorf(Invalid, "%q is not an id: %w", s, err)
	}
	return id, nil
}

// LeastIDPart is how many hex digits of an id are enough to name it.
const LeastIDPart = 6

// IDPatterns returns the patterns, as a [Filter] has them, of the ids that begin or end with part.
// It returns nil if part cannot name an id. part may leave out dashes.
func IDPatterns(part string) []string {
	const digits = 32
	hexes := strings.ToLower(strings.ReplaceAll(part, "-", ""))
	if len(hexes) < LeastIDPart || len(hexes) > digits || strings.Trim(hexes, "0123456789abcdef") != "" {
		return nil
	}
	blank := strings.Repeat("?", digits-len(hexes))
	var patterns []string
	for _, all := range []string{hexes + blank, blank + hexes} {
		id := all[:8] + "-" + all[8:12] + "-" + all[12:16] + "-" + all[16:20] + "-" + all[20:]
		if !strings.Contains(part, "-") || strings.Contains(id, strings.ToLower(part)) {
			patterns = append(patterns, id)
		}
	}
	return slices.Compact(patterns)
}

// Fits reports whether id begins or ends with part. At least [LeastIDPart] hex digits are needed.
func (id ID) Fits(part string) bool {
	return slices.ContainsFunc(IDPatterns(part), func(p string) bool { return like(p, id.String()) })
}

// String returns the canonical form: 36 characters, lower case.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Short returns the last eight characters. They are random, unlike the first ones, so people can
// tell jobs apart by them.
func (id ID) Short() string { return hex.EncodeToString(id[12:]) }

// Made returns when the id was made, by the clock of its maker, to the millisecond.
func (id ID) Made() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)).UTC()
}

// Compare orders ids by their bytes. Ids of one process come in the order in which they were made.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// IsZero reports whether id is unset.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText implements [encoding.TextMarshaler]; the zero id is the empty text.
func (id ID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *ID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = ID{}
		return nil
	}
	v, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
