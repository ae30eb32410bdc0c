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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/guard"
	"github.com/pawl-jobs/pawl/job"
)

// Inspect tells what has become of processes. It makes one system call for each child of this process that runs, reads
// one file for each other, and looks through all processes of the machine once if a leader is dead and its pid is still
// in use.
func (h *Host) Inspect(ctx context.Context, ps []host.Process) ([]host.Life, error) {
	boot, err := h.Boot(ctx)
	if err != nil {
		return nil, err
	}
	lives := make([]host.Life, len(ps))
	var dead []int // indices of those whose session may live on
	for i, p := range ps {
		l, err := h.leader(p, boot)
		if err != nil {
			return nil, fmt.Errorf("inspect process %d: %w", p.PID, err)
		}
		if lives[i] = l; l == host.Orphaned {
			dead = append(dead, i)
		}
	}
	if len(dead) == 0 {
		return lives, nil
	}
	look, err := h.looks.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	for _, i := range dead {
		if len(look[ps[i].PID]) == 0 {
			lives[i] = host.Gone
		}
	}
	return lives, nil
}

// leader judges a process by itself alone: Alive, Gone, or Orphaned for a leader that is dead while others of its
// session may live. The kernel gives a pid to nobody while it names a session or a group, so a pid that is taken by
// another, or that is nobody's, proves that the session is gone.
func (h *Host) leader(p host.Process, boot string) (host.Life, error) {
	if p.PID <= 1 || p.Boot != boot && !guard.Boot.Off() {
		return host.Gone, nil
	}
	if h.runsHere(p) {
		return host.Alive, nil // its pid is its own until it is reaped
	}
	switch s, err := readStat(p.PID); {
	case gone(err) && unused(p.PID):
		return host.Gone, nil
	case gone(err):
		return host.Orphaned, nil
	case err != nil:
		return "", err
	case s.start != p.Start:
		return host.Gone, nil
	case s.alive():
		return host.Alive, nil
	}
	return host.Orphaned, nil
}

// unused reports whether a pid is for certain nobody's: neither of a process nor of a thread, a process group or a
// session, of which even a member in another group counts. A scan of /proc is the only other way to find the members of
// a session. This one takes microseconds: the kernel refuses to make the owner of a file from a pid that it does not
// know, and asks no more of it than that it is in use.
func unused(pid int) bool { return knowsAnyRole() && errors.Is(own(pid), syscall.ESRCH) }

// knowsAnyRole reports whether [own] tells the truth of every role, and not only of groups as it does in gVisor: it does
// if it knows a thread, which is no process, group or session. Linux before 4.14 never answers ESRCH, which is no harm.
var knowsAnyRole = sync.OnceValue(func() bool {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil && id != os.Getpid() && own(id) == nil {
			return true
		}
	}
	return false
})

// own makes a process group the owner of a file that never sends anybody a signal.
func own(group int) error {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETOWN, -group)
	return err
}

// Signal sends sig to the process group of p and to each other process of its session. Calls that come while another
// looks through the processes of the machine share the next look.
func (h *Host) Signal(ctx context.Context, p host.Process, sig syscall.Signal) error {
	boot, err := h.Boot(ctx)
	if err != nil {
		return err
	}
	l, err := h.leader(p, boot)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	if l == host.Gone {
		return nil
	}
	look, err := h.looks.begin(ctx)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	var errs []error
	for _, s := range look[p.PID] {
		if s.group == p.PID {
			continue
		}
		// It went to a group of its own, as timeout(1) does. By now its pid may be another's.
		if now, err := readStat(s.pid); err == nil && now.start == s.start && now.session == s.session {
			errs = append(errs, kill(s.pid, sig))
		}
	}
	switch l, err = h.leader(p, boot); {
	case err != nil:
		errs = append(errs, err)
	case l != host.Gone: // so the group is still that of p
		errs = append(errs, kill(-p.PID, sig)) // in one step, so that a fork in the group cannot slip through
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
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
	name                string // of the program, or of a thread; cut to 15 bytes
	pid, group, session int
	state               byte
	threads             int
	start               uint64 // clock ticks since boot
}

// alive reports whether the process still runs. Zombies (Z) and the dead (X) do not, except that the first thread of
// a process may be a zombie while others run.
func (s stat) alive() bool {
	return guard.Zombie.Off() || s.state != 'Z' && s.state != 'X' && s.state != 'x' || s.threads > 1
}

// begun returns the stat of a child that has become the program with this name. syscall.ForkExec does not tell whether it
// has: until a child has a session of its own, a signal for all that runs at a terminal ends it, such as that of Ctrl-C, and
// ForkExec takes that for success. The child bears the name of this process until it is the program, or dead.
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
			return s, job.Errorf(job.Unavailable, "a signal ended it before it had begun, such as that of Ctrl-C in the terminal of this process")
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

// readOnce reads the beginning of a file of /proc. An [os.File] would take twice as many system calls, and there may be
// very many processes.
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

// parseStat reads proc_pid_stat(5). The second field is the name of the program in parentheses and may hold anything,
// so the others are counted from the last closing one.
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return stat{}, fmt.Errorf("stat of a process: no name in %q", b)
	}
	f := bytes.Fields(b[end+1:]) // f[i] is field i+3
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("stat of a process: too few fields in %q", b)
	}
	var errs [5]error
	number := func(i int, text []byte) int {
		n, err := strconv.Atoi(string(text))
		errs[i] = err
		return n
	}
	s := stat{state: f[0][0], name: string(b[open+1 : end])}
	s.pid = number(0, bytes.TrimSpace(b[:open]))
	s.group = number(1, f[2])
	s.session = number(2, f[3])
	s.threads = number(3, f[17])
	s.start, errs[4] = strconv.ParseUint(string(f[19]), 10, 64)
	return s, errors.Join(errs[:]...)
}

// gone reports whether err says that a process is no more: a read of an open /proc file then gives ESRCH.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
