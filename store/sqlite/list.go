package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// List implements [store.Reader].
//
// A page is one statement. It merges sources, each of which holds jobs in the order that is asked
// for, and stops when the page is full: SQLite merges the parts of a UNION ALL so, but not the
// values of an IN.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	limit := store.Clamp(q.Limit, 100, 1000)
	by := cmp.Or(q.Sort, store.Newest)
	if !slices.Contains(store.Sorts, by) {
		return p, job.Errorf(job.Invalid, "%q is not an order: give one of %v", q.Sort, store.Sorts)
	}
	var from *mark
	since := q.Filter.Window(s.now())
	if q.Cursor != "" {
		if from, err = readMark(q.Cursor, by); err != nil {
			return p, err
		}
		since = from.since // pages of one list look back equally far
	}
	sr := newSearch(q.Tenant, q.Filter, since.Truncate(time.Microsecond))
	p.Since = sr.since
	if err := s.bound(ctx, sr); err != nil {
		return p, err
	}
	if by.Field() == "" && from != nil {
		sr.after(from.seq, by.Descends())
	}
	l, err := s.choose(ctx, sr, by)
	if err != nil {
		return p, err
	}
	parts, args := sr.page(l, by, from)
	if len(parts) == 0 {
		return p, nil
	}
	var found []listed
	args = append(args, int64(limit+1))
	err = s.query(ctx, `SELECT m.k, `+columns+`, s.labels
		FROM (SELECT * FROM (`+strings.Join(parts, " UNION ALL ")+orderOf(by)+` LIMIT ? + 0)) m
		CROSS JOIN jobs j ON j.seq = m.seq CROSS JOIN specs s ON s.seq = j.seq`, nColumns+2,
		func(v []driver.Value) {
			r := scan(v[1:])
			r.Labels, r.Work = labelsOf(v[nColumns+1]), nil
			if r.Kind != job.KindApp {
				r.Result = nil
			}
			found = append(found, listed{v[0], r})
		}, args...)
	if err != nil {
		return p, err
	}
	slices.SortFunc(found, func(a, b listed) int {
		if by.Descends() {
			a, b = b, a
		}
		return cmp.Or(compare(a.key, b.key), cmp.Compare(a.seq, b.seq))
	})
	if len(found) > limit {
		found = found[:limit]
		last := found[limit-1]
		p.Next = mark{by, sr.since, last.seq, last.key}.String()
	}
	for i := range found {
		p.Jobs = append(p.Jobs, found[i].Job)
	}
	return p, nil
}

// orderOf returns the order by key and seq. Where there is no key it is seq itself.
func orderOf(by store.Sort) string {
	down := ""
	if by.Descends() {
		down = " DESC"
	}
	if by.Field() == "" {
		return " ORDER BY 1" + down
	}
	return " ORDER BY 1" + down + ", 2" + down
}

// A listed job has the key that the list is sorted by before seq: the time of its end, the stem of
// its name, or seq.
type listed struct {
	key driver.Value
	row
}

func compare(a, b driver.Value) int {
	if n, ok := a.(int64); ok {
		return cmp.Compare(n, b.(int64))
	}
	return strings.Compare(text(a), text(b))
}

// page returns the statements that together find the jobs behind a mark.
func (s *search) page(l lead, by store.Sort, from *mark) (parts []string, args []any) {
	key := by.Field()
	than := " > ?"
	if by.Descends() {
		than = " < ?"
	}
	for _, src := range s.of(l) {
		column := src.seq
		if key != "" {
			column = "j." + key
		}
		part := func(more cond) {
			c := s.chosen(src, l, by, more)
			parts = append(parts, "SELECT "+column+" AS k, "+src.seq+" AS seq "+c.sql)
			args = append(args, c.args...)
		}
		switch {
		case key == "" || from == nil:
			part(cond{})
		case key == "stem" && src.stem != nil:
			switch order := compare(src.stem, from.key); {
			case order == 0:
				part(cond{src.seq + than, []any{from.seq}})
			case order < 0 == by.Descends():
				part(cond{})
			}
		default: // those with the same key, of which there may be very many, and the others: an index leads to each
			part(cond{column + " = ? AND " + src.seq + than, []any{from.key, from.seq}})
			part(cond{column + than, []any{from.key}})
		}
	}
	return parts, args
}

