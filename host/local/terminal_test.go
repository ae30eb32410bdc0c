package local

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// TestTerminal: signals for everything that a terminal runs, as of Ctrl-C, come while processes are
// started. A child belongs to the terminal until it has a session of its own, and one that dies
// before it becomes the program was not started.
func TestTerminal(t *testing.T) {
	if os.Getenv("PAWL_TEST_TERMINAL") != "" {
		startUnderSignals(t)
		return
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTerminal$", "-test.v")
	cmd.Env = append(os.Environ(), "PAWL_TEST_TERMINAL=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func startUnderSignals(t *testing.T) {
	// Until this process ends: the last signal may reach another thread after kill has returned.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	var ended sync.WaitGroup
	h := open(t, Config{OnExit: func(Exit) { ended.Done() }})
	ran := filepath.Join(t.TempDir(), "ran")
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			default:
				syscall.Kill(0, syscall.SIGINT)
			}
		}
	}()
	started, refused := 0, 0
	for started < 100 {
		ended.Add(1)
		_, err := h.Start(t.Context(), host.Command{
			Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo >>%s", ran)}, Dir: t.TempDir(), Stdout: os.DevNull, Stderr: os.DevNull,
		})
		switch {
		case err == nil:
			started++
		case job.KindOf(err) == job.Unavailable:
			refused++
		default:
			t.Fatal(err)
		}
	}
	close(over)
	<-stopped
	ended.Wait()
	b, err := os.ReadFile(ran)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n != started {
		t.Errorf("%d of %d started processes became the program", n, started)
	}
	t.Logf("%d started, %d refused", started, refused)
}
