package files

import "context"

// Divided is a file system that has several volumes, and can tell them apart. Each volume fills up
// on its own.
type Divided interface {
	// Volume returns the topmost folder of the volume that has dir, or would have it if dir is
	// missing.
	Volume(ctx context.Context, dir string) (string, error)
}

// Volume returns the topmost folder of the volume that has dir. If the file system cannot tell, it
// is dir itself.
func Volume(ctx context.Context, fsys FS, dir string) string {
	if d, ok := fsys.(Divided); ok {
		if top, err := d.Volume(ctx, dir); err == nil {
			return top
		}
	}
	return dir
}

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
