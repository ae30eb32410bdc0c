package testenv

import (
	"os/exec"
	"testing"
)

// Program ends the test unless the machine has a program, which is looked up in PATH.
func Program(tb testing.TB, name string) {
	tb.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(tb, err)
	}
}
