package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/store"
)

// batch is how many rows one call of Due, Pay, Expire or Recount moves.
const batch = 1000

// clock lets jobs out of their schedule gates when their time comes. Each process knows when those
// are due that it put there itself; of others it hears by its renewals, see timers.
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
		switch {
		case n == batch:
			continue
		case next.IsZero():
			return next, nil
		}
		next = e.local(next)
		if now := time.Now(); n == 0 && !next.After(now) {
			next = now.Add(soon) // the database's clock is behind what this process takes it for
		}
		return next, nil
	}
}

// soon is how long to wait when an alarm rang too early, and at first when others are paying what
// is owed.
const soon = 10 * time.Millisecond

// timers sets the alarm for jobs behind a schedule gate: those who know when they are due may have
// died. That is for the process that sweeps, so that not all come at the same moment; the others
// come when nobody has come.
func (s *session) timers(a store.Renewal) {
	sweeps := slices.ContainsFunc(a.Duties, func(d store.Duty) bool { return d.Name == sweepDuty })
	if !a.Due.IsZero() && (sweeps || a.Now.Sub(a.Due) > s.e.every()) {
		s.e.alarm.set(s.e.local(a.Due))
	}
}

// agree notes by how much the database's clock is ahead of this process's, from an answer that was
// just received: it says what the database's clock showed after the call had been sent. Clocks that
// may agree, as those of one machine do, agree. Else it is the least that it can be, so that no
// alarm rings early.
func (e *Engine) agree(sent, database time.Time) {
	least, most := time.Until(database), database.Sub(sent)
	if least < time.Millisecond && most > -time.Millisecond {
		least = 0
	}
	e.ahead.Store(int64(least))
}

// local returns what this process's clock shows when the database's shows t.
func (e *Engine) local(t time.Time) time.Time { return t.Add(-time.Duration(e.ahead.Load())) }

// Now is the time on the database's clock, as the newest renewal showed it; before the first one,
// on that of this process.
func (e *Engine) Now() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }

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
		case <-e.later:
			e.lull(ctx)
		}
		e.paying.Store(true)
	}
}

// lull waits for more that may wait, or for what may not.
func (e *Engine) lull(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.owed:
	case <-time.After(store.Lull):
	}
}

// pay pays until nothing is owed. What is left may be in the hands of other payers, who are slow or
// have died: it is looked at again after a while, or when something new is owed.
func (e *Engine) pay(ctx context.Context) error {
	wait := soon
	for {
		n, eff, err := call(ctx, e, "pay", e.cfg.Store.Pay)
		if err != nil {
			return err
		}
		more := eff.Owed
		eff.Owed = false
		e.Follow(ctx, eff)
		switch {
		case !more:
			return nil
		case n > 0:
			wait = soon
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.owed:
		case <-e.later:
			e.lull(ctx)
		case <-time.After(wait):
			wait = min(2*wait, e.every())
		}
	}
}

// payHere pays what a process owes that only submits, wishes and sets limits: it has no payer, and
// others would find it with a renewal only.
func (e *Engine) payHere(ctx context.Context) {
	e.payOff(ctx, func(ctx context.Context) (int, store.Effects, error) { return e.cfg.Store.Pay(ctx, batch) })
}

// payLast pays what this process still owes when it stops, so that nobody has to find it.
func (e *Engine) payLast(ctx context.Context) {
	e.payOff(context.WithoutCancel(ctx),
		func(ctx context.Context) (int, store.Effects, error) { return call(ctx, e, "pay", e.cfg.Store.Pay) })
}

// payOff pays until nothing is owed, others have it in their hands, or the time has passed after
// which these look for it.
func (e *Engine) payOff(ctx context.Context, pay func(context.Context) (int, store.Effects, error)) {
	ctx, cancel := context.WithTimeout(ctx, e.every())
	defer cancel()
	for {
		n, eff, err := pay(ctx)
		if err != nil {
			e.cfg.Log.Warn("what is owed is left to others", "error", err)
			return
		}
		more := eff.Owed || eff.Later
		eff.Owed, eff.Later = false, false
		e.Follow(ctx, eff)
		if !more || n == 0 {
			return
		}
	}
}

// expirer takes the jobs of sessions that died: at first those that it finds, later when the
// renewals say so. A process that died may have taken more with it than jobs: what it owed, timers,
// and word of jobs that are ready, be they of lines that nobody serves here. The store tells of
// these.
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

// sweepDuty is the duty of the one process that repairs.
const sweepDuty = "sweep"

// sweep looks for jobs that the clock forgot, and for counters that are wrong. It is the net under
// the other loops. Follow-ups that were forgotten are told of by the renewals.
func (e *Engine) sweep(ctx context.Context, _ *Held) error {
	tick := time.NewTicker(e.cfg.Sweep)
	defer tick.Stop()
	for {
		n, eff, err := call(ctx, e, "recount", e.cfg.Store.Recount)
		if err != nil {
			return err
		}
		for what, times := range map[string]int{
			"a number of prerequisites that was wrong": n.Needs, "a turn that nobody had a use for": n.Turns,
			"a free place beside a line": n.Lines,
		} {
			for range times {
				e.repaired(what)
			}
		}
		if n != (store.Recounted{}) { // else there is nothing to tell anybody
			e.Follow(ctx, eff)
		}
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
		if at := e.local(eff.Due); !eff.Due.IsZero() && time.Since(at) > e.cfg.Lease && !e.dueing.Load() {
			e.repaired("a job whose time has come")
			e.alarm.set(at)
		}
	}
}

// call makes one bounded call of the store, again while the store cannot be reached.
func call[T any](ctx context.Context, e *Engine, what string,
	f func(context.Context, int) (T, store.Effects, error),
) (T, store.Effects, error) {
	var eff store.Effects
	n, err := retry(ctx, e, what, func() (n T, err error) {
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
