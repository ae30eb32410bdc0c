package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/store"
)

// batch is how many rows one call of Due, Pay, Expire or Recount moves.
const batch = 1000

// clock lets jobs out of their schedule gates when their time comes.
func (e *Engine) clock(ctx context.Context) error {
	for {
		next, err := e.due(ctx)
		if err != nil {
			return err
		}
		e.dueing.Store(false)
		if err := e.alarm.wait(ctx, next); err != nil {
			return err
		}
		e.dueing.Store(true)
	}
}

// due moves every job whose time has come and returns when the next one is due.
func (e *Engine) due(ctx context.Context) (time.Time, error) {
	for {
		n, eff, err := call(ctx, e, "due", e.cfg.Store.Due)
		if err != nil {
			return time.Time{}, err
		}
		next := eff.Due
		eff.Due = time.Time{}
		e.Follow(ctx, eff)
		if n < batch {
			return next, nil
		}
	}
}

// payer pays follow-ups as soon as someone owes, and at first: whoever owed before may have died.
func (e *Engine) payer(ctx context.Context) error {
	for {
		if err := e.pay(ctx); err != nil {
			return err
		}
		e.paying.Store(false)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.owed:
		}
		e.paying.Store(true)
	}
}

func (e *Engine) pay(ctx context.Context) error {
	for {
		_, eff, err := call(ctx, e, "pay", e.cfg.Store.Pay)
		if err != nil {
			return err
		}
		more := eff.Owed
		eff.Owed = false
		e.Follow(ctx, eff)
		if !more {
			return nil
		}
	}
}

// expirer takes the jobs of sessions that died: at first those that it finds, later when the renewals say so.
func (e *Engine) expirer(ctx context.Context) error {
	for {
		n, eff, err := call(ctx, e, "expire", e.cfg.Store.Expire)
		if err != nil {
			return err
		}
		e.Follow(ctx, eff)
		if n == batch {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.dead:
		}
	}
}

// sweeper looks for jobs that the clock forgot, and for counters that are wrong. It is the net under the other loops.
// Follow-ups that were forgotten are told of by the renewals.
func (e *Engine) sweeper(ctx context.Context) error {
	tick := time.NewTicker(e.cfg.Sweep)
	defer tick.Stop()
	for {
		n, eff, err := call(ctx, e, "recount", e.cfg.Store.Recount)
		if err != nil {
			return err
		}
		for range n {
			e.repaired("a number of prerequisites that was wrong")
		}
		e.Follow(ctx, eff)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		eff, err = retry(ctx, e, "sweep", func() (store.Effects, error) {
			_, eff, err := e.cfg.Store.Due(ctx, 0)
			return eff, err
		})
		if err != nil {
			return err
		}
		// What is late by less than a lease may be on its way.
		if at := eff.Due; !at.IsZero() && time.Since(at) > e.cfg.Lease && !e.dueing.Load() {
			e.repaired("a job whose time has come")
			e.alarm.set(at)
		}
	}
}

// call makes one bounded call of the store, again while the store cannot be reached.
func call(ctx context.Context, e *Engine, what string, f func(context.Context, int) (int, store.Effects, error)) (int, store.Effects, error) {
	var eff store.Effects
	n, err := retry(ctx, e, what, func() (n int, err error) {
		n, eff, err = f(ctx, batch)
		return n, err
	})
	return n, eff, err
}

// An alarm rings at the earliest time that it was set to.
type alarm struct {
	mu      sync.Mutex
	at      time.Time // zero: never
	changed flag
}

func newAlarm() *alarm { return &alarm{changed: newFlag()} }

// set makes the alarm ring at t, or earlier if it was set so.
func (a *alarm) set(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.IsZero() || t.Before(a.at) {
		a.at = t
		a.changed.set()
	}
}

// wait returns at next (zero: never) or at the earliest time set since wait returned last.
func (a *alarm) wait(ctx context.Context, next time.Time) error {
	if !next.IsZero() {
		a.set(next)
	}
	for {
		a.mu.Lock()
		at := a.at
		a.mu.Unlock()
		var ring <-chan time.Time
		var timer *time.Timer
		if !at.IsZero() {
			timer = time.NewTimer(time.Until(at))
			ring = timer.C
		}
		select {
		case <-ring:
			a.mu.Lock()
			a.at = time.Time{}
			a.mu.Unlock()
			return nil
		case <-a.changed:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
