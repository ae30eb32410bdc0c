package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A session is one lease of this process and all that runs under it.
type session struct {
	e       *Engine
	id      job.ID
	commit  *committer
	duties  *duties
	running sync.WaitGroup // one for each run

	mu    sync.Mutex
	runs  map[job.ID]*Run  // guarded by mu: those in this session's custody
	used  map[job.Lane]int // guarded by mu: slots in use
	freed flag             // a slot was freed
	fence time.Time        // guarded by mu, monotonic: nothing may be written after this
}

func newSession(e *Engine) *session {
	s := &session{e: e, id: job.NewID(), runs: map[job.ID]*Run{}, used: map[job.Lane]int{}, freed: newFlag()}
	s.commit = newCommitter(s)
	s.duties = newDuties(s)
	return s
}

// begin opens the session, takes up what dead sessions left, and learns which duties it has.
func (s *session) begin(ctx context.Context) error {
	_, err := retry(ctx, s.e, "begin session", func() (struct{}, error) {
		sent := time.Now()
		err := s.e.cfg.Store.Begin(ctx, store.Session{ID: s.id, Process: process(), Lease: s.e.cfg.Lease})
		s.extend(sent)
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	if _, err := s.e.expire(ctx); err != nil {
		return err
	}
	s.e.hint.set()
	return nil
}

// extend moves the moment at which this process must have stopped: the lease as it was asked for at sent, less a
// margin for stopping.
func (s *session) extend(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence = sent.Add(s.e.cfg.Lease - s.e.cfg.Lease/10)
}

// renewals renews the lease three times in its length, and at once when told of a wish.
func (s *session) renewals(ctx context.Context) error {
	told, err := s.e.cfg.Broker.Subscribe(ctx, sessionTopic(s.id))
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer told.Close()
	every := s.e.cfg.Lease / 3
	expiry := time.Time{} // of another session
	for {
		sent := time.Now()
		if s.commit.oldest() > s.e.cfg.Lease {
			return fmt.Errorf("%w: a change could not be committed for longer than a lease", errLost)
		}
		a, err := s.renew(ctx, sent)
		switch job.KindOf(err) {
		case job.Fenced, job.Closed:
			return fmt.Errorf("%w: %w", errLost, err)
		case job.Unavailable:
			s.e.cfg.Log.Warn("lease not renewed", "error", err)
		default:
			if err != nil {
				return ended(ctx, err)
			}
			s.extend(sent)
			if err := s.heard(ctx, a); err != nil {
				return err
			}
			expiry = a.NextExpiry
			if !expiry.IsZero() {
				expiry = time.Now().Add(expiry.Sub(a.Now))
			}
		}
		next := time.After(min(every, time.Until(s.deadline())))
		var dead <-chan time.Time
		if !expiry.IsZero() && time.Until(expiry) < every {
			dead = time.After(time.Until(expiry) + time.Millisecond)
		}
	wait:
		for {
			select {
			case <-next:
			case <-told.Messages():
			case <-told.Lost():
			case <-dead:
				// Only a process whose own renewals arrive may judge others.
				if err == nil {
					if _, err := s.e.expire(ctx); err != nil {
						return err
					}
				}
				dead = nil
				continue wait
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			break
		}
		if !time.Now().Before(s.deadline()) {
			return fmt.Errorf("%w: the lease ran out before it could be renewed", errLost)
		}
	}
}

func (s *session) deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence
}

func (s *session) renew(ctx context.Context, sent time.Time) (store.Renewal, error) {
	cfg := &s.e.cfg
	// An answer after the deadline is as good as none.
	ctx, cancel := context.WithDeadlineCause(ctx, s.deadline(), job.Errorf(job.Unavailable, "no answer since %s", sent))
	defer cancel()
	a, err := cfg.Store.Renew(ctx, store.Renew{
		Session: s.id, Lease: cfg.Lease, Queues: cfg.Queues, Kinds: kindNames(cfg.Kinds), Machine: cfg.Machine, Duties: s.duties.names(),
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a, err
}

// heard acts on what a renewal answered.
func (s *session) heard(ctx context.Context, a store.Renewal) error {
	for _, w := range a.Wishes {
		s.obey(w)
	}
	if len(a.Ready) > 0 {
		s.e.hint.set()
	}
	if a.Unpaid {
		s.e.owed.set()
	}
	s.duties.hold(ctx, a.Duties)
	if s.heldBefore(a.HeldBefore) != a.Held {
		return s.strangers(ctx)
	}
	return nil
}

// obey stops the step of a job that a wish came for.
func (s *session) obey(w store.Standing) {
	s.mu.Lock()
	r := s.runs[w.Job]
	s.mu.Unlock()
	if r != nil && r.epoch == w.Epoch {
		r.wished(w.Wish)
	}
}

// heldBefore counts the jobs that were claimed before t.
func (s *session) heldBefore(t time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.runs {
		if r.claimed.Before(t) {
			n++
		}
	}
	return n
}

// strangers gives back jobs that the store says this session holds and that it knows nothing of: the answer to their
// claim was lost.
func (s *session) strangers(ctx context.Context) error {
	held, err := retry(ctx, s.e, "list held jobs", func() ([]job.Job, error) { return s.e.cfg.Store.Held(ctx, s.id) })
	if err != nil {
		return err
	}
	for i := range held {
		j := &held[i]
		s.mu.Lock()
		_, known := s.runs[j.ID]
		s.mu.Unlock()
		if known || s.commit.busy(j.ID) {
			continue
		}
		s.e.cfg.Log.Warn("giving back a job whose claim was not answered", "job", j.ID)
		c := job.Expired(j, false)
		c.From.Fence = job.Fence{Session: s.id}
		s.commit.send(c, func(store.Applied, error) {})
	}
	return nil
}

// admit enters claimed jobs and takes their slots.
func (s *session) admit(ctx context.Context, jobs []job.Job) []*Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := make([]*Run, 0, len(jobs))
	for _, j := range jobs {
		if s.runs[j.ID] != nil {
			continue // a claim that was repeated
		}
		r := newRun(ctx, s, j)
		s.runs[j.ID] = r
		s.used[r.lane]++
		s.running.Add(1)
		runs = append(runs, r)
	}
	return runs
}

// leave takes a job out whose custody has ended, and frees its slot.
func (s *session) leave(r *Run) {
	s.mu.Lock()
	delete(s.runs, r.id)
	s.used[r.lane]--
	s.mu.Unlock()
	r.cancel(nil)
	s.running.Done()
}

// drain lets running steps end: in their own time first, then by their contexts.
func (s *session) drain(ctx context.Context) {
	idle := make(chan struct{})
	go func() {
		s.running.Wait()
		close(idle)
	}()
	grace := time.NewTimer(max(0, s.e.cfg.Grace))
	defer grace.Stop()
	select {
	case <-idle:
		return
	case <-grace.C:
	case <-ctx.Done():
		return
	}
	s.cancelAll(ErrInterrupted)
	last := time.NewTimer(s.e.cfg.Lease)
	defer last.Stop()
	select {
	case <-idle:
	case <-last.C:
		s.e.cfg.Log.Warn("steps that do not stop are left behind; their jobs go back")
	case <-ctx.Done():
	}
}

// cancelAll ends the contexts of all steps.
func (s *session) cancelAll(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		r.cancel(cause)
	}
}

// end closes the session: what is still held goes back without a mark against it.
func (s *session) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.e.cfg.Lease)
	defer cancel()
	eff, err := s.e.cfg.Store.End(ctx, s.id)
	if err != nil {
		s.e.cfg.Log.Warn("session not ended in good order; it will expire", "error", err)
		return
	}
	s.e.Follow(ctx, eff)
}
