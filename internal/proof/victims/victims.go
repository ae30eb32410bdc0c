// Package victims builds the program that storms and crash tests attack, starts it, and ends it.
package victims

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// Program is what is attacked: pawl, and something to do. It is relative to the module.
const Program = "internal/proof/victim"

// Swept is in what a process says when a sweep has found something that it had to repair.
const Swept = "found what no wake-up told of"

// Build builds the program from the module that this process stands in. The flags are those of go
// build.
func Build(ctx context.Context, binary string, flags ...string) error {
	if err := testenv.Sources(ctx); err != nil {
		return err
	}
	args := append(append([]string{"build", "-o", binary}, flags...), "github.com/pawl-jobs/pawl/"+Program)
	build := exec.CommandContext(ctx, "go", args...)
	if !slices.Contains(flags, "-race") {
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as most builds are: most of it is compiled then
	}
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program that is attacked: %w\n%s", err, text)
	}
	return nil
}

// A Process is one start of the program.
type Process struct {
	Cmd    *exec.Cmd
	Said   string        // the file with what it wrote
	Ended  chan struct{} // closed when it has ended
	Killed atomic.Bool   // by whoever started it
	Told   atomic.Bool   // by whoever started it, to stop
}

// Start starts a command. What it writes goes into the file said, below a headline. A process that
// could not be started has ended.
func Start(cmd *exec.Cmd, said, headline string) (*Process, error) {
	p := &Process{Cmd: cmd, Said: said, Ended: make(chan struct{})}
	f, err := os.Create(said)
	if err == nil {
		fmt.Fprintln(f, headline)
		cmd.Stdout, cmd.Stderr = f, f
		err = cmd.Start()
		f.Close()
	}
	if err != nil {
		close(p.Ended)
		return p, err
	}
	go func() {
		defer close(p.Ended)
		cmd.Wait() //nolint:errcheck // its state tells
	}()
	return p, nil
}

// Signal sends a signal, and reports whether there was a process to receive it.
func (p *Process) Signal(sig syscall.Signal) bool {
	if sig == syscall.SIGKILL {
		p.Killed.Store(true) // before it ends: whoever sees that looks here
	}
	return p.Cmd.Process != nil && p.Cmd.Process.Signal(sig) == nil
}

// Gone reports whether the process has ended.
func (p *Process) Gone() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Status is how a process ended that was started.
func (p *Process) Status() syscall.WaitStatus { return p.Cmd.ProcessState.Sys().(syscall.WaitStatus) }

// Died reports whether SIGKILL has ended the process.
func (p *Process) Died() bool { return p.Status().Signaled() && p.Status().Signal() == syscall.SIGKILL }

// Says reports whether the process has written one of these.
func (p *Process) Says(words ...string) bool {
	said, err := os.ReadFile(p.Said)
	for _, w := range words {
		if err == nil && bytes.Contains(said, []byte(w)) {
			return true
		}
	}
	return false
}

// Until waits until the condition holds, the process has ended, or the time is over. It reports
// whether the condition held; nil never does.
func (p *Process) Until(holds func() bool, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for holds == nil || !holds() {
		select {
		case <-look.C:
		case <-over.C:
			return false
		case <-p.Ended:
			return false
		}
	}
	return true
}

// Interrogate ends a process that hangs. Before, it writes what all its goroutines do.
func (p *Process) Interrogate() {
	p.Signal(syscall.SIGQUIT)
	p.Until(nil, 5*time.Second)
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}

// Last returns the last n lines of what a process wrote, in one.
func Last(said []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
