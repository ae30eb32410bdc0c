package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A session is one lease of this process and all that runs under it.
type session struct {
	e           *Engine
	id          job.ID
	commit      *committer
	asks        *asks
	duties      *duties
	withChanges sync.WaitGroup  // one for each claim that is sent with changes
	steps       *sync.WaitGroup // one for each run, also those of lost sessions
	freed       flag            // a slot was freed
	known       report          // what the store knows; only used by the loop that renews
	shares      atomic.Bool     // there are other sessions, says the newest renewal

	// ctx is the parent of all steps. It outlasts the context of Engine.Run.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	runs   map[job.ID]*Run      // guarded by mu: the jobs in this session's custody
	used   map[job.Lane]int     // guarded by mu: slots in use
	taken  map[job.Lane]int     // guarded by mu: slots for which a claim is under way
	maybe  map[job.Lane]bool    // guarded by mu: lanes that may have ready jobs
	asked  map[job.ID]bool      // guarded by mu: the claims under way
	last   bool                 // guarded by mu: nothing is claimed any more
	wishes []store.StandingWish // guarded by mu: from the newest renewal
	// guarded by mu: jobs that were taken from this session, perhaps because it is dead
	left   []store.Lost
	moot   int       // guarded by mu: how many of left there were when the newest renewal was sent
	fence  time.Time // guarded by mu, monotonic: nothing may be written after this
	lapsed bool      // guarded by mu: a step was told that this moment has passed
}

func newSession(ctx context.Context, e *Engine, steps *sync.WaitGroup) *session {
	s := &session{
		e: e, steps: steps, runs: map[job.ID]*Run{}, used: map[job.Lane]int{}, taken: map[job.Lane]int{},
		maybe: map[job.Lane]bool{}, asked: map[job.ID]bool{},
		freed: newFlag(), asks: newAsks(),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.commit = newCommitter(s)
	s.duties = newDuties(s)
	return s
}

// begin opens the session. If the lease of an earlier try may be over, the next try opens another
// session.
func (s *session) begin(ctx context.Context) error {
	s.known.process = s.e.process()
	_, err := retry(ctx, s.e, "begin session", func() (struct{}, error) {
		if sent := time.Now(); !sent.Before(s.deadline()) {
			s.id = job.NewID()
			s.extend(sent)
		}
		err := s.e.cfg.Store.Begin(ctx, store.Session{
			ID: s.id, Process: s.known.process, Lease: s.e.cfg.Lease,
			Mode: s.e.mode(),
		})
		// an earlier try, whose answer was lost, began it, and its lease is over
		if job.KindOf(err) == job.Fenced {
			s.extend(time.Now().Add(-s.e.cfg.Lease))
			err = job.Errorf(job.Unavailable, "%w", err)
		}
		return struct{}{}, err
	})
	if err == nil {
		s.e.hint.set()
		s.e.tell(s.e.cfg.Broker.Publish(ctx, begunTopic, nil))
	}
	return err
}

// extend moves the time by which this process must have stopped: the lease counts from when it was
// asked for, less a margin for stopping.
func (s *session) extend(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lapsed {
		return // no answer takes back what the steps were told
	}
	s.fence = sent.Add(s.e.cfg.Lease - margin(s.e.cfg.Lease))
}

// margin is how long before the end of a lease this process stops.
func margin(lease time.Duration) time.Duration { return lease / 10 }

// every is how often the lease is renewed.
func (e *Engine) every() time.Duration { return e.cfg.Lease / 3 }

// renewals renews the lease three times in its length. It also renews at once after a wish or a
// command, when other queues are served or other duties wanted, when a machine becomes silent or
// answers again, and when another process comes up that wants its share. If there is no answer it
// tries again soon: an outage may end before the lease does.
func (s *session) renewals(ctx context.Context) error {
	told, err := s.subscribe(ctx, sessionTopic(s.id))
	if err != nil {
		return err
	}
	defer told.Close()
	begun, err := s.subscribe(ctx, begunTopic)
	if err != nil {
		return err
	}
	defer begun.Close()
	gate, err := s.subscribe(ctx, gateTopic)
	if err != nil {
		return err
	}
	defer gate.Close()
	expiry := time.Time{} // of another session
	for {
		replaced := s.e.served.Load().replaced
		_, changed := s.duties.wanted()
		every, sent := s.e.every(), time.Now()
		if s.commit.oldest() > s.e.cfg.Lease {
			return fmt.Errorf("%w: a change could not be committed for longer than a lease", errLost)
		}
		a, err := s.renew(ctx)
		switch job.KindOf(err) {
		case job.Fenced, job.Closed:
			return fmt.Errorf("%w: %w", errLost, err)
		case job.Unavailable:
			s.e.cfg.Log.Warn("lease not renewed", "error", err)
			every /= 5
		default:
			if err != nil {
				return ended(ctx, err)
			}
			s.extend(sent)
			s.e.agree(sent, a.Now)
			s.heard(ctx, a)
			expiry = a.NextExpiry
			if !expiry.IsZero() {
				expiry = time.Now().Add(expiry.Sub(a.Now))
			}
		}
		next := time.After(min(every, s.remaining()))
		var dead <-chan time.Time
		if !expiry.IsZero() && time.Until(expiry) < every {
			dead = time.After(time.Until(expiry) + time.Millisecond)
		}
	wait:
		for {
			select {
			case <-next:
			case <-told.Messages():
				for len(told.Messages()) > 0 { // one renewal hears of many wishes
					<-told.Messages()
				}
			case <-told.Lost():
			case <-begun.Messages():
				if s.shares.Load() {
					continue wait
				}
			case <-gate.Messages():
				s.e.owed.set()
				s.e.alarm.set(time.Now())
				continue wait
			case <-replaced:
			case <-changed:
			case <-s.duties.news:
			case <-dead:
				// Only a process whose own renewals arrive may judge others.
				if err == nil {
					s.e.dead.set()
				}
				dead = nil
				continue wait
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			break
		}
		if s.remaining() <= 0 {
			return fmt.Errorf("%w: the lease ran out before it could be renewed", errLost)
		}
	}
}

func (s *session) subscribe(ctx context.Context, topic string) (broker.Subscription, error) {
	return retry(ctx, s.e, "subscribe", func() (broker.Subscription, error) {
		return s.e.cfg.Broker.Subscribe(ctx, topic)
	})
}

func (s *session) deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence
}

// remaining returns how long this process may work without another renewal.
func (s *session) remaining() time.Duration {
	return time.Until(s.deadline())
}

// lapse reports whether this process must have stopped by now. Once it has said so, it never says
// otherwise.
func (s *session) lapse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapsed = s.lapsed || !time.Now().Before(s.fence)
	return s.lapsed
}

