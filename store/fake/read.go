package fake

import (
	"context"
	"slices"
	"strconv"
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
		case q.Machine != "":
			return t.watched(q.Machine, q.Since), nil
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

// watched returns the jobs of a machine that are new or have a wish.
func (t *tx) watched(machine string, since time.Time) (jobs []job.Job) {
	for _, r := range t.at[spot{custody: job.Monitor, machine: machine}] {
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
	after := 0
	if !q.End {
		if after, err = readEventCursor(q.Cursor); err != nil {
			return es, err
		}
	}
	limit := store.Within(q.Limit, 1000, 10_000)
	return ask(ctx, s, func(t *tx) (es store.Events, err error) {
		if after > len(t.events) {
			return es, store.NewerCursor()
		}
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
		es.Cursor = strconv.Itoa(after)
		return es, nil
	})
}

// After implements [store.Reader].
func (s *Store) After(cursor, other string) (bool, error) {
	a, err := readEventCursor(cursor)
	if err != nil {
		return false, err
	}
	b, err := readEventCursor(other)
	return a > b, err
}

func readEventCursor(s string) (n int, err error) {
	if s == "" {
		return 0, nil
	}
	if n, err = strconv.Atoi(s); err != nil || n < 0 {
		return 0, job.Errorf(job.Invalid, "%q is not a cursor: pass the one from the answer before, or none", s)
	}
	return n, nil
}

// answered returns an event as it is answered.
func answered(n int, e *event) store.Event {
	a := store.Event{Event: e.Event, Cursor: strconv.Itoa(n)}
	a.Data = slices.Clone(a.Data)
	return a
}
