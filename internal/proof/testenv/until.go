package testenv

import (
	"context"
	"time"
)

// Patience is how long a test waits for what it has no doubt will come, and after which it fails
// rather than hangs. It is many times what the slowest machine took: a limit that is close to it
// makes a test of the machine.
const Patience = 5 * time.Minute

// Until waits for what no event announces, and reports whether it came before ctx was over. It
// looks every few milliseconds, then less and less often: who looks all the time takes the
// processor from what is waited for.
func Until(ctx context.Context, done func() bool) bool {
	for began := time.Now(); !done(); {
		select {
		case <-time.After(min(max(2*time.Millisecond, time.Since(began)/20), 100*time.Millisecond)):
		case <-ctx.Done():
			return false
		}
	}
	return true
}