// bound narrows a search to the numbers of jobs that were submitted in its time. Jobs are numbered
// in the order of submission, and so in the order of time but for steps of the clock.
func (s *Store) bound(ctx context.Context, sr *search) error {
	err := s.query(ctx, `SELECT coalesce(max(seq), 0) FROM jobs`, 1, func(v []driver.Value) { sr.all = v[0].(int64) })
	if err != nil {
		return err
	}
	sr.least, sr.most = 1, sr.all
	first := sr.since
	var last time.Time
	for i := range sr.filter {
		switch t := &sr.filter[i]; {
		case t.Field != "created":
		case t.Op == job.More || t.Op == job.AtLeast:
			if at := t.Time(); at.After(first) {
				first = at
			}
		default:
			if at := t.Time(); last.IsZero() || at.Before(last) {
				last = at
			}
		}
	}
	if !first.IsZero() {
		if sr.least, err = s.firstSince(ctx, sr.all, first.UnixMicro()); err != nil {
			return err
		}
	}
	if !last.IsZero() {
		next, err := s.firstSince(ctx, sr.all, last.UnixMicro()+1)
		if err != nil {
			return err
		}
		sr.most = next - 1
	}
	return nil
}

// firstSince returns the lowest number, up to one more than all, of a job that was submitted at a
// time or later.
func (s *Store) firstSince(ctx context.Context, all, at int64) (first int64, err error) {
	for low, high := int64(1), all+1; ; {
		if low >= high || err != nil {
			return low, err
		}
		middle := low + (high-low)/2
		later, next := true, high
		err = s.query(ctx, `SELECT created, seq FROM jobs WHERE seq >= ? ORDER BY seq LIMIT 1`, 2,
			func(v []driver.Value) {
				later, next = v[0].(int64) >= at, v[1].(int64)
			}, middle)
		if later {
			high = middle
		} else {
			low = next + 1
		}
	}
}

// after narrows a search to the numbers behind one.
func (s *search) after(seq int64, descending bool) {
	if descending {
		s.most = min(s.most, seq-1)
	} else {
		s.least = max(s.least, seq+1)
	}
}

// A mark is the place in a list behind which its next page begins. As text it is the cursor.
type mark struct {
	by    store.Sort
	since time.Time
	seq   int64
	key   driver.Value
}

func (m mark) String() string {
	parts := []string{string(m.by), strconv.FormatInt(m.seq, 36), "", ""}
	if !m.since.IsZero() {
		parts[2] = strconv.FormatInt(m.since.UnixMicro(), 36)
	}
	switch m.by.Field() {
	case "ended":
		parts[3] = strconv.FormatInt(m.key.(int64), 36)
	case "stem":
		parts[3] = text(m.key)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\n")))
}

// readMark reads the cursor of a list in an order.
func readMark(cursor string, by store.Sort) (*mark, error) {
	wrong := job.Errorf(job.Invalid, "%.60q is not a cursor of this list: pass the one from the page before, "+
		"with the same order, or none", cursor)
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, wrong
	}
	parts := strings.SplitN(string(b), "\n", 4)
	if len(parts) != 4 || parts[0] != string(by) {
		return nil, wrong
	}
	m := &mark{by: by}
	if m.seq, err = strconv.ParseInt(parts[1], 36, 64); err != nil || m.seq < 1 {
		return nil, wrong
	}
	if parts[2] != "" {
		us, err := strconv.ParseInt(parts[2], 36, 64)
		m.since = time.UnixMicro(us).UTC()
		if err != nil || m.since.Year() < 0 || m.since.Year() > 9999 {
			return nil, wrong
		}
	}
	switch by.Field() {
	case "ended":
		if m.key, err = strconv.ParseInt(parts[3], 36, 64); err != nil {
			return nil, wrong
		}
	case "stem":
		m.key = parts[3]
	default:
		if parts[3] != "" {
			return nil, wrong
		}
	}
	return m, nil
}
