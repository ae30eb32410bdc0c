package store

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// Page returns the order of the list, and how many jobs a page has. An unknown order is Invalid.
func (q *Query) Page() (by Sort, limit int, err error) {
	by = cmp.Or(q.Sort, Newest)
	if !slices.Contains(Sorts, by) {
		return "", 0, job.Errorf(job.Invalid, "%q is not an order: give one of %v", q.Sort, Sorts)
	}
	return by, Clamp(q.Limit, 100, 1000), nil
}

// A Position is the place of a job in the order of submission. In a database that numbers its jobs,
// Ord is the number and Job is empty. In another database Ord is the time of submission, in
// microseconds of Unix time, and Job orders jobs of the same time.
type Position struct {
	Ord int64
	Job job.ID
}

// PositionOf returns the position of a job in a database that does not number its jobs.
func PositionOf(created time.Time, id job.ID) Position { return Position{created.UnixMicro(), id} }

// Created returns the time of submission, in a database that does not number its jobs.
func (p Position) Created() time.Time { return time.UnixMicro(p.Ord).UTC() }

// Compare orders positions by submission.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Ord, o.Ord), bytes.Compare(p.Job[:], o.Job[:]))
}

// A Mark is the place in a list after which the next page begins. Its text is the cursor.
type Mark struct {
	By    Sort
	Since time.Time // that of [Page]
	Ended time.Time // set in a list by end
	Stem  string    // set in a list by name
	Position
}

// MarkOf returns the mark of j, whose position is p.
func MarkOf(by Sort, since time.Time, j *job.Job, p Position) Mark {
	m := Mark{By: by, Since: since, Position: p}
	switch by.Field() {
	case "ended":
		m.Ended = j.Ended
	case "stem":
		m.Stem = j.Stem()
	}
	return m
}

// Compare orders marks as they follow in the list.
func (m Mark) Compare(o Mark) int {
	if m.By.Descends() {
		m, o = o, m
	}
	return cmp.Or(m.Ended.Compare(o.Ended), strings.Compare(m.Stem, o.Stem), m.Position.Compare(o.Position))
}

// String returns the cursor.
func (m Mark) String() string {
	return encode(string(m.By), writeInstant(m.Since), writeInstant(m.Ended), m.ord(), m.job(), m.Stem)
}

// ReadMark reads the cursor of a list. by must be the order of the list, and numbered says whether
// the database numbers its jobs. Any other text is Invalid.
func ReadMark(cursor string, by Sort, numbered bool) (Mark, error) {
	m := Mark{By: by}
	parts, ok := decode(cursor, 6)
	if ok {
		m.Stem = parts[5]
		ok = parts[0] == string(by) && readInstant(parts[1], &m.Since) && readInstant(parts[2], &m.Ended) &&
			m.read(parts[3], parts[4], numbered) &&
			m.Ended.IsZero() == (by.Field() != "ended") && (m.Stem == "" || by.Field() == "stem")
	}
	if !ok {
		return Mark{}, job.Errorf(job.Invalid, "%.60q is not a cursor of this list: pass the one from the page "+
			"before, with the same order, or none", cursor)
	}
	return m, nil
}

// An EndMark is the place of a job among the jobs that have ended, ordered by tenant, state,
// kind and end. The zero EndMark comes before all. Its text is the cursor of [Overdue].
type EndMark struct {
	Of    Kept // the tenant, the state and the kind
	Ended time.Time
	Position
}

// Compare orders by tenant, state, kind and end.
func (m EndMark) Compare(o EndMark) int {
	return cmp.Or(m.Of.Compare(o.Of), m.Ended.Compare(o.Ended), m.Position.Compare(o.Position))
}

// String returns the cursor.
func (m EndMark) String() string {
	return encode(string(m.Of.State), writeInstant(m.Ended), m.ord(), m.job(), m.Of.Kind, m.Of.Tenant)
}

// ReadEndMark reads the cursor of [Overdue]; "" is the zero EndMark. numbered says whether the
// database numbers its jobs. Any other text is Invalid.
func ReadEndMark(cursor string, numbered bool) (m EndMark, err error) {
	if cursor == "" {
		return m, nil
	}
	parts, ok := decode(cursor, 6)
	if ok {
		m.Of = Kept{Tenant: parts[5], State: job.State(parts[0]), Kind: parts[4]}
		ok = readInstant(parts[1], &m.Ended) && !m.Ended.IsZero() && m.read(parts[2], parts[3], numbered)
	}
	if !ok {
		return EndMark{}, job.Errorf(job.Invalid, "%.60q is not a cursor of jobs that are kept no longer: pass the "+
			"one from the answer before, or none", cursor)
	}
	return m, nil
}

func (p Position) ord() string { return strconv.FormatInt(p.Ord, 36) }

func (p Position) job() string {
	if p.Job.IsZero() {
		return ""
	}
	return p.Job.String()
}

func (p *Position) read(ord, id string, numbered bool) bool {
	var err error
	if numbered {
		p.Ord, err = strconv.ParseInt(ord, 36, 64)
		return err == nil && p.Ord >= 1 && id == ""
	}
	var created time.Time
	if !readInstant(ord, &created) || created.IsZero() {
		return false
	}
	p.Ord = created.UnixMicro()
	p.Job, err = job.ParseID(id)
	return err == nil
}

// encode writes the parts of a mark as a cursor. Only the last one may have line breaks.
func encode(parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\n")))
}

// decode reads n parts that a database can hold.
func decode(cursor string, n int) (parts []string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil, false
	}
	parts = strings.SplitN(string(b), "\n", n)
	return parts, len(parts) == n
}

// writeInstant writes a time in microseconds of Unix time, or nothing where it is zero.
func writeInstant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMicro(), 36)
}

// readInstant reads a time that a database can hold.
func readInstant(text string, at *time.Time) bool {
	if text == "" {
		*at = time.Time{}
		return true
	}
	us, err := strconv.ParseInt(text, 36, 64)
	*at = time.UnixMicro(us).UTC()
	return err == nil && at.Year() >= 0 && at.Year() <= 9999
}
