package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Apply implements [store.Jobs].
func (s *Store) Apply(ctx context.Context, changes []job.Change, along *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	var c store.Claim
	if along != nil {
		c = along.Once()
	}
	var jobs []job.Job
	answers, eff, err := s.apply(ctx, changes, func(t *tx) (err error) {
		if along == nil {
			return nil
		}
		jobs, err = t.claim(c)
		if job.KindOf(err) == job.Fenced {
			jobs, err = nil, nil
		}
		return err
	})
	if err != nil {
		return nil, nil, store.Effects{}, err
	}
	eff.AfterClaim(jobs)
	return answers, jobs, eff, nil
}

// apply makes changes, and then what else is to be done in their transaction.
func (s *Store) apply(ctx context.Context, changes []job.Change, then func(*tx) error) ([]store.Applied,
	store.Effects, error,
) {
	var answers []store.Applied
	var eff store.Effects
	ids := make([]job.ID, len(changes))
	seen := make(map[job.ID]bool, len(changes))
	for i, c := range changes {
		if seen[c.Job] {
			return nil, eff, job.Errorf(job.Internal, "two changes of job %s in one call", c.Job)
		}
		if err := c.Check(); err != nil {
			return nil, eff, err
		}
		seen[c.Job], ids[i] = true, c.Job
	}
	err := s.do(ctx, func(t *tx) error {
		answers, eff = make([]store.Applied, len(changes)), store.Effects{}
		eff.BeforeClaim()
		t.returned, t.joined = map[spot]bool{}, map[spot]*joined{}
		defer func() { t.returned, t.joined = nil, nil }()
		rows, err := t.find(ids)
		if err != nil {
			return err
		}
		fences := map[job.Fence]bool{}
		for i, c := range changes {
			live, known := fences[c.From.Fence]
			if !known {
				if live, err = t.fence(c.From.Fence); err != nil {
					return err
				}
				fences[c.From.Fence] = live
			}
			if answers[i], err = t.apply(rows[c.Job], c, live, &eff); err != nil {
				return err
			}
		}
		if err := errors.Join(t.putJoined(&eff), t.passOn(&eff)); err != nil {
			return err
		}
		return then(t)
	})
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// apply makes one change if its guard holds.
func (t *tx) apply(r *row, c job.Change, live bool, eff *store.Effects) (store.Applied, error) {
	if r == nil {
		return store.Applied{Outcome: store.Fenced}, nil
	}
	g := c.From
	if r.Epoch != g.Epoch || r.N != g.N {
		if a, ok, err := t.replayed(r, &c); ok || err != nil {
			return a, err
		}
	}
	stands := func(o store.Outcome) store.Applied {
		return store.Applied{Outcome: o, Now: r.Guard(g.Fence), Wish: r.Wish}
	}
	switch {
	case r.Epoch != g.Epoch, !live:
		return stands(store.Fenced), nil
	case !g.Fence.Decides(&r.Job):
		return stands(store.Fenced), nil
	case r.N != g.N || r.Place != g.Place:
		return stands(store.Conflict), nil
	case c.Reports() && !c.Replaces(r.Work):
		return stands(store.Conflict), nil
	}
	if c.Reports() {
		_, err := t.exec(`UPDATE jobs SET work = ? WHERE seq = ?`, document(c.Work), r.seq)
		if err == nil {
			r.Work = slices.Clone(c.Work)
		}
		return stands(store.OK), err
	}
	wish := r.Wish
	diverted, bent := job.Divert(&r.Job, c)
	cause, outcome := job.CauseWork, store.OK
	if bent {
		cause, outcome = job.CauseDiverted, store.Diverted
	}
	if err := t.change(r, diverted, cause, actorOf(g.Fence), c.Digest(), eff); err != nil {
		return store.Applied{}, err
	}
	a := stands(outcome)
	a.Wish = wish
	return a, nil
}

// replayed answers a change that was made before, the same to the letter, as it was answered then.
func (t *tx) replayed(r *row, c *job.Change) (a store.Applied, ok bool, err error) {
	last := c.From.N + int64(len(c.Path))
	if r.N < last {
		return a, false, nil
	}
	err = t.query(`SELECT state, custody, cause FROM events WHERE job = ? AND n = ? AND epoch = ? AND change = ?`,
		func(v []driver.Value) error {
			ok = true
			a = store.Applied{Outcome: store.OK, Wish: r.Wish}
			if job.Cause(text(v[2])) == job.CauseDiverted {
				a.Outcome = store.Diverted
			}
			a.Now = job.Guard{
				Place: job.Place{
					State:   job.State(strings.Clone(text(v[0]))),
					Custody: job.Custody(strings.Clone(text(v[1]))),
				},
				Epoch: c.From.Epoch, N: last, Fence: c.From.Fence,
			}
			if a.Now.Place.Custody != c.From.Place.Custody {
				a.Now.Epoch++
			}
			return nil
		}, r.seq, last, c.From.Epoch, c.Digest())
	return a, ok, err
}

// fence reports whether the holder of a fence is alive. The zero fence is no holder: only the store
// itself decides without one.
func (t *tx) fence(f job.Fence) (bool, error) {
	switch {
	case !f.Session.IsZero():
		return t.exists(`SELECT 1 FROM sessions WHERE id = ? AND ended IS NULL AND lease_until > ?`,
			blob(f.Session), micros(t.lease))
	case f.Duty != "":
		return t.exists(`SELECT 1 FROM duties d JOIN sessions s ON s.id = d.session
			WHERE d.name = ? AND d.term = ? AND s.ended IS NULL AND s.lease_until > ?`, f.Duty, f.Term, micros(t.lease))
	}
	return false, nil
}

// alive is Fenced unless the session may work.
func (t *tx) alive(session job.ID) error {
	ok, err := t.fence(job.Fence{Session: session})
	if err != nil || ok {
		return err
	}
	return store.NoSession(session)
}
