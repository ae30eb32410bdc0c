package testenv

import (
	"context"
	"time"
)

// Until waits for what no event announces, and reports whether it came before ctx was over. It
// looks every few milliseconds: who looks all the time takes the processor from what is waited for.
func Until(ctx context.Context, done func() bool) bool {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
