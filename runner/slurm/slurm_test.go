package slurm

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

// Slurm begins jobs once a second, so tests wait, and wait side by side.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "24")
	goleak.VerifyTestMain(testenv.Stopping(m), goleak.IgnoreTopFunction("os/signal.signal_recv"),
		goleak.IgnoreTopFunction("os/signal.loop"))
}

func Test(t *testing.T) {
	s := testenv.Slurm(t)
	runnertest.Run(t, func(t *testing.T) runnertest.Bench { return newBench(t, s).Bench })
}

type bench struct {
	runnertest.Bench
	runner *Runner
	slurm  *testenv.Scheduler
}

func newBench(t *testing.T, s *testenv.Scheduler, env ...string) bench {
	t.Helper()
	t.Parallel()
	rounds := 8
	if testenv.Long() {
		rounds = 100
	}
	h, err := local.Open(local.Config{ID: "test-machine", Env: slices.Concat(local.Environ(), s.Env(), env)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	spool := t.TempDir() + "/it's ends"
	r, err := Open(t.Context(), Config{
		Host: h, Spool: spool, Interval: 100 * time.Millisecond, Soon: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.queue.Unseen = 0 // all is on this machine
	return bench{runnertest.Bench{
		Runner: r, Host: h, Work: t.TempDir(), Spool: spool, Lives: lives(r), Rounds: rounds,
	}, r, s}
}

// lives returns [runnertest.Bench.Lives] of a runner: the node of the tests is this machine.
func lives(r *Runner) func(*testing.T, runner.Handle) bool {
	return func(t *testing.T, h runner.Handle) bool {
		t.Helper()
		taken, _, err := r.Room(context.WithoutCancel(t.Context()), h.Key, 0)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := taken.Taker()
		f := host.Family{Leader: host.Process{PID: 1, Boot: at.Process.Boot}, Locks: at.Locks, Launch: h.Token}
		all, err := r.Host.Members(t.Context(), []host.Family{f})
		if err != nil {
			t.Fatal(err)
		}
		return len(all[0]) > 0
	}
}
