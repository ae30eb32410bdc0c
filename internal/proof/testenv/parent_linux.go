package testenv

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that forked it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// inNamespace returns a command that runs cmd as the first process of a name space of processes.
func inNamespace(cmd *exec.Cmd) *exec.Cmd {
	apart := exec.Command("/bin/sh", append([]string{"-c", `mount -t proc proc /proc && exec "$@"`, "sh"}, cmd.Args...)...)
	apart.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	return apart
}
