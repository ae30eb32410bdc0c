//go:build !linux

package testenv

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: only Linux ties a child to its parent's life. A killed test run
// leaves its servers behind.
func dieWithParent(*syscall.SysProcAttr) {}

// inNamespace returns cmd: only Linux has name spaces.
func inNamespace(cmd *exec.Cmd, _ string) *exec.Cmd { return cmd }
