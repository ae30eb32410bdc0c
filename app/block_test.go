package app_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/engine"
	filesfake "github.com/pawl-jobs/pawl/files/fake"
	hostfake "github.com/pawl-jobs/pawl/host/fake"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/recovery/testers"
	"github.com/pawl-jobs/pawl/runner"
	runnerfake "github.com/pawl-jobs/pawl/runner/fake"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// memory is a database in memory.
type memory struct{}

func (memory) open(h *house) (store.Store, error) {
	return fake.New(func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }), nil
}
func (memory) save(*house)    {}
func (memory) restore(*house) {}

// A hooked kind does something before each step.
type hooked struct {
	engine.Kind
	before func(*engine.Run)
}

func (k hooked) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	k.before(r)
	return k.Kind.Step(ctx, r)
}

func before(hook func(*engine.Run)) func(*parts) {
	return func(p *parts) { p.step = func(m mortal) engine.Kind { return hooked{m, hook} } }
}

// together has n jobs come to a state before any of them does its step there for the first time.
func together(n int, s job.State) func(*engine.Run) {
	var there sync.WaitGroup
	var met sync.Map
	there.Add(n)
	return func(r *engine.Run) {
		if r.Job.State != s {
			return
		}
		if _, again := met.LoadOrStore(r.Job.ID, true); !again {
			there.Done()
			there.Wait()
		}
	}
}

// blocked waits until n jobs are blocked, and returns the group of them all.
func (h *house) blocked(n int) (g service.BlockedGroup) {
	h.Helper()
	h.poll("blocked jobs", func() bool {
		all, err := h.svc.Blocked(h.ctx)
		if err != nil || len(all) > 1 {
			h.Fatalf("groups %+v, %v", all, err)
		}
		if len(all) == 1 {
			g = all[0]
		}
		return g.Jobs == n
	})
	return g
}

// release has a group go on.
func (h *house) release(g service.BlockedGroup) {
	h.Helper()
	if _, err := h.svc.ActOnGroup(h.ctx, groups.Release, g.Key); err != nil {
		h.Fatal(err)
	}
}

// room reports whether there is as much as a group asks for.
func (h *house) room(g service.BlockedGroup) bool {
	h.Helper()
	var free syscall.Statfs_t
	if err := syscall.Statfs(g.Params["path"], &free); err != nil {
		h.Fatal(err)
	}
	need, err := strconv.ParseUint(g.Params["bytes"], 10, 64)
	if err != nil {
		h.Fatal(err)
	}
	return free.Bavail*uint64(free.Bsize) >= need
}

