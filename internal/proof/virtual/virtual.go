// Package virtual runs tests in virtual time. Only tests import it.
package virtual

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-jobs/pawl/internal/proof/race"
)

// Test is [synctest.Test], which crashes the process now and then under the race detector (Go 1.26,
// https://go.dev/issue/78156): all timers of a bubble share one state of the detector, and two
// goroutines, each on a thread of its own, that find the time of their timers come write to it at
// once. So with the detector there is one thread for Go code while a test is in here. What happens
// before what, and so what the detector finds, is the same.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if race.Enabled {
		oneThread.begin()
		defer oneThread.end()
	}
	synctest.Test(t, f)
}

// oneThread is global because GOMAXPROCS is: tests that run in parallel share it.
var oneThread threads

type threads struct {
	mu     sync.Mutex
	within int // guarded by mu: how many tests are in here
	before int // guarded by mu: GOMAXPROCS outside
}

func (h *threads) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.within++; h.within == 1 {
		h.before = runtime.GOMAXPROCS(1)
	}
}

func (h *threads) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.within--; h.within == 0 {
		runtime.GOMAXPROCS(h.before)
	}
}
