package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processesIn describes the processes alive that have to do with a folder: that stand in it, or that name it in their
// command line or environment.
func processesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []string
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
			found = append(found, fmt.Sprintf("%d %s (in %s)", pid, bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '}), cwd))
		}
	}
	return found, nil
}
