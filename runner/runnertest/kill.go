package runnertest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/runner"
)

// The program starts no other: one that was started while the signal was sent would miss it, and be
// granted the grace.
func killAsks(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap 'echo ended well >last; exit' TERM; : >up; while :; do :; done`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, time.Hour))
	if got := b.read(t, p.Dir+"/last"); got != "ended well\n" {
		t.Errorf("last words %q", got)
	}
	if s := b.settled(t, h); s != runner.Lost && s != runner.Ended { // a scheduler may yet have to tell the cause
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

// What is in another session is ended together with the program.
func killForcesDaemons(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap '' TERM; setsid -f sh -c ': >up; exec sleep 1000'; while :; do sleep 1000; done`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, 0))
	b.nothingAlive(t, h)
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
		return len(s[0].Left) > 0
	}
	b.settled(t, h)
	if clears := b.Runner.Traits().Clears; left() == clears || clears && b.Lives(t, h) {
		t.Error("the program ended, and what it left behind is not told of, or is not ended")
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
	if s := b.state(t, h); s != runner.Active {
		t.Errorf("it is %s", s)
	}
}

// killIsTold: the messenger outlives the kill.
func killIsTold(t *testing.T, b Bench) {
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait, w := b.watch(t, p.Dir), b.hear(t)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, 0))
	// A scheduler may ask first, whatever it is told.
	if e := w.end(t, k); (e.Code != 128+9 || e.Signal != 9) && (e.Code != 128+15 || !b.Runner.Traits().Queues) {
		t.Errorf("%+v", e)
	}
	b.nothingAlive(t, h)
}

func (b Bench) nothingAlive(t *testing.T, h runner.Handle) {
	t.Helper()
	s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	active := s[0].State == runner.Active && s[0].End == nil // a scheduler may yet have to tell the cause
	if active || s[0].State == runner.Orphaned || len(s[0].Left) > 0 {
		t.Errorf("after the kill it is %+v", s[0])
	}
	if b.Lives(t, h) {
		t.Error("after the kill something of it is alive")
	}
}

// daemons shed two of the three marks of a launch, and are found by the third.
var daemons = map[string]string{
	"a session of its own":        `setsid -f sh -c ': >up; exec sleep 1000'`,
	"with an empty environment":   `env -i /usr/bin/setsid -f /bin/sh -c ': >up; exec sleep 1000'`,
	"twice forked":                `setsid sh -c 'setsid sh -c ": >up; exec sleep 1000" & exit' &`,
	"in a group of its own":       `timeout 1000 sh -c ': >up; exec sleep 1000' &`,
	"in the session of the job":   `sh -c 'trap "" TERM; : >up; while :; do sleep 1000; done' &`,
	"without a working directory": `setsid -f sh -c ': >up; mkdir x; cd x; rmdir ../x; exec sleep 1000'`,
}

// Whatever session it went to, what a program left is found when the program ended, and ended by a
// kill.
func daemonsEnd(t *testing.T, b Bench) {
	for name, script := range daemons {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, script+"\nwhile ! [ -e up ]; do :; done; exit 3")
			h, e := b.run(t, k, p)
			if e.Code != 3 {
				t.Errorf("%+v", e)
			}
			b.settled(t, h)
			s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
			must(t, err)
			if b.Runner.Traits().Clears {
				b.nothingAlive(t, h)
				return
			}
			if s[0].State != runner.Ended || len(s[0].Left) == 0 {
				t.Fatalf("%+v, and something is alive", s[0])
			}
			pid := s[0].Left[0].PID
			must(t, b.Runner.Kill(t.Context(), h, time.Millisecond))
			b.nothingAlive(t, h)
			if b.runs(t, pid) {
				t.Error("it is alive after the kill")
			}
		})
	}
}

// Whoever comes later knows a launch by what Settle says of it, and finds all of it too.
func daemonsAreSettled(t *testing.T, b Bench) {
	k, p := b.newJob(t, daemons["with an empty environment"]+"\nwhile ! [ -e up ]; do :; done")
	h, _ := b.run(t, k, p)
	fate, err := b.Runner.Settle(t.Context(), k, p.Dir)
	must(t, err)
	if diff := cmp.Diff(runner.Fate{Started: true, Handle: h}, fate); diff != "" {
		t.Errorf("Settle (-want +got):\n%s", diff)
	}
	must(t, b.Runner.Kill(t.Context(), fate.Handle, 0))
	b.nothingAlive(t, h)
}

