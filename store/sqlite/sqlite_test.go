package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestMain(m *testing.M) {
	testenv.Draws(2, 6, 100)
	testenv.Main(m)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		o := &opener{clock: &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, dir: testenv.Dir(t)}
		copyModel(t, o.dir)
		return o.Open(t), o
	})
}

// model is the file of a database that is new: a migration takes longer than most tests.
var model = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "pawl-model-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, sqlite.File))
})

// copyModel puts a new database into a folder.
func copyModel(t *testing.T, dir string) {
	t.Helper()
	file, err := model()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, sqlite.File), file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
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
