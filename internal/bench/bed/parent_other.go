//go:build !linux

package bed

import "syscall"

// dieWithParent does nothing: only Linux ties a child to its parent's life.
func dieWithParent(*syscall.SysProcAttr) {}
