package engine

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/store"
)

// reportAlive tells the store that the process of a lost session lives. The jobs that the session
// still holds go back without suspicion, and jobs that others have taken meanwhile are cleared of
// the suspicion that this process died of them. It waits until the lease is over, because steps may
// still be at work. After ctx has ended, it has a third of a lease left.
func (s *session) reportAlive(ctx context.Context) {
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

// lost returns the jobs that the session held when it was lost.
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
