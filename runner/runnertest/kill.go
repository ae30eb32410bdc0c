package runnertest

import (
	"context"
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/runner"
)

// The program starts no other: one that was started while the signal was sent would miss it, and be granted the grace.
func killAsks(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap 'echo ended well >last; exit' TERM; : >up; while :; do :; done`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, time.Hour))
	if got := b.read(t, p.Dir+"/last"); got != "ended well\n" {
		t.Errorf("last words %q", got)
	}
	if s := b.state(t, h); s != runner.Lost && s != runner.Ended {
		t.Errorf("state %s", s)
	}
}

func killForces(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap '' TERM; (: >up; while :; do sleep 1000; done) & wait`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	for range 2 {
		must(t, b.Runner.Kill(t.Context(), h, time.Millisecond))
		b.nothingAlive(t, h)
	}
}

func killLeftBehind(t *testing.T, b Bench) {
	k, p := b.newJob(t, `(trap '' TERM; : >up; exec sleep 1000) & while ! [ -e up ]; do :; done; exit 3`)
	h, e := b.run(t, k, p)
	if e.Code != 3 {
		t.Errorf("code %d", e.Code)
	}
	left := func() bool {
		t.Helper()
		s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
		must(t, err)
		if s[0].State != runner.Ended {
			t.Errorf("state %s", s[0].State)
		}
		return s[0].Left
	}
	b.settled(t, h)
	if !left() {
		t.Error("the program ended, and what it left behind is not told of")
	}
	must(t, b.Runner.Kill(t.Context(), h, time.Millisecond))
	b.nothingAlive(t, h)
	if left() {
		t.Error("after the kill something is said to be left")
	}
	if e := b.end(t, k); e.Code != 3 {
		t.Errorf("the message changed: %+v", e)
	}
}

func killGivenUp(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap '' TERM; : >up; while :; do sleep 1000; done`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := b.Runner.Kill(ctx, h, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Kill: %v", err)
	}
	if lives, err := b.Host.Inspect(t.Context(), []host.Process{h.Process}); err != nil || lives[0] == host.Gone {
		t.Errorf("it is %v, %v", lives, err)
	}
}

func killLeavesNoMessage(t *testing.T, b Bench) {
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, 0))
	b.nothingAlive(t, h)
	if s := b.state(t, h); s != runner.Lost {
		t.Errorf("state %s, want lost: nobody knows an exit code", s)
	}
	if b.exists(t, path.Join(b.Spool, runner.EndName(k, 0))) {
		t.Error("a message was left")
	}
}

func (b Bench) nothingAlive(t *testing.T, h runner.Handle) {
	t.Helper()
	lives, err := b.Host.Inspect(t.Context(), []host.Process{h.Process})
	must(t, err)
	if lives[0] != host.Gone {
		t.Errorf("after the kill it is %s", lives[0])
	}
}

func suspend(t *testing.T, b Bench) {
	s, ok := b.Runner.(runner.Suspender)
	if !ok {
		t.Skip("it cannot suspend")
	}
	k, p := b.newJob(t, `echo $$ >temp; mv temp pid; while ! [ -e go ]; do :; done; exit 3`)
	wait, ended := b.watch(t, p.Dir), b.watch(t, b.Spool)
	h := b.launch(t, k, p)
	wait("pid")
	stopped := func() bool {
		stat := b.read(t, "/proc/"+strings.TrimSpace(b.read(t, p.Dir+"/pid"))+"/stat")
		_, rest, _ := strings.Cut(stat, ") ")
		return rest[0] == 'T'
	}
	for range 2 {
		must(t, s.Suspend(t.Context(), h))
		hosttest.Until(t, "the program is stopped", stopped)
	}
	if st := b.state(t, h); st != runner.Active {
		t.Errorf("suspended, it is %s", st)
	}
	must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "go"), strings.NewReader(""), files.PutOptions{}))
	if !stopped() {
		t.Error("it went on by itself")
	}
	for range 2 {
		must(t, s.Resume(t.Context(), h))
	}
	ended(runner.EndName(k, 0))
	if e := b.end(t, k); e.Code != 3 {
		t.Errorf("code %d", e.Code)
	}
	b.settled(t, h)
	must(t, s.Suspend(t.Context(), h)) // nothing is alive: no error
	must(t, s.Resume(t.Context(), h))

	// A suspended program can be killed, and sees that it was asked.
	k, p = b.newJob(t, `trap 'echo asked >last; exit' TERM; : >up; while :; do :; done`)
	wait = b.watch(t, p.Dir)
	h = b.launch(t, k, p)
	wait("up")
	must(t, s.Suspend(t.Context(), h))
	must(t, b.Runner.Kill(t.Context(), h, time.Hour))
	if got := b.read(t, p.Dir+"/last"); got != "asked\n" {
		t.Errorf("last words %q", got)
	}
}
