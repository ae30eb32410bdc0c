package fake

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Find implements [store.Reader].
func (s *Store) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	return ask(ctx, s, func(t *tx) (jobs []job.Job, err error) {
		switch {
		case !q.Session.IsZero():
			for _, r := range t.held(q.Session) {
				jobs = append(jobs, copyOf(r.Job))
			}
		case q.Watch != "":
			return t.watched(q.Watch, q.Since), nil
		default:
			found := make(map[job.ID]bool, len(q.IDs))
			for _, id := range q.IDs {
				if r := t.jobs[id]; r != nil && !found[id] && (q.Tenant == "" || q.Tenant == r.Tenant) {
					found[id] = true
					jobs = append(jobs, copyOf(r.Job))
				}
			}
		}
		return jobs, nil
	})
}

// watched returns the jobs of a watch that are new or have a wish.
func (t *tx) watched(watch string, since time.Time) (jobs []job.Job) {
	for _, r := range t.at[spot{custody: job.Monitor, watch: watch}] {
		if !r.Since.Before(micros(since)) || r.Wish != "" {
			j := r.Job
			j.Request, j.Resolved, j.Labels, j.Notes, j.Result = nil, nil, nil, nil, nil
			jobs = append(jobs, copyOf(j))
		}
	}
	return jobs
}

// Events implements [store.Reader]. One call writes at a time, so the order of numbers is the order
// of commits, and a cursor is a number.
func (s *Store) Events(ctx context.Context, q store.EventQuery) (es store.Events, err error) {
	var ord int64
	if !q.End {
		if ord, err = store.ReadOrd(q.Cursor); err != nil {
			return es, err
		}
	}
	limit := store.Clamp(q.Limit, 1000, 10_000)
	return ask(ctx, s, func(t *tx) (es store.Events, err error) {
		if ord > int64(len(t.events)) {
			return es, store.NewerCursor()
		}
		after := int(ord)
		var found []int
		switch r := t.jobs[q.Job]; {
		case q.End:
			after = len(t.events)
		case !q.Job.IsZero():
			if r == nil || r.Tenant != q.Tenant {
				break
			}
			for n := range t.history(r) {
				if n <= after {
					break
				}
				found = append(found, n)
			}
			slices.Reverse(found)
		default:
			for n := min(after, len(t.events)); n < len(t.events) && len(found) < limit; n++ {
				if e := t.events[n]; e != nil && e.tenant == q.Tenant {
					found = append(found, n+1)
				}
			}
		}
		for _, n := range found[:min(limit, len(found))] {
			es.Events = append(es.Events, answered(n, t.events[n-1]))
			after = n
		}
		es.Cursor = store.EventCursor{Ord: int64(after)}.String()
		return es, nil
	})
}

// answered returns an event as it is answered.
func answered(n int, e *event) store.Event {
	a := store.Event{Event: e.Event, Cursor: store.EventCursor{Ord: int64(n)}.String()}
	a.Data = slices.Clone(a.Data)
	return a
}
