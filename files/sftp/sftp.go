// Package sftp is the file system of a machine that an SFTP server serves.
//
// SFTP names every file by its path, and its answers say little. So there are three differences to
// files/local. A link that somebody puts in the place of a folder at the very moment can lead a
// Remove or a Chmod elsewhere, though to nothing that the account itself may not change. A file
// that is read has no holes, so a copy from there is dense; a copy to there keeps the holes. Times
// are whole seconds.
//
// What is durable is so where the server has fsync@openssh.com.
package sftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// A Client is a session of SFTP. [Connect] makes one.
type Client = sftp.Client

// An FS is the file system of a far machine, with the rights of the account that logged in.
type FS struct {
	// Client returns the client to ask. It connects anew when the last one is gone. Required.
	Client func(context.Context) (*Client, error)
	// Shell runs a script of /bin/sh as the same account, and returns what it prints to its
	// standard output. It removes folders by fewer requests, copies files, and finds out why
	// nothing can be written. Default: SFTP removes each entry, copies no file, and tells of no
	// quota.
	Shell func(ctx context.Context, script string) (string, error)
}

var (
	_ files.FS      = (*FS)(nil)
	_ files.Linker  = (*FS)(nil)
	_ files.Mover   = (*FS)(nil)
	_ files.Copier  = (*FS)(nil)
	_ files.Sizer   = (*FS)(nil)
	_ files.Divided = (*FS)(nil)
	_ files.Moder   = (*FS)(nil)
	_ files.Showing = (*FS)(nil)
	_ files.Stamper = (*FS)(nil)
)

// A packet is as much of a file as one request carries.
type packet [128 << 10]byte

// packets are those that nobody uses now.
var packets = sync.Pool{New: func() any { return new(packet) }}

// inFlight is how many packets of one file are under way. They bound the memory that it takes.
const inFlight = 32

const (
	// patience is how long a call that was given up may stay without an answer. Then the server
	// hangs, and its client is closed so that others get a new one.
	patience = 2 * time.Minute
	// grace is how long a Put whose context ended waits until its temporary file is gone.
	grace = 5 * time.Second
)

// ask makes a call about some names. pkg/sftp knows no context, so the call may go on after it.
func ask[T any](
	ctx context.Context, f *FS, call func(*sftp.Client) (T, error), op string, names ...string,
) (T, error) {
	var none T
	c, err := f.begin(ctx, names...)
	if err != nil {
		return none, err
	}
	v, err := within(ctx, c, func() (T, error) {
		v, err := call(c)
		return v, f.reason(ctx, c, path.Dir(names[len(names)-1]), err)
	})
	return v, explain(err, op, names...)
}

// do is ask for a call without an answer.
func (f *FS) do(ctx context.Context, call func(*sftp.Client) error, op string, names ...string) error {
	_, err := ask(ctx, f, func(c *sftp.Client) (struct{}, error) { return struct{}{}, call(c) }, op, names...)
	return err
}

func (f *FS) begin(ctx context.Context, names ...string) (*sftp.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := files.Check(name); err != nil {
			return nil, err
		}
	}
	return f.Client(ctx)
}

