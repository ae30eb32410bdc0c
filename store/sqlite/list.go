package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// List implements [store.Reader].
//
// A page is one statement. It merges sources that each give jobs in the order of the list, and
// stops when the page is full. SQLite merges the parts of a UNION ALL in this way, but not the
// values of an IN.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	by, limit, err := q.Page()
	if err != nil {
		return p, err
	}
	var from *mark
	since := q.Filter.Window(s.now())
	if q.Cursor != "" {
		if from, err = readMark(q.Cursor, by); err != nil {
			return p, err
		}
		since = from.Since // pages of one list look back equally far
	}
	sr := newSearch(q.Tenant, q.Filter, since.Truncate(time.Microsecond))
	p.Since = sr.since
	if err := s.bound(ctx, sr); err != nil {
		return p, err
	}
	if by.Field() == "" && from != nil {
		sr.after(from.Ord, by.Descends())
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
		p.Next = store.MarkOf(by, sr.since, &last.Job, store.Position{Ord: last.seq}).String()
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
			switch order := strings.Compare(src.stem.(string), from.Stem); {
			case order == 0:
				part(cond{src.seq + than, []any{from.Ord}})
			case order < 0 == by.Descends():
				part(cond{})
			}
		default: // those with the same key, of which there may be very many, and the others: an index leads to each
			part(cond{column + " = ? AND " + src.seq + than, []any{from.key(), from.Ord}})
			part(cond{column + than, []any{from.key()}})
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
	var indexed time.Time
	for i := range sr.filter {
		switch t := &sr.filter[i]; {
		case t.From.After(indexed):
			indexed = t.From
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
	if !indexed.IsZero() {
		if sr.indexed, err = s.firstSince(ctx, sr.all, indexed.UnixMicro()); err != nil {
			return err
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

// A mark says of statements what is behind it.
type mark struct{ store.Mark }

func readMark(cursor string, by store.Sort) (*mark, error) {
	m, err := store.ReadMark(cursor, by, true)
	return &mark{m}, err
}

// key returns what the list is sorted by before seq.
func (m *mark) key() driver.Value {
	if m.By.Field() == "ended" {
		return m.Ended.UnixMicro()
	}
	return m.Stem
}
