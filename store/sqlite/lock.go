package sqlite

import (
	"errors"
	"fmt"
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

// orphaned reports whether the holder of a lock, who wrote this text into it, is a process of this host that is dead.
// Its lock is then held only by a child of it that has not come from its fork to its exec yet, which closes the file.
func orphaned(holder, host string) bool {
	var pid int
	var on string
	if n, err := fmt.Sscanf(holder, holderFormat, &pid, &on); n != 2 || err != nil || on != host || pid <= 1 {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lockFolder takes the lock of a folder for the life of the returned file. The kernel frees it when the process
// dies, however it dies.
func lockFolder(dir string) (*os.File, error) {
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
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		b, readErr := os.ReadFile(path)
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
			err = job.Errorf(job.Locked, "data folder %s is in use by %s: wait for it, stop it, or use another folder with --dir", dir, holder)
		}
		f.Close()
		return nil, err
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, holderFormat+"\n", os.Getpid(), host), 0)
		if err != nil {
			f.Close()
			return nil, job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
		}
	}
	return f, nil
}
