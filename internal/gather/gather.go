// Package gather puts together what waits for the same thing.
package gather

import "sync"

// A Queue gathers values while others are served, and serves them together. The zero Queue is
// empty. Its methods are safe for concurrent use.
type Queue[T any] struct {
	mu      sync.Mutex
	waiting []T  // guarded by mu
	busy    bool // guarded by mu: a goroutine serves
}

// Add adds a value. If nothing is being served, a goroutine serves it at once, and then all that
// has come meanwhile, most values at a time, until nothing waits.
func (q *Queue[T]) Add(v T, most int, serve func([]T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, v)
	if q.busy {
		return
	}
	q.busy = true
	go func() {
		for batch := q.next(most); len(batch) > 0; batch = q.next(most) {
			serve(batch)
		}
	}()
}

// next returns the values to serve. If there are none, the goroutine ends.
func (q *Queue[T]) next(most int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), most)
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	q.busy = n > 0
	return batch
}
