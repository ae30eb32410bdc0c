// Package fake is a [store.Store] in memory. It is for tests that need the whole contract without a
// database, above all for simulations in virtual time.
//
// The store is memory behind one mutex. It has no goroutines, reads only the clock that it is
// given, and uses no random numbers. So the same calls at the same times in the same order get the
// same answers, down to the order of lists. A call that fails leaves nothing behind. Where the
// contract leaves a choice, it does the same as store/sqlite.
//
// Two things are missing. After trouble of its server, store/postgres waits before it expires
// sessions; the fake has no such trouble. And it does not misbehave by itself: a test that needs
// lost calls and lost answers wraps it. [Store.Snapshot] and [Store.Restore] stand for a backup of
// a database and its restore.
package fake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Store implements [store.Store]. It copies its arguments and its answers, so it shares no memory
// with its callers.
type Store struct {
	// PassOn makes Apply hand on the turns that its changes give back, as other stores do if they
	// can. Otherwise it leaves a follow-up for that.
	PassOn bool

	now func() time.Time

	mu     sync.Mutex // guards what follows
	state  *State
	closed bool
}

var _ store.Store = (*Store)(nil)

// New returns an empty store. now is the database's clock, also for leases. It is called under the
// store's lock. Nil means [time.Now], which is virtual in a bubble of testing/synctest.
func New(now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{now: now, state: newState()}
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Snapshot returns the content of the store. Later calls do not change it.
func (s *Store) Snapshot() *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.clone()
}

// Restore puts the store back to an earlier state, or to that of another store. It is like the
// restore of a database: all that was committed since is lost, and numbers in cursors are given
// again. The clock goes on. A snapshot may be restored any number of times.
func (s *Store) Restore(to *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = to.clone()
}

// A tx is one call.
type tx struct {
	*State
	now      time.Time
	eff      store.Effects
	returned map[name]bool // keys of turns that an apply hands on when it is through; nil: they are owed
	undo     []func()      // what puts back what the call has changed, in the order of its changes
}

// call runs one call, all of it or nothing.
func call[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (answer T, eff store.Effects, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return answer, eff, job.Errorf(job.Closed, "the service was closed")
	}
	if err := ctx.Err(); err != nil {
		return answer, eff, err
	}
	t := &tx{State: s.state, now: micros(s.now())}
	rows, events, owed := t.rows, t.events, t.owed
	made, err := f(t)
	if err != nil {
		for _, undo := range slices.Backward(t.undo) {
			undo()
		}
		copy(rows, t.rows) // they may have moved to where there is more room, and were put back there
		t.rows, t.events, t.owed = rows, events, owed
		return answer, eff, err
	}
	return made, t.eff, nil
}

// ask runs a call that has no effects for others.
func ask[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (T, error) {
	answer, _, err := call(ctx, s, f)
	return answer, err
}

// do runs a call that has no answer of its own.
func (s *Store) do(ctx context.Context, f func(*tx) error) (store.Effects, error) {
	_, eff, err := call(ctx, s, func(t *tx) (struct{}, error) { return struct{}{}, f(t) })
	return eff, err
}

// set puts a value into a table of the store, until the call fails.
func set[K comparable, V any](t *tx, table map[K]V, k K, v V) {
	old, was := table[k]
	table[k] = v
	t.undo = append(t.undo, func() {
		if was {
			table[k] = old
		} else {
			delete(table, k)
		}
	})
}

// drop removes a value from a table, until the call fails.
func drop[K comparable, V any](t *tx, table map[K]V, k K) {
	if old, was := table[k]; was {
		delete(table, k)
		t.undo = append(t.undo, func() { table[k] = old })
	}
}

// micros is a time as a database keeps it.
func micros(at time.Time) time.Time { return at.UTC().Truncate(time.Microsecond) }
