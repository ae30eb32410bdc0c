package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
)

// A call of a file system that hangs cannot be broken off: its thread stays in the kernel. So each
// step that walks over files of users has a goroutine of its own. If such a step must stop or has
// not moved for long, and does not return, it is left behind with its goroutine. Its slot is free
// then. It does no harm: its context has ended, and it records nothing.

// MaxLeftBehind is how many steps this process leaves behind. Further ones keep their slots,
// because each of them holds a thread.
const MaxLeftBehind = 64

// stallNotice is how long a step shows no sign of life before it counts as stalled.
const stallNotice = 5 * time.Minute

// A StalledStep is a step that has not moved for some time.
type StalledStep struct {
	Job   job.ID
	State job.State
	Path  string    // the file that it is at
	Since time.Time // when it moved last
	Left  bool      // it was left behind, and has no slot
}

// String describes the step for people.
func (s StalledStep) String() string {
	return fmt.Sprintf("job %s in %s, at %s since %s", s.Job, s.State, s.Path, s.Since.UTC().Format(time.RFC3339))
}

// Stalled returns the steps that have not moved for five minutes and those that were left behind,
// the longest first.
func (k *Kind) Stalled() (list []StalledStep) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for t := range k.steps {
		if s := t.stalled(); s.Left || time.Since(s.Since) >= stallNotice {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b StalledStep) int {
		return cmp.Or(a.Since.Compare(b.Since), slices.Compare(a.Job[:], b.Job[:]))
	})
	return list
}

// An ownStep is a step in a goroutine of its own. It is the context of the step, which ends when
// the step is left behind.
type ownStep struct {
	context.Context
	id    job.ID
	state job.State

	moved atomic.Int64           // when, in nanoseconds since 1970
	at    atomic.Pointer[string] // the path

	mu   sync.Mutex // held while something is recorded
	left atomic.Bool
}

func (t *ownStep) Err() error {
	if t.left.Load() {
		return context.Canceled
	}
	return t.Context.Err()
}

type ownStepKey struct{}

func (t *ownStep) Value(key any) any {
	if key == (ownStepKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// reportAt notes that the step of a context is alive and where it is.
func reportAt(ctx context.Context, path string) {
	if t, ok := ctx.Value(ownStepKey{}).(*ownStep); ok {
		t.moved.Store(time.Now().UnixNano())
		t.at.Store(&path)
	}
}

// reportAlive notes that the step of a context is alive.
func reportAlive(ctx context.Context) {
	if t, ok := ctx.Value(ownStepKey{}).(*ownStep); ok {
		t.moved.Store(time.Now().UnixNano())
	}
}

func (t *ownStep) stalled() StalledStep {
	return StalledStep{t.id, t.state, *t.at.Load(), time.Unix(0, t.moved.Load()), t.left.Load()}
}

// record commits a manifest, unless the step was left behind.
func (t *ownStep) record(r *engine.Run) func(job.Entry, json.RawMessage) error {
	return func(e job.Entry, work json.RawMessage) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := t.Err(); err != nil {
			return err
		}
		return r.Record(t, e, job.Patch{}, work)
	}
}

// leave leaves a step behind, and reports whether it did. It does not while the step records
// something, or when too many were left behind.
func (k *Kind) leave(t *ownStep) bool {
	if !t.mu.TryLock() {
		return false
	}
	defer t.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	left := 0
	for other := range k.steps {
		if other.left.Load() {
			left++
		}
	}
	if left >= MaxLeftBehind {
		return false
	}
	t.left.Store(true)
	return true
}

// runApart runs a step in a goroutine of its own. The step gets the job by s alone, because r
// belongs to the caller.
func (k *Kind) runApart(ctx context.Context, r *engine.Run, s *program,
	step func(context.Context, *program, recorder) engine.Outcome,
) engine.Outcome {
	own := r.Job
	s.job = &own
	t := &ownStep{Context: ctx, id: own.ID, state: own.State}
	reportAt(t, s.dir)
	k.mu.Lock()
	k.steps[t] = true
	k.mu.Unlock()

	var o engine.Outcome
	var panicked any
	returned := false
	over := make(chan struct{})
	go func() {
		defer func() {
			if !returned {
				if panicked = recover(); panicked != nil {
					k.cfg.Log.Error("a step panicked", "job", own.ID, "panic", panicked, "stack", string(debug.Stack()))
				}
			}
			k.mu.Lock()
			delete(k.steps, t)
			k.mu.Unlock()
			close(over)
		}()
		o = step(t, s, t.record(r))
		returned = true
	}()

	stop := ctx.Done()
	look := time.NewTimer(k.cfg.Stall)
	defer look.Stop()
	for {
		select {
		case <-over:
			switch {
			case panicked != nil:
				panic(panicked)
			case !returned:
				runtime.Goexit() // as the step did
			}
			return o
		case <-stop:
			stop = nil
			look.Reset(k.cfg.Leave)
			continue
		case <-look.C:
		}
		if still := time.Since(t.stalled().Since); stop != nil && still < k.cfg.Stall {
			look.Reset(k.cfg.Stall - still)
			continue
		}
		if !k.leave(t) {
			look.Reset(k.cfg.Leave)
			continue
		}
		at := t.stalled()
		k.cfg.Log.Error("a step is left behind: its file system does not answer", "job", at.Job, "state", at.State,
			"path", at.Path, "since", at.Since)
		if stop == nil {
			return engine.Back()
		}
		return k.unanswered(ctx, r, at)
	}
}

// unanswered fails the attempt of a step that was left behind.
func (k *Kind) unanswered(ctx context.Context, r *engine.Run, at StalledStep) engine.Outcome {
	e := job.Entry{Code: job.StagingFailed, Message: fmt.Sprintf(
		"the file system of %s has not answered for %s: see that it does, or name another place; then run it again",
		at.Path, brief(k.cfg.Stall))}
	if at.State == job.Archiving {
		e.Code = job.ArchiveFailed
		if s, err := k.open(ctx, &r.Job); err == nil {
			if v := s.verdict(); v.Code != job.NormalCompletion {
				e.Message = v.Message + "; and its results were not archived: " + e.Message
			}
		}
	}
	return engine.Retry(e)
}

// A recorder commits an entry and progress while the job stays where it is.
type recorder func(job.Entry, json.RawMessage) error
