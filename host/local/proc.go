package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/internal/procfs"
	"github.com/pawl-jobs/pawl/job"
)

// Alive makes one system call for each running child of this process. For each other process it
// reads one file.
func (h *Host) Alive(ctx context.Context, ps []host.Process) ([]bool, error) {
	boot, err := h.Boot(ctx)
	if err != nil {
		return nil, err
	}
	alive := make([]bool, len(ps))
	for i, p := range ps {
		if alive[i], err = h.alive(p, boot); err != nil {
			return nil, fmt.Errorf("look at process %d: %w", p.PID, err)
		}
	}
	return alive, nil
}

func (h *Host) alive(p host.Process, boot string) (bool, error) {
	if p.PID <= 1 || p.Boot != boot {
		return false, nil
	}
	if h.runsHere(p) {
		return true, nil // its pid is its own until it is reaped
	}
	s, err := readStat(p.PID)
	if gone(err) {
		return false, nil
	}
	return err == nil && s.Start == p.Start && s.Alive(), err
}

// Signal sends sig to each process, unless its pid belongs to another one now.
func (h *Host) Signal(ctx context.Context, ps []host.Process, sig syscall.Signal) error {
	boot, err := h.Boot(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range ps {
		alive, err := h.alive(p, boot)
		if err == nil && alive {
			err = kill(p.PID, sig)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("signal process %d: %w", p.PID, err))
		}
	}
	return errors.Join(errs...)
}

// LockLimit returns the limit of this process, which programs inherit.
func (h *Host) LockLimit(ctx context.Context) (uint64, error) {
	var r unix.Rlimit
	if err := errors.Join(ctx.Err(), unix.Getrlimit(unix.RLIMIT_LOCKS, &r)); err != nil {
		return 0, fmt.Errorf("limit of file locks: %w", err)
	}
	return r.Max, nil
}

// kill is kill(2); a target that is gone is no error.
func kill(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// begun returns the stat of a child that has become the program with this name. syscall.ForkExec
// does not tell whether it has: until a child has a session of its own, a signal for all that runs
// at a terminal ends it, such as that of Ctrl-C, and ForkExec takes that for success. The child
// bears the name of this process until it is the program, or dead.
func begun(ctx context.Context, pid int, name string) (procfs.Stat, error) {
	own, err := readStat(os.Getpid())
	if err != nil {
		return procfs.Stat{}, err
	}
	for {
		s, err := readStat(pid)
		switch {
		case err != nil || s.Name != own.Name || name == own.Name:
			return s, err
		case !s.Alive():
			return s, job.Errorf(job.Unavailable,
				"a signal ended it before it had begun, such as that of Ctrl-C in the terminal of this process")
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(20 * time.Microsecond):
		}
	}
}

// nameOf returns the name that a process has once it has become a program.
func nameOf(program string) string {
	name := path.Base(program)
	return name[:min(15, len(name))]
}

func readStat(pid int) (procfs.Stat, error) {
	name := "/proc/" + strconv.Itoa(pid) + "/stat"
	var room [1024]byte // what is used of it stands in the first half at the most
	n, err := readOnce(name, room[:])
	if err != nil {
		return procfs.Stat{}, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return procfs.ParseStat(room[:n])
}

// readOnce reads the beginning of a file of /proc. An [os.File] would take twice as many system
// calls, and there may be very many processes.
func readOnce(name string, b []byte) (int, error) {
	fd, err := again(func() (int, error) { return syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	return again(func() (int, error) { return syscall.Read(fd, b) })
}

func again(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// gone reports whether err says that a process is no more: a read of an open /proc file then gives
// ESRCH.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
