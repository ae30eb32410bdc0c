package files

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Alone reports whether an error is about a single file or folder: it may not be read, is damaged
// or is gone, for example. Such an error says nothing about other files, so a walk over them goes
// on. It is false for an error about the machine, such as a full disk or a file system that cannot
// be reached.
func Alone(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		job.KindOf(err) == job.Unavailable || job.Blocking(err) != nil {
		return false
	}
	for _, lack := range []error{
		syscall.EAGAIN, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EINTR,
	} {
		if errors.Is(err, lack) {
			return false
		}
	}
	return err != nil
}

// Undescribed returns the entry in a [FS.List] for a name that cannot be described because of err.
// typ is the type of the file, as far as it is known. [Fault] returns err.
func Undescribed(name string, typ fs.FileMode, err error) fs.FileInfo {
	return undescribed{name, typ | fs.ModeIrregular, err}
}

// Fault returns why [FS.List] could not describe a name, or nil if it could.
func Fault(info fs.FileInfo) error {
	if u, ok := info.(undescribed); ok {
		return u.err
	}
	return nil
}

type undescribed struct {
	name string
	mode fs.FileMode
	err  error
}

func (u undescribed) Name() string       { return u.name }
func (u undescribed) Size() int64        { return 0 }
func (u undescribed) Mode() fs.FileMode  { return u.mode }
func (u undescribed) ModTime() time.Time { return time.Time{} }
func (u undescribed) IsDir() bool        { return false }
func (u undescribed) Sys() any           { return nil }

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
