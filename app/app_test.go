package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A house is a service that runs programs, on a fresh folder.
type house struct {
	*testing.T
	svc *pawl.Service
	dir string
	ctx context.Context
}

func open(t *testing.T) *house {
	t.Helper()
	h := &house{T: t, dir: t.TempDir(), ctx: t.Context()}
	st, err := sqlite.Open(h.ctx, filepath.Join(h.dir, "db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var watcher *app.Watcher
	machine, err := hostlocal.Open(hostlocal.Config{ID: "m1", OnExit: func(hostlocal.Exit) { watcher.Exited() }})
	if err != nil {
		t.Fatal(err)
	}
	spool := filepath.Join(h.dir, "ends")
	run, err := process.Open(h.ctx, process.Config{Host: machine, Spool: spool})
	if err != nil {
		t.Fatal(err)
	}
	kind := app.New(app.Config{
		Host: machine, Runner: run, Files: fileslocal.FS{}, Spool: spool,
		Work: filepath.Join(h.dir, "work"), Archive: filepath.Join(h.dir, "archive"),
		Grace: time.Second,
	})
	bus := &local.Broker{}
	watcher = app.NewWatcher(kind, st, bus)
	h.svc = pawl.New(pawl.Config{
		Store: st, Broker: bus, Principal: "ada", Machine: "m1",
		Kinds: map[string]engine.Kind{job.KindApp: kind}, Duties: []engine.Duty{watcher.Duty()},
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.svc.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		err := <-ended
		if err := errors.Join(err, machine.Close(), st.Close()); err != nil {
			t.Error(err)
		}
		if n := h.svc.Repaired(); n != 0 {
			t.Errorf("the sweep repaired %d rows; it should find nothing", n)
		}
	})
	return h
}

func shell(script string) job.Spec { return job.Spec{Command: []string{"/bin/sh", "-c", script}} }

func (h *house) submit(s job.Spec) job.ID {
	h.Helper()
	a, err := h.svc.Submit(h.ctx, pawl.Request{Spec: s})
	if err != nil {
		h.Fatal(err)
	}
	return a[0].ID
}

func (h *house) end(id job.ID) job.Job {
	h.Helper()
	j, err := h.svc.Wait(h.ctx, id)
	if err != nil {
		h.Fatal(err)
	}
	return j
}

// until waits for an event of the job.
func (h *house) until(id job.ID, want func(job.Event) bool) {
	h.Helper()
	for e, err := range h.svc.Events(h.ctx, id, "") {
		if err != nil {
			h.Fatal(err)
		}
		if want(e) {
			return
		}
	}
	h.Fatalf("job %s ended without what was waited for", id)
}

func state(s job.State) func(job.Event) bool {
	return func(e job.Event) bool { return e.State == s }
}

// pid returns the process id of a job's wrapper, which is that of its group.
func (h *house) pid(id job.ID) int {
	h.Helper()
	j, err := h.svc.Job(h.ctx, id)
	if err != nil {
		h.Fatal(err)
	}
	var notes struct {
		Handle runner.Handle `json:"handle"`
	}
	if err := json.Unmarshal(j.Work, &notes); err != nil {
		h.Fatal(err)
	}
	return notes.Handle.Process.PID
}

// alive returns the stat lines of what is alive in a process group: a zombie is dead, whoever may reap it.
func alive(t *testing.T, group int) (left []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it is gone
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			left = append(left, string(b))
		}
	}
	return left
}

func (h *house) read(elem ...string) string {
	h.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		h.Error(err)
	}
	return string(b)
}

func (h *house) states(id job.ID) []job.State {
	h.Helper()
	events, err := h.svc.History(h.ctx, id)
	if err != nil {
		h.Fatal(err)
	}
	var ss []job.State
	for _, e := range events {
		ss = append(ss, e.State)
	}
	return slices.Compact(ss)
}