// inTime returns a context for one call. It ends when the next renewal is due, so that a call that
// hangs does not take the lease with it. An answer after the deadline is as good as none.
func (s *session) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, min(s.e.every(), s.remaining()), errNoAnswer)
}

var errNoAnswer = job.Errorf(job.Unavailable, "no answer in time")

func (s *session) renew(ctx context.Context) (store.Renewal, error) {
	cfg := &s.e.cfg
	ctx, cancel := s.inTime(ctx)
	defer cancel()
	s.mu.Lock()
	s.moot = len(s.left)
	s.mu.Unlock()
	r := store.Renew{
		Session: s.id, Lease: cfg.Lease, Queues: s.e.served.Load().queues, Kinds: s.e.kinds, Tenants: cfg.Tenants,
		Machine: cfg.Machine,
		Duties:  s.duties.names(),
	}
	now := s.report()
	now.tell(&r, &s.known)
	a, err := cfg.Store.Renew(ctx, r)
	switch {
	case err == nil:
		s.known = now
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return a, err
}

// heard acts on the answer to a renewal.
func (s *session) heard(ctx context.Context, a store.Renewal) {
	s.mu.Lock()
	s.wishes = a.Wishes
	s.left = s.left[s.moot:] // the session lives: others than expiry have taken them
	s.mu.Unlock()
	for _, w := range a.Wishes {
		s.obey(w)
	}
	s.e.setMode(a.Mode)
	s.share(ctx, !a.NextExpiry.IsZero())
	if len(a.Ready) > 0 {
		s.e.hint.set()
	}
	if a.Unpaid && !s.e.paying.Load() {
		s.e.cfg.Log.Info("paying what a process owed that has most likely died")
		s.e.owed.set()
	}
	s.timers(a)
	s.duties.hold(ctx, a.Duties)
	if s.heldBefore(a.HeldBefore) != a.Held {
		s.strangers(ctx)
	}
}

// share notes whether there are other sessions. A new one may not have heard where all the
// ready jobs are.
func (s *session) share(ctx context.Context, others bool) {
	if !s.shares.Swap(others) && others {
		s.e.tell(s.e.cfg.Broker.Announce(ctx, s.e.served.Load().queueKinds...))
	}
}

// obey stops the step of a job that has a wish.
func (s *session) obey(w store.StandingWish) {
	s.mu.Lock()
	r := s.runs[w.Job]
	s.mu.Unlock()
	if r != nil && r.epoch == w.Epoch {
		r.wished(w.Wish)
	}
}

// heldBefore returns how many jobs were claimed before t.
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

// strangers gives back jobs that the store says this session holds and that it does not know: the
// answer to their claim was lost. A claim under way may still be answered. After an error the next
// renewal tries again.
func (s *session) strangers(ctx context.Context) {
	ctx, cancel := s.inTime(ctx)
	defer cancel()
	held, err := s.e.cfg.Store.Find(ctx, store.FindQuery{Session: s.id})
	if err != nil {
		s.e.cfg.Log.Warn("held jobs not listed", "error", err)
		return
	}
	for i := range held {
		j := &held[i]
		s.mu.Lock()
		known := s.runs[j.ID] != nil || s.asked[j.Claim]
		s.mu.Unlock()
		if known || s.commit.busy(j.ID) {
			continue
		}
		s.e.cfg.Log.Warn("giving back a job whose claim was not answered", "job", j.ID)
		c := job.Expired(j, false)
		c.From.Fence = job.Fence{Session: s.id}
		s.commit.send(c, func(store.Applied, error) {})
	}
}

// claiming notes whether a claim is under way.
func (s *session) claiming(id job.ID, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is {
		s.asked[id] = true
	} else {
		delete(s.asked, id)
	}
}

// admit takes in claimed jobs and gives them their slots. A job may come back before the answer to
// the change that gave it away.
func (s *session) admit(jobs []job.Job) []*Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := make([]*Run, len(jobs))
	for i, j := range jobs {
		r := newRun(s, j)
		runs[i] = r
		s.runs[j.ID] = r
		s.used[r.lane]++
		s.steps.Add(1)
	}
	for _, w := range s.wishes { // it may have come before the answer to the claim
		if r := s.runs[w.Job]; r != nil && r.epoch == w.Epoch {
			r.wished(w.Wish)
		}
	}
	return runs
}

