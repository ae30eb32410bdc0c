package main

import (
	"context"
	"slices"
	"sync"
)

// die lets processes die at the named points: each at one after the other, while the others go
// on. It returns the entries that were tried, as far as there was work left, and those of them that
// were passed.
func (h *harness) die(ctx context.Context, seed uint64, jobs int, entries []entry) (tried, passed []entry) {
	r := h.begin(ctx, "points", seed, jobs)
	q := &queue{left: slices.Clone(entries)}
	r.first(ctx, q)
	var all sync.WaitGroup
	for i := range r.procs {
		all.Go(func() {
			for ended := false; !r.over(ctx); {
				e, ok := q.take(func(e entry) bool { return e.plan().last == ended && (h.alone(i) || !e.alone) })
				switch {
				case ok:
					ended = r.try(ctx, i, e, q) || ended
				case ended:
					return
				default: // it works beside those that have points left
					r.start(ctx, i, "", 0)
					ended = r.wait(i).ended
				}
			}
		})
	}
	all.Wait()
	r.finish(ctx)
	return q.taken, q.passed
}

// first tries the entries that are for a process while there are no others: the one that has its
// machine for itself.
func (r *round) first(ctx context.Context, q *queue) {
	for !r.over(ctx) {
		e, ok := q.take(func(e entry) bool { return e.plan().first })
		if !ok || r.try(ctx, len(r.procs)-1, e, q) {
			return
		}
	}
}

// try lets a process die at a point, and tells q if it did. It reports whether all jobs ended
// before.
func (r *round) try(ctx context.Context, i int, e entry, q *queue) (ended bool) {
	for _, at := range r.h.before(e) {
		r.start(ctx, i, at, e.plan().lease)
		if r.wait(i).ended || r.over(ctx) {
			return true
		}
	}
	r.start(ctx, i, e.String(), e.plan().lease)
	o := r.wait(i)
	if o.died {
		q.pass(e)
	}
	return o.ended
}

// A queue hands out the entries of a round.
type queue struct {
	mu            sync.Mutex // guards what follows
	left          []entry
	taken, passed []entry
}

// take returns the next entry of those that fit.
func (q *queue) take(fits func(entry) bool) (entry, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.left, fits)
	if i < 0 {
		return entry{}, false
	}
	e := q.left[i]
	q.left = slices.Delete(q.left, i, i+1)
	q.taken = append(q.taken, e)
	return e, true
}

func (q *queue) pass(e entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.passed = append(q.passed, e)
}
