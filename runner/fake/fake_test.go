package fake

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/host"
	hostfake "github.com/pawl-jobs/pawl/host/fake"
	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
}

type bench struct {
	runnertest.Bench
	*Runner
	host *hostfake.Host
}

// open sets up a fake runner before a real one, on a fake host before the real one.
func open(t *testing.T) bench {
	t.Helper()
	m, err := local.Open(local.Config{ID: "test-machine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	h, spool := hostfake.New(m), t.TempDir()
	p, err := process.Open(t.Context(), process.Config{Host: h, Spool: spool})
	if err != nil {
		t.Fatal(err)
	}
	r := New(p)
	return bench{runnertest.Bench{Runner: r, Host: h, Work: t.TempDir(), Spool: spool, Lives: lives(m)}, r, h}
}

// lives returns [runnertest.Bench.Lives] of a machine.
func lives(m host.Host) func(*testing.T, runner.Handle) bool {
	return func(t *testing.T, h runner.Handle) bool {
		t.Helper()
		var at struct {
			Process host.Process
			Locks   uint64
		}
		if err := json.Unmarshal([]byte(h.Data), &at); err != nil {
			t.Fatal(err)
		}
		alive, err := m.Alive(t.Context(), []host.Process{at.Process})
		if err != nil {
			t.Fatal(err)
		}
		all, err := m.Members(t.Context(), []host.Family{{Leader: at.Process, Locks: at.Locks, Launch: h.Token}})
		if err != nil {
			t.Fatal(err)
		}
		return alive[0] || slices.ContainsFunc(all[0], func(m host.Member) bool { return !m.Kept })
	}
}

func Test(t *testing.T) {
	runnertest.Run(t, func(t *testing.T) runnertest.Bench { return open(t).Bench })
}

// newJob makes a job whose program runs until it is killed.
func (b bench) newJob(t *testing.T) (runner.Key, runner.Plan) {
	t.Helper()
	k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
	dir := b.Work + "/" + k.Job.String()
	if err := os.MkdirAll(dir+"/"+runner.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return k, runner.Plan{Dir: dir, Argv: []string{"sleep", "1000"}, Stdout: "out", Stderr: "err"}
}

// running launches a program that runs until the test ends.
func (b bench) running(t *testing.T) runner.Handle {
	t.Helper()
	k, p := b.newJob(t)
	h, err := b.Launch(t.Context(), k, p)
	if err != nil {
		t.Fatal(err)
	}
	b.kill(t, h)
	return h
}

// kill ends a program with the test.
func (b bench) kill(t *testing.T, h runner.Handle) {
	t.Cleanup(func() {
		if err := b.under.Kill(context.WithoutCancel(t.Context()), h, 0); err != nil {
			t.Error(err)
		}
	})
}

func (b bench) state(t *testing.T, h runner.Handle) runner.State {
	t.Helper()
	s, err := b.Probe(t.Context(), []runner.Handle{h})
	if err != nil {
		t.Fatal(err)
	}
	return s[0].State
}

func TestALaunchThatFails(t *testing.T) {
	b := open(t)
	own := errors.New("quota exceeded")
	b.Fail("Launch", own)
	k, p := b.newJob(t)
	if _, err := b.Launch(t.Context(), k, p); !errors.Is(err, own) {
		t.Errorf("Launch: %v", err)
	}
	if f, err := b.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
}

// The answer is lost on the way from the runner, or already on the way from its host.
func TestALaunchThatIsNotHeardOf(t *testing.T) {
	for name, lose := range map[string]func(bench){
		"the runner's answer": func(b bench) { b.Runner.Lose("Launch") },
		"the host's answer":   func(b bench) { b.host.Lose("Start") },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			lose(b)
			k, p := b.newJob(t)
			p.Argv = []string{"sh", "-c", ": >up; exec sleep 1000"}
			events, err := b.host.Watch(t.Context(), p.Dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Launch(t.Context(), k, p); job.KindOf(err) != job.Unavailable {
				t.Errorf("Launch: %v", err)
			}
			for e := range events {
				if e.Name == "up" {
					break
				}
			}
			f, err := b.Settle(t.Context(), k, p.Dir)
			if err != nil || !f.Started {
				t.Fatalf("Settle: %+v, %v", f, err)
			}
			b.kill(t, f.Handle)
		})
	}
}

func TestLies(t *testing.T) {
	b := open(t)
	h, other := b.running(t), b.running(t)
	for _, s := range []runner.State{runner.Lost, runner.Unknown, runner.Orphaned} {
		b.Lie(h.Key, runner.Status{State: s})
		if got := b.state(t, h); got != s {
			t.Errorf("%s, want %s", got, s)
		}
	}
	if got := b.state(t, other); got != runner.Active {
		t.Errorf("another is %s", got)
	}
	b.Truth(h.Key)
	if got := b.state(t, h); got != runner.Active {
		t.Errorf("%s, want the truth", got)
	}
	b.Runner.Fail("Kill", nil)
	if err := b.Kill(t.Context(), h, 0); err != nil || b.state(t, h) != runner.Active {
		t.Errorf("a kill that lies: %v", err)
	}
}

func TestASlowRunner(t *testing.T) {
	b := open(t)
	h := b.running(t)
	waiting, release := b.Runner.Hold("Kill")
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- b.Kill(ctx, h, time.Hour) }()
	<-waiting
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || b.state(t, h) != runner.Active {
		t.Errorf("Kill: %v", err)
	}
	go func() { done <- b.Kill(t.Context(), h, 0) }()
	<-waiting
	release()
	if err := <-done; err != nil || b.state(t, h) != runner.Ended {
		t.Errorf("Kill: %v", err)
	}
}

func TestARunnerThatDies(t *testing.T) {
	b := open(t)
	news, err := b.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-news
	b.Runner.DieAfter(1)
	h := b.running(t)
	<-b.Runner.Death()
	for range news { // it is closed
	}
	_, launch := b.Launch(t.Context(), h.Key, runner.Plan{})
	_, settle := b.Settle(t.Context(), h.Key, "/job")
	_, watch := b.Watch(t.Context())
	_, told := b.Told(t.Context())
	_, probe := b.Probe(t.Context(), []runner.Handle{h})
	for name, err := range map[string]error{
		"Launch": launch, "Settle": settle, "Probe": probe, "Watch": watch, "Told": told,
		"Acknowledge": b.Acknowledge(t.Context(), nil),

		"Kill":    b.Kill(t.Context(), h, 0),
		"Clean":   b.Clean(t.Context(), h.Key, "/job"),
		"Suspend": b.Suspend(t.Context(), h),
		"Resume":  b.Resume(t.Context(), h),
	} {
		if job.KindOf(err) != job.Unavailable {
			t.Errorf("%s of a dead runner: %v", name, err)
		}
	}
	b.Runner.Revive()
	if s := b.state(t, h); s != runner.Active {
		t.Errorf("%s: the program did not outlive the death", s)
	}
}
