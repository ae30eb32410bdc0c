package files

import "context"

// Showing is a file system with parts that show processes instead of files, as /proc does on Linux.
type Showing interface {
	// Shows reports whether name is in such a part, or leads through one by symbolic links.
	Shows(ctx context.Context, name string) (bool, error)
}

// Shows reports whether name leads to something that shows processes. From there one reaches any
// file: those that processes have open, and the folders where they stand.
func Shows(ctx context.Context, fsys FS, name string) (bool, error) {
	if s, ok := fsys.(Showing); ok {
		return s.Shows(ctx, name)
	}
	return false, nil
}