// move gives a run that has come to a state of another lane a slot there, if one is free. Whoever
// waits to be launched does not keep others from being made ready.
func (s *session) move(r *Run, to job.Lane) {
	s.mu.Lock()
	if s.runs[r.id] != r || to == r.lane || r.lane == job.LaneAlone || s.used[to]+s.taken[to] >= s.e.cfg.Slots[to] {
		s.mu.Unlock()
		return
	}
	s.used[r.lane]--
	s.used[to]++
	r.lane = to
	s.mu.Unlock()
	s.freed.set()
}

// leave removes a job whose custody has ended, and frees its slot. taken says that this process did
// not give the job away.
func (s *session) leave(r *Run, taken bool) {
	s.mu.Lock()
	if s.runs[r.id] == r {
		delete(s.runs, r.id)
	}
	if taken {
		s.left = append(s.left, r.lost())
	}
	s.used[r.lane]--
	s.mu.Unlock()
	r.cancel(nil)
	s.steps.Done()
}

// drain lets running steps end: first in their own time, then through their contexts.
func (s *session) drain(ctx context.Context) {
	grace := time.AfterFunc(max(0, s.e.cfg.Grace), func() { s.cancel(ErrInterrupted) })
	defer grace.Stop()
	s.settle(ctx)
}

// settle returns when no step is under way. It also returns when ctx ends, and a lease after the
// steps were told to stop.
func (s *session) settle(ctx context.Context) {
	idle := make(chan struct{})
	go func() {
		s.steps.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return
	case <-ctx.Done():
		return
	case <-s.ctx.Done():
	}
	last := time.NewTimer(s.e.cfg.Lease)
	defer last.Stop()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-last.C:
		s.e.cfg.Log.Warn("steps that do not stop are left behind; their jobs go back")
	}
}

// end closes the session. The jobs that it still holds go back without suspicion.
func (s *session) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.e.cfg.Lease/3)
	defer cancel()
	eff, err := retry(ctx, s.e, "end session", func() (store.Effects, error) { return s.e.cfg.Store.End(ctx, s.id) })
	if err != nil {
		s.e.cfg.Log.Warn("session not ended in good order; it will expire", "error", err)
		return
	}
	s.e.Follow(ctx, eff)
}
