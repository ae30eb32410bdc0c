package sftp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"

	"github.com/pkg/sftp"

	"github.com/pawl-jobs/pawl/job"
)

// Remove removes a name and all below it.
func (f *FS) Remove(ctx context.Context, name string) error {
	if name == "/" {
		return job.Errorf(job.Invalid, "remove %s: refused", name)
	}
	folder, err := f.remove(ctx, name, f.Shell != nil)
	if err == nil && folder {
		var gone bool
		if gone, err = f.rm(ctx, name); err == nil && !gone {
			_, err = f.remove(ctx, name, false)
		}
	}
	return err
}

// remove is Remove by SFTP. If folders are left, it reports whether name is one.
func (f *FS) remove(ctx context.Context, name string, leave bool) (folder bool, err error) {
	err = f.do(ctx, func(c *sftp.Client) error {
		err := unlink(c, name)
		if err == nil || errors.Is(err, fs.ErrNotExist) || lost(err) {
			return err
		}
		r := removal{ctx: ctx, c: c, top: name, turns: make(chan struct{}, atOnce)}
		info, statErr := c.Lstat(name)
		switch {
		case statErr != nil:
			return statErr
		case !info.IsDir():
			return r.stays(name, info, err)
		case leave:
			folder = true
			return nil
		}
		if has(c, "statvfs@openssh.com") {
			if at, err := c.StatVFS(path.Dir(name)); err == nil {
				r.volume = at.Fsid
			}
		}
		if !r.folder(name, info) {
			return r.first
		}
		return nil
	}, "remove", name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return folder, err
}

// unlink removes a file, a link or an empty folder. pkg/sftp may look behind a link that stays, and
// then says that nothing is there.
func unlink(c *sftp.Client, name string) error {
	err := bare(c.Remove(name))
	if errors.Is(err, fs.ErrNotExist) && there(c, name) {
		return fs.ErrPermission
	}
	return err
}

// bare is an error without the name that pkg/sftp gives to some.
func bare(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

const (
	// atOnce is how many names are removed at a time.
	atOnce = 16
	// maxPasses is how often a folder is read until it is empty. A program may go on to put files
	// there.
	maxPasses = 100
	// maxName is how long names get, in bytes. Folders with longer ones come up to the topmost one
	// first, since no system takes a path of more than 4,096.
	maxName = 2048
)

// A removal is one call of Remove.
type removal struct {
	ctx    context.Context
	c      *sftp.Client
	top    string
	volume uint64 // the file system that has top; 0: unknown
	turns  chan struct{}

	mu    sync.Mutex
	first error // why the first name stays; guarded by mu
}

// failed notes why a name stays. It returns false.
func (r *removal) failed(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first = first(r.first, err)
	return false
}

// folder removes a folder and all below it, and reports whether it is gone.
func (r *removal) folder(name string, info fs.FileInfo) bool {
	if r.volume != 0 {
		if at, err := r.c.StatVFS(name); err == nil && at.Fsid != r.volume {
			return r.failed(job.Errorf(job.Conflict,
				"%s cannot be removed: something is mounted there: unmount it", name))
		}
	}
	var shut error
	if info.Mode()&0o700 != 0o700 {
		shut = r.c.Chmod(name, info.Mode()|0o700)
	}
	if len(name) > maxName {
		err := move(r.c, name, path.Join(r.top, ".pawl-deep-"+rand.Text()))
		return err == nil || r.failed(r.stays(name, info, err))
	}
	for pass := 1; ; pass++ {
		infos, err := entries(r.ctx, r.c, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return true // and so it is if it is no folder any more: the one above is read again
		case err != nil:
			return r.failed(r.stays(name, info, first(shut, err)))
		}
		left := r.all(name, infos)
		if left == 0 {
			err = bare(r.c.RemoveDirectory(name))
		}
		switch {
		case left == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)):
			return true
		case err != nil && (!failure(err) || len(infos) == 0 || pass == maxPasses):
			return r.failed(r.stays(name, info, first(shut, err)))
		case left > 0 && (left == len(infos) || pass == maxPasses):
			return false
		case r.ctx.Err() != nil:
			return r.failed(r.ctx.Err())
		}
		// something was put there meanwhile
	}
}

// all removes what is in a folder, several names at a time, and returns how many stay.
func (r *removal) all(dir string, infos []fs.FileInfo) int {
	var wg sync.WaitGroup
	var left atomic.Int64
	for _, info := range infos {
		one := func() {
			if !r.name(path.Join(dir, info.Name()), info) {
				left.Add(1)
			}
		}
		select {
		case r.turns <- struct{}{}:
			wg.Go(func() {
				one()
				<-r.turns
			})
		default:
			one()
		}
	}
	wg.Wait()
	return int(left.Load())
}

// name removes one name in a folder.
func (r *removal) name(name string, info fs.FileInfo) bool {
	if err := r.ctx.Err(); err != nil {
		return r.failed(err)
	}
	if info.IsDir() {
		return r.folder(name, info)
	}
	err := unlink(r.c, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return r.failed(r.stays(name, info, err))
}

// stays is why a name cannot be removed. If somebody has to lend a hand, it is a Conflict and says
// how.
func (r *removal) stays(name string, info fs.FileInfo, err error) error {
	var why string
	switch {
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	case errors.Is(err, fs.ErrPermission):
		why = "it, or the folder that it is in, belongs to another user" + owner(info) + ": remove it as root " +
			"(if it is immutable: chattr -i -a)"
	case failure(err) && info.IsDir():
		why = "something is mounted there, or is still being put there: unmount it, or end the program that does so"
	case failure(err):
		why = "its file system may only be read, or the server gives no reason: look there"
	default:
		return explain(err, "remove", name)
	}
	return job.Errorf(job.Conflict, "%s cannot be removed: %s (%w)", name, why, err)
}

func owner(info fs.FileInfo) string {
	if at, ok := info.Sys().(*sftp.FileStat); ok {
		return fmt.Sprintf(" (its user id is %d)", at.UID)
	}
	return ""
}
