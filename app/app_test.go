package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/host"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Stopping(m)) }

// A house is a service that runs programs, on a fresh folder. It can be stopped and started anew,
// as a process is.
type house struct {
	*testing.T
	svc  *service.Service
	kind *app.Kind
	eyes *app.Watcher
	dir  string
	ctx  context.Context

	db      database
	store   store.Store
	ahead   atomic.Int64 // by how many nanoseconds the clock of the store is ahead
	machine *hostlocal.Host
	runner  *process.Runner
	exited  atomic.Pointer[func(host.Process)] // what the machine tells when a child has died
	running func()                             // ends the service; nil when none runs
}

// parts are what a service is made of, for a test to replace.
type parts struct {
	app.Config
	rows store.Reader // that the watcher reads
	main store.Store  // that the service works on
	deaf bool         // its runner is not told of children that died

	launcher *process.Runner
	on       func(host.Host) // has programs run on another machine than that of the house
	also     *app.System     // is watched too
	seen     store.Reader    // that its watcher reads

	step  func(mortal) engine.Kind // stands before the kind; nil: nothing does
	slots map[job.Lane]int
	grace time.Duration // of the service
	tests map[string]recovery.Tester
}

// A database is where a house keeps its jobs.
type database interface {
	open(h *house) (store.Store, error)
	save(h *house)    // keeps it as it is, while nobody has it open
	restore(h *house) // brings it back to what it was when it was saved
}

// sqliteFolder is a folder of the house.
type sqliteFolder struct{}

func (sqliteFolder) open(h *house) (store.Store, error) {
	return sqlite.Open(h.ctx, filepath.Join(h.dir, "db"), sqlite.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) },
	})
}

// open returns a house with a service that runs.
func open(t *testing.T, change ...func(*parts)) *house { return openOn(t, sqliteFolder{}, change...) }

func openOn(t *testing.T, db database, change ...func(*parts)) *house {
	t.Helper()
	// What never comes is to fail its test, and not all of them.
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	t.Cleanup(cancel)
	h := &house{T: t, dir: t.TempDir(), ctx: ctx, db: db}
	var err error
	if h.store, err = db.open(h); err != nil {
		t.Fatal(err)
	}
	h.machine, err = hostlocal.Open(hostlocal.Config{ID: "m1", OnExit: func(e hostlocal.Exit) {
		if tell := h.exited.Load(); tell != nil {
			(*tell)(e.Process)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if h.runner, err = process.Open(h.ctx, process.Config{Host: h.machine, Spool: h.spool(), Exits: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.stop()
		if err := errors.Join(h.machine.Close(), h.store.Close()); err != nil {
			t.Error(err)
		}
	})
	h.start(change...)
	return h
}

// spool returns the folder in which ends appear.
func (h *house) spool() string { return filepath.Join(h.dir, "ends") }

// start runs a service in the house.
func (h *house) start(change ...func(*parts)) {
	p := parts{rows: h.store, main: h.store, launcher: h.runner, Config: app.Config{
		Local: app.System{Host: h.machine, Runner: h.runner, Work: filepath.Join(h.dir, "work")}, Own: []string{h.spool()},
		Files: fileslocal.FS{}, Archive: filepath.Join(h.dir, "archive"), Grace: time.Second,
	}}
	p.on = func(m host.Host) {
		var err error
		if p.launcher, err = process.Open(h.ctx, process.Config{Host: m, Spool: h.spool(), Exits: true}); err != nil {
			h.Fatal(err)
		}
		p.Local.Host, p.Local.Runner = m, p.launcher
	}
	for _, f := range change {
		f(&p)
	}
	h.kind = app.New(p.Config)
	bus := &local.Broker{}
	watcher := app.NewWatcher(h.kind, h.kind.Local(), p.rows, bus)
	h.eyes = watcher
	tell := p.launcher.Exited
	if p.deaf {
		tell = func(host.Process) {}
	}
	h.exited.Store(&tell)
	var kind engine.Kind = mortal{h.kind}
	if p.step != nil {
		kind = p.step(mortal{h.kind})
	}
	duties := []engine.Duty{watcher.Duty()}
	if p.also != nil {
		duties = append(duties, app.NewWatcher(h.kind, p.also, p.seen, bus).Duty())
	}
	svc := service.New(service.Config{
		Store: p.main, Broker: bus, Principal: "ada", Machine: "m1", Testers: p.tests,
		Kinds:   map[string]engine.Kind{job.KindApp: kind},
		Options: engine.Options{Slots: p.slots, Grace: p.grace, Duties: duties},
	})
	h.svc = svc
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	h.running = func() {
		stop()
		if err := <-ended; err != nil {
			h.Error(err)
		}
		if n := svc.Repaired(); n != 0 {
			h.Errorf("the sweep repaired %d rows; it should find nothing", n)
		}
	}
}

// stop ends the service. Programs run on.
func (h *house) stop() {
	if h.running != nil {
		h.running()
	}
	h.running = nil
}

// A mortal worker dies where something that it calls panics with a death: its job goes back as it
// stands then.
type mortal struct{ *app.Kind }

type death struct{}

func (m mortal) Step(ctx context.Context, r *engine.Run) (o engine.Outcome) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case death:
			o = engine.Back()
		default:
			panic(p)
		}
	}()
	return m.Kind.Step(ctx, r)
}

func shell(script string) job.Spec { return job.Spec{Command: []string{"/bin/sh", "-c", script}} }

func (h *house) submit(s job.Spec) job.ID {
	h.Helper()
	a, err := h.svc.Submit(h.ctx, service.Request{Spec: s})
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

// handle returns the handle of a job's launch.
func (h *house) handle(id job.ID) runner.Handle {
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
	return notes.Handle
}

// A place is where a launch is.
type place struct {
	Dir     string
	Process host.Process
}

func placeOf(t *testing.T, h runner.Handle) (at place) {
	t.Helper()
	if err := json.Unmarshal([]byte(h.Data), &at); err != nil {
		t.Fatal(err)
	}
	return at
}

// at returns where a job's launch is.
func (h *house) at(id job.ID) place {
	h.Helper()
	return placeOf(h.T, h.handle(id))
}

// pid returns the process id of a job's wrapper, which is that of its group.
func (h *house) pid(id job.ID) int {
	h.Helper()
	return h.at(id).Process.PID
}

// poll waits for what nobody announces.
func (h *house) poll(what string, is func() bool) {
	h.Helper()
	if !testenv.Until(h.ctx, is) {
		h.Errorf("waited in vain for %s", what) // workers wait too, and Fatalf is not for them
	}
}

// exists reports whether there is a file or a folder of a name.
func exists(elem ...string) bool {
	_, err := os.Lstat(filepath.Join(elem...))
	return err == nil
}

// gate makes a pipe that a program waits for, with "read line <", until pass lets it go on.
func (h *house) gate() string {
	h.Helper()
	name := filepath.Join(h.T.TempDir(), "gate")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		h.Fatal(err)
	}
	return name
}

// pass lets a program through a gate, now or when it comes there. It waits for nobody.
func (h *house) pass(gate string) {
	h.Helper()
	f, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { f.Close() }) // what was written lasts as long as somebody has the pipe open
	if _, err := f.WriteString("go on\n"); err != nil {
		h.Fatal(err)
	}
}

