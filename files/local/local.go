// Package local is the file system of the machine that Pawl runs on. It implements [files.FS].
package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// FS is the machine's file system, with the rights of this process. The zero value is ready to use.
type FS struct {
	// Base is a folder that is never made. While it is missing, Mkdir refuses to make folders below
	// it. Default: there is none.
	Base string
}

var (
	_ files.FS       = FS{}
	_ files.Linker   = FS{}
	_ files.Mover    = FS{}
	_ files.Adopter  = FS{}
	_ files.Spreader = FS{}
	_ files.Divided  = FS{}
	_ files.Sizer    = FS{}
	_ files.Moder    = FS{}
	_ files.Showing  = FS{}
)

// Open opens a regular file.
func (FS) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	// Without O_NONBLOCK the opening of a pipe waits for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = job.Errorf(job.Invalid, "open %s: not a regular file but %s", name, info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if holes := info.Size() - files.Allocated(info); holes >= leastHole {
		return sparse{f, info.Size(), holes}, nil
	}
	return f, nil
}

// leastHole is how many bytes of holes are worth looking for them.
const leastHole = 64 << 10

// A sparse file has holes.
type sparse struct {
	*os.File
	size, holes int64
}

// Size implements [files.Sparse].
func (s sparse) Size() (size, holes int64) { return s.size, s.holes }

// Extent implements [files.Sparse].
func (s sparse) Extent(from int64) (begin, end int64, err error) {
	if begin, err = s.Seek(from, unix.SEEK_DATA); err == nil {
		end, err = s.Seek(begin, unix.SEEK_HOLE)
	}
	if errors.Is(err, unix.ENXIO) { // there is no more data
		begin, err = s.Seek(0, io.SeekEnd)
		begin = max(from, begin)
		end = begin
	}
	return begin, end, err
}

