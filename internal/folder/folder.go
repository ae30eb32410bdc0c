// Package folder holds what a data folder is by itself: the one of a process, or of several, and a
// machine.
package folder

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// holderFormat is what the holder of a lock writes into it: its pid and host.
const holderFormat = "process %d on %s"

// orphanWait is how long a lock may outlive its holder.
const orphanWait = 5 * time.Second

// orphaned reports whether the holder of a lock, who wrote this text into it, is a process of this
// host that is dead. Its lock is then held only by a child of it that has not come from its fork to
// its exec yet, which closes the file.
func orphaned(holder, host string) bool {
	var pid int
	var on string
	if n, err := fmt.Sscanf(holder, holderFormat, &pid, &on); n != 2 || err != nil || on != host || pid <= 1 {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// A Lock is a folder that this process has, until it is closed or the process dies.
type Lock struct {
	file  *os.File
	dir   string
	owner *Owner // this process, where machines share the file system; nil: where they do not
}

// Close frees the folder.
func (l *Lock) Close() error {
	var err error
	if l.owner != nil {
		err = dismiss(l.dir, l.owner)
		l.owner = nil
	}
	if closed := l.file.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// Take takes a folder for this process alone. The kernel frees it when the process dies, however it
// dies. The error is of kind Locked where other processes have it. Where machines share the file
// system the folder names its owner, too: one that is dead is followed at once on its own host, and
// on another one only after [Unlock].
func Take(dir string) (*Lock, error) { return take(dir, false) }

// TakeToRead is Take for a moment: others that want the folder wait.
func TakeToRead(dir string) (*Lock, error) { return take(dir, true) }

// readWait is how long a process waits for one that only reads.
const readWait = 10 * time.Second

func take(dir string, reads bool) (*Lock, error) {
	shared, err := onNetwork(dir)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(readWait); ; {
		l, err := takeNow(dir, reads, shared)
		if _, wait := errors.AsType[*readingError](err); !wait || time.Now().After(until) {
			return l, err
		}
		<-time.After(5 * time.Millisecond)
	}
}

func takeNow(dir string, reads, shared bool) (*Lock, error) {
	f, err := lock(dir, syscall.LOCK_EX, shared)
	if err != nil {
		return nil, err
	}
	l := &Lock{file: f, dir: dir}
	if shared {
		o, err := claim(dir, reads)
		if err != nil {
			f.Close()
			return nil, err
		}
		l.owner = &o
	}
	if err := sign(f, dir, fmt.Sprintf(holderFormat, os.Getpid(), hostname())); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Join takes a folder for this process and others that join it, whose jobs are elsewhere. The error
// is of kind Locked where a process has it alone.
func Join(dir string) (*Lock, error) {
	f, err := lock(dir, syscall.LOCK_SH, false)
	if err != nil {
		return nil, err
	}
	l := &Lock{file: f, dir: dir}
	if err := sign(f, dir, "processes on "+hostname()+" that share a database"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// A readingError says that a process has a folder for a moment, to read.
type readingError struct{ error }

func (e *readingError) Unwrap() error { return e.error }

// inUse is the error of a folder that others have.
func inUse(dir, holder string, reading bool) error {
	err := job.Errorf(job.Locked,
		"data folder %s is in use by %s: wait for it, stop it, or use another folder", dir, holder)
	if reading {
		return &readingError{err}
	}
	return err
}

// Mark says of a folder which this process has joined that its jobs are elsewhere: from then on
// [Shared] holds of it, also when no process is there.
func Mark(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, sharedFile), []byte(sharedText), 0o600); err != nil {
		return job.Errorf(job.Unavailable, "mark data folder: %w", err)
	}
	return nil
}

// sharedFile marks a folder whose jobs are in a database that many processes share.
const (
	sharedFile = "shared"
	sharedText = "The jobs of this folder are in a database that many processes share.\n"
)

// Shared reports whether a folder is marked: then its jobs are not in it.
func Shared(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, sharedFile))
	return err == nil
}

// lock locks the file of a folder. Where machines share the file system it tells of the owner whom
// the folder names, and may be without such locks.
func lock(dir string, how int, shared bool) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "lock data folder: %w", err)
	}
	for until := time.Now().Add(orphanWait); ; {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil || shared && lockless(err) {
			break
		}
		b, readErr := Read(path)
		holder := strings.TrimSpace(string(b))
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			err = job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
		case orphaned(holder, hostname()) && time.Now().Before(until):
			<-time.After(time.Millisecond)
			continue
		default:
			err = heldBy(dir, holder, readErr, shared)
		}
		f.Close()
		return nil, err
	}
	return f, nil
}

