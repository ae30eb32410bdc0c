package files

import (
	"context"
	"io/fs"
)

// Moder is a file system that can change modes.
type Moder interface {
	// Chmod sets the mode of a file or a folder: the permission bits, and for a folder
	// [fs.ModeSetgid] and [fs.ModeSticky] too. If name is a symbolic link it returns an error, and
	// does not touch what the link leads to.
	Chmod(ctx context.Context, name string, mode fs.FileMode) error
}

// Mkdir makes a folder like [FS.Mkdir], with a mode if the file system has modes. The account that
// made it can write there until [Seal].
func Mkdir(ctx context.Context, fsys FS, dir string, mode fs.FileMode) error {
	if err := fsys.Mkdir(ctx, dir); err != nil {
		return err
	}
	return chmod(ctx, fsys, dir, mode|0o700)
}

// Seal gives a folder that [Mkdir] made its final mode, after everything has been put into it.
func Seal(ctx context.Context, fsys FS, dir string, mode fs.FileMode) error {
	if mode&0o700 == 0o700 {
		return nil
	}
	return chmod(ctx, fsys, dir, mode)
}

func chmod(ctx context.Context, fsys FS, dir string, mode fs.FileMode) error {
	if m, ok := fsys.(Moder); ok {
		return m.Chmod(ctx, dir, mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
	}
	return nil
}