// within waits for a call until ctx ends. A file that is opened too late is closed. The call itself
// ends with its answer, or with the connection.
func within[T any](ctx context.Context, c *sftp.Client, call func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers, done := make(chan answer), make(chan struct{})
	go func() {
		defer close(done)
		v, err := call()
		select {
		case answers <- answer{v, err}:
		case <-ctx.Done():
			if late, ok := any(v).(io.Closer); ok && err == nil {
				late.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		go func() {
			select {
			case <-done:
			case <-time.After(patience):
				c.Close()
			}
		}()
		var none T
		return none, ctx.Err()
	}
}

// failure reports whether an answer says only that the call failed.
func failure(err error) bool {
	status, ok := errors.AsType[*sftp.StatusError](err)
	return ok && status.FxCode() == sftp.ErrSSHFxFailure
}

// lost reports whether an error says that the connection is gone.
func lost(err error) bool {
	status, ok := errors.AsType[*sftp.StatusError](err)
	return errors.Is(err, sftp.ErrSSHFxConnectionLost) || ok &&
		(status.FxCode() == sftp.ErrSSHFxConnectionLost || status.FxCode() == sftp.ErrSSHFxNoConnection)
}

const readOnly = 1 // ST_RDONLY

// reason finds out why a call failed in a folder if the answer does not say.
func (f *FS) reason(ctx context.Context, c *sftp.Client, dir string, err error) error {
	if !failure(err) {
		return err
	}
	const least = 1 << 20 // bytes with which packets still fit
	at, statErr := c.StatVFS(dir)
	for statErr != nil && !lost(statErr) && dir != path.Dir(dir) { // the folder may not be there
		dir = path.Dir(dir)
		at, statErr = c.StatVFS(dir)
	}
	switch {
	case lost(statErr): // and what the call found out after it had failed is worth nothing
		return statErr
	case statErr != nil:
	case at.Flag&readOnly != 0:
		return fmt.Errorf("%w (%w)", syscall.EROFS, err)
	case at.Bavail*at.Frsize < least, at.Files > 0 && at.Favail == 0:
		return fmt.Errorf("%w (%w)", syscall.ENOSPC, err)
	}
	if why := f.lack(ctx, dir); why != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return err
}

// explain adds to an error of pkg/sftp what was being done.
func explain(err error, op string, names ...string) error {
	_, status := errors.AsType[*sftp.StatusError](err)
	switch {
	case lost(err):
		return job.Errorf(job.Unavailable, "%s %s: the connection was lost: %w", op, strings.Join(names, " "), err)
	case err != fs.ErrNotExist && err != fs.ErrPermission && !status: //nolint:errorlint // as pkg/sftp returns them
		return err
	case len(names) > 1:
		return &os.LinkError{Op: op, Old: names[0], New: names[1], Err: err}
	}
	return &fs.PathError{Op: op, Path: names[0], Err: err}
}

// durably makes a change to what is in some folders, and waits until it is on the disk. It opens
// the folders meanwhile. A server that opens none gives no way to wait.
func durably(c *sftp.Client, change func() error, dirs ...string) error {
	if !has(c, "fsync@openssh.com") {
		return change()
	}
	var folders []*sftp.File
	var errs []error
	var opening sync.WaitGroup
	opening.Go(func() { folders, errs = each(dirs, c.Open) })
	err := change()
	opening.Wait()
	if i := slices.IndexFunc(errs, lost); i >= 0 {
		err = first(err, errs[i])
	}
	_, errs = each(folders, func(folder *sftp.File) (_ struct{}, syncErr error) {
		if folder == nil {
			return
		}
		if err == nil {
			syncErr = folder.Sync()
		}
		go folder.Close() // nothing depends on the answer
		return
	})
	return first(append([]error{err}, errs...)...)
}

// each makes a call with each of some values, all at once.
func each[V, T any](values []V, call func(V) (T, error)) ([]T, []error) {
	answers, errs := make([]T, len(values)), make([]error, len(values))
	var wg sync.WaitGroup
	for i, v := range values {
		wg.Go(func() { answers[i], errs[i] = call(v) })
	}
	wg.Wait()
	return answers, errs
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func has(c *sftp.Client, extension string) bool {
	_, ok := c.HasExtension(extension)
	return ok
}

// Stat describes what name leads to.
func (f *FS) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return ask(ctx, f, func(c *sftp.Client) (fs.FileInfo, error) { return c.Stat(name) }, "stat", name)
}

// List describes what is in a folder. OpenSSH leaves out what it cannot describe, which is
// everything in a folder that may be read but not searched. Such a folder is an error here.
func (f *FS) List(ctx context.Context, dir string) ([]fs.FileInfo, error) {
	infos, err := ask(ctx, f, func(c *sftp.Client) ([]fs.FileInfo, error) {
		infos, err := entries(ctx, c, dir)
		if err == nil && len(infos) == 0 {
			_, err = c.Lstat(dir + "/.")
		}
		return infos, err
	}, "list", dir)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(i fs.FileInfo) bool { return files.Temporary(i.Name()) })
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return strings.Compare(a.Name(), b.Name()) })
	return infos, nil
}

// entries describes what is in a folder. A name that leads out of the folder is none.
func entries(ctx context.Context, c *sftp.Client, dir string) ([]fs.FileInfo, error) {
	infos, err := c.ReadDirContext(ctx, dir)
	return slices.DeleteFunc(infos, func(i fs.FileInfo) bool {
		return i.Name() == "." || i.Name() == ".." || strings.ContainsRune(i.Name(), '/')
	}), err
}

// Mkdir makes a folder and those above it, with mode 0755 less the umask.
func (f *FS) Mkdir(ctx context.Context, dir string) error {
	return f.do(ctx, func(c *sftp.Client) error { return mkdir(c, dir) }, "mkdir", dir)
}

