package slurm

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// A snapshot is an answer of squeue about all jobs of the account.
type snapshot struct {
	squeue.Answer
	at time.Time // when it was asked for
	// missed counts the snapshots in a row, with this one, that did not have a name.
	missed map[string]int
}

// queue asks squeue for all who want to know, as rarely as they allow.
type queue struct {
	ask func(ctx context.Context) (squeue.Answer, error)

	mu     sync.Mutex
	last   *snapshot // guarded by mu: the newest good answer; nil: there is none
	err    error     // guarded by mu: of the newest answer
	tried  time.Time // guarded by mu: when that was asked for
	asking chan struct{}

	earlier *rate.Limiter // of answers that somebody has before their time
}

// early reports whether squeue may be asked before its time, if its newest answer is older than
// age.
func (q *queue) early(age time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.tried) >= age && q.earlier.Allow()
}

// look returns a snapshot that was asked for at most age ago; 0: since the call. An error is not
// tried again within age.
func (q *queue) look(ctx context.Context, age time.Duration) (*snapshot, error) {
	called := time.Now()
	for {
		q.mu.Lock()
		if since := called.Sub(q.tried); !q.tried.IsZero() && (since < 0 || since < age) && q.asking == nil {
			s, err := q.last, q.err
			q.mu.Unlock()
			return s, err
		}
		asking := q.asking
		if asking == nil {
			asking = make(chan struct{})
			q.asking = asking
			go q.refresh(context.WithoutCancel(ctx), asking)
		}
		q.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refresh asks once.
func (q *queue) refresh(ctx context.Context, asking chan struct{}) {
	at := time.Now()
	a, err := q.ask(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err, q.tried, q.asking = err, at, nil
	if err == nil {
		q.last = &snapshot{a, at, q.counted(a)}
	}
	close(asking)
}

// counted counts on the names that were asked about and are missing. mu is held.
func (q *queue) counted(a squeue.Answer) map[string]int {
	missed := map[string]int{}
	if q.last != nil {
		for name, n := range q.last.missed {
			if _, there := a.Find(name); !there {
				missed[name] = n + 1
			}
		}
	}
	return missed
}

// missing reports whether a launch is missing in this answer and in one that was asked for before.
func (q *queue) missing(s *snapshot, l *launch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.at.After(l.armed()) {
		return false
	}
	if s.missed[l.Name] == 0 {
		s.missed[l.Name] = 1
	}
	return s.missed[l.Name] > 1
}

// Test implements [runner.Tested]. It asks squeue, or has sbatch say whether it would take a job.
func (r *Runner) Test(ctx context.Context, ask map[string]string) error {
	if len(ask) > 0 {
		return r.client.Test(ctx, ask)
	}
	_, err := r.queue.look(ctx, 0)
	return err
}
