package jobfolder

import (
	"context"
	"io"
	"io/fs"
	"path"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/files"
)

// Guard returns the files of a job's folder for reading. If the program has put a link in the place
// of the folder, nothing is there. It looks once; the value is for one call.
func Guard(fsys files.FS, folder string) files.FS {
	l, ok := fsys.(files.Linker)
	if !ok || folder == "" {
		return fsys
	}
	return &guard{FS: fsys, Linker: l, folder: folder}
}

type guard struct {
	files.FS
	files.Linker
	folder string

	looked atomic.Bool
}

// look reports that the folder is there, and no link.
func (g *guard) look(ctx context.Context) error {
	if g.looked.Load() {
		return nil
	}
	real, err := g.Linker.Resolve(ctx, g.folder)
	if err == nil && real != g.folder { // there is a link on the way
		var above string
		above, err = g.Linker.Resolve(ctx, path.Dir(g.folder))
		if err == nil && real != path.Join(above, path.Base(g.folder)) {
			err = &fs.PathError{Op: "open", Path: g.folder, Err: fs.ErrNotExist}
		}
	}
	g.looked.Store(err == nil)
	return err
}

// Open implements [files.FS].
func (g *guard) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if err := g.look(ctx); err != nil {
		return nil, err
	}
	return g.FS.Open(ctx, name)
}

// Put implements [files.FS].
func (g *guard) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	if err := g.look(ctx); err != nil {
		return err
	}
	return g.FS.Put(ctx, name, r, o)
}

// Stat implements [files.FS].
func (g *guard) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if err := g.look(ctx); err != nil {
		return nil, err
	}
	return g.FS.Stat(ctx, name)
}

// List implements [files.FS].
func (g *guard) List(ctx context.Context, dir string) ([]fs.FileInfo, error) {
	if err := g.look(ctx); err != nil {
		return nil, err
	}
	return g.FS.List(ctx, dir)
}

// Resolve implements [files.Linker].
func (g *guard) Resolve(ctx context.Context, name string) (string, error) {
	if err := g.look(ctx); err != nil {
		return "", err
	}
	return g.Linker.Resolve(ctx, name)
}