func mkdir(c *sftp.Client, dir string) error {
	err := c.Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "/" {
		if err := mkdir(c, path.Dir(dir)); err != nil {
			return err
		}
		err = c.Mkdir(dir)
	}
	if err == nil || lost(err) {
		return err
	}
	switch info, statErr := c.Stat(dir); {
	case statErr != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return nil
}

// Rename moves a file or a folder.
func (f *FS) Rename(ctx context.Context, from, to string) error {
	dirs := slices.Compact([]string{path.Dir(to), path.Dir(from)})
	return f.do(ctx, func(c *sftp.Client) error {
		return durably(c, func() error { return rename(c, from, to) }, dirs...)
	}, "rename", from, to)
}

// Move renames without waiting for the disk.
func (f *FS) Move(ctx context.Context, from, to string) error {
	return f.do(ctx, func(c *sftp.Client) error { return rename(c, from, to) }, "rename", from, to)
}

// rename refuses to replace a folder, which servers do with an empty one.
func rename(c *sftp.Client, from, to string) error {
	if info, err := c.Lstat(to); err == nil && info.IsDir() {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EEXIST}
	}
	return move(c, from, to)
}

// move replaces a file of the new name.
func move(c *sftp.Client, from, to string) error {
	if has(c, "posix-rename@openssh.com") {
		err := c.PosixRename(from, to)
		if errors.Is(err, fs.ErrNotExist) && there(c, from) && there(c, to) { // OpenSSH says this of both
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.ENOTDIR}
		}
		return err
	}
	err := c.Rename(from, to)
	if failure(err) && there(c, to) {
		return fmt.Errorf("%s is there, and the SFTP server cannot replace it: allow posix-rename@openssh.com there: %w",
			to, errors.ErrUnsupported)
	}
	return err
}

func there(c *sftp.Client, name string) bool {
	_, err := c.Lstat(name)
	return err == nil
}

// Link gives a file a second name.
func (f *FS) Link(ctx context.Context, from, to string) error {
	return f.do(ctx, func(c *sftp.Client) error {
		return durably(c, func() error { return link(c, from, to) }, path.Dir(to))
	}, "link", from, to)
}

// QuickLink links without waiting for the disk.
func (f *FS) QuickLink(ctx context.Context, from, to string) error {
	return f.do(ctx, func(c *sftp.Client) error { return link(c, from, to) }, "link", from, to)
}

func link(c *sftp.Client, from, to string) error {
	if !has(c, "hardlink@openssh.com") {
		return fmt.Errorf("link %s to %s: the SFTP server cannot: allow hardlink@openssh.com there: %w",
			from, to, errors.ErrUnsupported)
	}
	err := c.Link(from, to)
	if failure(err) && there(c, to) {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: fs.ErrExist}
	}
	return err
}

// Symlink makes or replaces a symbolic link.
func (f *FS) Symlink(ctx context.Context, target, name string) error {
	if err := files.CheckTarget(target); err != nil {
		return err
	}
	return f.do(ctx, func(c *sftp.Client) error {
		return durably(c, func() error {
			err := c.Symlink(target, name)
			if !failure(err) {
				return err
			}
			info, statErr := c.Lstat(name)
			switch {
			case statErr != nil:
				return err
			case info.Mode().Type() != fs.ModeSymlink:
				return &fs.PathError{Op: "symlink", Path: name, Err: fs.ErrExist}
			}
			tmp := files.TemporaryFor(name)
			if err := c.Symlink(target, tmp); err != nil {
				return err
			}
			if err = move(c, tmp, name); err != nil {
				c.Remove(tmp) //nolint:errcheck // the error that counts is the one before
			}
			return err
		}, path.Dir(name))
	}, "symlink", name)
}

// maxLinks is how many links one name may lead through, as on Linux.
const maxLinks = 40

// Resolve follows symbolic links. Servers differ in what their own way of it follows.
func (f *FS) Resolve(ctx context.Context, name string) (string, error) {
	return ask(ctx, f, func(c *sftp.Client) (string, error) {
		at, parts := "/", strings.Split(name, "/")
		for range maxLinks {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			next, rest, err := straight(c, at, parts)
			if err != nil || rest == nil {
				return next, err
			}
			at = path.Dir(next)
			if shown(at) {
				return path.Join(next, path.Join("/", path.Join(rest...))), nil
			}
			target, err := c.ReadLink(next)
			if err != nil {
				return "", explain(err, "resolve", next)
			}
			if path.IsAbs(target) {
				at = "/"
			}
			parts = append(strings.Split(target, "/"), rest...)
		}
		return "", fmt.Errorf("resolve %s: %w: %w", name, syscall.ELOOP, fs.ErrNotExist)
	}, "resolve", name)
}

