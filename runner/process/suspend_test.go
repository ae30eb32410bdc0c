package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/runner"
)

// A guarded machine has a process of another user.
type guarded struct {
	host.Host
	pid int
}

func (g guarded) Signal(ctx context.Context, ps []host.Process, sig syscall.Signal) error {
	var errs []error
	for _, p := range ps {
		err := fmt.Errorf("signal process %d: %w", p.PID, syscall.EPERM)
		if p.PID != g.pid {
			err = g.Host.Signal(ctx, []host.Process{p}, sig)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// A process that may not be signaled is named, and all others are suspended.
func TestSuspendWithoutARight(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, `sleep 1000 & echo $! >temp; sleep 1000 & echo $! >>temp; mv temp pids; wait`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("pids")
	pids := strings.Fields(read(t, path.Join(p.Dir, "pids")))
	pid, err := strconv.Atoi(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	b.runner.Host = guarded{b.runner.Host, pid}
	for _, call := range []func(context.Context, runner.Handle) error{b.runner.Suspend, b.runner.Resume} {
		err := call(t.Context(), h)
		alive, ok := errors.AsType[*runner.Alive](err)
		if !ok || len(alive.Left) != 1 || alive.Left[0].PID != pid || alive.Left[0].Why != "which this account may not signal" {
			t.Errorf("%v", err)
		}
	}
	if err := b.runner.Suspend(t.Context(), h); err == nil {
		t.Error("nobody was named")
	}
	stopped := func(pid string) bool {
		_, rest, _ := strings.Cut(read(t, "/proc/"+pid+"/stat"), ") ")
		return rest[0] == 'T'
	}
	hosttest.Until(t, "the other one is stopped", func() bool { return stopped(pids[1]) })
	if stopped(pids[0]) {
		t.Error("it was signaled")
	}
	b.runner.Host = b.runner.Host.(guarded).Host
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Error(err)
	}
}

// A busy machine has one more process of a launch at each look.
type busy struct {
	host.Host
	t     *testing.T
	token string
	looks atomic.Int32
}

func (b *busy) Members(ctx context.Context, fs []host.Family) ([][]host.Member, error) {
	if b.looks.Add(1) > 10 {
		return nil, errors.New("it looks again and again")
	}
	more := exec.Command("sleep", "1000")
	more.Env = append(os.Environ(), host.LaunchVariable+"="+b.token)
	if err := more.Start(); err != nil {
		return nil, err
	}
	b.t.Cleanup(func() {
		_ = more.Process.Kill()
		_ = more.Wait()
	})
	return b.Host.Members(ctx, fs)
}

// A program that goes on, and starts one process after the other, has gone on.
func TestResumeOfABusyProgram(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, `: >up; exec sleep 1000`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	if err := b.runner.Suspend(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	is := b.runner.Host
	b.runner.Host = &busy{Host: is, t: t, token: h.Token}
	if err := b.runner.Resume(t.Context(), h); err != nil {
		t.Error(err)
	}
	b.runner.Host = is
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Error(err)
	}
}