// Put writes a temporary file, syncs and renames it, and syncs the folder.
func (FS) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) (err error) {
	if err := check(ctx, name); err != nil {
		return err
	}
	tmp := o.TemporaryFor(name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	if err := fill(ctx, f, r, o); err != nil {
		return errors.Join(fmt.Errorf("put %s: %w", name, err), f.Close(), os.Remove(tmp))
	}
	if err := errors.Join(f.Close(), ctx.Err()); err != nil {
		return errors.Join(fmt.Errorf("put %s: %w", name, err), os.Remove(tmp))
	}
	if o.Perm()&0o111 != 0 {
		awaitWriters(tmp)
	}
	if err := os.Rename(tmp, name); err != nil {
		return errors.Join(fmt.Errorf("put %s: %w", name, err), os.Remove(tmp))
	}
	if o.NoSync || o.Passing {
		return nil
	}
	return syncFolder(name)
}

// awaitWriters waits until nobody has a file open for writing, for Linux executes none that is
// (ETXTBSY). A process that is being started has copies of all descriptors of this one for a
// moment, also of one that was closed meanwhile. The kernel grants a lease on a file only when it
// has no writers. If a file system has no leases, the call does not wait.
func awaitWriters(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close() // with the lease
	for range 200 {
		if !errors.Is(lease(f), unix.EAGAIN) {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// lease takes a read lease on a file: an error that is EAGAIN says that somebody has it open for
// writing. It ends with f.
func lease(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err
}

func fill(ctx context.Context, f *os.File, r io.Reader, o files.PutOptions) error {
	var err error
	switch r := r.(type) {
	case files.Poured:
		err = r.Pour(f)
	case *strings.Reader: // what is in memory needs no buffer, and nobody waits for it
		_, err = r.WriteTo(f)
	case *bytes.Reader:
		_, err = r.WriteTo(f)
	default:
		_, err = io.Copy(f, files.ContextReader(ctx, r))
	}
	if err != nil {
		return err
	}
	if err := f.Chmod(o.Perm()); err != nil {
		return err
	}
	if o.NoSync {
		return nil
	}
	return f.Sync()
}

// Stat describes what name leads to.
func (FS) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	return os.Stat(name)
}

// Names lists the names in a folder.
func (FS) Names(ctx context.Context, dir string) ([]string, error) {
	if err := check(ctx, dir); err != nil {
		return nil, err
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0) // it waits for no pipe
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	names = slices.DeleteFunc(names, files.Temporary)
	slices.Sort(names)
	return names, err
}

// List describes what is in a folder.
func (FS) List(ctx context.Context, dir string) ([]fs.FileInfo, error) {
	if err := check(ctx, dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	infos := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		if files.Temporary(e.Name()) {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // removed since
		case files.Alone(err):
			info = files.Undescribed(e.Name(), e.Type(), err)
		case err != nil:
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Mkdir makes a folder and those above it, with mode 0755 less the umask.
func (f FS) Mkdir(ctx context.Context, dir string) error {
	if err := check(ctx, dir); err != nil {
		return err
	}
	if f.Base != "" && strings.HasPrefix(dir+"/", f.Base+"/") {
		if _, err := os.Stat(f.Base); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755)
}

// Rename moves a file or a folder.
func (f FS) Rename(ctx context.Context, from, to string) error {
	if err := f.Move(ctx, from, to); err != nil {
		return err
	}
	if path.Dir(from) == path.Dir(to) {
		return syncFolder(to)
	}
	return errors.Join(syncFolder(to), syncFolder(from))
}

// Move renames without waiting for the disk.
func (FS) Move(ctx context.Context, from, to string) error {
	if err := errors.Join(check(ctx, from), check(ctx, to)); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Link gives a file a second name.
func (FS) Link(ctx context.Context, from, to string) error {
	if err := errors.Join(check(ctx, from), check(ctx, to)); err != nil {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return syncFolder(to)
}

// QuickLink links without waiting for the disk.
func (FS) QuickLink(ctx context.Context, from, to string) error {
	if err := errors.Join(check(ctx, from), check(ctx, to)); err != nil {
		return err
	}
	return os.Link(from, to)
}

// Adopt gives a file that nobody writes a second name. A lease on the file shows that nobody has it
// open for writing.
func (FS) Adopt(ctx context.Context, from, to string) error {
	if err := errors.Join(check(ctx, from), check(ctx, to)); err != nil {
		return err
	}
	f, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if own, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode() != info.Mode().Perm() || own.Nlink != 1 ||
		int(own.Uid) != os.Geteuid() || lease(f) != nil {
		return fmt.Errorf("adopt %s: %w", from, errors.ErrUnsupported)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(from, to); errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.EMLINK) {
		return fmt.Errorf("adopt %s: %w: %w", from, errors.ErrUnsupported, err)
	} else if err != nil {
		return err
	}
	// somebody put another file there meanwhile
	if linked, err := os.Lstat(to); err != nil || !os.SameFile(info, linked) {
		return errors.Join(fmt.Errorf("adopt %s: %w", from, errors.ErrUnsupported), err, os.Remove(to))
	}
	return nil
}

// topFolder is the attribute T of a folder (chattr(1)), FS_TOPDIR_FL of Linux.
const topFolder = 0x20000

// Spread sets an attribute of dir (FS_TOPDIR_FL), by which ext3 and ext4 lay the folders in it
// apart from one another. Otherwise the files of many short jobs come and go in one place of the
// disk. An ext4 without a journal then looks, for each new file, at all files that were removed
// there within the last minute.
func (FS) Spread(ctx context.Context, dir string) error {
	if err := check(ctx, dir); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	attributes, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || attributes&topFolder != 0 {
		return err
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(attributes|topFolder))
}

// Space does not count the blocks that are reserved for root.
func (FS) Space(ctx context.Context, name string) (files.Space, error) {
	if err := check(ctx, name); err != nil {
		return files.Space{}, err
	}
	var at unix.Statfs_t
	if err := unix.Statfs(name, &at); err != nil {
		return files.Space{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return files.Space{
		Size:     int64(at.Blocks-(at.Bfree-at.Bavail)) * at.Bsize, //nolint:gosec // no file system has more
		Free:     int64(at.Bavail) * at.Bsize,                      //nolint:gosec // the same
		NoFile:   at.Files > 0 && at.Ffree == 0,                    // some have no bound of files, and count none
		ReadOnly: at.Flags&unix.ST_RDONLY != 0,
	}, nil
}

// Chmod gives a file or a folder a mode.
func (FS) Chmod(ctx context.Context, name string, mode fs.FileMode) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	f, err := os.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = os.Chmod(opened(int(f.Fd())), mode)
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		at.Path = name
	}
	return err
}

// opened is a name for an open file. That of a link leads to the link, which has no mode.
func opened(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Symlink makes or replaces a symbolic link.
func (FS) Symlink(ctx context.Context, target, name string) error {
	if err := errors.Join(check(ctx, name), files.CheckTarget(target)); err != nil {
		return err
	}
	err := os.Symlink(target, name)
	if errors.Is(err, fs.ErrExist) {
		if info, statErr := os.Lstat(name); statErr == nil && info.Mode().Type() != fs.ModeSymlink {
			return err
		}
		tmp := files.TemporaryFor(name)
		if err := os.Symlink(target, tmp); err != nil {
			return err
		}
		if err = os.Rename(tmp, name); err != nil {
			return errors.Join(err, os.Remove(tmp))
		}
	} else if err != nil {
		return err
	}
	return syncFolder(name)
}

// Resolve follows symbolic links.
func (FS) Resolve(ctx context.Context, name string) (string, error) {
	if err := check(ctx, name); err != nil {
		return "", err
	}
	resolved, err := follow(name)
	for _, wrong := range []error{syscall.ENOTDIR, syscall.ELOOP} { // a file in the place of a folder, a circle
		if errors.Is(err, wrong) { // and no part of the way is the one that is missing
			return "", fmt.Errorf("resolve %s: %w: %w", name, wrong, fs.ErrNotExist)
		}
	}
	return resolved, err
}

// maxLinks is how many links one name may lead through, as on Linux.
const maxLinks = 40

// follow is [filepath.EvalSymlinks] that ends where a name enters the links of /proc.
func follow(name string) (string, error) {
	switch known, err := direct(name); {
	case known && err != nil:
		return "", err
	case known:
		return name, nil
	}
	at, parts, links := "/", strings.Split(name, "/"), 0
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return "", err
		case info.Mode().Type() != fs.ModeSymlink:
			at = next
			continue
		case inProc(at):
			return path.Join(next, path.Join("/", path.Join(parts...))), nil
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		parts = append(strings.Split(target, "/"), parts...)
	}
	return at, nil
}

// direct looks for a name to which no symbolic link leads. The error names the first part of it
// that is not there. Most names are such, and the kernel follows them in one call; it is left to
// others where it has an error of another kind.
func direct(name string) (known bool, _ error) {
	var missing error
	for at := name; ; at = path.Dir(at) {
		fd, err := straight(at)
		switch {
		case err == nil:
			return true, errors.Join(missing, unix.Close(fd))
		case !errors.Is(err, fs.ErrNotExist):
			return false, nil
		}
		missing = &fs.PathError{Op: "resolve", Path: at, Err: syscall.ENOENT}
	}
}

// straight opens a name to which no symbolic link leads, as a place alone. Most names are such, and
// the kernel finds them in one call.
func straight(name string) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	return unix.Openat2(unix.AT_FDCWD, name, &how)
}

// Shows looks for a file system of type proc at name and above it, wherever it is mounted.
func (FS) Shows(ctx context.Context, name string) (bool, error) {
	if err := check(ctx, name); err != nil {
		return false, err
	}
	if fd, err := straight(name); err == nil {
		defer unix.Close(fd)
		var at unix.Statfs_t
		if unix.Fstatfs(fd, &at) == nil && at.Type != unix.PROC_SUPER_MAGIC {
			return false, nil
		}
	}
	for ; ; name = path.Dir(name) {
		if shows := inProc(name); shows || name == "/" {
			return shows, nil
		}
	}
}

// inProc reports whether a name is one of the file system that shows processes.
func inProc(name string) bool {
	var at unix.Statfs_t
	return unix.Statfs(name, &at) == nil && at.Type == unix.PROC_SUPER_MAGIC
}

// Volume goes up from dir as long as the device stays the same.
func (FS) Volume(ctx context.Context, dir string) (string, error) {
	if err := check(ctx, dir); err != nil {
		return "", err
	}
	at, err := filepath.EvalSymlinks(dir)
	for ; errors.Is(err, fs.ErrNotExist) && dir != "/"; at, err = filepath.EvalSymlinks(dir) {
		dir = path.Dir(dir)
	}
	if err != nil {
		return "", err
	}
	device, err := deviceOf(at)
	for err == nil && at != "/" {
		var above uint64
		if above, err = deviceOf(path.Dir(at)); above != device {
			break
		}
		at = path.Dir(at)
	}
	return at, err
}

func deviceOf(name string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st.Dev, nil
}

func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return files.Check(name)
}

// syncFolder makes the names in the folder of name durable.
func syncFolder(name string) error {
	d, err := os.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
