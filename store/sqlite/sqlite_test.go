package sqlite_test

import (
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// What is drawn at random is drawn a hundred times in the long tests alone.
func TestMain(m *testing.M) {
	if !testenv.Long() {
		flag.Set("rapid.checks", "15") // -rapid.checks says another number
	}
	testenv.Main(m)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		o := &opener{clock: &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, dir: t.TempDir()}
		return o.Open(t), o
	})
}

// An opener opens a store on a folder, after the one before was closed.
type opener struct {
	*clock
	dir   string
	store *sqlite.Store
}

func (o *opener) Open(t *testing.T) store.Store {
	t.Helper()
	var err error
	if o.store != nil {
		err = o.store.Close()
	}
	if err == nil {
		o.store, err = sqlite.Open(t.Context(), o.dir, sqlite.Options{Now: o.Now})
	}
	if err != nil {
		t.Fatal(err)
	}
	s := o.store
	t.Cleanup(func() { s.Close() })
	return s
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
