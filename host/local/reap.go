package local

import (
	"errors"
	"maps"
	"os/signal"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/host"
)

// reap takes the exit statuses of this host's children whenever a child of the process has ended,
// until quit.
func (h *Host) reap(quit <-chan struct{}) {
	defer close(h.stopped)
	defer signal.Stop(h.chld)
	defer signal.Stop(h.dropped)
	for {
		select {
		case <-quit:
			return
		case <-h.chld:
			h.sweep()
			h.tell()
		}
	}
}

// sweep reaps each child that has ended. One SIGCHLD may stand for many children. Sweep peeks at
// the first one that has ended, which costs nothing for those that run. If that is not a child of
// this host (package os/exec waits for it), the peek shows no other. Then sweep asks its own
// children one by one.
func (h *Host) sweep() {
	for {
		pid := peek()
		if pid == 0 {
			return
		}
		if !h.take(pid) {
			break
		}
	}
	h.mu.Lock()
	pids := slices.Collect(maps.Keys(h.children))
	h.mu.Unlock()
	for _, pid := range pids {
		h.take(pid)
	}
}

// tell tells OnExit of those that were reaped. Only the reaper calls it.
func (h *Host) tell() {
	h.mu.Lock()
	exits := h.exits
	h.exits = nil
	h.mu.Unlock()
	for _, e := range exits {
		h.onExit(e)
	}
}

// take reaps pid if it is this host's and has ended.
func (h *Host) take(pid int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ours := h.children[pid]
	return ours && !h.runs(c)
}

// runsHere reports whether p is a child that runs. It reaps a child that has ended, so its usage is
// known as soon as a caller hears that it is dead. It costs a tenth of reading the child's stat.
func (h *Host) runsHere(p host.Process) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ours := h.children[p.PID]
	if !ours || c.Process != p {
		return false
	}
	if h.runs(c) {
		return true
	}
	select {
	case h.chld <- syscall.SIGCHLD: // the reaper tells OnExit
	default:
	}
	return false
}

// runs reports whether a child runs, and reaps one that has ended. Called with mu held.
func (h *Host) runs(c child) bool {
	var status syscall.WaitStatus
	var used syscall.Rusage
	pid, err := syscall.Wait4(c.PID, &status, syscall.WNOHANG, &used)
	for errors.Is(err, syscall.EINTR) {
		pid, err = syscall.Wait4(c.PID, &status, syscall.WNOHANG, &used)
	}
	if err == nil && pid == 0 {
		return true
	}
	delete(h.children, c.PID)
	if err != nil { // somebody else has reaped it
		return false
	}
	e := Exit{Process: c.Process, Status: status, Usage: usage(used, c.mark)}
	h.used.add(e.Process, e.Usage)
	if h.onExit != nil {
		h.exits = append(h.exits, e)
	}
	return false
}

// peek returns the pid of a child that has ended and leaves its status where it is; 0 if there is
// none.
func peek() int {
	var info siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil { // ECHILD: there are no children
			return 0
		}
		return int(info.child.pid)
	}
}

// siginfo is siginfo_t as waitid fills it. The union after the first three words is aligned like a
// pointer.
type siginfo struct {
	_     [3]int32 // signo, errno, code
	child struct {
		_   [0]uintptr
		pid int32
	}
	_ [unsafe.Sizeof(unix.Siginfo{})]byte // more than enough
}
