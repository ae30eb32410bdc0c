package virtual_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/race"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
)

// Without the one thread this ends the process more often than not, where there are two cores.
func TestTimersAtOnce(t *testing.T) {
	virtual.Test(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20_000 {
					<-time.After(0)
				}
			})
		}
		all.Wait()
	})
}

func TestThreadsComeBack(t *testing.T) {
	outside := runtime.GOMAXPROCS(0)
	if outside < 2 {
		outside = 2
		t.Cleanup(func() { runtime.GOMAXPROCS(1) })
		runtime.GOMAXPROCS(outside)
	}
	within := outside
	if race.Enabled {
		within = 1
	}
	t.Run("while tests run", func(t *testing.T) {
		for range 4 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				virtual.Test(t, func(t *testing.T) {
					if got := runtime.GOMAXPROCS(0); got != within {
						t.Errorf("GOMAXPROCS = %d in virtual time, want %d", got, within)
					}
				})
			})
		}
	})
	if got := runtime.GOMAXPROCS(0); got != outside {
		t.Errorf("GOMAXPROCS = %d after the last test, was %d before the first", got, outside)
	}
}
