package fake

import (
	"context"
	"reflect"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Apply implements [store.Jobs].
func (s *Store) Apply(ctx context.Context, changes []job.Change, along *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	var jobs []job.Job
	answers, eff, err := s.apply(ctx, changes, func(t *tx) (err error) {
		if along == nil {
			return nil
		}
		jobs, err = t.claim(*along)
		if job.KindOf(err) == job.Fenced {
			err = nil
		}
		return err
	})
	eff.AfterClaim(jobs)
	return answers, jobs, eff, err
}

// apply makes changes, and then what else is to be done in their transaction.
func (s *Store) apply(ctx context.Context, changes []job.Change, then func(*tx) error) ([]store.Applied,
	store.Effects, error,
) {
	seen := make(map[job.ID]bool, len(changes))
	for i := range changes {
		c := &changes[i]
		if seen[c.Job] {
			return nil, store.Effects{}, job.Errorf(job.Internal, "two changes of job %s in one call", c.Job)
		}
		if err := c.Check(); err != nil {
			return nil, store.Effects{}, err
		}
		seen[c.Job] = true
	}
	return call(ctx, s, func(t *tx) (_ []store.Applied, err error) {
		if s.PassOn {
			t.returned = map[name]bool{}
		}
		t.eff.BeforeClaim()
		answers := make([]store.Applied, len(changes))
		for i, c := range changes {
			if answers[i], err = t.apply(c); err != nil {
				return nil, err
			}
		}
		if err := t.passOn(); err != nil {
			return nil, err
		}
		return answers, then(t)
	})
}

// apply makes one change if its guard holds.
func (t *tx) apply(c job.Change) (store.Applied, error) {
	r, g := t.jobs[c.Job], c.From
	if r == nil {
		return store.Applied{Outcome: store.Fenced}, nil
	}
	if r.Epoch != g.Epoch || r.N != g.N {
		if a, ok := t.replayed(r, &c); ok {
			return a, nil
		}
	}
	a := store.Applied{Now: r.Guard(g.Fence), Wish: r.Wish}
	switch {
	case r.Epoch != g.Epoch, !t.stands(g.Fence),
		!g.Fence.Decides(&r.Job):
		a.Outcome = store.Fenced
		return a, nil
	case r.N != g.N || r.Place != g.Place:
		a.Outcome = store.Conflict
		return a, nil
	case c.Reports() && !c.Replaces(r.Work):
		a.Outcome = store.Conflict
		return a, nil
	}
	if c.Reports() {
		next := *r
		next.Work, a.Outcome = slices.Clone(c.Work), store.OK
		t.swap(r, &next)
		return a, nil
	}
	asked := ownChange(c)
	c, bent := job.Divert(&r.Job, *asked)
	cause := job.CauseWork
	a.Outcome = store.OK
	if bent {
		cause, a.Outcome = job.CauseDiverted, store.Diverted
	}
	next, err := t.write(r, c, cause, g.Fence.Actor())
	if err != nil {
		return a, err
	}
	t.events[next.newest-1].change = asked
	a.Now = next.Guard(g.Fence)
	return a, nil
}

// ownChange returns a deep copy of a change.
func ownChange(c job.Change) *job.Change {
	c.Work, c.Set.Resolved, c.Set.Result, c.Path = slices.Clone(c.Work), slices.Clone(c.Set.Resolved),
		slices.Clone(c.Set.Result), slices.Clone(c.Path)
	for i := range c.Path {
		c.Path[i].Data = slices.Clone(c.Path[i].Data)
	}
	return &c
}

// replayed answers a change that was made before, the same to the letter, as it was answered then.
func (t *tx) replayed(r *row, c *job.Change) (a store.Applied, ok bool) {
	last := c.From.N + int64(len(c.Path))
	for _, e := range t.history(r) {
		if e.N < last {
			break
		}
		if e.N != last || e.change == nil || !reflect.DeepEqual(e.change, c) {
			continue
		}
		a = store.Applied{Outcome: store.OK, Wish: r.Wish}
		if e.Cause == job.CauseDiverted {
			a.Outcome = store.Diverted
		}
		a.Now = job.Guard{
			Place: job.Place{State: e.State, Custody: e.Custody}, Epoch: c.From.Epoch, N: last,
			Fence: c.From.Fence,
		}
		if e.Custody != c.From.Place.Custody {
			a.Now.Epoch++
		}
		return a, true
	}
	return a, false
}

// stands reports whether the holder of a fence is alive. The zero fence is no holder: only the
// store itself decides without one.
func (t *tx) stands(f job.Fence) bool {
	if f.Duty != "" && f.Session.IsZero() {
		d, known := t.duties[f.Duty]
		return known && d.term == f.Term && t.alive(d.holder)
	}
	return t.alive(f.Session)
}

// alive reports whether a session has not ended, and its lease has not run out.
func (t *tx) alive(session job.ID) bool {
	i, known := t.sessions[session]
	return known && i.Ended.IsZero() && i.Until.After(t.now)
}
