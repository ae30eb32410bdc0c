package main

import (
	"context"
	"slices"
	"sync"
)

// points lets processes die at the named points: each at one after the other, while the others go on. It returns the
// entries that were tried, as far as there was work left, and those of them that were passed.
func (h *harness) points(ctx context.Context, seed uint64, jobs int, entries []entry) (tried, passed []entry) {
	r := h.begin(ctx, "points", seed, jobs)
	q := &queue{left: slices.Clone(entries)}
	var all sync.WaitGroup
	for i := range r.procs {
		all.Go(func() {
			for ended := false; !r.over(ctx); {
				switch e, ok := q.take(h.alone(i), ended); {
				case ok:
					died, over := r.try(ctx, i, e)
					if died {
						q.pass(e)
					}
					ended = ended || over
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

// try lets a process die at a point. It reports whether it did, and whether all jobs ended before.
func (r *round) try(ctx context.Context, i int, e entry) (died, ended bool) {
	for _, at := range e.plan().before {
		r.start(ctx, i, at, e.plan().lease)
		if r.wait(i).ended || r.over(ctx) {
			return false, true
		}
	}
	r.start(ctx, i, e.String(), e.plan().lease)
	o := r.wait(i)
	return o.died, o.ended
}

// A queue hands out the entries of a round.
type queue struct {
	mu            sync.Mutex // guards what follows
	left          []entry
	taken, passed []entry
}

// take returns the next entry for a process. alone says that it has its machine for itself, ended that all jobs have ended.
func (q *queue) take(alone, ended bool) (entry, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.left, func(e entry) bool { return e.plan().last == ended && (alone || !e.alone) })
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