// What asks to be kept is told of, and left alone.
func keep(t *testing.T, b Bench) {
	if b.Runner.Traits().Clears {
		t.Skip("it keeps nothing")
	}
	k, p := b.newJob(t, `PAWL_KEEP=1 setsid -f sh -c ': >up; exec sleep 1000'; sleep 1000 & exit 3`)
	wait := b.watch(t, p.Dir)
	h, _ := b.run(t, k, p)
	wait("up")
	b.settled(t, h)
	must(t, b.Runner.Kill(t.Context(), h, 0))
	s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	if len(s[0].Left) > 0 || len(s[0].Kept) != 1 || s[0].Kept[0].Name == "" {
		t.Fatalf("%+v", s[0])
	}
	pid := s[0].Kept[0].PID
	if !b.runs(t, pid) {
		t.Error("it was not kept")
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	hosttest.Until(t, "it is gone", func() bool { return !b.runs(t, pid) })
}

// runs reports whether a process is alive.
func (b Bench) runs(t *testing.T, pid int) bool {
	t.Helper()
	text, err := files.ReadFile(t.Context(), b.Host.Files(), fmt.Sprintf("/proc/%d/stat", pid), 1<<20)
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[0] != 'Z' && rest[0] != 'X'
}

// What a program does to its own group leaves the messenger alone.
func ownGroup(t *testing.T, b Bench) {
	for _, sig := range []string{"HUP", "INT", "QUIT", "PIPE", "ALRM", "TERM", "USR1", "USR2"} {
		k, p := b.newJob(t, `kill -`+sig+` 0; exec sleep 1000`)
		if _, e := b.run(t, k, p); e.Code <= 128 || e.Signal != 0 && e.Signal != e.Code-128 {
			t.Errorf("%s: %+v", sig, e)
		}
	}
	k, p := b.newJob(t, `trap '' TERM; trap 'kill 0' EXIT; exit 3`)
	if _, e := b.run(t, k, p); e.Code != 3 {
		t.Errorf("an EXIT trap: %+v", e)
	}
	k, p = b.newJob(t, `kill -9 0`)
	h := b.launch(t, k, p)
	hosttest.Until(t, "kill -9 0 loses it", func() bool { // the messenger may be gone before the program
		s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
		must(t, err)
		return s[0].State == runner.Lost
	})
}

// The end of a program does not depend on what it does to its folder.
func folders(t *testing.T, b Bench) {
	for name, script := range map[string]string{
		"it is emptied":        `rm -rf ./* ./.[!.]*`,
		"the runner's is gone": `rm -rf .pawl`,
		"its marks are gone":   `rm .pawl/*`,
		"it is gone":           `rm -rf "$PWD"`,
		"it is read-only":      `chmod 555 . .pawl`,
		"it is elsewhere":      `mv "$PWD" "$PWD.away"`,
	} {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, script+"; exit 3")
			h, e := b.run(t, k, p)
			if e.Code != 3 {
				t.Errorf("%+v", e)
			}
			if s := b.settled(t, h); s != runner.Ended {
				t.Errorf("it is %s", s)
			}
			for range 2 {
				fate, err := b.Runner.Settle(t.Context(), k, p.Dir)
				must(t, err)
				if diff := cmp.Diff(runner.Fate{Started: true, Handle: h}, fate); diff != "" {
					t.Errorf("Settle (-want +got):\n%s", diff)
				}
			}
			must(t, b.Runner.Clean(t.Context(), k, p.Dir))
			if m := b.past(t, runner.Key{Job: k.Job}, p.Dir).Mark; m == nil || m.End == nil || m.End.Code != 3 {
				t.Errorf("its mark: %+v", m)
			}
		})
	}
}

func suspend(t *testing.T, b Bench) {
	k, p := b.newJob(t, `echo $$ >temp; mv temp pid; while ! [ -e go ]; do :; done; exit 3`)
	wait, w := b.watch(t, p.Dir), b.hear(t)
	h := b.launch(t, k, p)
	wait("pid")
	stopped := func() bool {
		stat := b.read(t, "/proc/"+strings.TrimSpace(b.read(t, p.Dir+"/pid"))+"/stat")
		_, rest, _ := strings.Cut(stat, ") ")
		return rest[0] == 'T'
	}
	for range 2 {
		must(t, b.Runner.Suspend(t.Context(), h))
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
		must(t, b.Runner.Resume(t.Context(), h))
	}
	if e := w.end(t, k); e.Code != 3 {
		t.Errorf("code %d", e.Code)
	}
	b.settled(t, h)
	must(t, b.Runner.Suspend(t.Context(), h)) // nothing is alive: no error
	must(t, b.Runner.Resume(t.Context(), h))

	// A suspended program can be killed, and sees that it was asked.
	k, p = b.newJob(t, `trap 'echo asked >last; exit' TERM; : >up; while :; do :; done`)
	wait = b.watch(t, p.Dir)
	h = b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Suspend(t.Context(), h))
	must(t, b.Runner.Kill(t.Context(), h, time.Hour))
	if got := b.read(t, p.Dir+"/last"); got != "asked\n" {
		t.Errorf("last words %q", got)
	}
}
