// Package checks looks at what is left on a machine when an attack on the service is over:
// processes that are alive, and rows of the database that should be gone.
package checks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A Process is one that is alive and has to do with a folder.
type Process struct {
	PID  int
	text string
}

func (p Process) String() string { return p.text }

// Processes returns the processes alive that have to do with a folder: that stand in it, or that
// name it in their command line or environment.
func Processes(dir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		proc := filepath.Join("/proc", e.Name())
		// What cannot be read is a process that ended since, or a zombie: neither does anything any
		// more.
		command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if strings.HasPrefix(cwd, dir+"/") || cwd == dir ||
			bytes.Contains(command, []byte(dir+"/")) || bytes.Contains(environ, []byte(dir+"/")) {
			text := bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '})
			found = append(found, Process{pid, fmt.Sprintf("%d %s (in %s)", pid, text, cwd)})
		}
	}
	return found, nil
}

// End kills the processes that have to do with a folder.
func End(dir string) error {
	left, err := Processes(dir)
	for _, p := range left {
		if e := syscall.Kill(p.PID, syscall.SIGKILL); e != syscall.ESRCH {
			err = errors.Join(err, e)
		}
	}
	return err
}
