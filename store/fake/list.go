package fake

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// List implements [store.Reader]. It looks at all jobs, and where the order is that of submission
// stops when the page is full.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	limit := store.Clamp(q.Limit, 100, 1000)
	by := cmp.Or(q.Sort, store.Newest)
	if !slices.Contains(store.Sorts, by) {
		return p, job.Errorf(job.Invalid, "%q is not an order: give one of %v", q.Sort, store.Sorts)
	}
	var from mark
	if q.Cursor != "" && (!readCursor(q.Cursor, &from) || from.By != by) {
		return p, job.Errorf(job.Invalid,
			"%.60q is not a cursor of this list: pass the one from the page before, with the same order, or none",
			q.Cursor)
	}
	return ask(ctx, s, func(t *tx) (p store.Page, err error) {
		p.Since = from.Since // pages of one list look back equally far
		if q.Cursor == "" {
			p.Since = micros(q.Filter.Window(t.now))
		}
		var found []mark
		for seq := range t.numbers(by, from.Seq) {
			r := t.rows[seq-1]
			if r == nil || !chooses(r, q.Tenant, q.Filter, p.Since) || by.Field() == "ended" && r.Ended.IsZero() {
				continue
			}
			m := mark{By: by, Since: p.Since, Seq: seq}
			switch by.Field() {
			case "ended":
				m.Ended = r.Ended.UnixMicro()
			case "stem":
				m.Stem = r.Stem()
			}
			if q.Cursor == "" || m.compare(from) > 0 {
				found = append(found, m)
			}
			if by.Field() == "" && len(found) > limit {
				break
			}
		}
		slices.SortFunc(found, mark.compare)
		if len(found) > limit {
			found = found[:limit]
			p.Next = cursorOf(found[limit-1])
		}
		for _, m := range found {
			j := t.rows[m.Seq-1].Job
			j.Request, j.Resolved, j.Work, j.Notes = nil, nil, nil, nil
			if j.Kind != job.KindApp {
				j.Result = nil
			}
			p.Jobs = append(p.Jobs, copyOf(j))
		}
		return p, nil
	})
}

// numbers goes through those of all jobs, or in the order of submission through those behind one;
// 0: there is none.
func (t *tx) numbers(by store.Sort, behind int) func(yield func(seq int) bool) {
	first, last := 1, len(t.rows)
	switch {
	case by.Field() != "" || behind == 0:
	case by.Descends():
		last = min(last, behind-1)
	default:
		first = max(first, behind+1)
	}
	return func(yield func(int) bool) {
		for i := range last - first + 1 {
			seq := first + i
			if by.Descends() {
				seq = last - i
			}
			if !yield(seq) {
				return
			}
		}
	}
}

// chooses reports whether a filter of a tenant that looks back to a time chooses a job.
func chooses(r *row, tenant string, f job.Filter, since time.Time) bool {
	return r.Tenant == tenant && !r.Created.Before(since) && f.Match(&r.Job)
}

// A mark is the place in a list behind which its next page begins. As text it is the cursor.
type mark struct {
	By    store.Sort
	Since time.Time
	Ended int64 // where the list is by end
	Stem  string
	Seq   int
}

// compare orders places in one list.
func (m mark) compare(o mark) int {
	if m.By.Descends() {
		m, o = o, m
	}
	return cmp.Or(cmp.Compare(m.Ended, o.Ended), strings.Compare(m.Stem, o.Stem), cmp.Compare(m.Seq, o.Seq))
}

// cursorOf writes a place as text.
func cursorOf(place any) string {
	b, _ := json.Marshal(place) // places are plain values
	return base64.RawURLEncoding.EncodeToString(b)
}

// readCursor reads a place, and reports whether the text is one.
func readCursor(cursor string, place any) bool {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	return err == nil && json.Unmarshal(b, place) == nil
}

// Count implements [store.Reader].
func (s *Store) Count(ctx context.Context, tenant string, f job.Filter) (store.Counts, error) {
	return ask(ctx, s, func(t *tx) (store.Counts, error) {
		c := store.Counts{States: map[job.State]int{}, Since: micros(f.Window(t.now))}
		for _, r := range t.rows {
			if r != nil && chooses(r, tenant, f, c.Since) {
				c.States[r.State]++
			}
		}
		return c, nil
	})
}

// Overdue implements [store.Reader].
func (s *Store) Overdue(ctx context.Context, q store.OverdueQuery) (o store.Overdue, err error) {
	limit := store.Clamp(q.Limit, 500, 1000)
	var from end
	if q.Cursor != "" && (!readCursor(q.Cursor, &from) || from.Seq < 1) {
		return o, job.Errorf(job.Invalid,
			"%.60q is not a cursor of jobs that are kept no longer: pass the one from the answer before, or none",
			q.Cursor)
	}
	return ask(ctx, s, func(t *tx) (o store.Overdue, err error) {
		kept := map[store.Kept]time.Duration{}
		for _, k := range q.Kept {
			kept[store.Kept{Tenant: k.Tenant, State: k.State}] = k.For
		}
		var found []end
		for _, r := range t.rows {
			if r == nil || r.Ended.IsZero() {
				continue
			}
			e := end{store.Kept{Tenant: r.Tenant, State: r.State}, r.Ended, r.seq}
			keep, rule := kept[e.Of]
			if rule && r.Ended.Before(t.now.Add(-keep)) && e.compare(from) > 0 && !t.owes(r.ID) {
				found = append(found, e)
			}
		}
		slices.SortFunc(found, end.compare)
		if len(found) >= limit {
			found = found[:limit]
			o.Next = cursorOf(found[limit-1])
		}
		for _, e := range found {
			r := t.rows[e.Seq-1]
			o.Jobs = append(o.Jobs, store.Ended{
				ID: r.ID, Tenant: r.Tenant, State: r.State, Kind: r.Kind,
				Machine: r.Machine,
			})
		}
		return o, nil
	})
}

// An end is where a job stands among those that have ended; its zero is before all of them. As text
// it is the cursor.
type end struct {
	Of    store.Kept // its tenant and state
	Ended time.Time
	Seq   int
}

func (e end) compare(o end) int {
	return cmp.Or(e.Of.Compare(o.Of), e.Ended.Compare(o.Ended), cmp.Compare(e.Seq, o.Seq))
}