// sign writes into the lock of a folder who holds it.
func sign(f *os.File, dir, holder string) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(holder+"\n"), 0)
	}
	if err != nil {
		return job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
	}
	return nil
}

// hostname names this host.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "this host"
	}
	return host
}

// lockless reports whether a file system has no locks.
func lockless(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOLCK, syscall.ENOTSUP, syscall.ENOSYS}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// heldBy is the error of a folder that others have locked.
func heldBy(dir, holder string, readErr error, shared bool) error {
	if readErr != nil || holder == "" {
		holder = "another process"
	}
	if !shared {
		return inUse(dir, holder, false)
	}
	switch o, err := OwnerOf(dir); {
	case err != nil && o != nil && o.Sockets == "":
		return &readingError{err}
	case err != nil:
		return err
	case o == nil: // it has just begun, or ends
		return inUse(dir, holder, true)
	default:
		return inUse(dir, o.String(), o.Sockets == "")
	}
}

// Held reports whether a process has a folder, alone or with others.
func Held(dir string) bool {
	if Network(dir) && !Shared(dir) {
		o, err := OwnerOf(dir)
		return o != nil || err != nil
	}
	// The kernel's list shows the lock. To try it could turn away another process that wants it.
	info, err := os.Stat(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	return ok && err == nil && strings.Contains(string(locks), fmt.Sprintf(":%d 0 EOF\n", stat.Ino))
}

// Machine returns the id of the machine that a folder stands for. It is made once, with the folder;
// of several processes that begin at once one makes it. A folder that has had programs and has none
// is damaged: with another id nobody would look after them.
func Machine(dir string) (string, error) {
	name := filepath.Join(dir, "machine")
	if id, err := readMachine(name); !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	for _, made := range []string{"ends", "past", "work"} {
		if _, err := os.Lstat(filepath.Join(dir, made)); err == nil {
			return "", job.Errorf(job.Corrupt, "%s is missing: it held the id of the machine that jobs of this "+
				"folder belong to; restore it, or write the machine there "+
				"that pawl show names (echo ID >%s)", name, name)
		}
	}
	var id [6]byte
	rand.Read(id[:])
	// A letter comes first: written in a document it is no number of YAML, such as 0123e4567890.
	id[0] |= 0xc0
	f, err := os.CreateTemp(dir, ".machine-*") // 0600
	if err != nil {
		return "", job.Errorf(job.Unavailable, "machine id: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(id[:]) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Link(f.Name(), name)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", job.Errorf(job.Unavailable, "machine id: %w", err)
	}
	return readMachine(name)
}

// Known reports whether a folder stands for a machine already: [Machine] was called for it.
func Known(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "machine"))
	return err == nil
}

func readMachine(name string) (string, error) {
	b, err := ReadOwn(name)
	if kind := job.KindOf(err); kind == job.Invalid {
		return "", err
	}
	if err != nil {
		return "", job.Errorf(job.Unavailable, "machine id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", job.Errorf(job.Corrupt, "%s is empty: it held the id of the machine that jobs of this folder "+
			"belong to; restore it, or write the machine that pawl show names", name)
	}
	return id, nil
}
