//go:build linux

package processes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// TestZombie freezes a worker in the middle of a job, by SIGSTOP, for so long that another has the
// job. Then the frozen one goes on where it was. What it does from there on must change nothing
// that anybody sees, and it must be of use again.
//
// A scene is one thing that it is about to do. Its process is this test binary once more, on real
// PostgreSQL; it stops itself, so that it stands exactly there. All processes of a stage are frozen
// side by side; the second worker, which runs their jobs then, is the test's own process.
func TestZombie(t *testing.T) {
	if asked := os.Getenv(zombieVariable); asked != "" {
		beZombie(t, asked)
		return
	}
	t.Run("task", zombieTasks)
	if testenv.Every() {
		t.Run("program", zombiePrograms)
	}
	t.Run("watcher", zombieWatcher)
	t.Run("sqlite", zombiesOnSQLite)
}

const (
	// zombieVariable has the seat of a process that this test starts, as JSON.
	zombieVariable = "PAWL_TEST_ZOMBIE"
	zombieLease    = 2 * time.Second
)

// A seat is what a process that is to be frozen knows.
type seat struct {
	Scene string
	DSN   string // empty: its database is that of the folder
	Dir   string
	Job   job.ID // in the middle of which it is frozen
	After job.ID // runs nowhere but there, later
	Deaf  bool   // its steps go on whatever becomes of their contexts
}

// A line is what such a process tells.
type line struct{ What, Text string }

// A zombie is one of them.
type zombie struct {
	seat
	line    chan line // what it tells
	process *exec.Cmd
	stdin   io.Closer
	ended   chan none // closed when it has ended
	output  strings.Builder
	told    []line // so far
}

