package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// running is a process that is alive and has to do with a folder.
type running struct {
	pid  int
	text string
}

func (p running) String() string { return p.text }

// processesIn returns the processes alive that have to do with a folder: that stand in it, or that name it in their
// command line or environment.
func processesIn(dir string) ([]running, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []running
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		proc := filepath.Join("/proc", e.Name())
		// What cannot be read is a process that ended since, or a zombie: neither does anything any more.
		command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if strings.HasPrefix(cwd, dir+"/") || cwd == dir || bytes.Contains(command, []byte(dir+"/")) || bytes.Contains(environ, []byte(dir+"/")) {
			text := bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '})
			found = append(found, running{pid, fmt.Sprintf("%d %s (in %s)", pid, text, cwd)})
		}
	}
	return found, nil
}

// end kills what a round that came to no good end has left.
func end(dir string) error {
	left, err := processesIn(dir)
	for _, p := range left {
		err = errors.Join(err, syscall.Kill(p.pid, syscall.SIGKILL))
	}
	return err
}

// slowly makes a folder of programs in which ln waits before it links. With it first in the PATH, a wrapper takes its
// launch and tells its end slowly, so that others come between.
func slowly(dir string, wait time.Duration) error {
	ln, err := exec.LookPath("ln")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "ln"), fmt.Appendf(nil, "#!/bin/sh\nsleep %g\nexec %s \"$@\"\n", wait.Seconds(), ln), 0o700)
}
