// Package fault makes calls go wrong on command. The fakes of contracts, such as host/fake, are
// made with it.
package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/pawl-jobs/pawl/job"
)

// Faults says what becomes of the calls of a fake, which are known by the names of their methods.
// All methods are safe for concurrent use. A name that the fake does not have panics.
//
// A call first waits while its name is held. Then a dead fake refuses it, one that is to die counts
// it, and it takes the oldest of the faults that are set for its name.
type Faults struct {
	names []string

	mu    sync.Mutex // guards what follows
	next  map[string][]fate
	gates map[string]*gate
	left  int           // calls until death, if dying
	dying bool          // left counts
	death chan struct{} // closed while it is dead
	way   Way
}

// A Way is how calls of a fake come about: it makes the call with its name, or fails in its place,
// before or after.
type Way func(ctx context.Context, name string, call func() error) error

// fate is what becomes of one call.
type fate struct {
	lost bool  // it happens, and nobody hears of it
	err  error // its answer if it is not lost
}

type gate struct {
	waiting chan struct{}
	open    chan struct{}
}

// New returns the faults of a fake whose calls have these names. None is set.
func New(names ...string) *Faults {
	return &Faults{names: names, next: map[string][]fate{}, gates: map[string]*gate{}, death: make(chan struct{})}
}

// Fail has the next call of name answer err before anything has happened. With a nil err it is a
// lie: the call says that it was done. That is for calls that answer nothing but an error.
func (f *Faults) Fail(name string, err error) { f.add(name, fate{err: err}) }

// Lose has the next call of name happen and its answer lost: the caller gets an error of kind
// [job.Unavailable].
func (f *Faults) Lose(name string) { f.add(name, fate{lost: true}) }

func (f *Faults) add(name string, x fate) {
	f.check(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[name] = append(f.next[name], x)
}

// Hold has each call of name wait, before anything has happened, until release is called or the
// call's context ends. Each call that waits can be received from waiting once. Release may be
// called again. To hold what is held replaces the one before for calls to come.
func (f *Faults) Hold(name string) (waiting <-chan struct{}, release func()) {
	f.check(name)
	g := &gate{waiting: make(chan struct{}), open: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates[name] = g
	return g.waiting, sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(g.open)
		if f.gates[name] == g {
			delete(f.gates, name)
		}
	})
}

// Through has each call go a way, behind everything else that is commanded. That is for who decides
// by itself what goes wrong. Nil ends it.
func (f *Faults) Through(w Way) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.way = w
}

// DieAfter lets n more calls happen, whatever their names. From then on all are refused with an
// error of kind [job.Unavailable], and what stood open is closed. With n of 0 it is dead at once.
func (f *Faults) DieAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead() {
		return
	}
	f.left, f.dying = n, true
	if n <= 0 {
		close(f.death)
	}
}

// Revive ends a death, or calls it off. What was closed stays closed.
func (f *Faults) Revive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dying = false
	if f.dead() {
		f.death = make(chan struct{})
	}
}

// Death returns a channel that is closed at the next death; if it is dead, at once.
func (f *Faults) Death() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.death
}

// dead is called with mu held.
func (f *Faults) dead() bool {
	select {
	case <-f.death:
		return true
	default:
		return false
	}
}

func (f *Faults) check(name string) {
	if !slices.Contains(f.names, name) {
		panic(fmt.Sprintf("fault: no call is named %q; there are %q", name, f.names))
	}
}

// Run does one call of a fake, or what was commanded instead.
func Run(ctx context.Context, f *Faults, name string, call func() error) error {
	f.check(name)
	if err := f.wait(ctx, name); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	x, meddle, err := f.take(name)
	f.mu.Lock()
	way := f.way
	f.mu.Unlock()
	if under := call; way != nil {
		call = func() error { return way(ctx, name, under) }
	}
	switch {
	case err != nil:
		return err
	case !meddle:
		return call()
	case x.lost:
		_ = call() // lost is lost
		return job.Errorf(job.Unavailable, "%s: the answer was lost, on command", name)
	}
	return x.err
}

// Do is Run for calls that answer more than an error.
func Do[T any](ctx context.Context, f *Faults, name string, call func() (T, error)) (T, error) {
	var answer, none T
	err := Run(ctx, f, name, func() (err error) {
		answer, err = call()
		return err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

func (f *Faults) wait(ctx context.Context, name string) error {
	f.mu.Lock()
	g := f.gates[name]
	f.mu.Unlock()
	if g == nil {
		return nil
	}
	waiting := g.waiting
	for {
		select {
		case waiting <- struct{}{}:
			waiting = nil // once
		case <-g.open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take counts a call and returns what is to become of it, if anything was commanded.
func (f *Faults) take(name string) (x fate, meddle bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead() {
		return fate{}, false, job.Errorf(job.Unavailable, "%s: it is dead, on command", name)
	}
	if f.dying {
		if f.left--; f.left == 0 {
			close(f.death)
		}
	}
	list := f.next[name]
	if len(list) == 0 {
		return fate{}, false, nil
	}
	f.next[name] = list[1:]
	return list[0], true, nil
}
