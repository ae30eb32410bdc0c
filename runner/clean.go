package runner

import "context"

// Sweeper is a runner that can clean up behind a job and remove a folder at once, where two calls
// would cost a round trip more.
type Sweeper interface {
	// Sweep does what Clean does, and removes folder with all below it.
	Sweep(ctx context.Context, k Key, dir, folder string) error
}
