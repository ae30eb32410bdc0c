package engine

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/internal/guard"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// claims takes ready jobs for free slots until ctx ends, or nothing is left of a session that was told to stop, and
// returns nil then. A lane is looked at while it may have ready jobs: hints say so, and a claim that got less than it asked
// for says that there are none.
func (s *session) claims(ctx context.Context) error {
	maybe := map[job.Lane]bool{}
	sharing := sharing{s: s}
	for {
		if stands := s.e.command(); stands != store.Work || len(s.e.kinds) == 0 {
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
			for _, l := range job.Lanes {
				maybe[l] = true
			}
		default:
		}
		slots := s.free()
		maps.DeleteFunc(slots, func(l job.Lane, n int) bool { return n <= 0 || !maybe[l] })
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
		got, err := s.claim(ctx, &sharing, slots)
		if err != nil {
			return ended(ctx, err)
		}
		if guard.Hint.Off() {
			select {
			case <-s.e.hint:
			default:
			}
		}
		for l, n := range slots {
			if got[l] < n {
				maybe[l] = false
			}
		}
	}
}

// claim makes one claim for free slots, as far as this session's share reaches, and starts what it got. It returns how many
// jobs of each lane that was.
func (s *session) claim(ctx context.Context, sharing *sharing, slots map[job.Lane]int) (map[job.Lane]int, error) {
	c := store.Claim{
		ID: job.NewID(), Session: s.id, Queues: s.e.served.Load().queues, Kinds: s.e.kinds, Tenants: s.e.cfg.Tenants,
		Machine: s.e.cfg.Machine, Slots: slots, Jobs: s.e.cfg.Only,
	}
	var err error
	if c.Slots, err = sharing.cut(ctx, c); err != nil {
		return nil, err
	}
	got := map[job.Lane]int{}
	defer func() { sharing.got(c, got) }()
	if len(c.Slots) == 0 {
		return got, nil
	}
	s.claiming(c.ID)
	defer s.claiming(job.ID{})
	// It is made again under the same id until it is answered, and the answer comes after the commit. One under way is
	// waited for even when the process is stopping: its jobs are run, not forgotten.
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

// start gives each run a goroutine. One that is done takes the next run that none has begun with: where steps are short, a
// few goroutines, whose stacks have grown, do the work of all.
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

// free returns the free slots of each lane.
func (s *session) free() map[job.Lane]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := maps.Clone(s.e.cfg.Slots)
	for l, n := range s.used {
		free[l] -= n
	}
	return free
}
