// Package fake is a [runner.Runner] for tests. It passes calls on to another runner, and misbehaves
// on command.
//
// The commands are the methods of [fault.Faults] and of [Runner]. Faults knows calls by the names
// of the methods of [runner.Runner].
package fake

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/fault"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Runner is a runner that misbehaves on command. Commands and calls are safe for concurrent use.
// Programs run on, even when the fake is dead.
type Runner struct {
	*fault.Faults
	under runner.Runner

	mu   sync.Mutex // guards lies
	lies map[runner.Key]runner.Status
}

var _ runner.Runner = (*Runner)(nil)

// New returns a fake that passes its calls on to under.
func New(under runner.Runner) *Runner {
	return &Runner{
		Faults: fault.New("Launch", "Settle", "Watch", "Acknowledge", "Told", "Probe", "Kill", "Past", "Clean",
			"Marked", "Forget", "Suspend", "Resume"),
		under: under, lies: map[runner.Key]runner.Status{},
	}
}

// Lie makes Probe answer s for a launch, until Truth is called.
func (r *Runner) Lie(k runner.Key, s runner.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lies[k] = s
}

// Truth ends what Lie began for a launch.
func (r *Runner) Truth(k runner.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lies, k)
}

// Launch implements [runner.Runner].
func (r *Runner) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	return fault.Do(ctx, r.Faults, "Launch", func() (runner.Handle, error) { return r.under.Launch(ctx, k, p) })
}

// Settle implements [runner.Runner].
func (r *Runner) Settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	return fault.Do(ctx, r.Faults, "Settle", func() (runner.Fate, error) { return r.under.Settle(ctx, k, dir) })
}

// Traits returns the traits of the runner below.
func (r *Runner) Traits() runner.Traits { return r.under.Traits() }

// Watch implements [runner.Runner]. The watch is lost when the fake dies.
func (r *Runner) Watch(ctx context.Context) (<-chan []runner.Notice, error) {
	death := r.Death() // before the call: one that comes in between is not missed
	ctx, stop := context.WithCancel(ctx)
	in, err := fault.Do(ctx, r.Faults, "Watch", func() (<-chan []runner.Notice, error) { return r.under.Watch(ctx) })
	if err != nil {
		stop()
		return nil, err
	}
	out := make(chan []runner.Notice)
	go func() {
		defer close(out)
		relay(ctx, death, in, out)
		stop()
		for range in { // until the runner below is done
		}
	}()
	return out, nil
}

func relay(ctx context.Context, death <-chan struct{}, in <-chan []runner.Notice, out chan<- []runner.Notice) {
	for {
		var news []runner.Notice
		ok := false
		select {
		case news, ok = <-in:
		case <-death:
		case <-ctx.Done():
		}
		if !ok {
			return
		}
		select {
		case out <- news:
		case <-death:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Acknowledge implements [runner.Runner].
func (r *Runner) Acknowledge(ctx context.Context, names []string) error {
	return fault.Run(ctx, r.Faults, "Acknowledge", func() error { return r.under.Acknowledge(ctx, names) })
}

// Told implements [runner.Runner].
func (r *Runner) Told(ctx context.Context) ([]runner.Notice, error) {
	return fault.Do(ctx, r.Faults, "Told", func() ([]runner.Notice, error) { return r.under.Told(ctx) })
}

// Probe implements [runner.Runner].
func (r *Runner) Probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	all, err := fault.Do(ctx, r.Faults, "Probe", func() ([]runner.Status, error) { return r.under.Probe(ctx, hs) })
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		if s, ok := r.lies[hs[i].Key]; ok {
			all[i] = s
		}
	}
	return all, err
}

// Kill implements [runner.Runner].
func (r *Runner) Kill(ctx context.Context, h runner.Handle, grace time.Duration) error {
	return fault.Run(ctx, r.Faults, "Kill", func() error { return r.under.Kill(ctx, h, grace) })
}

// Past implements [runner.Runner].
func (r *Runner) Past(ctx context.Context, k runner.Key, dir string) (runner.Past, error) {
	return fault.Do(ctx, r.Faults, "Past", func() (runner.Past, error) { return r.under.Past(ctx, k, dir) })
}

// Clean implements [runner.Runner].
func (r *Runner) Clean(ctx context.Context, k runner.Key, dir string) error {
	return fault.Run(ctx, r.Faults, "Clean", func() error { return r.under.Clean(ctx, k, dir) })
}

// Marked implements [runner.Runner].
func (r *Runner) Marked(ctx context.Context, newest int) ([]job.ID, error) {
	return fault.Do(ctx, r.Faults, "Marked", func() ([]job.ID, error) { return r.under.Marked(ctx, newest) })
}

// Forget implements [runner.Runner].
func (r *Runner) Forget(ctx context.Context, age time.Duration) error {
	return fault.Run(ctx, r.Faults, "Forget", func() error { return r.under.Forget(ctx, age) })
}

// Suspend implements [runner.Runner].
func (r *Runner) Suspend(ctx context.Context, h runner.Handle) error {
	return fault.Run(ctx, r.Faults, "Suspend", func() error { return r.under.Suspend(ctx, h) })
}

// Resume implements [runner.Runner].
func (r *Runner) Resume(ctx context.Context, h runner.Handle) error {
	return fault.Run(ctx, r.Faults, "Resume", func() error { return r.under.Resume(ctx, h) })
}
