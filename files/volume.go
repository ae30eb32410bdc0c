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
