package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
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

// Reason says why something failed, without temporary names and repeated paths in a chain of
// errors.
func Reason(err error) string {
	if b, ok := errors.AsType[*job.Block](err); ok {
		return b.Error()
	}
	if link, ok := errors.AsType[*LinkError](err); ok {
		return link.Error()
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		if Temporary(at.Path) {
			return fmt.Sprintf("%v in %s", at.Err, path.Dir(at.Path))
		}
		return fmt.Sprintf("%s: %v", at.Path, at.Err)
	}
	return err.Error()
}
