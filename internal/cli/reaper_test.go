package cli

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// becomesReaper says to TestBecomeReaper that it is a part of TestReaper.
const becomesReaper = "TEST_BECOMES_REAPER"

// TestReaper makes pawl the reaper of orphans, as it is when it is process 1 of a container, and
// has programs leave some.
func TestReaper(t *testing.T) {
	p := startServeBy(t, []string{os.Args[0], "-test.run=^TestBecomeReaper$", "--"}, t.TempDir(), []string{becomesReaper + "=1"})
	pid := p.cmd.Process.Pid
	t.Cleanup(func() { // where the test fails the service would go on without its process 1
		for _, stat := range childrenOf(t, pid) {
			var child int
			fmt.Sscan(stat, &child)
			syscall.Kill(child, syscall.SIGKILL)
		}
	})
	orphan := filepath.Join(t.TempDir(), "orphan")
	p.becomes(p.submit(fmt.Sprintf(`{"script":"(setsid sh -c 'echo $$ >%s') &\nwait"}`, orphan)), job.Finished)
	b, err := os.ReadFile(orphan)
	if err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), testenv.Patience)
	defer stop()
	if !testenv.Until(ctx, func() bool { return !lives(left) }) { // a zombie lives, too
		t.Fatalf("process %d is left", left)
	}
	if children := childrenOf(t, pid); len(children) != 1 {
		t.Errorf("process 1 has the children %v, and not the service alone", children)
	}
	p.signal(unix.SIGTERM)
	if code := p.end(); code != term.ExitOK {
		t.Errorf("it ends with %d:\n%s", code, p.log)
	}
}

// childrenOf returns the children of a process that have not been reaped.
func childrenOf(t *testing.T, pid int) (list []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			list = append(list, string(b[:strings.IndexByte(string(b), ')')+1]))
		}
	}
	return list
}

// TestBecomeReaper is the program that TestReaper starts: a mark that stays with exec, and does not
// pass to children.
func TestBecomeReaper(t *testing.T) {
	if os.Getenv(becomesReaper) == "" {
		t.Skip("it is a part of TestReaper")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	pawl, err := exec.LookPath("pawl")
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(syscall.Exec(pawl, append([]string{"pawl"}, flag.Args()...), os.Environ()))
}
