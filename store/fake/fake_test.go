package fake_test

import (
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		c := &clock{}
		s := fake.New(c.Now)
		t.Cleanup(func() { s.Close() })
		return s, c
	})
}

// A clock runs on beside that of the machine, and can be advanced.
type clock struct {
	mu     sync.Mutex // guards offset
	offset time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}
