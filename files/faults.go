package files

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Alone reports whether an error is one of a single file or folder, as of one that may not be read,
// that is damaged or that is gone. It says nothing of the others, and who walks over them goes on.
// What the machine lacks, and a file system that cannot be reached, is no such error.
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

// Undescribed returns what [FS.List] says of a name that it can name and cannot describe, for the
// reason err. typ is the type as far as it is known.
func Undescribed(name string, typ fs.FileMode, err error) fs.FileInfo {
	return undescribed{name, typ | fs.ModeIrregular, err}
}

// Fault returns why [FS.List] could not describe a name; nil: it could.
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

// Moder is a file system that can change the rights of what is there. Not each backend can.
type Moder interface {
	// Chmod gives a file or a folder a mode: the permission bits, and of a folder [fs.ModeSetgid]
	// and [fs.ModeSticky]. A symbolic link of that name is an error, and what it leads to keeps its
	// mode.
	Chmod(ctx context.Context, name string, mode fs.FileMode) error
}

// Mkdir makes a folder as [FS.Mkdir] does, with a mode where the file system has modes. Whoever
// made it can write there until [Seal].
func Mkdir(ctx context.Context, fsys FS, dir string, mode fs.FileMode) error {
	if err := fsys.Mkdir(ctx, dir); err != nil {
		return err
	}
	return chmod(ctx, fsys, dir, mode|0o700)
}

// Seal gives a folder that [Mkdir] made its mode, once all that belongs there is in it.
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
