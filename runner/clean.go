package runner

import "context"

// FolderCleaner is a runner that can clean up behind a job and remove a folder at once, where two
// calls would cost a round trip more.
type FolderCleaner interface {
	// CleanFolder does what Clean does, and removes folder with all below it.
	CleanFolder(ctx context.Context, k Key, dir, folder string) error
}