// straight goes from a folder along parts of a name up to the first symbolic link, and returns that
// and the parts after it. They are nil if there is no link. It looks at all parts at once.
func straight(c *sftp.Client, at string, parts []string) (link string, rest []string, err error) {
	names := make([]string, len(parts))
	for i, part := range parts {
		at = path.Join(at, part) // which is right for .. too, since nothing before the first link is one
		names[i] = at
	}
	infos, errs := each(names, c.Lstat)
	for i, info := range infos {
		switch last := i == len(parts)-1; {
		case errs[i] != nil:
			return "", nil, explain(errs[i], "resolve", names[i])
		case info.Mode().Type() == fs.ModeSymlink:
			return names[i], parts[i+1:], nil
		case !info.IsDir() && !last:
			return "", nil, fmt.Errorf("resolve %s: %w: %w", names[i], syscall.ENOTDIR, fs.ErrNotExist)
		}
	}
	return at, nil, nil
}

// Volume goes up from dir as long as the file system stays the same.
func (f *FS) Volume(ctx context.Context, dir string) (string, error) {
	at, err := files.Real(ctx, f, dir)
	if err != nil {
		return "", err
	}
	return ask(ctx, f, func(c *sftp.Client) (top string, _ error) {
		names := []string{at}
		for up := at; up != "/"; names = append(names, up) {
			up = path.Dir(up)
		}
		systems, errs := each(names, c.StatVFS)
		var volume uint64
		for i, system := range systems {
			switch {
			case errors.Is(errs[i], fs.ErrNotExist) && top == "":
				continue
			case errs[i] != nil:
				return "", errs[i]
			case top != "" && system.Fsid != volume:
				return top, nil
			}
			top, volume = names[i], system.Fsid
		}
		if volume == 0 {
			return "", errors.ErrUnsupported
		}
		return top, nil
	}, "volume", dir)
}

// Shows reports whether a name is in /proc.
func (f *FS) Shows(ctx context.Context, name string) (bool, error) {
	real, err := files.Real(ctx, f, name)
	return shown(real), err
}

func shown(name string) bool { return strings.HasPrefix(name+"/", "/proc/") }

// Chmod gives a file or a folder a mode.
func (f *FS) Chmod(ctx context.Context, name string, mode fs.FileMode) error {
	return f.do(ctx, func(c *sftp.Client) error {
		info, err := c.Lstat(name)
		switch {
		case err != nil:
			return err
		case info.Mode().Type() == fs.ModeSymlink:
			return &fs.PathError{Op: "chmod", Path: name, Err: errors.ErrUnsupported}
		}
		return c.Chmod(name, mode)
	}, "chmod", name)
}

// stampsAtOnce is how many files are stamped in one round trip.
const stampsAtOnce = 100

// Stamp sets when files were last changed. That they were read today keeps them from being cleared
// away as unused.
func (f *FS) Stamp(ctx context.Context, at time.Time, names ...string) error {
	now, errs, turns := time.Now(), make([]error, len(names)), make(chan struct{}, stampsAtOnce)
	var work sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		work.Go(func() {
			errs[i] = f.do(ctx, func(c *sftp.Client) error { return c.Chtimes(name, now, at) }, "stamp", name)
			<-turns
		})
	}
	work.Wait()
	return cmp.Or(errs...)
}

// Space does not count the blocks that are reserved for root.
func (f *FS) Space(ctx context.Context, name string) (files.Space, error) {
	return ask(ctx, f, func(c *sftp.Client) (files.Space, error) {
		at, err := c.StatVFS(name)
		if err != nil {
			return files.Space{}, err
		}
		return files.Space{
			Size:     int64((at.Blocks - (at.Bfree - at.Bavail)) * at.Frsize), //nolint:gosec // no file system has more
			Free:     int64(at.Bavail * at.Frsize),                            //nolint:gosec // the same
			NoFile:   at.Files > 0 && at.Favail == 0,
			ReadOnly: at.Flag&readOnly != 0,
		}, nil
	}, "statvfs", name)
}
