//go:build !linux

package testenv

import "syscall"

// dieWithParent does nothing: only Linux ties a child to its parent's life. A killed test run
// leaves its servers behind.
func dieWithParent(*syscall.SysProcAttr) {}
