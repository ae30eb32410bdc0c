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

// Take takes a folder for this process alone, for the life of the returned file. The kernel frees
// it when the process dies, however it dies. The error is of kind Locked where other processes have
// it.
func Take(dir string) (*os.File, error) { return lock(dir, syscall.LOCK_EX) }

// Join takes a folder for this process and others that join it, whose jobs are elsewhere. The error
// is of kind Locked where a process has it alone.
func Join(dir string) (*os.File, error) { return lock(dir, syscall.LOCK_SH) }

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

func lock(dir string, how int) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "lock data folder: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	for until := time.Now().Add(orphanWait); ; {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			break
		}
		b, readErr := Read(path)
		holder := strings.TrimSpace(string(b))
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			err = job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
		case orphaned(holder, host) && time.Now().Before(until):
			<-time.After(time.Millisecond)
			continue
		default:
			if readErr != nil || holder == "" {
				holder = "another process"
			}
			err = job.Errorf(job.Locked,
				"data folder %s is in use by %s: wait for it, stop it, or use another folder with --dir", dir, holder)
		}
		f.Close()
		return nil, err
	}
	holder := fmt.Sprintf(holderFormat, os.Getpid(), host)
	if how == syscall.LOCK_SH {
		holder = "processes on " + host + " that share a database"
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(holder+"\n"), 0)
		if err != nil {
			f.Close()
			return nil, job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
		}
	}
	return f, nil
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
