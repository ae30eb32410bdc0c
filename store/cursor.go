package store

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// An EventCursor is the place of an event in the order of all events of its tenant. Its text is the
// Cursor of [Event] and [Events]. A database in which one call writes at a time numbers its events,
// and needs only Ord.
type EventCursor struct {
	Ord int64
	// Job, N and Sub order the events of one Ord. The zero job comes before all of them.
	Job    job.ID
	N, Sub int64
}

// String returns the text of the cursor.
func (c EventCursor) String() string {
	s := strconv.FormatInt(c.Ord, 36)
	if c.Job.IsZero() {
		return s
	}
	return s + "." + c.Job.String() + "." + strconv.FormatInt(c.N, 36) + "." + strconv.FormatInt(c.Sub, 36)
}

// ReadEventCursor reads a text that String wrote. "" is the place before all events. Any other text
// is [job.Invalid].
func ReadEventCursor(s string) (c EventCursor, err error) {
	if s == "" {
		return c, nil
	}
	switch parts := strings.Split(s, "."); len(parts) {
	case 1:
		c.Ord = number(s)
	case 4:
		c.Ord, c.N, c.Sub = number(parts[0]), number(parts[2]), number(parts[3])
		c.Job, _ = job.ParseID(parts[1])
	}
	if c.String() != s {
		return EventCursor{}, job.Errorf(job.Invalid,
			"%.60q is not a cursor: pass the one from the answer before, or none", s)
	}
	return c, nil
}

// number reads a number of a cursor; 0 where that is none.
func number(s string) int64 {
	const most = 1 << 62
	n, err := strconv.ParseInt(s, 36, 64)
	if err != nil || n < 0 || n > most {
		return 0
	}
	return n
}

// ReadOrd reads the cursor of a database that numbers its events. A cursor of another database is
// [job.Invalid].
func ReadOrd(s string) (int64, error) {
	c, err := ReadEventCursor(s)
	if err == nil && !c.Job.IsZero() {
		err = job.Errorf(job.Invalid, "%q is a cursor of another database: pass one from this, or none", s)
	}
	return c.Ord, err
}

// CursorAfter reports whether a cursor of events comes after another. It is [job.Invalid] if one of
// them is no cursor.
func CursorAfter(cursor, other string) (bool, error) {
	a, err := ReadEventCursor(cursor)
	if err != nil {
		return false, err
	}
	b, err := ReadEventCursor(other)
	return a.compare(b) > 0, err
}

// NewerCursor is the error for a cursor of events that is newer than the database.
func NewerCursor() error {
	return job.Errorf(job.Invalid, "this cursor is newer than all that the database has: it is no cursor, or of another "+
		"database, or this one was restored to an earlier point in time: "+
		"read from the first event, or only those to come (end)")
}

func (c EventCursor) compare(o EventCursor) int {
	return cmp.Or(cmp.Compare(c.Ord, o.Ord), bytes.Compare(c.Job[:], o.Job[:]), cmp.Compare(c.N, o.N),
		cmp.Compare(c.Sub, o.Sub))
}
