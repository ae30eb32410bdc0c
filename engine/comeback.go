package engine

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/store"
)

// comeBack tells the store of a session that was lost that its process lives: what the session
// still holds goes back without a mark against it, and of what others have taken meanwhile nothing
// is a suspect on its account. It waits until the lease has run out, for steps may still be at
// work. When ctx ends it has a third of a lease left.
func (s *session) comeBack(ctx context.Context) {
	e := s.e
	over := time.NewTimer(time.Until(s.deadline().Add(margin(e.cfg.Lease))))
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	calls, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(e.cfg.Lease/3, giveUp) })()

	tell := func(what string, call func() (store.Effects, error)) bool {
		eff, err := retry(calls, e, what, call)
		if err != nil {
			e.cfg.Log.Warn("jobs of a lost session stay suspects", "error", err)
			return false
		}
		e.Follow(calls, eff)
		return true
	}
	if !tell("end lost session", func() (store.Effects, error) { return e.cfg.Store.End(calls, s.id) }) {
		return
	}
	for lost := range slices.Chunk(s.lost(), batch) {
		if !tell("clear", func() (store.Effects, error) { return e.cfg.Store.Clear(calls, lost) }) {
			return
		}
	}
}

// lost returns what the session held when it was lost.
func (s *session) lost() []store.Lost {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := slices.Clone(s.left)
	for _, r := range s.runs {
		lost = append(lost, r.lost())
	}
	slices.SortFunc(lost, func(a, b store.Lost) int { return a.Job.Compare(b.Job) })
	return lost
}

func (r *Run) lost() store.Lost { return store.Lost{Job: r.id, Epoch: r.epoch} }