// fill writes a file that leaves less than so many bytes of a file system, and returns what makes
// room again.
func (h *house) fill(dir string, leave int64) (empty func()) {
	h.Helper()
	name := filepath.Join(dir, "filler")
	var free syscall.Statfs_t
	if err := syscall.Statfs(dir, &free); err != nil {
		h.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		h.Fatal(err)
	}
	if _, err := io.Copy(f, io.LimitReader(zeros{}, int64(free.Bavail)*free.Bsize-leave)); err != nil {
		h.Fatal(err)
	}
	if err := f.Close(); err != nil {
		h.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			h.Error(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// space is what a group of jobs without room says.
func (h *house) space(g service.BlockedGroup, path string, bytes int64, system string) {
	h.Helper()
	line, want := "", map[string]string{"path": path, "bytes": strconv.FormatInt(bytes, 10)}
	if system != "" {
		line, want["system"] = job.SystemKey(system), system
	}
	if g.Code != job.FilesystemFull || g.Tester != app.TesterSpace || g.Machine != "m1" || g.Line != line {
		h.Errorf("group %+v", g)
	}
	if diff := cmp.Diff(want, g.Params); diff != "" {
		h.Errorf("parameters (-want +got):\n%s", diff)
	}
}

func (h *house) finish(ids ...job.ID) {
	h.Helper()
	for _, id := range ids {
		if j := h.end(id); j.State != job.Finished || j.Attempt != 1 {
			h.Errorf("%s in attempt %d: %s\n%s", j.State, j.Attempt, j.Message, h.history(id))
		}
	}
}

func TestFullFileSystemOfTheFolders(t *testing.T) {
	h := openOn(t, memory{})
	full := h.tmpfs("8m")
	h.stop()
	h.start(func(p *parts) { p.Local.Work = full }, before(together(3, job.StagingInputs)))
	empty := h.fill(full, 3<<19) // clear of the reserve, whatever part of a copy is counted
	var ids []job.ID
	for i := range 3 {
		name := strconv.Itoa(i)
		h.write(strings.Repeat(name, 2<<20), h.dir, name)
		s := shell("cat [0-9] | wc -c; head -c 1 [0-9]")
		s.Inputs = []job.Input{{From: filepath.Join(h.dir, name)}}
		ids = append(ids, h.submit(s))
	}
	g := h.blocked(3)
	h.space(g, full, 2<<20, "")
	if h.room(g) {
		t.Error("there is room for them")
	}
	for _, id := range ids {
		j, err := h.svc.Job(h.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		folder, _ := app.Places(&j)
		want := "no space left on device in " + folder + "/" + runner.Folder
		if j.Resume != job.StagingInputs || !strings.HasPrefix(j.Message, "input "+h.dir) ||
			!strings.HasSuffix(j.Message, want) {
			t.Errorf("it goes on in %s: %s", j.Resume, j.Message)
		}
		if list, err := os.ReadDir(folder); err != nil || len(list) != 1 {
			t.Errorf("left in the folder: %v, %v", list, err)
		}
	}
	empty()
	if !h.room(g) {
		t.Error("there is no room for them")
	}
	h.release(g)
	h.finish(ids...)
	for i, id := range ids {
		j := h.end(id)
		_, results := app.Places(&j)
		if h.read(results, "stdout") != "2097152\n"+strconv.Itoa(i) {
			t.Error("another input was staged")
		}
	}
	if left, err := os.ReadDir(filepath.Join(full, "default")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Systems that share a file system have a group each, which closes the line of its own. Their
// backlogs wait while it is full, and go on when the tester has found room.
func TestFullFileSystemOfTwoSystems(t *testing.T) {
	h := openOn(t, memory{})
	full := h.tmpfs("16m")
	h.stop()
	h.start(func(p *parts) {
		p.Local.Work = full
		p.tests = map[string]recovery.Tester{app.TesterSpace: testers.Space{}}
	})
	if _, _, err := h.svc.Systems().Apply(h.ctx, []byte(`{"name":"desk","host":{"kind":"local"}}`), service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	empty := h.fill(full, 256<<10)
	h.write(strings.Repeat("x", 2<<20), h.dir, "input")
	systems := []string{job.SystemLocal, "desk"}
	var ids []job.ID
	for _, system := range systems {
		if err := h.svc.SetLimit(h.ctx, job.Limit{Key: job.SystemKey(system), Most: 1, Ahead: 1}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s := shell("wc -c <input")
			s.System, s.Inputs = system, []job.Input{{From: filepath.Join(h.dir, "input")}}
			s.Recovery = &job.Patience{Stages: []job.Stage{{Every: job.Duration(job.MinEvery)}}}
			ids = append(ids, h.submit(s))
		}
	}
	var groups []service.BlockedGroup
	h.poll("two groups that are tested, with all the others behind them", func() bool {
		all, err := h.svc.Blocked(h.ctx)
		if err != nil {
			t.Fatal(err)
		}
		groups = all
		return len(all) == 2 && !slices.ContainsFunc(all, func(g service.BlockedGroup) bool { return g.Tests == 0 || g.Behind != 2 })
	})
	for _, g := range groups {
		h.space(g, full, 1<<20, g.Params["system"])
		if g.Jobs != 1 || !slices.Contains(systems, g.Params["system"]) {
			t.Errorf("group %+v", g)
		}
	}
	empty()
	h.finish(ids...)
}

// A job that would not fit on an empty disk fails at once, and is in nobody's way.
func TestInputsThatNeverFit(t *testing.T) {
	h := openOn(t, memory{})
	small := h.tmpfs("2m")
	h.stop()
	h.start(func(p *parts) { p.Local.Work = small })
	h.write(strings.Repeat("x", 3<<20), h.dir, "large")
	s := shell("cat large")
	s.Inputs = []job.Input{{From: filepath.Join(h.dir, "large")}}
	large := h.submit(s)
	h.end(large)
	h.finish(h.submit(shell("echo here")))
	j, err := h.svc.Job(h.ctx, large)
	if err != nil {
		t.Fatal(err)
	}
	want := "the inputs have 3145728 bytes, and on the file system of " + small + " there would be room for 2097152 at most"
	if j.State != job.Failed || j.Code != job.FilesystemFull || !strings.HasSuffix(j.Message, want) || j.Attempt != 1 || j.Recoveries != 0 {
		t.Errorf("%s %s at attempt %d: %s", j.State, j.Code, j.Attempt, j.Message)
	}
}

// Once there is room, and nobody says so, the tester finds out, and the job goes on.
func TestRoomIsFound(t *testing.T) {
	h := openOn(t, memory{})
	full := h.tmpfs("8m")
	h.stop()
	h.start(func(p *parts) {
		p.Archive = full
		p.tests = map[string]recovery.Tester{app.TesterSpace: testers.Space{}}
	})
	empty := h.fill(full, 1<<20)
	s := shell("head -c 2000000 /dev/zero >large")
	s.Recovery = &job.Patience{Stages: []job.Stage{{Every: job.Duration(job.MinEvery)}}}
	id := h.submit(s)
	g := h.blocked(1)
	h.space(g, full, 2<<20, "")
	h.poll("tests that find no room", func() bool {
		g = h.blocked(1)
		return g.Tests > 1
	})
	if !strings.Contains(g.Result, "bytes are free on the file system of "+full+", and 2097152 are needed") {
		t.Errorf("a test says %q", g.Result)
	}
	empty()
	h.finish(id)
	j := h.end(id)
	if _, results := app.Places(&j); j.Recoveries != 1 || len(h.read(results, "large")) != 2_000_000 {
		t.Errorf("after %d recoveries the results are not there", j.Recoveries)
	}
	if said := h.history(id); !strings.Contains(said, "FILESYSTEM_FULL has cleared: ") || !strings.Contains(said, "bytes are free on the file system of "+full) {
		t.Errorf("history:\n%s", said)
	}
}

func TestFullFileSystemOfTheArchive(t *testing.T) {
	for name, own := range map[string]bool{"the service's": true, "the user's": false} {
		t.Run(name, func(t *testing.T) {
			h := openOn(t, memory{})
			full := h.tmpfs("8m")
			h.stop()
			h.start(func(p *parts) {
				if own {
					p.Archive = full
				}
			}, before(together(3, job.Archiving)))
			empty := h.fill(full, 1<<20)
			var ids []job.ID
			for i := range 3 {
				s := shell("head -c 2000000 /dev/zero >large; echo small >small")
				if !own {
					s.Archive = &job.Archive{To: filepath.Join(full, strconv.Itoa(i))}
				}
				ids = append(ids, h.submit(s))
			}
			g := h.blocked(3)
			h.space(g, full, 2<<20, "")
			if h.room(g) {
				t.Error("there is room for them")
			}
			for _, id := range ids {
				j, err := h.svc.Job(h.ctx, id)
				if err != nil {
					t.Fatal(err)
				}
				folder, results := app.Places(&j)
				if j.Resume != job.Archiving || !strings.HasPrefix(j.Message, "copy results to "+results+": no space left on device in "+full) {
					t.Errorf("it goes on in %s: %s", j.Resume, j.Message)
				}
				if !exists(folder, "large") || len(h.copies(full))+len(h.copies(results))+len(h.copies(full+"/.staging")) > 0 || exists(results, "small") {
					t.Error("results are lost, or half an archive is left")
				}
			}
			empty()
			if !h.room(g) {
				t.Error("there is no room for them")
			}
			h.release(g)
			h.finish(ids...)
			for _, id := range ids {
				j := h.end(id)
				folder, results := app.Places(&j)
				if exists(folder) || len(h.copies(results))+len(h.copies(full+"/.staging")) > 0 || len(h.read(results, "large")) != 2_000_000 {
					t.Error("something is left behind, or results are not there")
				}
			}
		})
	}
}

// Where nothing is left at all, not even a launch can be armed, or revoked.
func TestNoRoomForALaunch(t *testing.T) {
	for _, at := range []job.State{job.StagingJob, job.SubmittingJob} {
		t.Run(string(at), func(t *testing.T) {
			h := openOn(t, memory{})
			full := h.tmpfs("2m")
			h.stop()
			var once sync.Once
			var empty func()
			h.start(func(p *parts) { p.Local.Work = full }, before(func(r *engine.Run) {
				if r.Job.State == at {
					once.Do(func() { empty = h.fill(full, 0) })
				}
			}))
			s, lines := h.noting()
			s.Script, s.Command = strings.ReplaceAll(s.Command[2], "$0", "$1"), nil
			id := h.submit(s)
			g := h.blocked(1)
			h.space(g, full, 1<<20, job.SystemLocal)
			if j, err := h.svc.Job(h.ctx, id); err != nil || j.Resume != at || j.Live {
				t.Errorf("it goes on in %s, and may be launched: %t: %s, %v", j.Resume, j.Live, j.Message, err)
			}
			empty()
			h.release(g)
			h.finish(id)
			if h.once(lines) != 1 {
				t.Error("it never ran")
			}
		})
	}
}

// A launch is under way as the last block goes: its program does not start, and the job waits for
// room in the same attempt.
func TestNoRoomForAWrapper(t *testing.T) {
	h := openOn(t, memory{})
	full := h.tmpfs("2m")
	h.stop()
	var once sync.Once
	var empty func()
	h.start(func(p *parts) {
		f := hostfake.New(p.Local.Host)
		f.Through(func(_ context.Context, name string, call func() error) error {
			if name == "Start" {
				once.Do(func() { empty = h.fill(full, 0) })
			}
			return call()
		})
		p.on(f)
		p.Local.Work = full
	})
	s, lines := h.noting()
	s.Script, s.Command = strings.ReplaceAll(s.Command[2], "$0", "$1"), nil
	id := h.submit(s)
	g := h.blocked(1)
	h.space(g, full, 1<<20, job.SystemLocal)
	if said := h.history(id); !strings.Contains(said, "BLOCKED FILESYSTEM_FULL launch: its launcher gave up") {
		t.Errorf("history:\n%s", said)
	}
	empty()
	h.release(g)
	if j := h.end(id); j.State != job.Finished || j.Attempt != 1 || j.Launch != 2 || h.once(lines) != 1 {
		t.Errorf("%s in attempt %d: %s\n%s", j.State, j.Attempt, j.Message, h.history(id))
	}
}

// A launcher whose own folder is full, and not that of the job, waits for room there.
func TestNoRoomInTheSpool(t *testing.T) {
	h := openOn(t, memory{})
	full := h.tmpfs("2m")
	h.stop()
	h.start(func(p *parts) {
		f, host := runnerfake.New(p.Local.Runner), p.Local.Host.ID()
		p.Look = 10 * time.Millisecond
		p.Local.Runner = answer{scheduler{f}, func(k runner.Key) (runner.Handle, error) {
			end := &runner.End{Code: 126, NotStarted: runner.NoRoom + runner.NoRoomIn + full}
			f.Lie(k, runner.Status{State: runner.Ended, End: end})
			return runner.Handle{Key: k, Host: host, Token: "none"}, nil
		}}
	})
	empty := h.fill(full, 0)
	id := h.submit(scripted("true"))
	g := h.blocked(1)
	h.space(g, full, 1<<20, job.SystemLocal)
	empty()
	h.release(g)
	if j := h.end(id); j.State != job.Finished || j.Attempt != 1 || j.Launch != 2 {
		t.Errorf("%s in attempt %d: %s\n%s", j.State, j.Attempt, j.Message, h.history(id))
	}
}

// Who may use no more of a file system gets no more by waiting.
func TestDiskQuota(t *testing.T) {
	f := filesfake.New()
	h := open(t, func(p *parts) { p.Files = f })
	f.Inject(filesfake.Fault{Op: "Put", Err: syscall.EDQUOT})
	s := shell("echo results")
	s.Archive = &job.Archive{To: "/results"}
	s.Retry = &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Base: 1}}
	if j := h.end(h.submit(s)); j.State != job.Failed || j.Code != job.DiskQuotaExceeded || j.Attempt != 1 {
		t.Errorf("%s %s in attempt %d: %s", j.State, j.Code, j.Attempt, j.Message)
	}
}

// A blocked job whose cancel is wished ends, and leaves nothing of what it had copied.
func TestCancelWithoutRoom(t *testing.T) {
	f := filesfake.New()
	h := openOn(t, memory{}, func(p *parts) { p.Files = f })
	f.Full(3)
	s := shell("echo results")
	s.Archive = &job.Archive{To: "/results"}
	id := h.submit(s)
	g := h.blocked(1)
	h.space(g, "/results", 1<<20, "")
	if _, err := h.svc.Cancel(h.ctx, id); err != nil {
		t.Fatal(err)
	}
	if j := h.end(id); j.State != job.Canceled {
		t.Errorf("%s: %s", j.State, j.Message)
	}
	if list, err := f.List(h.ctx, "/results"); err != nil && !errors.Is(err, os.ErrNotExist) || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// TestNoProcessForTheProgram: where the machine had no process for the program, the job waits until
// it has, in the same attempt. The program plays that here: it says what its launcher would, in its
// name.
func TestNoProcessForTheProgram(t *testing.T) {
	h := open(t)
	s := shell(`[ ! -e "$0" ] || exit 0
		: >"$0"
		launcher=$(tr '\0' '\n' </proc/$PPID/cmdline | sed -n 2p)
		echo "$launcher: 1: ` + runner.CannotFork + `" >&2
		exit 126`)
	s.Command = append(s.Command, filepath.Join(h.dir, "ran"))
	s.Retry = &job.RetryPolicy{MaxAttempts: 1}
	id := h.submit(s)
	h.until(id, state(job.Blocked))
	j, err := h.svc.Job(h.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if j.Code != job.MachineExhausted || j.Resume != job.SubmittingJob || !strings.Contains(j.Message, "cannot fork") {
		t.Errorf("%s, resumes in %s: %s", j.Code, j.Resume, j.Message)
	}
	if g := h.blocked(1); g.Machine != "m1" {
		t.Errorf("its machine is %q", g.Machine)
	}
	if _, err := h.svc.ActOnGroup(h.ctx, groups.Release, j.Group); err != nil {
		t.Fatal(err)
	}
	if j = h.end(id); j.State != job.Finished || j.Attempt != 1 || j.Launch != 2 {
		t.Errorf("%s %s, attempt %d, launch %d\n%s", j.State, j.Code, j.Attempt, j.Launch, h.history(id))
	}
}
