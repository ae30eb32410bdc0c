//go:build linux

package processes_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/engine"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	runnerprocess "github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// zombieMachine is where all these processes live.
const zombieMachine = "m1"

// A house is what one process needs to run programs in a folder that many share.
type house struct {
	dir  string
	kind *app.Kind
}

// openHouse opens a house. aside is called before a program is suspended.
func openHouse(t *testing.T, dir string, aside ...func()) *house {
	t.Helper()
	h := &house{dir: dir}
	var launcher *runnerprocess.Runner
	host, err := hostlocal.Open(hostlocal.Config{ID: zombieMachine, OnExit: func(e hostlocal.Exit) {
		launcher.Exited(e.Process)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	launcher, err = runnerprocess.Open(t.Context(), runnerprocess.Config{
		Host: host, Spool: h.spool(), Exits: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.kind = app.New(app.Config{
		Local: app.System{Host: host, Runner: suspending{launcher, aside}, Work: h.work()},
		Files: fileslocal.FS{}, Archive: h.archive(),
		Look: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	return h
}

// suspending is a runner that does something else before it suspends a program.
type suspending struct {
	*runnerprocess.Runner
	before []func()
}

func (s suspending) Suspend(ctx context.Context, h runner.Handle) error {
	for _, f := range s.before {
		f()
	}
	return s.Runner.Suspend(ctx, h)
}

func (h *house) spool() string   { return filepath.Join(h.dir, "ends") }
func (h *house) work() string    { return filepath.Join(h.dir, "work") }
func (h *house) archive() string { return filepath.Join(h.dir, "archive") }

func (h *house) kinds() map[string]engine.Kind { return map[string]engine.Kind{job.KindApp: h.kind} }

// watcherOf returns a process that watches the programs. between stands between its service and the
// database.
func (h *house) watcherOf(t *testing.T, dsn string, between func(store.Store) store.Store) *process {
	t.Helper()
	bus, err := pgnotify.Open(t.Context(), pgnotify.Config{DSN: dsn, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	var rows store.Store
	duty := engine.Duty{Name: "watch/" + zombieMachine, Run: func(ctx context.Context, held *engine.Held) error {
		w := app.NewWatcher(h.kind, h.kind.Local(), rows, bus)
		return w.Duty().Run(ctx, held)
	}}
	cfg := service.Config{
		Machine: zombieMachine, Kinds: h.kinds(),
		Options: engine.Options{Duties: []engine.Duty{duty}, Roles: []store.Role{store.RoleWatcher}, Lease: zombieLease},
	}
	return join(t, dsn, cfg, func(s store.Store) store.Store {
		if rows = s; between != nil {
			rows = between(s)
		}
		return rows
	})
}

// A deaf kind goes on whatever becomes of its context, as if all that a step does were on its way.
type deaf struct{ engine.Kind }

func (d deaf) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	return d.Kind.Step(context.WithoutCancel(ctx), r)
}

// A moment is when a worker of programs is frozen, and where the job stands when it wakes up.
type moment struct {
	point   string
	users   bool // results go to a folder of the user's, not to the service's own archive
	running bool // the program that the second worker has launched runs then; otherwise the job has ended
}

func (m moment) String() string {
	name := m.point
	if m.users {
		name += " in a folder of the user's"
	}
	if m.running {
		return name + ", while the program runs"
	}
	return name
}

// deaf reports whether the step goes on although its lease is over: what launches and archives
// harms nothing even then. What stages writes to the names that the program reads, so it stops
// before the next file.
func (m moment) deaf() bool {
	switch step, _, _ := strings.Cut(m.point, "."); step {
	case "submit", "launch":
		return m.running // else the folder is gone, and the step would ask for it again and again
	case "archive":
		return m.point != "archive.tried"
	}
	return false
}

// moments are those of all steps of a worker; see package crash.
func moments() (all []moment) {
	for _, point := range []string{
		"stage.folder", "stage.copied", "stage.listed", "stage.script",
		"submit.intent", "launch.armfile", "launch.armed", "launch.started", "submit.launched",
	} {
		all = append(all, moment{point: point}, moment{point: point, running: true})
	}
	all = append(all, moment{point: "archive.tried", users: true}, moment{point: "archive.tried", users: true, running: true})
	for _, point := range []string{
		"archive.copied", "archive.completed", "archive.uploaded", "archive.committed", "archive.renamed", "archive.published",
		"archive.forgotten", "archive.cleaned",
	} {
		all = append(all, moment{point: point})
	}
	for _, point := range []string{
		"archive.announced", "archive.copied", "archive.uploaded", "archive.committed", "archive.linked", "archive.listed",
		"archive.published", "archive.forgotten", "archive.cleaned",
	} {
		all = append(all, moment{point: point, users: true})
	}
	return all
}

// A program is the job of a moment: its program adds to one of its inputs, and waits at a gate if
// it is to run on.
type program struct {
	moment
	dir   string // of its test; the job has folders of its own
	h     *house
	gate  chan *os.File // the program waits at its gate
	after job.ID
	id    job.ID
}

func (p *program) results() string {
	if p.users {
		return filepath.Join(p.dir, "results")
	}
	return filepath.Join(p.h.archive(), "default", p.id.String())
}

func (p *program) spec(t *testing.T) job.Spec {
	t.Helper()
	for name, content := range map[string]string{"a.txt": "a\n", "b.txt": "b\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gate := filepath.Join(p.dir, "gate")
	script := "echo x >> " + filepath.Join(p.dir, "ran") + "\necho more >> a.txt\n"
	if p.running {
		if err := syscall.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		script += "read x < " + gate + "\n"
		p.gate = make(chan *os.File, 1)
		go func() {
			f, _ := os.OpenFile(gate, os.O_WRONLY, 0) // waits until somebody reads
			p.gate <- f
		}()
		t.Cleanup(func() { // if nobody ever does
			if f, err := os.OpenFile(gate, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		})
	}
	s := job.Spec{
		Kind: job.KindApp, Script: script + "cat a.txt b.txt > out.txt\n", Archive: &job.Archive{},
		Inputs: []job.Input{{From: filepath.Join(p.dir, "a.txt")}, {From: filepath.Join(p.dir, "b.txt")}},
	}
	if p.users {
		s.Archive.To = p.results()
	}
	return s
}

// left returns what is left of the job that should not be.
func (p *program) left() (names []string) {
	for _, pattern := range []string{
		filepath.Join(p.h.work(), "default", p.id.String()),
		filepath.Join(p.h.work(), ".archiving", p.id.String()),
		filepath.Join(p.h.archive(), ".staging", "*"+p.id.String()+"*"),
		filepath.Join(p.h.spool(), p.id.String()+"*"),
		filepath.Join(p.dir, "results", ".pawl-*"),
	} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		names = append(names, found...)
	}
	return names
}

// processes returns the processes of the job, whose folder is where they work, with their states as
// in /proc/PID/stat.
func (p *program) processes() map[int]string {
	states := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		at, err := os.Readlink(filepath.Join(dir, "cwd"))
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		if _, state, ok := strings.Cut(string(stat), ") "); ok && err == nil && strings.Contains(at, p.id.String()) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			states[pid] = state[:1]
		}
	}
	return states
}

// tree returns the files in a folder with what they hold.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		all[rel] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

func zombiePrograms(t *testing.T) {
	dsn, dir := shared(t), t.TempDir()
	h := openHouse(t, dir)
	h.watcherOf(t, dsn, nil).start(t)
	cfg := service.Config{
		Machine: zombieMachine, Kinds: h.kinds(),
		Options: engine.Options{Lease: zombieLease, Roles: []store.Role{store.RoleWorker, store.RoleRecovery}},
	}
	second := join(t, dsn, cfg, nil)
	programs, seats := map[string]*program{}, map[seat]string{}
	for _, m := range moments() {
		p := &program{moment: m, dir: t.TempDir(), h: h, after: job.NewID()}
		p.id = submit(t, second.Service, service.Request{Spec: p.spec(t)})[0].ID
		programs[m.String()] = p
		seats[seat{DSN: dsn, Dir: dir, Scene: m.String(), Job: p.id, After: p.after, Deaf: m.deaf()}] = "freeze " + m.point
	}
	zombies := freezeAll(t, seats)
	second.start(t)
	for _, m := range moments() {
		t.Run(m.String(), func(t *testing.T) {
			p, z := programs[m.String()], zombies[m.String()]
			var gate *os.File
			if m.running {
				gate = <-p.gate
				until(t, "the watcher has it", func() (bool, error) {
					j, err := second.Job(t.Context(), p.id)
					return j.Custody == job.Monitor, err
				})
			} else if _, err := second.Wait(t.Context(), p.id); err != nil {
				t.Fatal(err)
			}
			before, files := second.look(t, p.id), tree(t, p.results())

			z.wake(t)
			second.useful(t, z)
			z.leave(t)
			if diff := cmp.Diff(before, second.look(t, p.id), cmpopts.IgnoreFields(job.Job{}, "Suspect", "Lane")); diff != "" {
				t.Errorf("it has changed what is seen of the job (-before it woke up, +after):\n%s", diff)
			}
			if diff := cmp.Diff(files, tree(t, p.results())); diff != "" {
				t.Errorf("it has changed the archive (-before it woke up, +after):\n%s", diff)
			}

			if m.running {
				if _, err := gate.WriteString("go\n"); err != nil {
					t.Error(err)
				}
				gate.Close()
			}
			if j, err := second.Wait(t.Context(), p.id); err != nil || j.State != job.Finished {
				t.Errorf("the job is %s (%s), %v", j.State, j.Message, err)
			}
			until(t, "nothing of it is alive", func() (bool, error) { return len(p.processes()) == 0, nil })
			files = tree(t, p.results())
			want := map[string]string{"a.txt": "a\nmore\n", "out.txt": "a\nmore\nb\n"}
			for name, content := range want {
				if files[name] != content {
					t.Errorf("the archive has %s: %q, want %q", name, files[name], content)
				}
			}
			if ran, err := os.ReadFile(filepath.Join(p.dir, "ran")); string(ran) != "x\n" {
				t.Errorf("the program ran %d times, %v", len(ran)/2, err)
			}
			swept := time.Now().Add(5 * time.Second)
			until(t, "what it left is swept", func() (bool, error) {
				left := p.left()
				if len(left) > 0 && time.Now().After(swept) {
					t.Errorf("it left %v", left)
					return true, nil
				}
				return len(left) == 0, nil
			})
			storetest.Check(t, second.store, "default", p.id)
		})
	}
}

// zombieWatcher: a watcher is frozen when it is about to suspend a program. Another one suspends
// it, and lets it go on. Then the first one wakes up, and the program still runs.
func zombieWatcher(t *testing.T) {
	dsn, dir := shared(t), t.TempDir()
	h := openHouse(t, dir)
	worker := join(t, dsn, service.Config{
		Machine: zombieMachine, Kinds: h.kinds(),
		Options: engine.Options{Lease: zombieLease, Roles: []store.Role{store.RoleWorker, store.RoleRecovery}},
	}, nil)
	worker.start(t)
	p := &program{moment: moment{running: true}, dir: t.TempDir(), h: h}
	p.id = submit(t, worker.Service, service.Request{Spec: p.spec(t)})[0].ID
	gate := <-p.gate
	happens := func(what string) {
		t.Helper()
		for e, err := range worker.Events(t.Context(), p.id, "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(e.Message, what) || string(e.Custody) == what {
				return
			}
		}
		t.Fatalf("the job ended, and %q did not happen", what)
	}
	happens(string(job.Monitor))
	if a, err := worker.Pause(t.Context(), p.id); err != nil || a[0].Err != nil {
		t.Fatal(a, err)
	}
	z := freezeAll(t, map[seat]string{{Scene: "watcher", DSN: dsn, Dir: dir, Job: p.id}: ""})["watcher"]
	happens("to be suspended")
	h.watcherOf(t, dsn, nil).start(t)
	happens("suspended")
	if a, err := worker.Resume(t.Context(), p.id); err != nil || a[0].Err != nil {
		t.Fatal(a, err)
	}
	happens("goes on")
	before := worker.look(t, p.id)

	z.wake(t)
	z.hear(t, "begin")
	z.leave(t)
	states := p.processes()
	t.Cleanup(func() {
		for pid := range p.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that was stopped would stay
		}
	})
	if all := slices.Collect(maps.Values(states)); len(all) == 0 || slices.Contains(all, "T") {
		t.Fatalf("the program's processes are in the states %q, none should be stopped", all)
	}
	if diff := cmp.Diff(before, worker.look(t, p.id)); diff != "" {
		t.Errorf("it has changed what is seen of the job (-before it woke up, +after):\n%s", diff)
	}
	if _, err := gate.WriteString("go\n"); err != nil {
		t.Error(err)
	}
	gate.Close()
	if j, err := worker.Wait(t.Context(), p.id); err != nil || j.State != job.Finished {
		t.Errorf("the job is %s (%s), %v", j.State, j.Message, err)
	}
}
