package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Folder is a data folder that is open: the one that had this path then, whatever has it later.
type Folder struct {
	path string
	f    *os.File
}

// believed are what a process believes that it finds in a data folder: whoever can change one of
// them decides what runs. What begins with the name of the database belongs to it.
var believed = []string{
	"token", "job-key", "pawl.yaml", "machine", "shared", "lock", "owner", "server", "pawl.db", "ends",
	"past", "work", "archive", "logins",
}

// Open opens a data folder for its owner alone, and makes it if it is not there. A folder, or a
// part of it, that belongs to somebody else or that others may write is refused; one that others
// may read is closed to them, which tell is told.
func Open(path string, tell func(string)) (*Folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: name one that can be made, with --dir or PAWL_DIR", err)
		}
		return nil, job.Errorf(job.Unavailable, "make data folder: %w", err)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		if info, statErr := os.Stat(path); statErr == nil {
			err = errors.Join(owned(path, info), err)
		}
		return nil, job.Errorf(job.Invalid, "open data folder: %w", err)
	}
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "open data folder: %w", err)
	}
	d := &Folder{path, f}
	if err := d.secure(tell); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// Close lets go of the folder.
func (d *Folder) Close() error { return d.f.Close() }

// Check returns an error if the path of the folder leads elsewhere by now.
func (d *Folder) Check() error {
	was, err := d.f.Stat()
	if err != nil {
		return job.Errorf(job.Unavailable, "look at data folder: %w", err)
	}
	switch is, err := os.Stat(d.path); {
	case job.Shortage(err):
		return nil // it cannot be seen now
	case err != nil:
		return job.Errorf(job.Corrupt, "data folder %s was moved away or removed while Pawl worked in it (%w): "+
			"put it back, or start Pawl with the folder where it is now", d.path, err)
	case !os.SameFile(was, is):
		return job.Errorf(job.Corrupt, "another folder has taken the place of data folder %s: put the one back "+
			"that was there, or start Pawl anew", d.path)
	}
	return nil
}

// lost returns an error if the folder names another owner than this process, or none.
func (d *Folder) lost() error {
	me, err := self()
	if err != nil {
		return nil //nolint:nilerr // it cannot be seen now
	}
	switch o, err := readOwner(d.path); {
	case err != nil && job.KindOf(err) != job.Corrupt: // it cannot be seen now
	case o == nil:
		return job.Errorf(job.Locked, "data folder %s was taken from this process, as by pawl unlock on another host: "+
			"look there before you start Pawl again", d.path)
	case !o.is(&me):
		return job.Errorf(job.Locked, "data folder %s was taken from this process: %v has it", d.path, o)
	}
	return nil
}

// secure sees that nobody else can change what is believed, or read what is secret.
func (d *Folder) secure(tell func(string)) error {
	info, err := d.f.Stat()
	if err != nil {
		return job.Errorf(job.Unavailable, "look at data folder: %w", err)
	}
	if err := owned(d.path, info); err != nil {
		return job.Errorf(job.Invalid, "%w", err)
	}
	entries, err := d.f.ReadDir(-1)
	if err != nil {
		return job.Errorf(job.Unavailable, "read data folder: %w", err)
	}
	if len(entries) > 0 && info.Mode()&0o022 != 0 {
		return job.Errorf(job.Invalid, "others than its owner may write data folder %s (%v), and may have put "+
			"something there: look at what is in it, then chmod 700 %s",
			d.path, info.Mode().Perm(), d.path)
	}
	if info.Mode()&0o077 != 0 {
		if err := d.f.Chmod(0o700); err != nil {
			return job.Errorf(job.Invalid,
				"others than its owner may read data folder %s, and that cannot be changed: %w", d.path, err)
		}
		tell(fmt.Sprintf("data folder %s was open to others (%v): it is for its owner alone now (0700)", d.path,
			info.Mode().Perm()))
	}
	var faults []error
	for _, e := range entries {
		name := filepath.Join(d.path, e.Name())
		for _, b := range believed {
			if e.Name() == b || b == "pawl.db" && strings.HasPrefix(e.Name(), b+"-") {
				faults = append(faults, trusted(name))
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return job.Errorf(job.Invalid, "%w", err)
	}
	return nil
}

// trusted returns an error if others than the user of this process, or root, can change what is
// believed.
func trusted(name string) error {
	link, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // since it was listed
	}
	if err != nil {
		return err
	}
	if err := owned(name, link); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return errors.Join(owned(name, info), unwritten(name, info))
}

// owned returns an error unless something belongs to the user of this process, or to root.
func owned(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	own := os.Geteuid()
	if !ok || int(stat.Uid) == own || stat.Uid == 0 && !info.IsDir() {
		return nil
	}
	advice := fmt.Sprintf("run Pawl as that user (in a container: --user %d:%d), or give it to this one: chown -R %d %s",
		stat.Uid, stat.Gid, own, name)
	if !info.IsDir() {
		advice = fmt.Sprintf("look at what is in it; then remove it, or give it to this user: chown %d %s", own, name)
	}
	return fmt.Errorf("%s belongs to %s, and Pawl runs as %s: %s", name, userOf(int(stat.Uid)), userOf(own), advice)
}

// unwritten returns an error if others than its owner may write something.
func unwritten(name string, info fs.FileInfo) error {
	if info.Mode()&0o022 == 0 {
		return nil
	}
	return fmt.Errorf("others than its owner may write %s (%v): look at what is in it, then chmod go-w %s", name,
		info.Mode().Perm(), name)
}

// userOf names a user.
func userOf(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return "user " + u.Username
	}
	return fmt.Sprintf("user %d", id)
}

// mostOwn is how many bytes a file may have that is read whole.
const mostOwn = 1 << 20

// ReadOwn reads a file that is believed: one of the user of this process, or of root, that nobody
// else may write. It reads as [Read] does.
func ReadOwn(name string) ([]byte, error) {
	return read(name, func(info fs.FileInfo) error {
		if err := errors.Join(owned(name, info), unwritten(name, info)); err != nil {
			return job.Errorf(job.Invalid, "%w", err)
		}
		return nil
	})
}

// Read reads a file of the folder, which a program of the user may have put there: one of at most 1
// MiB. It never waits for who would write a pipe.
func Read(name string) ([]byte, error) {
	return read(name, func(fs.FileInfo) error { return nil })
}

func read(name string, check func(fs.FileInfo) error) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, job.Errorf(job.Invalid, "%s is not a file: put one in its place", name)
	case info.Size() > mostOwn:
		return nil, job.Errorf(job.Invalid,
			"%s has %d bytes, more than any such file: put the right one in its place", name, info.Size())
	}
	if err := check(info); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, mostOwn))
}

// lookAgain is how often it is seen that a folder is where it was. To be told by the kernel costs
// more: an inotify that is closed holds up the end of its process for some ten milliseconds.
const lookAgain = time.Second

// Moved returns once the path of the folder leads elsewhere, or another process has become its
// owner, with an error that says so; nil: ctx has ended.
func (d *Folder) Moved(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	named := Network(d.path) && !Shared(d.path)
	for {
		if err := d.Check(); err != nil {
			return err
		}
		if named {
			if err := d.lost(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
