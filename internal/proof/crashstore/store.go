// Package crashstore puts a named crash point before and after each operation of a store.
package crashstore

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// Wrap returns s with a point before and after each operation that the loops call.
//
// A session lists what it holds only when the answer of a claim was lost with it, which no crash of
// its own process does. So for a process that is to die there, one job is kept back from the answer
// of a claim. And a session is cleared of suspicion by a process that lost its lease: one that is
// to die there is told once, while it has jobs, that it did.
func Wrap(s store.Store) store.Store {
	c := &crashing{Store: s}
	c.keep.Store(strings.HasPrefix(crash.Chosen(), "store.held."))
	c.lose.Store(strings.HasPrefix(crash.Chosen(), "store.clear."))
	return c
}

type crashing struct {
	store.Store
	keep atomic.Bool  // a claimed job is still to be kept back
	lose atomic.Bool  // the lease is still to be lost
	busy atomic.Int64 // jobs claimed that have not been handed on
}

func around[T any](op string, f func() (T, error)) (T, error) {
	crash.At("store." + op + ".before")
	v, err := f()
	crash.At("store." + op + ".after")
	return v, err
}

func (c *crashing) Submit(ctx context.Context, s store.Submission) (a []store.Submitted, eff store.Effects, err error) {
	a, err = around("submit", func() ([]store.Submitted, error) { a, eff, err = c.Store.Submit(ctx, s); return a, err })
	return a, eff, err
}

func (c *crashing) Claim(ctx context.Context, q store.Claim) ([]job.Job, error) {
	jobs, err := around("claim", func() ([]job.Job, error) { return c.Store.Claim(ctx, q) })
	return c.claimed(jobs), err
}

// claimed is told of jobs that were claimed, and returns those that are heard of.
func (c *crashing) claimed(jobs []job.Job) []job.Job {
	if len(jobs) > 0 && c.keep.CompareAndSwap(true, false) {
		jobs = jobs[1:]
	}
	c.busy.Add(int64(len(jobs)))
	return jobs
}

func (c *crashing) Apply(ctx context.Context, cs []job.Change, along *store.Claim) (a []store.Applied,
	jobs []job.Job, eff store.Effects, err error,
) {
	a, err = around("apply", func() ([]store.Applied, error) {
		a, jobs, eff, err = c.Store.Apply(ctx, cs, along)
		return a, err
	})
	c.applied(cs, a)
	return a, c.claimed(jobs), eff, err
}

// applied is told of changes that were answered.
func (c *crashing) applied(cs []job.Change, a []store.Applied) {
	for i, answer := range a {
		if cs[i].From.Place.Custody == job.Worker && answer.Now.Place.Custody != job.Worker {
			c.busy.Add(-1)
		}
	}
}

func (c *crashing) Wish(ctx context.Context, w store.Wish) (a []store.Wished, eff store.Effects, err error) {
	a, err = around("wish", func() ([]store.Wished, error) { a, eff, err = c.Store.Wish(ctx, w); return a, err })
	return a, eff, err
}

func (c *crashing) Tested(ctx context.Context, f job.Fence, found []groups.Test) (store.Effects, error) {
	return around("tested", func() (store.Effects, error) { return c.Store.Tested(ctx, f, found) })
}

func (c *crashing) Steer(ctx context.Context, s store.Steer) (a []error, eff store.Effects, err error) {
	a, err = around("steer", func() ([]error, error) { a, eff, err = c.Store.Steer(ctx, s); return a, err })
	return a, eff, err
}

func (c *crashing) Due(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	n, err = around("due", func() (int, error) { n, eff, err = c.Store.Due(ctx, limit); return n, err })
	return n, eff, err
}

func (c *crashing) Pay(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	n, err = around("pay", func() (int, error) { n, eff, err = c.Store.Pay(ctx, limit); return n, err })
	return n, eff, err
}

func (c *crashing) Expire(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	n, err = around("expire", func() (int, error) { n, eff, err = c.Store.Expire(ctx, limit); return n, err })
	return n, eff, err
}

func (c *crashing) Recount(ctx context.Context, limit int) (n store.Recounted, eff store.Effects, err error) {
	n, err = around("recount", func() (store.Recounted, error) { n, eff, err = c.Store.Recount(ctx, limit); return n, err })
	return n, eff, err
}

func (c *crashing) Begin(ctx context.Context, s store.Session) error {
	_, err := around("begin", func() (struct{}, error) { return struct{}{}, c.Store.Begin(ctx, s) })
	return err
}

func (c *crashing) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	if c.busy.Load() > 0 && c.lose.CompareAndSwap(true, false) {
		return store.Renewal{}, job.Errorf(job.Fenced, "the lease is lost, on command")
	}
	return around("renew", func() (store.Renewal, error) { return c.Store.Renew(ctx, r) })
}

func (c *crashing) End(ctx context.Context, session job.ID) (store.Effects, error) {
	return around("end", func() (store.Effects, error) { return c.Store.End(ctx, session) })
}

func (c *crashing) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	return around("clear", func() (store.Effects, error) { return c.Store.Clear(ctx, lost) })
}

// Find has points where a loop asks what a session holds, or what a machine watches.
func (c *crashing) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	find := func() ([]job.Job, error) { return c.Store.Find(ctx, q) }
	switch op := q.Operation(); op {
	case "held", "watched":
		return around(op, find)
	}
	return find()
}
