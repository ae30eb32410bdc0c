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
// step that walks over files of users has a goroutine of its own. When the step is to stop, or has
// not moved for long, and does not return, it is left behind with its goroutine, and its slot is
// free. It can do no more harm: its context has ended, and it records nothing.

// MostLeft is how many steps this process leaves behind. Beyond that they keep their slots, for
// each one has a thread.
const MostLeft = 64

// stands is after how much time without a sign of life a step is said to stand still.
const stands = 5 * time.Minute

// A Standing step has not moved for some time.
type Standing struct {
	Job   job.ID
	State job.State
	Path  string    // what it is at
	Since time.Time // when it moved last
	Left  bool      // it was left behind, and has no slot
}

// String names a step for people.
func (s Standing) String() string {
	return fmt.Sprintf("job %s in %s, at %s since %s", s.Job, s.State, s.Path, s.Since.UTC().Format(time.RFC3339))
}

// Standing returns the steps that stand still and those that were left behind, the longest first.
func (k *Kind) Standing() (list []Standing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for t := range k.steps {
		if s := t.standing(); s.Left || time.Since(s.Since) >= stands {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Standing) int {
		return cmp.Or(a.Since.Compare(b.Since),
			slices.Compare(a.Job[:], b.Job[:]))
	})
	return list
}

// A stride is a step in a goroutine of its own. It is the context of the step, which ends when it
// is left behind.
type stride struct {
	context.Context
	id    job.ID
	state job.State

	moved atomic.Int64           // when, in nanoseconds since 1970
	at    atomic.Pointer[string] // the path

	mu   sync.Mutex // held while something is recorded
	left atomic.Bool
}

func (t *stride) Err() error {
	if t.left.Load() {
		return context.Canceled
	}
	return t.Context.Err()
}

type strideKey struct{}

func (t *stride) Value(key any) any {
	if key == (strideKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// moves notes that the step of a context is alive, and at a path.
func moves(ctx context.Context, path string) {
	if t, ok := ctx.Value(strideKey{}).(*stride); ok {
		t.moved.Store(time.Now().UnixNano())
		t.at.Store(&path)
	}
}

// lives notes that the step of a context is alive where it was.
func lives(ctx context.Context) {
	if t, ok := ctx.Value(strideKey{}).(*stride); ok {
		t.moved.Store(time.Now().UnixNano())
	}
}

func (t *stride) standing() Standing {
	return Standing{t.id, t.state, *t.at.Load(), time.Unix(0, t.moved.Load()), t.left.Load()}
}

// record commits a manifest, unless the step was left behind.
func (t *stride) record(r *engine.Run) func(job.Entry, json.RawMessage) error {
	return func(e job.Entry, work json.RawMessage) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := t.Err(); err != nil {
			return err
		}
		return r.Record(t, e, job.Patch{}, work)
	}
}

// leave leaves a step behind, unless it is recording something, or there are too many of them.
func (k *Kind) leave(t *stride) bool {
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
	if left >= MostLeft {
		return false
	}
	t.left.Store(true)
	return true
}

// apart does a step in a goroutine of its own. The step knows the job by s alone: what r is belongs
// to the caller.
func (k *Kind) apart(ctx context.Context, r *engine.Run, s *program,
	step func(context.Context, *program, recorder) engine.Outcome,
) engine.Outcome {
	own := r.Job
	s.job = &own
	t := &stride{Context: ctx, id: own.ID, state: own.State}
	moves(t, s.dir)
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
		if still := time.Since(t.standing().Since); stop != nil && still < k.cfg.Stall {
			look.Reset(k.cfg.Stall - still)
			continue
		}
		if !k.leave(t) {
			look.Reset(k.cfg.Leave)
			continue
		}
		at := t.standing()
		k.cfg.Log.Error("a step is left behind: its file system does not answer", "job", at.Job, "state", at.State,
			"path", at.Path, "since", at.Since)
		if stop == nil {
			return engine.Back()
		}
		return k.unanswered(ctx, r, at)
	}
}

// unanswered fails the attempt of a step that was left behind.
func (k *Kind) unanswered(ctx context.Context, r *engine.Run, at Standing) engine.Outcome {
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

// A recorder commits an entry and notes while the job stays where it is.
type recorder func(job.Entry, json.RawMessage) error
