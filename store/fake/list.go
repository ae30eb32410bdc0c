package fake

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// List implements [store.Reader]. It looks at all jobs. If the list is in the order of submission,
// it stops when the page is full.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	by, limit, err := q.Page()
	if err != nil {
		return p, err
	}
	var from store.Mark
	if q.Cursor != "" {
		if from, err = store.ReadMark(q.Cursor, by, true); err != nil {
			return p, err
		}
	}
	return ask(ctx, s, func(t *tx) (p store.Page, err error) {
		p.Since = from.Since // pages of one list look back equally far
		if q.Cursor == "" {
			p.Since = micros(q.Filter.Window(t.now))
		}
		var found []store.Mark
		for seq := range t.numbers(by, int(from.Ord)) {
			r := t.rows[seq-1]
			if r == nil || !chooses(r, q.Tenant, q.Filter, p.Since) || by.Field() == "ended" && r.Ended.IsZero() {
				continue
			}
			m := store.MarkOf(by, p.Since, &r.Job, store.Position{Ord: int64(seq)})
			if q.Cursor == "" || m.Compare(from) > 0 {
				found = append(found, m)
			}
			if by.Field() == "" && len(found) > limit {
				break
			}
		}
		slices.SortFunc(found, store.Mark.Compare)
		if len(found) > limit {
			found = found[:limit]
			p.Next = found[limit-1].String()
		}
		for _, m := range found {
			j := t.rows[m.Ord-1].Job
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
	from, err := store.ReadEndMark(q.Cursor, true)
	if err != nil {
		return o, err
	}
	return ask(ctx, s, func(t *tx) (o store.Overdue, err error) {
		kept := map[store.Kept]store.Kept{}
		for _, k := range q.Kept {
			kept[k.Of()] = k
		}
		var found []store.EndMark
		for _, r := range t.rows {
			if r == nil || r.Ended.IsZero() {
				continue
			}
			e := store.EndMark{
				Of: store.Kept{Tenant: r.Tenant, State: r.State, Kind: r.Kind}, Ended: r.Ended,
				Position: store.Position{Ord: int64(r.seq)},
			}
			keep, rule := kept[e.Of]
			if !rule {
				e.Of.Kind = ""
				keep, rule = kept[e.Of]
			}
			overdue := rule && r.Ended.Before(t.now.Add(-keep.For)) && r.Ended.After(keep.Since)
			if overdue && e.Compare(from) > 0 && !t.owes(r.ID) {
				found = append(found, e)
			}
		}
		slices.SortFunc(found, store.EndMark.Compare)
		if len(found) >= limit {
			found = found[:limit]
			o.Next = found[limit-1].String()
		}
		for _, e := range found {
			r := t.rows[e.Ord-1]
			o.Jobs = append(o.Jobs, store.Ended{
				ID: r.ID, Tenant: r.Tenant, State: r.State, Kind: r.Kind,
				Machine: r.Machine,
			})
		}
		return o, nil
	})
}
