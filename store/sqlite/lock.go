package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/job"
)

// lockFolder takes the lock of a folder for the life of the returned file. The kernel frees it when the process
// dies, however it dies.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
		}
		holder := "another process"
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			holder = strings.TrimSpace(string(b))
		}
		return nil, job.Errorf(job.Locked, "data folder %s is in use by %s: wait for it, stop it, or use another folder with --dir", dir, holder)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
		if err != nil {
			f.Close()
			return nil, job.Errorf(job.Unavailable, "lock data folder %s: %w", dir, err)
		}
	}
	return f, nil
}
