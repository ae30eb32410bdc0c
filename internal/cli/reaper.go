package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// inherits reports whether this process gets the orphans of others: as process 1 of a container, or
// because it was made their reaper.
func inherits() bool {
	var reaper int32
	_ = unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&reaper)), 0, 0, 0)
	return os.Getpid() == 1 || reaper != 0
}

// initMain runs this command line in a child, which has no children but its own, and reaps whatever
// else comes. It passes signals on, and returns the exit code of the child.
func initMain() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pawl:", err)
		return term.ExitBroken
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	attr := &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil { // then Ctrl-C is for the child alone
		attr.Sys.Foreground, attr.Sys.Ctty = true, 0
	}
	child, err := os.StartProcess(self, os.Args, attr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pawl:", err)
		return term.ExitBroken
	}
	for s := range signals {
		switch s {
		case syscall.SIGCHLD:
			if code, ended := reapAll(child.Pid); ended {
				return code
			}
		case syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU: // of the runtime, and of the terminal
		default:
			_ = child.Signal(s)
		}
	}
	return term.ExitBroken
}

// reapAll reaps all children that have ended, and reports whether one of them was the child, and
// its exit code then.
func reapAll(child int) (code int, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return code, ended
		case pid == child && status.Signaled():
			code, ended = 128+int(status.Signal()), true
		case pid == child:
			code, ended = status.ExitStatus(), true
		}
	}
}
