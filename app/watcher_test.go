package app_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/host"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/store"
)

// A blind machine tells nothing of its folders but what the test says.
type blind struct {
	host.Host
	events chan host.Event
}

func (b blind) Watch(context.Context, string) (<-chan host.Event, error) { return b.events, nil }

// noticed rows tell what the watcher has read of them.
type noticed struct {
	store.Reader
	watched, found func([]job.Job)
}

func (n noticed) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	js, err := n.Reader.Find(ctx, q)
	notice := n.found
	if q.Watch != "" {
		notice = n.watched
	}
	if notice != nil {
		notice(js)
	}
	return js, err
}

// first returns a function that closes the channel when it is called with any rows.
func first() (func([]job.Job), <-chan struct{}) {
	c := make(chan struct{})
	once := sync.OnceFunc(func() { close(c) })
	return func(js []job.Job) {
		if len(js) > 0 {
			once()
		}
	}, c
}

// deaf watchers hear nothing of children that died: what they learn, they learn from the spool.
func deaf(p *parts) { p.deaf = true }

// message is what a wrapper tells of the end of its program.
func message(token string, code int) string {
	return fmt.Sprintf("taken %s b\ncode %d\nbegan 1.00\nended 2.00\nbooted 1700000000\n"+
		"0m0.00s 0m0.00s\n0m0.00s 0m0.00s\nend\n", token, code)
}

// tell puts a message into the spool, as run n of the first launch of a job.
func (h *house) tell(id job.ID, n int, text string) (name string) {
	h.Helper()
	name = filepath.Join(h.spool(), runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, n))
	h.write(text, h.dir, "message")
	if err := os.Rename(filepath.Join(h.dir, "message"), name); err != nil {
		h.Fatal(err)
	}
	return name
}

// asleep runs a program that ends only by force, and returns what its wrapper would tell of a good
// end.
func (h *house) asleep() (id job.ID, text string) {
	h.Helper()
	id = h.submit(shell(`echo up; exec sleep 1000`))
	h.until(id, state(job.Running))
	j, err := h.svc.Job(h.ctx, id)
	if err != nil {
		h.Fatal(err)
	}
	folder, _ := app.Places(&j)
	h.poll("the program", func() bool {
		out, err := os.ReadFile(filepath.Join(folder, "stdout"))
		return err == nil && len(out) > 0
	})
	return id, message(h.handle(id).Token, 0)
}

// await waits for a channel to be closed.
func (h *house) await(what string, c <-chan struct{}) {
	h.Helper()
	select {
	case <-c:
	case <-h.ctx.Done():
		h.Fatalf("waited in vain for %s", what)
	}
}

// emptied waits until every message has been taken in.
func (h *house) emptied() {
	h.Helper()
	h.poll("an empty spool", func() bool {
		list, err := filepath.Glob(h.spool() + "/[^.]*")
		return err == nil && len(list) == 0
	})
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(b), ") T ")
}

