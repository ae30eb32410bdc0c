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

// clock lets jobs out of their gates when their time comes. A process knows the due times of the
// jobs that it put there itself. It hears of others by its renewals: see timers.
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
			next = now.Add(retrySoon) // the database's clock is behind the estimate of this process
		}
		return next, nil
	}
}

// retrySoon is how long to wait if an alarm rang too early. It is also the first wait for other
// payers.
const retrySoon = 10 * time.Millisecond

// timers sets the alarm for the earliest due job, because the process that knew of it may have
// died. The process that sweeps does so, so that not all come at the same time. The others do if
// nobody has come.
func (s *session) timers(a store.Renewal) {
	sweeps := slices.ContainsFunc(a.Duties, func(d store.Duty) bool { return d.Name == sweepDuty })
	if !a.Due.IsZero() && (sweeps || a.Now.Sub(a.Due) > s.e.every()) {
		s.e.alarm.set(s.e.local(a.Due))
	}
}

// agree notes how far the database's clock is ahead of this process's clock, from an answer that
// has just come. The answer holds the database's time after the call had been sent. Two clocks that
// may be equal count as equal, as those of one machine are. Otherwise it takes the least
// difference, so that no alarm rings early.
func (e *Engine) agree(sent, database time.Time) {
	least, most := time.Until(database), database.Sub(sent)
	if least < time.Millisecond && most > -time.Millisecond {
		least = 0
	}
	e.ahead.Store(int64(least))
}

// local returns the time on this process's clock when the database's clock shows t.
func (e *Engine) local(t time.Time) time.Time { return t.Add(-time.Duration(e.ahead.Load())) }

// Now returns the time on the database's clock, as far as the newest renewal tells. Before the
// first renewal it is the time of this process.
func (e *Engine) Now() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }

// payer pays debts as soon as there are some. It also pays when it starts: their debtors may have
// died.
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
			e.awaitMore(ctx)
		}
		e.paying.Store(true)
	}
}

// awaitMore waits until more is owed that cannot wait, or until [store.FollowUpDelay] is over.
func (e *Engine) awaitMore(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.owed:
	case <-time.After(store.FollowUpDelay):
	}
}

// pay pays until nothing is owed. A rest may be with other payers that are slow or have died: pay
// looks again after a while, or when something new is owed.
func (e *Engine) pay(ctx context.Context) error {
	wait := retrySoon
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
			wait = retrySoon
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.owed:
		case <-e.later:
			e.awaitMore(ctx)
		case <-time.After(wait):
			wait = min(2*wait, e.every())
		}
	}
}

// payHere pays the debts of a process that only submits, wishes and sets limits. It has no payer,
// and other processes would find the debts only with a renewal.
func (e *Engine) payHere(ctx context.Context) {
	e.payOff(ctx, func(ctx context.Context) (int, store.Effects, error) { return e.cfg.Store.Pay(ctx, batch) })
}

// payLast pays the debts of this process when it stops, so that nobody has to find them.
func (e *Engine) payLast(ctx context.Context) {
	e.payOff(context.WithoutCancel(ctx),
		func(ctx context.Context) (int, store.Effects, error) { return call(ctx, e, "pay", e.cfg.Store.Pay) })
}

// payOff pays until nothing is owed or other payers have the rest. It gives up when the time has
// passed after which other processes look for debts.
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

// expirer takes the jobs of sessions that died: when it starts, and when renewals say so. A dead
// process may also have taken debts, timers and wake-ups with it. The store tells of all of these,
// also for queues and kinds that nobody serves here.
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

// sweep looks for jobs that the clock forgot, and for wrong counters. It is the net under the other
// loops. Renewals tell of forgotten debts.
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

// call makes one bounded call of the store, and makes it again while the store is unavailable.
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

// set makes the alarm ring at t, unless it is set to an earlier time.
func (a *alarm) set(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.IsZero() || t.Before(a.at) {
		a.at = t
		a.changed.set()
	}
}

// wait returns at next (zero: never), or at the earliest time that was set since wait returned
// last.
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