// scripted is shell with arguments, which the script knows as $0, $1, …
func scripted(script string, args ...string) job.Spec {
	s := shell(script)
	s.Arguments = args
	return s
}

// alive returns the stat lines of what is alive in a process group: a zombie is dead, whoever may
// reap it.
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

// history returns what the events of a job say, a line for each.
func (h *house) history(id job.ID) string {
	h.Helper()
	events, err := h.svc.History(h.ctx, id)
	if err != nil {
		h.Fatal(err)
	}
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, e.State, e.Code, e.Message)
	}
	return b.String()
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
		if got := h.archived(results); len(got) != 3 {
			t.Errorf("the manifest tells of %q", got)
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
		id, _ := h.asleep()
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
		if j.State != job.Failed || j.Code != job.ArchiveExists || !strings.Contains(j.Message, to+"/stdout: file already exists") {
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
	t.Run("a wrapper that was suspended after it told the end is ended", func(t *testing.T) {
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
		h.poll("the program to begin", func() bool { return exists(begun) })
		if _, err := h.svc.Pause(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		h.poll("the program to be stopped", func() bool { return stopped(pid) })
		// Nobody can stop it in that one moment, so its message is written for it.
		var notes struct{ Handle runner.Handle }
		if j, err := h.svc.Job(h.ctx, id); err != nil || json.Unmarshal(j.Work, &notes) != nil {
			t.Fatalf("no handle: %v", err)
		}
		message := "taken " + notes.Handle.Token + " b\ncode 0\nbegan 1.00\nended 2.00\nbooted 1700000000\n0m0.00s 0m0.00s\n0m0.00s 0m0.00s\nend\n"
		name := runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, 0)
		if err := os.WriteFile(filepath.Join(h.dir, "message"), []byte(message), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(h.dir, "message"), filepath.Join(h.dir, "ends", name)); err != nil {
			t.Fatal(err)
		}
		h.until(id, state(job.Paused))
		if stopped(pid) {
			t.Error("it was left stopped")
			syscall.Kill(-pid, syscall.SIGKILL)
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
		id, _ := h.asleep()
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