// startZombie starts a process, and returns when it is frozen.
func startZombie(s seat, crashAt string) (*zombie, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	ledger, tells, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer tells.Close()
	z := &zombie{seat: s, line: make(chan line, 1000), ended: make(chan none)}
	z.process = exec.Command(os.Args[0], "-test.run=^TestZombie$")
	z.process.Env = append(os.Environ(), zombieVariable+"="+string(text), crash.Variable+"="+crashAt,
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else each waits a second before it ends
	z.process.ExtraFiles = []*os.File{tells}
	z.process.Stdout, z.process.Stderr = &z.output, &z.output
	z.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing else ends one that is frozen
	if z.stdin, err = z.process.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// The kernel counts as the parent the thread that forked, so that thread has to live as
		// long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(z.ended)
		err := z.process.Start()
		started <- err
		if err == nil {
			_ = z.process.Wait() // how it ended is seen in its state
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		defer ledger.Close()
		defer close(z.line)
		for in := json.NewDecoder(ledger); ; {
			var l line
			if in.Decode(&l) != nil {
				return
			}
			z.line <- l
		}
	}()
	for {
		var what unix.Siginfo
		err := unix.Waitid(unix.P_PID, z.process.Process.Pid, &what, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return z, err
		case what.Code != cldStopped:
			<-z.ended
			return z, fmt.Errorf("it ended before it was frozen: %s\n%s", z.process.ProcessState, z.output.String())
		default:
			return z, nil
		}
	}
}

// cldStopped is CLD_STOPPED of waitid(2): the process was stopped by a signal.
const cldStopped = 5

// patience is how long something may take that happens within moments.
const patience = 2 * time.Minute

// stacks ends one that hangs, and returns where it did.
func (z *zombie) stacks() string {
	_ = z.process.Process.Signal(syscall.SIGQUIT) // an error means that it has ended
	<-z.ended
	return z.output.String()
}

// kill ends it, frozen or not.
func (z *zombie) kill() {
	_ = z.process.Process.Kill() // an error means that it has ended
	<-z.ended
}

// wake has it go on.
func (z *zombie) wake(t *testing.T) {
	t.Helper()
	if err := z.process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// hear waits until it has told something.
func (z *zombie) hear(t *testing.T, what string) string {
	t.Helper()
	for _, l := range z.told {
		if l.What == what {
			return l.Text
		}
	}
	for {
		select {
		case l, ok := <-z.line:
			if !ok {
				<-z.ended
				t.Fatalf("it ended before it told of %s: %s, after %v\n%s", what, z.process.ProcessState, z.told, z.output.String())
			}
			z.told = append(z.told, l)
			if l.What == what {
				return l.Text
			}
		case <-time.After(patience):
			t.Fatalf("it does not tell of %s, after %v\n%s", what, z.told, z.stacks())
		}
	}
}

// leave has it end in good order, and returns all that it has told.
func (z *zombie) leave(t *testing.T) []line {
	t.Helper()
	z.stdin.Close()
	select {
	case <-z.ended:
	case <-time.After(patience):
		t.Fatalf("it does not end\n%s", z.stacks())
	}
	for l := range z.line {
		z.told = append(z.told, l)
	}
	if !z.process.ProcessState.Success() {
		t.Errorf("it ended with %s\n%s", z.process.ProcessState, z.output.String())
	}
	return z.told
}

// freezeAll starts processes, a few at a time, and returns when all are frozen.
func freezeAll(t *testing.T, seats map[seat]string) map[string]*zombie {
	t.Helper()
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		all  = map[string]*zombie{}
		door = make(chan none, 4)
	)
	t.Cleanup(func() {
		for _, z := range all {
			z.kill()
		}
	})
	for s, at := range seats {
		wg.Go(func() {
			door <- none{}
			defer func() { <-door }()
			z, err := startZombie(s, at)
			if err != nil {
				t.Errorf("%s: %v", s.Scene, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if z != nil {
				all[s.Scene] = z
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// A sight is all that can be seen of a job.
type sight struct {
	Row    job.Job
	Events []job.Event
}

func (p *process) look(t *testing.T, id job.ID) (v sight) {
	t.Helper()
	var err error
	if v.Row, err = p.Job(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if v.Events, err = p.History(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return v
}

// useful has the frozen process, which is awake, run another job.
func (p *process) useful(t *testing.T, z *zombie) {
	t.Helper()
	r := task("after", z.Scene)
	r.ID = z.After
	submit(t, p.Service, r)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	j, err := p.Wait(ctx, z.After)
	if err != nil {
		t.Fatalf("it does not run another job: %v\n%s", err, z.stacks())
	}
	if j.State != job.Finished || string(j.Result) != `"of use"` {
		t.Errorf("what it ran later: %s, result %s", j.State, j.Result)
	}
}

// A ledger is where the process that was frozen tells what it does.
type ledger struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (l *ledger) tell(what string, text ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.out.Encode(line{what, fmt.Sprint(text...)}); err != nil {
		panic(err)
	}
}

// A wire leads from the process that is frozen to the database. What has left the process is on its
// way, whatever becomes of the context; the process can be frozen in that moment, once, and tells
// of what its first session does from then on.
type wire struct {
	store.Store
	*ledger

	mu       sync.Mutex
	freezeIn string // the call to freeze in, the next time; empty: none
	froze    bool
	first    job.ID // session
}

// freeze freezes the process.
func (w *wire) freeze() {
	crash.Freeze()
	w.mu.Lock()
	w.froze = true
	w.mu.Unlock()
}

// freezeNext has the process be frozen in the next call of that name.
func (w *wire) freezeNext(call string) {
	w.mu.Lock()
	w.freezeIn = call
	w.mu.Unlock()
}

// pass is called by each call. It reports whether it is one of a session that was lost.
func (w *wire) pass(call string, session job.ID) (late bool) {
	w.mu.Lock()
	now := w.freezeIn == call
	if now {
		w.freezeIn = ""
	}
	w.mu.Unlock()
	if now {
		w.freeze()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.froze && session == w.first
}

// onItsWay returns the context of a call. One that comes late goes to the database, though who made
// it has given it up.
func onItsWay(ctx context.Context, late bool) (context.Context, context.CancelFunc) {
	if !late {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), patience/2)
}

func (w *wire) Begin(ctx context.Context, s store.Session) error {
	w.mu.Lock()
	again := !w.first.IsZero()
	if !again {
		w.first = s.ID
	}
	w.mu.Unlock()
	if again {
		w.tell("begin") // all that the session did which was lost has ended, but for steps
	}
	return w.Store.Begin(ctx, s)
}

// unsent reports whether a call whose context has ended does not leave the process at all: it was
// frozen on its way to the call.
func unsent(ctx context.Context) bool {
	by, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(by)
}

func (w *wire) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	ended := unsent(ctx)
	late := w.pass("renew", r.Session)
	if late && ended {
		return store.Renewal{}, context.DeadlineExceeded
	}
	ctx, stop := onItsWay(ctx, late)
	defer stop()
	a, err := w.Store.Renew(ctx, r)
	if late {
		w.tell("renew", answer(err))
	}
	return a, err
}

func (w *wire) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	late := w.pass("claim", c.Session)
	ctx, stop := onItsWay(ctx, late)
	defer stop()
	jobs, err := w.Store.Claim(ctx, c)
	if late {
		w.tell("claim", answer(err))
	}
	return jobs, err
}

func (w *wire) Apply(ctx context.Context, changes []job.Change, along *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	late := w.pass("apply", changes[0].From.Fence.Session)
	ctx, stop := onItsWay(ctx, late)
	defer stop()
	answers, jobs, eff, err := w.Store.Apply(ctx, changes, along)
	for i := range answers {
		if late {
			w.tell("apply", changes[i].Last().State, ": ", answers[i].Outcome)
		}
	}
	if late && err != nil {
		w.tell("apply", answer(err))
	}
	return answers, jobs, eff, err
}

func (w *wire) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	eff, err := w.Store.Clear(ctx, lost)
	w.tell("clear", answer(err))
	return eff, err
}

// answer is what an error says, in a word.
func answer(err error) string {
	if err == nil {
		return "ok"
	}
	return string(job.KindOf(err))
}

// beZombie is all that a process does which this test starts.
func beZombie(t *testing.T, asked string) {
	var s seat
	if err := json.Unmarshal([]byte(asked), &s); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(3, "ledger")
	t.Cleanup(func() { file.Close() }) // after all that tell
	w := &wire{ledger: &ledger{out: json.NewEncoder(file)}}
	cfg := service.Config{Options: engine.Options{Lease: zombieLease, Only: []job.ID{s.Job, s.After}, Grace: -1}}
	switch scene := sceneOf(s.Scene); {
	case s.Scene == "watcher":
	case scene == nil:
		cfg.Machine, cfg.Kinds = zombieMachine, openHouse(t, s.Dir).kinds()
		if s.Deaf {
			cfg.Kinds[job.KindApp] = deaf{cfg.Kinds[job.KindApp]}
		}
	case scene.kind == "steps":
		cfg.Kinds = map[string]engine.Kind{scene.kind: stepper{w, new(atomic.Int64)}}
	case scene.run == nil:
		w.freezeNext(scene.call)
	}
	var p *process
	if s.DSN == "" {
		st, err := sqlite.Open(t.Context(), s.Dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		w.Store = st
		cfg.Store, cfg.Broker, cfg.Log = w, &local.Broker{}, slog.New(slog.DiscardHandler)
		p = &process{service.New(cfg), cfg.Store}
	} else if s.Scene == "watcher" {
		h := openHouse(t, s.Dir, w.freeze)
		p = h.watcherOf(t, s.DSN, func(st store.Store) store.Store {
			w.Store = st
			return w
		})
	} else {
		cfg.Roles = []store.Role{store.RoleWorker}
		p = join(t, s.DSN, cfg, func(st store.Store) store.Store {
			w.Store = st
			return w
		})
	}
	play(p, w, s)
	service.Handle(p.Service, "after", func(context.Context, *service.Task[string]) (string, error) { return "of use", nil })
	p.start(t)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
}

// sceneOf returns the scene of that name, if it is one with a task.
func sceneOf(name string) *scene {
	i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &scenes[i]
}
