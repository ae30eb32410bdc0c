package testenv

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that forked it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// inNamespace returns a command that runs cmd as the first process of a name space of processes,
// where the folder hidden is empty.
func inNamespace(cmd *exec.Cmd, hidden string) *exec.Cmd {
	apart := exec.Command("/bin/sh", append([]string{
		"-c", `[ -z "$0" ] || mount -t tmpfs none "$0" && mount -t proc proc /proc && exec "$@"`, hidden,
	}, cmd.Args...)...)
	apart.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	return apart
}
