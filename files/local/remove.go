package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/job"
)

// Remove removes a name and all below it. It opens each folder from the one above it and follows no
// link, so a program that still runs cannot lead it elsewhere.
func (FS) Remove(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	if name == "/" {
		return job.Errorf(job.Invalid, "remove %s: refused", name)
	}
	above, err := unix.Open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return &fs.PathError{Op: "open", Path: path.Dir(name), Err: err}
	}
	defer unix.Close(above)
	r := removal{ctx: ctx}
	if !r.remove(above, name, 0) {
		return r.first
	}
	return nil
}

const (
	// maxDepth is how deep a removal goes, with a file open for each folder on the way. What lies
	// deeper comes up first.
	maxDepth = 32
	// maxPasses is how often a folder is read until it is empty. A program may go on to put files
	// there.
	maxPasses = 100
)

// A removal is one call of Remove.
type removal struct {
	ctx   context.Context
	top   *os.File // the topmost folder
	risen bool     // a deep folder came up to it
	first error    // why the first name stays
}

// failed notes why a name stays. It returns false.
func (r *removal) failed(err error) bool {
	if r.first == nil {
		r.first = err
	}
	return false
}

// remove removes one name in the folder dir and all below it, and reports whether it is gone.
func (r *removal) remove(dir int, name string, depth int) bool {
	const tries = 3 // a folder and a file may take each other's place meanwhile
	base := path.Base(name)
	for try := 1; ; try++ {
		if err := r.ctx.Err(); err != nil {
			return r.failed(err)
		}
		err := unix.Unlinkat(dir, base, 0)
		if errors.Is(err, unix.EISDIR) {
			if !r.empty(dir, name, depth) {
				return false
			}
			err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return true
		case errors.Is(err, unix.ENOTDIR) && try < tries:
		default:
			return r.failed(stays(dir, name, err))
		}
	}
}

// empty removes all that is in a folder, and reports whether nothing is left. A folder of the own
// account gets its rights back for that.
func (r *removal) empty(dir int, name string, depth int) bool {
	at, err := unix.Openat(dir, path.Base(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return true // it is no folder any more
	case err != nil:
		return r.failed(stays(dir, name, err))
	}
	fd, err := -1, unlock(at)
	if err == nil && depth < maxDepth {
		fd, err = unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	unix.Close(at)
	switch {
	case err != nil:
		return r.failed(stays(dir, name, err))
	case fd < 0:
		return r.rise(dir, name)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if depth == 0 {
		r.top = f
	}
	for pass := 0; ; pass++ {
		r.risen = r.risen && depth > 0
		n, left, err := r.pass(f, name, depth)
		switch {
		case err != nil:
			return r.failed(err)
		case n == 0:
			return true
		case depth == 0 && r.risen:
		case n == left || pass == maxPasses:
			return false
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return r.failed(err)
		}
	}
}

// pass removes what is in a folder, as far as one reading of it tells, and returns how many names
// that were and how many are left.
func (r *removal) pass(f *os.File, name string, depth int) (n, left int, err error) {
	const some = 1000
	for {
		names, err := f.Readdirnames(some)
		for _, base := range names {
			if n++; !r.remove(int(f.Fd()), path.Join(name, base), depth+1) {
				left++
			}
		}
		switch {
		case r.ctx.Err() != nil:
			return n, left, r.ctx.Err()
		case errors.Is(err, io.EOF):
			return n, left, nil
		case err != nil:
			return n, left, err
		}
	}
}

// rise moves a folder up to the topmost one, which is read once more then. It reports whether it
// did.
func (r *removal) rise(dir int, name string) bool {
	if err := unix.Renameat(dir, path.Base(name), int(r.top.Fd()), ".pawl-deep-"+rand.Text()); err != nil {
		return r.failed(stays(dir, name, err))
	}
	r.risen = true
	return true
}

// unlock gives the own account all rights to an open folder that belongs to it. Where another file
// system begins, which is none of ours to empty, the error is EBUSY.
func unlock(fd int) error {
	var at unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MODE|unix.STATX_UID,
		&at); err != nil {
		return err
	}
	mode := uint32(at.Mode) & 0o7777
	switch {
	case at.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return unix.EBUSY
	case mode&0o700 != 0o700 && int(at.Uid) == os.Geteuid():
		return unix.Chmod(opened(fd), mode|0o700)
	}
	return nil
}

// stays is why a name in the folder dir cannot be removed. Where somebody has to lend a hand it is
// a Conflict and says how.
func stays(dir int, name string, err error) error {
	var why string
	switch {
	case errors.Is(err, unix.EBUSY):
		why = "something is mounted there: unmount it"
	case errors.Is(err, unix.ENOTEMPTY):
		why = "something is still being put there: end the program that does so"
	case errors.Is(err, unix.EROFS):
		why = "its file system may only be read: make it writable"
	case !errors.Is(err, fs.ErrPermission):
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	case fixed(dir, path.Base(name)), fixed(dir, ""):
		why = "it, or the folder that it is in, is immutable or append-only: chattr -i -a"
	default:
		why = "it, or the folder that it is in, belongs to another user: " + owners(dir, path.Base(name))
	}
	return job.Errorf(job.Conflict, "%s cannot be removed: %s (%w)", name, why, err)
}

// fixed reports whether a file in the folder dir, or for "" the folder itself, has an attribute by
// which nobody changes it.
func fixed(dir int, base string) bool {
	var at unix.Statx_t
	err := unix.Statx(dir, base, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC,
		unix.STATX_TYPE, &at)
	return err == nil && at.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0
}

// owners says who owns a file and its folder.
func owners(dir int, base string) string {
	var file, folder unix.Stat_t
	if err := errors.Join(unix.Fstatat(dir, base, &file, unix.AT_SYMLINK_NOFOLLOW),
		unix.Fstatat(dir, "", &folder, unix.AT_EMPTY_PATH)); err != nil {
		return "remove it as that user"
	}
	return fmt.Sprintf("its user id is %d, that of its folder %d: remove it as root", file.Uid, folder.Uid)
}
