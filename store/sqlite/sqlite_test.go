package sqlite_test

import (
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s, c
	})
}

// A clock stands still until it is advanced.
type clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