func TestProgram(t *testing.T) {
	t.Run("inputs are staged and results archived", func(t *testing.T) {
		h := open(t)
		data := filepath.Join(h.dir, "data")
		if err := os.MkdirAll(filepath.Join(data, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"a.txt": "one", "sub/b 'quoted'.txt": "two"} {
			if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := shell(`cat in/a.txt in/sub/*; mkdir -p out; echo "$GREETING" > "out/my result"`)
		s.Inputs = []job.Input{{From: data, To: "in"}}
		s.Env = map[string]string{"GREETING": `it's "quoted" $HOME`}
		j := h.end(h.submit(s))
		if j.State != job.Finished || j.Code != job.NormalCompletion {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		folder, results := app.Places(&j)
		if got := h.read(results, "stdout"); got != "onetwo" {
			t.Errorf("stdout %q", got)
		}
		if got := h.read(results, "out", "my result"); got != `it's "quoted" $HOME`+"\n" {
			t.Errorf("result %q", got)
		}
		if _, err := os.Stat(filepath.Join(results, "in")); !errors.Is(err, fs.ErrNotExist) {
			t.Error("staged inputs were archived")
		}
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the folder of a FINISHED job is left")
		}
		var m []struct{ Name string }
		if err := json.Unmarshal([]byte(h.read(results, app.ManifestFile)), &m); err != nil || len(m) != 3 {
			t.Errorf("manifest %v, %v", m, err)
		}
		want := []job.State{
			job.Pending, job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Running, job.Archiving, job.Finished,
		}
		if got := h.states(j.ID); !slices.Equal(got, want) {
			t.Errorf("states %v", got)
		}
	})
	t.Run("a failure keeps its evidence, its folder and its output", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`echo good bye >&2; exit 3`)))
		if j.State != job.Failed || j.Code != job.ProgramFailed || !strings.Contains(j.Message, "exit code 3") {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		events, err := h.svc.History(h.ctx, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		if last := events[len(events)-1]; !strings.Contains(string(last.Data), "good bye") {
			t.Errorf("evidence %s", last.Data)
		}
		folder, results := app.Places(&j)
		h.read(folder, "stderr")
		h.read(results, "stderr")
	})
	t.Run("a failed attempt is tried again in the same folder", func(t *testing.T) {
		h := open(t)
		s := shell(`test -e mark && exit 0; touch mark; exit 1`)
		s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
		j := h.end(h.submit(s))
		if j.State != job.Finished || j.Attempt != 2 || j.Launch != 2 {
			t.Fatalf("%s in attempt %d, launch %d: %s", j.State, j.Attempt, j.Launch, j.Message)
		}
	})
	t.Run("a signal is named", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`kill -SEGV $$`)))
		if j.Code != job.ProgramKilled || !strings.Contains(j.Message, "signal 11") {
			t.Fatalf("%s %s", j.Code, j.Message)
		}
	})
	t.Run("killed with its wrapper it is lost, and no success", func(t *testing.T) {
		h := open(t)
		id := h.submit(shell(`exec sleep 1000`))
		h.until(id, state(job.Running))
		if err := syscall.Kill(-h.pid(id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Failed || j.Code != job.ProgramLost {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
	t.Run("nothing in the archive is replaced", func(t *testing.T) {
		h := open(t)
		to := filepath.Join(h.dir, "to")
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "stdout"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := shell(`echo theirs`)
		s.Archive = &job.Archive{To: to}
		j := h.end(h.submit(s))
		if j.State != job.Failed || j.Code != job.ArchiveFailed || !strings.Contains(j.Message, "exists with other content") {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		if got := h.read(to, "stdout"); got != "mine" {
			t.Errorf("replaced by %q", got)
		}
	})
	t.Run("an input that is not there is named", func(t *testing.T) {
		h := open(t)
		s := shell(`true`)
		s.Inputs = []job.Input{{From: filepath.Join(h.dir, "nothing")}}
		j := h.end(h.submit(s))
		if j.Code != job.InputMissing || !strings.Contains(j.Message, "nothing") {
			t.Fatalf("%s %s", j.Code, j.Message)
		}
	})
}

func TestWishes(t *testing.T) {
	t.Run("cancel kills the whole group, and says so when it is gone", func(t *testing.T) {
		h := open(t)
		id := h.submit(shell(`trap '' TERM; sleep 1000 & echo $! > child; wait; sleep 1000`))
		h.until(id, state(job.Running))
		pid := h.pid(id)
		if _, err := h.svc.Cancel(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		j := h.end(id)
		if j.State != job.Canceled || j.Code != job.CanceledByUser {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		if left := alive(t, pid); len(left) > 0 {
			t.Errorf("of the group there is still %q", left)
		}
	})
	t.Run("pause suspends the program and resume lets it go on", func(t *testing.T) {
		h := open(t)
		fifo := filepath.Join(h.dir, "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		s := job.Spec{Command: []string{"/bin/sh", "-c", `read line < "$0"; echo "$line"`, fifo}}
		id := h.submit(s)
		h.until(id, state(job.Running))
		for _, wish := range []func(context.Context, ...job.ID) error{
			func(ctx context.Context, ids ...job.ID) error { _, err := h.svc.Pause(ctx, ids...); return err },
			func(ctx context.Context, ids ...job.ID) error { _, err := h.svc.Resume(ctx, ids...); return err },
		} {
			if err := wish(h.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		j := h.end(id)
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		_, results := app.Places(&j)
		if got := h.read(results, "stdout"); got != "go on\n" {
			t.Errorf("stdout %q", got)
		}
	})
	t.Run("a wrapper that was suspended after it told the end is let go", func(t *testing.T) {
		h := open(t)
		fifo := filepath.Join(h.dir, "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		begun := filepath.Join(h.dir, "begun")
		id := h.submit(job.Spec{Command: []string{"/bin/sh", "-c", `: > "$1"; read line < "$0"`, fifo, begun}})
		h.until(id, state(job.Running))
		pid := h.pid(id)
		// Before that, the wrapper may wait for its own fork, and is not seen as stopped then.
		for _, err := os.Stat(begun); err != nil && h.ctx.Err() == nil; _, err = os.Stat(begun) {
			runtime.Gosched()
		}
		if _, err := h.svc.Pause(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		stopped := func() bool {
			b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
			return err == nil && strings.Contains(string(b), ") T ")
		}
		for !stopped() && h.ctx.Err() == nil {
			runtime.Gosched()
		}
		// Nobody can stop it in that one moment, so its message is written for it.
		var notes struct{ Handle runner.Handle }
		if j, err := h.svc.Job(h.ctx, id); err != nil || json.Unmarshal(j.Work, &notes) != nil {
			t.Fatalf("no handle: %v", err)
		}
		message := "pawl-end 1\ntoken " + notes.Handle.Token + "\nboot b\ncode 0\nbegan 1.00\nended 2.00\nwall 1700000000\n0m0.00s 0m0.00s\n0m0.00s 0m0.00s\nend\n"
		name := runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, 0)
		if err := os.WriteFile(filepath.Join(h.dir, "message"), []byte(message), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(h.dir, "message"), filepath.Join(h.dir, "ends", name)); err != nil {
			t.Fatal(err)
		}
		h.until(id, state(job.Paused))
		if stopped() {
			t.Error("it was left stopped")
			syscall.Kill(-pid, syscall.SIGCONT)
		}
		if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.svc.Resume(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
	})
	t.Run("a program that ends while paused waits in PAUSED for its archiving", func(t *testing.T) {
		h := open(t)
		id := h.submit(shell(`exec sleep 1000`))
		h.until(id, state(job.Running))
		if _, err := h.svc.Pause(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(-h.pid(id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.until(id, state(job.Paused))
		if j, err := h.svc.Job(h.ctx, id); err != nil || j.Resume != job.Archiving {
			t.Fatalf("resume in %s, %v", j.Resume, err)
		}
		if _, err := h.svc.Resume(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Failed || j.Code != job.ProgramLost {
			t.Fatalf("%s %s", j.State, j.Code)
		}
	})
}
