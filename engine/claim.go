package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// claims takes ready jobs for free slots. It returns nil when ctx ends, or when a session that was
// told to stop holds nothing any more. It looks at a lane while that may have ready jobs: a hint
// says so, and a claim that gets less than it asked for says that there are none.
func (s *session) claims(ctx context.Context) error {
	sharing := sharing{s: s}
	defer s.claimNoMore()
	for {
		if stands := s.e.mode(); stands != store.Work || len(s.e.kinds) == 0 {
			if stands == store.Stop && s.idle() {
				return nil
			}
			select {
			case <-s.e.ordered:
			case <-s.freed:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		// The hint is taken before the claim: one that comes meanwhile counts for the next.
		select {
		case <-s.e.hint:
			s.mayHave(job.Lanes)
		default:
		}
		slots := s.take(func(l job.Lane) bool {
			may := s.maybe[l]
			s.maybe[l] = false // unless that is said again while the claim is under way
			return may
		})
		if len(slots) == 0 {
			select {
			case <-s.e.hint:
				s.e.hint.set()
			case <-sharing.over:
				sharing.waited()
				s.e.hint.set()
			case <-sharing.passed.over:
				sharing.passed.waited()
				s.e.hint.set()
			case <-s.freed:
			case <-s.e.ordered:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		got, err := s.claim(ctx, &sharing, maps.Clone(slots))
		s.put(slots)
		if err != nil {
			return ended(ctx, err)
		}
		var more []job.Lane
		for l, n := range slots {
			if got[l] >= n {
				more = append(more, l)
			}
		}
		s.mayHave(more)
	}
}

// mayHave notes that lanes may have ready jobs.
func (s *session) mayHave(lanes []job.Lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lanes {
		s.maybe[l] = true
	}
}

// claim makes one claim for free slots, within the share of this session, and starts the jobs that
// it gets. It returns how many there are in each lane.
func (s *session) claim(ctx context.Context, sharing *sharing, slots map[job.Lane]int) (map[job.Lane]int, error) {
	c := s.newClaim(slots)
	var err error
	if c.Slots, err = sharing.cut(ctx, c); err != nil {
		return nil, err
	}
	got := map[job.Lane]int{}
	defer func() { sharing.got(c, got) }()
	if len(c.Slots) == 0 {
		return got, nil
	}
	s.claiming(c.ID, true)
	defer s.claiming(c.ID, false)
	// The claim is repeated under the same id until it is answered, and the answer comes after the
	// commit. A process that stops waits for a claim under way: its jobs are run, not forgotten.
	jobs, err := retry(ctx, s.e, "claim", func() ([]job.Job, error) { return s.e.cfg.Store.Claim(s.ctx, c) })
	if job.KindOf(err) == job.Fenced {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	if err != nil {
		return nil, err
	}
	runs := s.admit(jobs)
	for _, r := range runs {
		got[r.lane]++
	}
	start(runs)
	if len(jobs) > 0 {
		s.e.news(s.ctx)
	}
	return got, nil
}

// start gives each run a goroutine. A goroutine that is done takes the next run that has not begun.
// If steps are short, a few goroutines with grown stacks do the work of all.
func start(runs []*Run) {
	var begun atomic.Int64
	for range runs {
		go func() {
			for i := begun.Add(1); i <= int64(len(runs)); i = begun.Add(1) {
				r := runs[i-1]
				runs[i-1] = nil // others may run for long
				r.work()
			}
		}()
	}
}

func (s *session) newClaim(slots map[job.Lane]int) store.Claim {
	return store.Claim{
		ID: job.NewID(), Session: s.id, Queues: s.e.served.Load().queues, Kinds: s.e.claimed(), Tenants: s.e.cfg.Tenants,
		Machine: s.e.cfg.Machine, Slots: slots, Jobs: s.e.cfg.Only,
	}
}

// claimed returns the kinds whose jobs this process claims now.
func (e *Engine) claimed() []string {
	if e.cfg.Leaves == nil {
		return e.kinds
	}
	return slices.DeleteFunc(slices.Clone(e.kinds), e.cfg.Leaves)
}

// take takes the free slots of some lanes for a claim. put gives them back; by then the claimed
// jobs have slots of their own. take calls of with mu held.
func (s *session) take(of func(job.Lane) bool) map[job.Lane]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := map[job.Lane]int{}
	for l, n := range s.e.cfg.Slots {
		if n -= s.used[l] + s.taken[l]; n > 0 && of(l) {
			free[l] = n
			s.taken[l] += n
		}
	}
	return free
}

// put gives back slots that were taken.
func (s *session) put(slots map[job.Lane]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(slots)
}

// give is put with mu held.
func (s *session) give(slots map[job.Lane]int) {
	for l, n := range slots {
		s.taken[l] -= n
	}
}

// apply makes changes and follows their effects. If a job gives back a turn, the next job gets it
// in the same call. If this process is alone, it claims that job in the same call too, which saves
// a commit.
func (s *session) apply(ctx context.Context, changes []job.Change) (answers []store.Applied, err error) {
	var eff store.Effects
	var jobs []job.Job
	c, claims := s.claimWith(changes)
	if claims {
		defer s.withChanges.Done()
	}
	_, err = retry(ctx, s.e, "apply", func() (_ struct{}, err error) {
		var with *store.Claim
		if claims {
			asked := c // a repeat changes c, and this call may still be on its way
			with = &asked
		}
		answers, jobs, eff, err = s.e.cfg.Store.Apply(ctx, changes, with)
		// A repeat asks for all jobs: those that were claimed are found by their claim alone, and
		// nobody is told of the others again.
		if claims && err != nil {
			c.Handed = false
			s.mayHave(job.Lanes)
		}
		return struct{}{}, err
	})
	if claims && err == nil {
		if !c.Handed { // it may have locked jobs that another claim then did not find
			s.mayHave(slices.Collect(maps.Keys(c.Slots)))
		}
		start(s.admit(jobs))
	}
	if claims {
		s.put(c.Slots)
		s.claiming(c.ID, false)
		s.freed.set() // the loop that claims may have wanted these slots
	}
	if err == nil {
		s.e.Follow(ctx, eff)
	}
	return answers, err
}

// claimWith returns a claim to send with changes, and takes its slots: the free ones, and those
// that the changes free.
func (s *session) claimWith(changes []job.Change) (c store.Claim, ok bool) {
	hands := false
	for i := range changes { // in their place: they are large
		hands = hands || changes[i].GivesBack()
	}
	if !hands || s.shares.Load() || s.e.mode() != store.Work || len(s.e.kinds) == 0 || len(s.e.cfg.Only) > 0 {
		return c, false
	}
	slots := s.take(func(job.Lane) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		if r := s.runs[changes[i].Job]; r != nil && changes[i].To != job.Worker {
			slots[r.lane]++
			s.taken[r.lane]++
		}
	}
	if len(slots) == 0 || s.last {
		s.give(slots)
		return c, false
	}
	c = s.newClaim(slots)
	c.Handed = true
	for l := range slots {
		c.Handed = c.Handed && !s.maybe[l]
	}
	s.asked[c.ID] = true
	s.withChanges.Add(1)
	return c, true
}

// claimNoMore waits until no claim is sent with changes. No other one follows.
func (s *session) claimNoMore() {
	s.mu.Lock()
	s.last = true
	s.mu.Unlock()
	s.withChanges.Wait()
}
