package local

import (
	"errors"
	"maps"
	"os/signal"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reap takes the exit statuses of this host's children whenever a child of the process has ended, until quit.
func (h *Host) reap(quit <-chan struct{}) {
	defer close(h.stopped)
	defer signal.Stop(h.chld)
	for {
		select {
		case <-quit:
			return
		case <-h.chld:
			h.sweep()
		}
	}
}

// sweep reaps each child that has ended. One SIGCHLD may stand for many. It peeks who has ended, which costs nothing
// for those that run; when the first is somebody else's (package os/exec waits for it), the peek shows no other, and
// the own children are asked one by one.
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

// take reaps pid if it is this host's and has ended, and tells OnExit.
func (h *Host) take(pid int) bool {
	h.mu.Lock()
	p, ours := h.children[pid]
	var status syscall.WaitStatus
	ended := ours && wait(pid, &status)
	if ended {
		delete(h.children, pid)
	}
	h.mu.Unlock()
	if ended && h.onExit != nil {
		h.onExit(Exit{Process: p, Status: status})
	}
	return ended
}

// wait reaps pid without waiting and reports whether it had ended.
func wait(pid int, status *syscall.WaitStatus) bool {
	for {
		got, err := syscall.Wait4(pid, status, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err == nil && got == pid
		}
	}
}

// peek returns the pid of a child that has ended and leaves its status where it is; 0 if there is none.
func peek() int {
	var info siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil { // ECHILD: there are no children
			return 0
		}
		return int(info.child.pid)
	}
}

// siginfo is siginfo_t as waitid fills it. The union after the first three words is aligned like a pointer.
type siginfo struct {
	_     [3]int32 // signo, errno, code
	child struct {
		_   [0]uintptr
		pid int32
	}
	_ [unsafe.Sizeof(unix.Siginfo{})]byte // more than enough
}