func TestNewWatcher(t *testing.T) {
	t.Run("an end that came while nobody watched is taken in", func(t *testing.T) {
		h := open(t)
		id := h.submit(shell(`exec sleep 1000`))
		h.until(id, state(job.Running))
		token := h.handle(id).Token
		h.stop()
		// To a look at the programs it runs, so only the spool tells.
		h.tell(id, 0, message(token, 0))
		h.start()
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		h.emptied()
	})
	t.Run("a program that died while nobody watched is found", func(t *testing.T) {
		h := open(t)
		id := h.submit(shell(`exec sleep 1000`))
		h.until(id, state(job.Running))
		handle := h.handle(id)
		h.stop()
		if err := h.runner.Kill(h.ctx, handle, 0); err != nil {
			t.Fatal(err)
		}
		h.start(deaf) // its death may be told as late as now
		if j := h.end(id); j.State != job.Failed || j.Code != job.ProgramKilled {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
	t.Run("a program that the one before left suspended goes on", func(t *testing.T) {
		h := open(t)
		gate, begun := h.gate(), filepath.Join(h.dir, "begun")
		id := h.submit(scripted(`: > "$1"; read line < "$0"`, gate, begun))
		h.until(id, state(job.Running))
		pid := h.pid(id)
		// Before that, the wrapper may wait for its own fork, and is not seen as stopped then.
		h.poll("the program", func() bool { return exists(begun) })
		if _, err := h.svc.Pause(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		h.poll("the suspension", func() bool { return stopped(pid) })
		h.stop()
		if _, err := h.svc.Resume(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		if !stopped(pid) {
			t.Fatal("somebody let it go on, and nobody watches")
		}
		h.start()
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
}

func TestSpool(t *testing.T) {
	t.Run("after an overflow it is listed", func(t *testing.T) {
		events := make(chan host.Event)
		h := open(t, func(p *parts) { p.on(blind{p.Local.Host, events}) })
		id := h.submit(shell(`exec sleep 1000`))
		h.until(id, state(job.Running))
		h.tell(id, 0, message(h.handle(id).Token, 0))
		select {
		case events <- host.Event{Overflow: true}:
		case <-h.ctx.Done():
			t.Fatal("nobody listens")
		}
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		h.emptied()
	})
	t.Run("an end that comes before the job is watched is kept until then", func(t *testing.T) {
		found, looked := first()
		l := &launcher{}
		l.launch = func(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
			h, err := l.Runner.Launch(ctx, k, p)
			select {
			case <-looked:
			case <-ctx.Done():
			}
			return h, err
		}
		// Whatever else the watcher may learn of the end, it is not to learn it here.
		h := open(t, launching(l), deaf, func(p *parts) { p.rows = noticed{Reader: p.rows, found: found} })
		j := h.end(h.submit(shell(`true`)))
		if j.State != job.Finished || j.Launch != 1 {
			t.Fatalf("%s after %d launches: %s", j.State, j.Launch, j.Message)
		}
		h.emptied()
	})
	t.Run("one that comes when the end is known already is not looked up", func(t *testing.T) {
		events := make(chan host.Event)
		var lookups atomic.Int64
		h := open(t, func(p *parts) {
			p.on(blind{p.Local.Host, events})
			p.rows = noticed{Reader: p.rows, found: func([]job.Job) { lookups.Add(1) }}
		})
		tell := func(names ...string) {
			for _, name := range names {
				select {
				case events <- host.Event{Name: name}:
				case <-h.ctx.Done():
					t.Fatal("nobody listens")
				}
			}
		}
		tell("nothing")                     // what is in the spool by now was listed
		j := h.end(h.submit(shell(`true`))) // of which the death of its wrapper tells
		before := lookups.Load()
		// the second one is taken when the first one is done
		tell(runner.EndName(runner.Key{Job: j.ID, Attempt: 1, Launch: 1}, 0), "nothing")
		if n := lookups.Load() - before; j.State != job.Finished || n != 0 {
			t.Errorf("%s after %d lookups", j.State, n)
		}
		h.emptied()
	})
	t.Run("a message with another token is none of this launch", func(t *testing.T) {
		h := open(t)
		gate := h.gate()
		id := h.submit(scripted(`read line < "$0"`, gate))
		h.until(id, state(job.Running))
		h.tell(id, 0, message("another", 7))
		h.emptied()
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		h.emptied()
	})
	t.Run("a message counts when it is whole", func(t *testing.T) {
		h := open(t, deaf)
		id, text := h.asleep()
		name := h.tell(id, 0, text[:len(text)/2])
		// Messages are taken in in the order in which they came, so this one comes after it.
		if j := h.end(h.submit(shell(`true`))); j.State != job.Finished {
			t.Errorf("the next job: %s %s", j.State, j.Message)
		}
		if states := h.states(id); states[len(states)-1] != job.Running {
			t.Fatal(states)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil { // of which no event tells
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		h.emptied()
	})
	t.Run("a message that stays half is no evidence, and goes with the launch", func(t *testing.T) {
		h := open(t)
		id, text := h.asleep()
		h.stop()
		h.tell(id, 0, text[:len(text)-1])
		if err := syscall.Kill(-h.pid(id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.start()
		if j := h.end(id); j.Code != job.ProgramLost {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		h.emptied()
	})
	t.Run("of many messages for one launch one counts", func(t *testing.T) {
		h := open(t)
		id, text := h.asleep()
		h.stop() // so that they are found together
		for n := range 5 {
			h.tell(id, n, text)
		}
		h.start()
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		if got := strings.Count(h.history(id), "ended with exit code 0"); got != 1 {
			t.Errorf("it ended %d times:\n%s", got, h.history(id))
		}
		h.emptied()
		if j := h.end(h.submit(shell(`true`))); j.State != job.Finished {
			t.Errorf("the next job: %s %s", j.State, j.Message)
		}
	})
	t.Run("a folder with the name of a message is none", func(t *testing.T) {
		h := open(t)
		gate := h.gate()
		id := h.submit(scripted(`read line < "$0"; exit 3`, gate))
		h.until(id, state(job.Running))
		name := filepath.Join(h.spool(), runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, 0))
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		// Messages are taken in in the order in which they came, so this one comes after the
		// folder.
		if j := h.end(h.submit(shell(`true`))); j.State != job.Finished {
			t.Errorf("the next job: %s %s", j.State, j.Message)
		}
		h.pass(gate)
		if j := h.end(id); j.State != job.Failed || j.Code != job.ProgramFailed {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
	t.Run("a kill goes on while the watch is lost", func(t *testing.T) {
		begun := make(chan struct{})
		h := open(t, func(p *parts) {
			p.Local.Runner = killer{
				p.Local.Runner.(*process.Runner),
				sync.OnceFunc(func() { close(begun) }),
			}
		})
		set := filepath.Join(h.dir, "set")
		id := h.submit(scripted(`trap '' TERM; : > "$0"; sleep 1000`, set))
		h.until(id, state(job.Running))
		pid := h.pid(id)
		h.poll("the trap", func() bool { return exists(set) })
		if _, err := h.svc.Cancel(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		h.await("the kill", begun)
		if err := os.RemoveAll(h.spool()); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(h.spool(), 0o755); err != nil {
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Canceled {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		if left := alive(t, pid); len(left) > 0 {
			t.Errorf("of the group there is still %q", left)
		}
	})
}

// asleep starts a sleep that goes on beside its program, and waits until the shell's copy has
// become it: until then it is found by the name of the shell.
const asleep = `sleep 1000 & until read -r name <"/proc/$!/comm" && [ "$name" = sleep ]; do :; done; `

// Two systems may have one account, and so do two services: then they have one spool.
func TestSpoolOfSeveralWatches(t *testing.T) {
	t.Run("the end is for the watch of the job", func(t *testing.T) {
		events := make(chan host.Event)
		found, looked := first()
		h := open(t, deaf, func(p *parts) {
			other, err := hostlocal.Open(hostlocal.Config{ID: "other"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { other.Close() })
			r, err := process.Open(t.Context(), process.Config{Host: other, Spool: p.Own[0], Exits: true})
			if err != nil {
				t.Fatal(err)
			}
			p.also = &app.System{Watch: "other/ada", Host: other, Runner: r, Work: p.Local.Work}
			p.seen = noticed{Reader: p.rows, found: found}
			p.on(blind{p.Local.Host, events})
		})
		child := filepath.Join(h.dir, "child")
		id := h.submit(scripted(asleep+`echo $! >"$0"`, child))
		h.await("the other watch", looked)
		select {
		case events <- host.Event{Overflow: true}:
		case <-h.ctx.Done():
			t.Fatal("nobody listens")
		}
		if j := h.end(id); j.State != job.Finished {
			t.Errorf("%s %s", j.State, j.Message)
		}
		if got := h.history(id); !strings.Contains(got, "it left processes behind, which were ended: sleep") {
			t.Errorf("history: %s", got)
		}
		h.emptied()
	})
	t.Run("a message of a job that nobody knows here stays", func(t *testing.T) {
		h := open(t)
		id := job.NewID()
		name := h.tell(id, 0, message("token", 0))
		// Messages are taken in in the order in which they came, so this one comes after it.
		if j := h.end(h.submit(shell(`true`))); j.State != job.Finished {
			t.Errorf("the next job: %s %s", j.State, j.Message)
		}
		if !exists(name) {
			t.Error("it was taken")
		}
	})
}

// A dim runner cannot tell at the first look what has become of programs.
type dim struct {
	runner.Runner
	looks atomic.Int32
}

func (d *dim) Probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	states, err := d.Runner.Probe(ctx, hs)
	if d.looks.Add(1) == 1 {
		for i := range states {
			states[i] = runner.Status{State: runner.Unknown}
		}
	}
	return states, err
}

// An end counts only when it is known that nothing of the program is alive.
func TestEndThatCannotBeLookedAt(t *testing.T) {
	h := open(t, deaf, func(p *parts) { p.Local.Runner, p.Look = &dim{Runner: p.Local.Runner}, time.Second })
	j := h.end(h.submit(shell(asleep + `exit 0`)))
	if got := h.history(j.ID); !strings.Contains(got, "it left processes behind, which were ended: sleep") {
		t.Errorf("%s\n%s", j.State, got)
	}
	h.emptied()
}

// A killer is a runner that tells when a kill begins.
type killer struct {
	*process.Runner
	begins func()
}

func (k killer) Kill(ctx context.Context, h runner.Handle, grace time.Duration) error {
	k.begins()
	return k.Runner.Kill(ctx, h, grace)
}

func TestProgramThatRemovesItsFolder(t *testing.T) {
	for _, what := range []string{`"$PAWL_JOB_DIR"`, `.pawl`} {
		t.Run("its end is known without "+what, func(t *testing.T) {
			seen, watched := first()
			h := open(t, func(p *parts) { p.rows = noticed{Reader: p.rows, watched: seen} })
			gate := h.gate()
			id := h.submit(scripted(`read line < "$0"; rm -rf `+what+`; exit 3`, gate))
			h.await("the watcher", watched)
			h.pass(gate)
			j := h.end(id)
			if j.State != job.Failed || j.Code != job.ProgramFailed {
				t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
			}
			want := []string(nil)
			if what == `.pawl` {
				want = []string{"stderr", "stdout"}
			}
			_, results := app.Places(&j)
			if got := h.archived(results); !slices.Equal(got, want) && len(got)+len(want) > 0 {
				t.Errorf("archived %q", got)
			}
		})
	}
}

// dead reports whether a process whose stat line this is, or was, is dead: a zombie is, whoever may
// reap it.
func dead(stat string) bool {
	rest := stat[strings.LastIndexByte(stat, ')')+1:]
	return rest == "" || strings.HasPrefix(rest, " Z") || strings.HasPrefix(rest, " X")
}

func TestWhatAProgramLeavesRunning(t *testing.T) {
	t.Run("it is dead when the job has ended", func(t *testing.T) {
		h := open(t)
		child := filepath.Join(h.dir, "child")
		j := h.end(h.submit(scripted(`sleep 1000 & echo $! > "$0"`, child)))
		if j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(h.read(child)), "stat"))
		if err == nil && !dead(string(stat)) {
			t.Errorf("still there: %s", stat)
		}
	})
	t.Run("it is dead before the next attempt begins", func(t *testing.T) {
		h := open(t)
		child, then := filepath.Join(h.dir, "child"), filepath.Join(h.dir, "then")
		s := scripted(`if test -e "$0"; then cat "/proc/$(cat "$0")/stat" > "$1"; exit 0; fi # no such file, if all is well
			sleep 1000 & echo $! > "$0"; exit 1`, child, then)
		s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
		j := h.end(h.submit(s))
		if j.State != job.Finished || j.Attempt != 2 {
			t.Fatalf("%s in attempt %d: %s", j.State, j.Attempt, j.Message)
		}
		if got := h.read(then); !dead(got) {
			t.Errorf("still there: %s", got)
		}
	})
}

// What a program started is found and ended, whatever session it went to, before its job ends; and
// the job's history says so.
func TestDaemons(t *testing.T) {
	const daemon = `env -i /usr/bin/setsid -f /bin/sh -c 'trap "" TERM; echo $$ >'"$0"'; while :; do sleep 1000; done'; until [ -s "$0" ]; do :; done; `
	gone := func(h *house, pid string) {
		h.Helper()
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(h.read(pid)), "stat"))
		if err == nil && !dead(string(stat)) {
			h.Errorf("still there: %s", stat)
		}
	}
	quick := func(p *parts) { p.Grace = 10 * time.Millisecond }
	t.Run("FINISHED", func(t *testing.T) {
		h := open(t, quick)
		pid := filepath.Join(h.dir, "pid")
		j := h.end(h.submit(scripted(daemon, pid)))
		if j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		gone(h, pid)
		if got := h.history(j.ID); !strings.Contains(got, "it left processes behind, which were ended: ") {
			t.Errorf("history: %s", got)
		}
	})
	t.Run("CANCELED, after a restart", func(t *testing.T) {
		h := open(t, quick)
		pid := filepath.Join(h.dir, "pid")
		id := h.submit(scripted(daemon+`exec sleep 1000`, pid))
		h.until(id, state(job.Running))
		h.poll("the daemon", func() bool { return exists(pid) })
		h.stop()
		h.start(quick)
		if _, err := h.svc.Cancel(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Canceled {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		gone(h, pid)
	})
	t.Run("TIME_LIMIT", func(t *testing.T) {
		h := open(t, quick)
		pid := filepath.Join(h.dir, "pid")
		s := scripted(daemon+`exec sleep 1000`, pid)
		s.Resources = &job.Resources{Minutes: 1.0 / 60}
		if j := h.end(h.submit(s)); j.Code != job.TimeLimit {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		gone(h, pid)
	})
	t.Run("kept", func(t *testing.T) {
		h := open(t, quick)
		pid := filepath.Join(h.dir, "pid")
		j := h.end(h.submit(scripted(`PAWL_KEEP=1 setsid -f sh -c 'echo $$ >"$0"; exec sleep 1000' "$0"; until [ -s "$0" ]; do :; done`, pid)))
		if j.State != job.Finished {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		n, err := strconv.Atoi(strings.TrimSpace(h.read(pid)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
			t.Errorf("it was not kept: %v", err)
		}
		if got := h.history(j.ID); !strings.Contains(got, "ask to be kept") || !strings.Contains(got, strconv.Itoa(n)) {
			t.Errorf("history: %s", got)
		}
	})
}

// stuck is a runner whose kills leave something that cannot be ended, until it is let go.
type stuck struct {
	runner.Runner
	free chan struct{}
}

func (s *stuck) Kill(ctx context.Context, h runner.Handle, grace time.Duration) error {
	if err := s.Runner.Kill(ctx, h, grace); err != nil {
		return err
	}
	select {
	case <-s.free:
		return nil
	default:
		return fmt.Errorf("kill: %w", &runner.Alive{Left: []runner.Remnant{{
			PID: 4711, Name: "sudo",
			User: "somebody", Why: "which this account may not signal",
		}}})
	}
}

// A cancel waits for what cannot be ended, and names it; a job whose program is over names it and
// goes on.
func TestWhatCannotBeEnded(t *testing.T) {
	t.Run("a cancel stays wished", func(t *testing.T) {
		s := &stuck{free: make(chan struct{})}
		h := open(t, func(p *parts) { s.Runner, p.Local.Runner, p.Grace = p.Local.Runner, s, 10*time.Millisecond })
		id := h.submit(shell(`exec sleep 1000`))
		h.until(id, state(job.Running))
		if _, err := h.svc.Cancel(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		h.until(id, says("cannot end the program: kill: these processes of it cannot be ended: sudo (pid 4711, "+
			"user somebody), which this account may not signal"))
		if j, err := h.svc.Job(h.ctx, id); err != nil || j.State != job.Running || j.Wish != job.WishCancel {
			t.Errorf("%s, wished %s: %v", j.State, j.Wish, err)
		}
		close(s.free)
		if j := h.end(id); j.State != job.Canceled {
			t.Errorf("%s", j.State)
		}
	})
	t.Run("an end goes on", func(t *testing.T) {
		s := &stuck{free: make(chan struct{})}
		h := open(t, func(p *parts) { s.Runner, p.Local.Runner, p.Grace = p.Local.Runner, s, 10*time.Millisecond })
		j := h.end(h.submit(shell(`sleep 1000 & exit 3`)))
		if j.Code != job.ProgramFailed {
			t.Errorf("%s %s", j.State, j.Code)
		}
		if got := h.history(j.ID); !strings.Contains(got, "cannot be ended: sudo (pid 4711, user somebody)") {
			t.Errorf("history: %s", got)
		}
	})
}

func TestWhatTheWatcherIsNotToldOf(t *testing.T) {
	t.Run("a program that died before its job came into monitor", func(t *testing.T) {
		l := &launcher{}
		var h *house
		l.launch = func(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
			handle, err := l.Runner.Launch(ctx, k, p)
			h.poll("the end of the wrapper", func() bool {
				all, err := l.Probe(ctx, []runner.Handle{handle})
				return err != nil || all[0].State != runner.Active
			})
			return handle, err
		}
		h = open(t, launching(l))
		j := h.end(h.submit(shell(`rm -rf "$PAWL_JOB_DIR"; kill -9 0`)))
		if j.State != job.Failed || j.Code != job.ProgramLost {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
	t.Run("a program whose message came while nobody watched, and whose folder is gone", func(t *testing.T) {
		h := open(t)
		gate := h.gate()
		id := h.submit(scripted(`read line < "$0"`, gate))
		h.until(id, state(job.Running))
		h.stop()
		h.pass(gate)
		name := runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, 0)
		h.poll("the message", func() bool { return exists(h.spool(), name) })
		if err := os.RemoveAll(h.at(id).Dir); err != nil {
			t.Fatal(err)
		}
		h.start() // its exit code is known, and what it left is gone
		if j := h.end(id); j.Code != job.ArchiveFailed || !strings.Contains(h.history(id), "ended with exit code 0") {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
	t.Run("a job of which no hint came", func(t *testing.T) {
		h := open(t, deaf, func(p *parts) {
			p.Look = 10 * time.Millisecond
			p.rows = forgetful{p.rows}
		})
		h.end(h.submit(shell(`true`)))                             // from now on the watcher asks for what is new
		id := h.submit(shell(`rm -rf "$PAWL_JOB_DIR"; kill -9 0`)) // no message either
		if j := h.end(id); j.State != job.Failed || j.Code != job.ProgramLost {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
}

// forgetful rows are read in full only where all are asked for.
type forgetful struct{ store.Reader }

func (f forgetful) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	if !q.Since.IsZero() {
		return nil, nil
	}
	return f.Reader.Find(ctx, q)
}

// refusing refuses for good what duties decide.
type refusing struct {
	store.Store
	asked chan time.Time
}

func (r refusing) Apply(ctx context.Context, changes []job.Change, along *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	if changes[0].From.Fence.Duty == "" {
		return r.Store.Apply(ctx, changes, along)
	}
	select {
	case r.asked <- time.Now():
	case <-ctx.Done():
	}
	return nil, nil, store.Effects{}, job.Errorf(job.Internal, "refused")
}

func TestAnEndThatIsRefused(t *testing.T) {
	asked := make(chan time.Time)
	h := open(t, func(p *parts) { p.main = refusing{p.main, asked} })
	id := h.submit(shell(`true`))
	// News of the program, such as its death, may be a reason to ask at once, but there is not much
	// of that.
	first := <-asked
	<-asked
	<-asked
	if d := (<-asked).Sub(first); d < time.Second/2 {
		t.Errorf("asked for the fourth time after %s", d)
	}
	if !exists(h.spool(), runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, 0)) {
		t.Error("the message has gone, and what it says was not written")
	}
	h.stop()
	h.start()
	if j := h.end(id); j.State != job.Finished {
		t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
	}
}
