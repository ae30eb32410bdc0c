package files

import "context"

// Divided is a file system that consists of volumes, each of which is full on its own. Not each
// backend can tell them apart.
type Divided interface {
	// Volume returns the topmost folder of the volume that holds a folder, or would hold it where
	// it is not there yet.
	Volume(ctx context.Context, dir string) (string, error)
}

// Volume returns the topmost folder of the volume on which dir lies. Where that cannot be told it
// is dir itself.
func Volume(ctx context.Context, fsys FS, dir string) string {
	if d, ok := fsys.(Divided); ok {
		if top, err := d.Volume(ctx, dir); err == nil {
			return top
		}
	}
	return dir
}

// Showing is a file system parts of which are no files but show processes, as /proc does on Linux.
// Not each backend is one.
type Showing interface {
	// Shows reports whether a name is in such a part, or leads through one by its links.
	Shows(ctx context.Context, name string) (bool, error)
}

// Shows reports whether a name leads to what shows processes: what they have open and where they
// stand, and with it anything.
func Shows(ctx context.Context, fsys FS, name string) (bool, error) {
	if s, ok := fsys.(Showing); ok {
		return s.Shows(ctx, name)
	}
	return false, nil
}
