package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EndPrograms kills whatever runs in dir, which nobody else uses, and waits until it is gone.
func EndPrograms(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for wait := time.Millisecond; ; wait *= 2 {
		left := ProgramsIn(dir)
		if len(left) == 0 {
			return nil
		}
		if wait > 10*time.Second {
			return fmt.Errorf("processes that do not end are left: %v", left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
		<-time.After(wait)
	}
}

// ProgramsIn returns the processes whose working folder is dir or below it.
func ProgramsIn(dir string) (pids []int) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, name := range names {
		at, err := os.Readlink(name + "/cwd")
		if err != nil || at != dir && !strings.HasPrefix(at, dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Launches returns how often each program was launched, by what the programs themselves have
// written.
func Launches(ledger string) (map[string]int, error) {
	b, err := os.ReadFile(ledger)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ran := map[string]int{}
	for line := range strings.Lines(string(b)) {
		ran[strings.TrimSpace(line)]++
	}
	return ran, nil
}
