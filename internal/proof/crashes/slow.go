package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// slowly makes a folder of programs in which ln waits before it links. With it first in the PATH, a
// wrapper takes its launch and tells its end slowly, so that others come between.
func slowly(dir string, wait time.Duration) error {
	ln, err := exec.LookPath("ln")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Appendf(nil, "#!/bin/sh\nsleep %g\nexec %s \"$@\"\n", wait.Seconds(), ln)
	return os.WriteFile(filepath.Join(dir, "ln"), text, 0o700)
}
