package local

import (
	"bytes"
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
	return err == nil && s.start == p.Start && s.alive(), err
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

// stat is what is used of /proc/PID/stat.
type stat struct {
	name                 string // of the program, or of a thread; cut to 15 bytes
	pid, parent, session int
	state                byte
	threads              int
	start                uint64 // clock ticks since boot
	// tells one program that it becomes from the next; 0: it is becoming one, or may not be asked
	image uint64
}

// alive reports whether the process still runs. Zombies (Z) and the dead (X) do not, except that
// the first thread of a process may be a zombie while others run.
func (s stat) alive() bool {
	return s.state != 'Z' && s.state != 'X' && s.state != 'x' || s.threads > 1
}

// begun returns the stat of a child that has become the program with this name. syscall.ForkExec
// does not tell whether it has: until a child has a session of its own, a signal for all that runs
// at a terminal ends it, such as that of Ctrl-C, and ForkExec takes that for success. The child
// bears the name of this process until it is the program, or dead.
func begun(ctx context.Context, pid int, name string) (stat, error) {
	own, err := readStat(os.Getpid())
	if err != nil {
		return stat{}, err
	}
	for {
		s, err := readStat(pid)
		switch {
		case err != nil || s.name != own.name || name == own.name:
			return s, err
		case !s.alive():
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

func readStat(pid int) (stat, error) {
	name := "/proc/" + strconv.Itoa(pid) + "/stat"
	var room [1024]byte // what is used of it stands in the first half at the most
	n, err := readOnce(name, room[:])
	if err != nil {
		return stat{}, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return parseStat(room[:n])
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

// parseStat reads proc_pid_stat(5). The second field is the name of the program in parentheses and
// may hold anything, so the others are counted from the last closing one.
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return stat{}, fmt.Errorf("stat of a process: no name in %q", b)
	}
	f := bytes.Fields(b[end+1:]) // f[i] is field i+3
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("stat of a process: too few fields in %q", b)
	}
	var errs [6]error
	number := func(i int, text []byte) int {
		n, err := strconv.Atoi(string(text))
		errs[i] = err
		return n
	}
	s := stat{state: f[0][0], name: string(b[open+1 : end])}
	s.pid = number(0, bytes.TrimSpace(b[:open]))
	s.parent = number(1, f[1])
	s.session = number(2, f[3])
	s.threads = number(3, f[17])
	s.start, errs[4] = strconv.ParseUint(string(f[19]), 10, 64)
	// Of what belongs to a program the kernel lays down first where the stack begins (startstack),
	// at another place for each, then the environment, and then where the code ends (endcode).
	if len(f) > 25 && string(f[24]) != "0" {
		s.image, errs[5] = strconv.ParseUint(string(f[25]), 10, 64)
	}
	return s, errors.Join(errs[:]...)
}

// gone reports whether err says that a process is no more: a read of an open /proc file then gives
// ESRCH.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
