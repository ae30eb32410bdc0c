package squeue

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A Snapshot is an answer, and when it was true.
type Snapshot struct {
	Answer
	At time.Time // when it was asked for
	// missed counts the snapshots in a row, with this one, that did not have a name.
	missed map[string]int
}

// Unseen is how long the end of a job may not be seen after it is known to be over. Nodes write it
// through other clients of a network file system, and one of NFS remembers for a minute (acdirmax)
// what it has not found in a folder.
const Unseen = 90 * time.Second

// A Queue asks squeue for all who want to know, as rarely as they allow.
type Queue struct {
	Ask     func(ctx context.Context) (Answer, error)
	Earlier *rate.Limiter // of answers that somebody has before their time
	Unseen  time.Duration // see [Unseen]

	mu     sync.Mutex
	last   *Snapshot         // guarded by mu: the newest good answer; nil: there is none
	err    error             // guarded by mu: of the newest answer
	tried  time.Time         // guarded by mu: when that was asked for
	asking chan struct{}     // guarded by mu: closed when it is answered; nil: nobody asks
	over   map[string]*since // guarded by mu, by name: jobs that are over
}

// A since is when somebody asked about a job that is over, first and last.
type since struct{ first, last time.Time }

// Last returns the newest good answer; nil: there is none.
func (q *Queue) Last() *Snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// Early reports whether squeue may be asked before its time, if its newest answer is older than
// age.
func (q *Queue) Early(age time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.tried) >= age && q.Earlier.Allow()
}

// Look returns a snapshot that was asked for at most age ago; 0: since the call. An error is not
// tried again within age.
func (q *Queue) Look(ctx context.Context, age time.Duration) (*Snapshot, error) {
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

// Late reports whether a job that is over may have an end that is not seen yet: for [Unseen] from
// the first call on, by the clock of this machine. first: this is that call.
func (q *Queue) Late(name string) (late, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over == nil {
		q.over = map[string]*since{}
	}
	now := time.Now()
	w := q.over[name]
	if first = w == nil; first {
		w = &since{first: now}
		q.over[name] = w
	}
	w.last = now
	return now.Sub(w.first) < q.Unseen, first
}

// refresh asks once.
func (q *Queue) refresh(ctx context.Context, asking chan struct{}) {
	at := time.Now()
	a, err := q.Ask(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err, q.tried, q.asking = err, at, nil
	if err == nil {
		maps.DeleteFunc(q.over, func(name string, w *since) bool {
			row, there := a.Find(name) // it may have begun anew
			return there && row.Phase() != Over || at.Sub(w.last) > time.Hour
		})
		q.last = &Snapshot{a, at, q.counted(a)}
	}
	close(asking)
}

// counted counts on the names that were asked about and are missing. mu is held.
func (q *Queue) counted(a Answer) map[string]int {
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

// Missing reports whether a name is missing in an answer and in one that was asked for before. It
// may be there only since a time.
func (q *Queue) Missing(s *Snapshot, name string, since time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.At.After(since) {
		return false
	}
	if s.missed[name] == 0 {
		s.missed[name] = 1
	}
	return s.missed[name] > 1
}
