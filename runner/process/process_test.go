package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

func TestMain(m *testing.M) {
	if task := os.Getenv("PROCESS_TEST_TASK"); task != "" {
		os.Exit(child(task))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
}

func Test(t *testing.T) {
	runnertest.Run(t, func(t *testing.T) runnertest.Bench { return newBench(t).Bench })
}

type bench struct {
	runnertest.Bench
	runner *Runner
}

func newBench(t *testing.T, env ...string) bench {
	t.Helper()
	c := local.Config{ID: "test-machine"}
	if env != nil {
		c.Env = env
	}
	var r *Runner
	c.OnExit = func(e local.Exit) { r.Exited(e.Process) }
	h, err := local.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	spool := t.TempDir() + "/it's ends"
	r, err = Open(t.Context(), Config{Host: h, Spool: spool, Exits: true})
	if err != nil {
		t.Fatal(err)
	}
	b := runnertest.Bench{Runner: r, Host: h, Work: t.TempDir(), Spool: spool, Lives: lives(r)}
	if !testenv.Every() {
		b.Rounds = 40
	}
	return bench{b, r}
}

// lives returns [runnertest.Bench.Lives] of a runner.
func lives(r *Runner) func(*testing.T, runner.Handle) bool {
	return func(t *testing.T, h runner.Handle) bool {
		t.Helper()
		l, err := r.find(h)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.look(t.Context(), &l)
		if err != nil {
			t.Fatal(err)
		}
		return p.wrapper || len(p.program)+len(p.helpers) > 0
	}
}

func (b bench) find(t *testing.T, h runner.Handle) launch {
	t.Helper()
	l, err := b.runner.find(h)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newJob makes a job whose program is a shell script.
func (b bench) newJob(t *testing.T, script string) (runner.Key, runner.Plan) {
	t.Helper()
	k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
	dir := b.Work + "/" + k.Job.String()
	if err := os.MkdirAll(dir+"/"+runner.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return k, runner.Plan{Dir: dir, Argv: []string{"/bin/sh", "-c", script}, Stdout: "stdout", Stderr: "stderr"}
}

func (b bench) launch(t *testing.T, k runner.Key, p runner.Plan) runner.Handle {
	t.Helper()
	h, err := b.runner.Launch(t.Context(), k, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.runner.Kill(context.Background(), h, 0); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (b bench) settle(t *testing.T, k runner.Key, p runner.Plan) runner.Fate {
	t.Helper()
	f, err := b.runner.Settle(t.Context(), k, p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (b bench) state(t *testing.T, h runner.Handle) runner.State {
	t.Helper()
	s, err := b.runner.Probe(t.Context(), []runner.Handle{h})
	if err != nil {
		t.Fatal(err)
	}
	return s[0].State
}

// end waits for the message of an end, until it is whole.
func (b bench) end(t *testing.T, k runner.Key) (e runner.End) {
	t.Helper()
	name := runner.EndName(k, 0)
	hosttest.Until(t, "the message is whole", func() bool {
		content, err := os.ReadFile(b.Spool + "/" + name)
		if err == nil {
			e, err = runner.ParseEnd(name, content)
		}
		return err == nil
	})
	return e
}

// leaves waits until a launch is no longer in a state.
func (b bench) leaves(t *testing.T, h runner.Handle, s runner.State) runner.State {
	t.Helper()
	var now runner.State
	hosttest.Until(t, "it is no longer "+string(s), func() bool {
		now = b.state(t, h)
		return now != s
	})
	return now
}

// watch returns a function that waits for a name in a folder.
func (b bench) watch(t *testing.T, dir string) func(string) {
	t.Helper()
	events, err := b.Host.Watch(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) {
		t.Helper()
		for e := range events {
			if e.Name == name {
				return
			}
		}
		t.Fatalf("the watch ended before %s came", name)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// A job is a wrapper and its program, and nothing else.
func TestAJobIsTwoProcesses(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range stats {
		text, _ := os.ReadFile(name) // it may be gone
		if i := strings.LastIndexByte(string(text), ')'); i >= 0 && strings.Fields(string(text[i+1:]))[3] == strconv.Itoa(b.find(t, h).Process.PID) {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d processes", n)
	}
}

func TestAProgramWithoutItsWrapperIsOrphaned(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	if err := syscall.Kill(b.find(t, h).Process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if s := b.leaves(t, h, runner.Active); s != runner.Orphaned {
		t.Errorf("state %s", s)
	}
	if err := b.runner.Kill(t.Context(), h, time.Hour); err != nil {
		t.Error(err)
	}
	if s := b.state(t, h); s != runner.Lost {
		t.Errorf("state %s after the kill", s)
	}
}

// A process that has the pid of a wrapper, or had it before the machine was booted, is not the
// wrapper.
func TestAnotherProcess(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "exec sleep 1000")
	h := b.launch(t, k, p)
	for name, edit := range map[string]func(*launch){
		"it began at another time": func(l *launch) { l.Process.Start-- },
		"it is of another boot":    func(l *launch) { l.Process.Boot = "00000000-0000-0000-0000-000000000000" },
	} {
		l := b.find(t, h)
		edit(&l)
		l.Locks = 0
		if s := b.state(t, b.runner.Handle(runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}, "another", l.place)); s != runner.Lost {
			t.Errorf("%s: %s", name, s)
		}
	}
	if s := b.state(t, h); s != runner.Active {
		t.Error(s)
	}
}

// What is told of a launch that leaves no whole message.
func TestWatch(t *testing.T) {
	next := func(t *testing.T, news <-chan []runner.Notice) runner.Notice {
		t.Helper()
		for batch := range news {
			if len(batch) > 0 {
				return batch[0]
			}
		}
		t.Fatal("the watch was lost")
		return runner.Notice{}
	}
	watch := func(t *testing.T, b bench) <-chan []runner.Notice {
		t.Helper()
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		news, err := b.runner.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stop()
			for range news {
			}
		})
		return news
	}
	t.Run("a wrapper that was killed is told of when it ends", func(t *testing.T) {
		b := newBench(t)
		news := watch(t, b)
		k, p := b.newJob(t, "kill -9 0")
		b.launch(t, k, p)
		if n := next(t, news); n != (runner.Notice{Key: k}) {
			t.Errorf("%+v", n)
		}
	})
	t.Run("a message that is not whole is no end, and is told as one once it is", func(t *testing.T) {
		b := newBench(t)
		k, p := b.newJob(t, "exit 3")
		b.launch(t, k, p)
		e := b.end(t, k)
		name := b.Spool + "/" + runner.EndName(k, 0)
		whole := read(t, name)
		write(t, name, whole[:len(whole)/2], 0o600)
		news := watch(t, b)
		if n := next(t, news); n != (runner.Notice{Key: k, Name: runner.EndName(k, 0)}) {
			t.Errorf("a half: %+v", n)
		}
		write(t, name, whole, 0o600)
		n := next(t, news)
		for n.End == nil { // it was told anew as a half
			n = next(t, news)
		}
		if n.End.Token != e.Token || n.End.Code != 3 || !n.Look {
			t.Errorf("%+v", n)
		}
	})
	t.Run("what is no message is removed", func(t *testing.T) {
		b := newBench(t)
		write(t, b.Spool+"/junk", "x", 0o600)
		write(t, b.Spool+"/.on its way", "x", 0o600)
		<-watch(t, b)
		if exists(b.Spool+"/junk") || !exists(b.Spool+"/.on its way") {
			t.Error("junk stays, or something is removed that is on its way")
		}
	})
	t.Run("a watch that is lost is told of by its end", func(t *testing.T) {
		b := newBench(t)
		news := watch(t, b)
		<-news
		if err := os.RemoveAll(b.Spool); err != nil {
			t.Fatal(err)
		}
		for range news {
		}
		if _, err := b.runner.Watch(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without a spool: %v", err)
		}
	})
}

func TestAWrapperSaysWhyItGaveUp(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "echo ran >>ran")
	if err := os.Mkdir(p.Dir+"/.pawl/taken.1.1", 0o700); err != nil {
		t.Fatal(err)
	}
	h := b.launch(t, k, p)
	b.leaves(t, h, runner.Active)
	all, err := b.runner.Probe(t.Context(), []runner.Handle{h})
	if err != nil || all[0].State != runner.Lost || !strings.Contains(all[0].Said, "not started") {
		t.Errorf("%+v, %v", all, err)
	}
	if exists(p.Dir + "/ran") {
		t.Error("the program ran")
	}
}

// An editor is a file system through which the script of a launch gets another text.
type editor struct {
	files.FS
	text func(string) string
}

func (e editor) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), "run.") {
		text = []byte(e.text(string(text)))
	}
	return e.FS.Put(ctx, name, bytes.NewReader(text), o)
}

func (e editor) Space(ctx context.Context, name string) (files.Space, error) {
	return e.FS.(files.Sizer).Space(ctx, name)
}

// A wrapper is frozen beside its decisive step.
func TestAFrozenWrapper(t *testing.T) {
	const take, frozen = `true >.pawl/taken.$at || {`, `: >reached; read -r _ <go`
	for name, test := range map[string]struct {
		instead string
		started bool
	}{
		"before it takes the launch":           {frozen + "\n" + take, false},
		"when it took it and has not said who": {`{ ` + frozen + `; } >.pawl/taken.$at || {`, true},
		"after it took the launch":             {`true >.pawl/taken.$at && { ` + frozen + `; } || {`, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.runner.FS = editor{b.runner.FS, func(text string) string {
				if strings.Count(text, take) != 1 {
					t.Errorf("the script does not say once: %s", take)
				}
				return strings.Replace(text, take, test.instead, 1)
			}}
			k, p := b.newJob(t, "echo ran >>ran; exit 3")
			if err := syscall.Mkfifo(p.Dir+"/go", 0o600); err != nil {
				t.Fatal(err)
			}
			wait := b.watch(t, p.Dir)
			h := b.launch(t, k, p)
			wait("reached")
			var want runner.Fate
			if test.started {
				want = runner.Fate{Started: true, Handle: h}
			}
			for range 3 {
				if diff := cmp.Diff(want, b.settle(t, k, p)); diff != "" {
					t.Errorf("Settle (-want +got):\n%s", diff)
				}
			}
			if exists(p.Dir + "/ran") {
				t.Error("it ran while it was frozen")
			}
			write(t, p.Dir+"/go", "\n", 0) // it goes on
			if s := b.leaves(t, h, runner.Active); (s == runner.Ended) != test.started || (s == runner.Lost) == test.started {
				t.Errorf("state %s", s)
			}
			if exists(p.Dir+"/ran") != test.started {
				t.Errorf("ran: %t, want %t", !test.started, test.started)
			}
			if diff := cmp.Diff(want, b.settle(t, k, p)); diff != "" {
				t.Errorf("Settle (-want +got):\n%s", diff)
			}
		})
	}
}

// booted returns when the host was booted.
func (b bench) booted(t *testing.T) time.Time {
	t.Helper()
	at, err := b.runner.booted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The spool of an account becomes another one while a program runs. Its end counts.
func TestAnotherSpool(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "exit 3")
	h := b.launch(t, k, p)
	b.end(t, k)
	var err error
	if b.runner, err = Open(t.Context(), Config{Host: b.Host, Spool: b.Spool + "-of-now"}); err != nil {
		t.Fatal(err)
	}
	b.leaves(t, h, runner.Active)
	all, err := b.runner.Probe(t.Context(), []runner.Handle{h})
	if err != nil || all[0].State != runner.Ended || all[0].End.Code != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}

// After a power failure taken.<a>.<n> may be missing although the program ran, or what it and
// others hold.
func TestAPowerFailure(t *testing.T) {
	for name, left := range map[string]map[string]string{
		"it is missing":                     {},
		"it is empty, and nobody said who":  {"taken": ""},
		"it is empty, and so is who it was": {"taken": "", "take": ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			k, p := b.newJob(t, "echo ran >>ran")
			m, err := spool.NewNames(k, p.Dir)
			if err != nil {
				t.Fatal(err)
			}
			text, err := b.runner.script(k, p, m.Token, b.booted(t), 4242, "")
			if err != nil {
				t.Fatal(err)
			}
			write(t, m.Arming(), "armed "+m.Token+" 00000000-0000-0000-0000-000000000000\n", 0o600)
			write(t, m.Own("run"), text, 0o600)
			for what, content := range left {
				write(t, map[string]string{"taken": m.Taken(), "take": m.Own("take")}[what], content, 0o600)
			}

			want := runner.Fate{Started: true, Handle: b.runner.Handle(k, m.Token, place{Dir: p.Dir})}
			for range 3 {
				if diff := cmp.Diff(want, b.settle(t, k, p)); diff != "" {
					t.Errorf("Settle (-want +got):\n%s", diff)
				}
			}
			if s := b.state(t, want.Handle); s != runner.Lost {
				t.Errorf("state %s", s)
			}
			if err := b.runner.Kill(t.Context(), want.Handle, time.Hour); err != nil {
				t.Error(err)
			}
			// A launcher on another machine, frozen all the while, starts its wrapper now.
			c := exec.Command("/bin/sh", m.Own("run"))
			c.Dir = p.Dir
			if out, _ := c.CombinedOutput(); !strings.Contains(string(out), "not started") && !strings.Contains(string(out), "take.1.1") {
				t.Errorf("the late wrapper: %s", out)
			}
			if exists(p.Dir + "/ran") {
				t.Error("it ran")
			}
		})
	}
}

// A launcher that died leaves a launch that may still start: it is told of, and not revoked.
func TestALaunchThatIsOpen(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "echo ran >>ran")
	b.dies(t, "launch.armed", task{Key: k, Plan: p})
	past := func(want runner.Past) {
		t.Helper()
		got, err := b.runner.Past(t.Context(), runner.Key{Job: k.Job}, p.Dir)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v; (-want +got):\n%s", err, diff)
		}
	}
	for range 2 {
		past(runner.Past{Open: []runner.Key{k}})
	}
	if f := b.settle(t, k, p); f.Started {
		t.Errorf("%+v", f)
	}
	past(runner.Past{})
}

func TestDamagedMarks(t *testing.T) {
	b := newBench(t)
	boot, err := b.Host.Boot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	armed := "armed t " + boot + "\n"
	for name, marks := range map[string]map[string]string{
		"taken, and not armed":           {"taken.1.1": "taken t " + boot + " 1 2 3", "take.1.1.t": "taken t " + boot + " 1 2 3"},
		"taken, and revoked":             {"taken.1.1": "", "launch.1.1": "revoked t"},
		"nobody said who":                {"taken.1.1": "", "launch.1.1": armed},
		"who it was is empty":            {"taken.1.1": "taken t " + boot + " 1 2 3", "launch.1.1": armed, "take.1.1.t": ""},
		"who it was is a part":           {"taken.1.1": "", "launch.1.1": armed, "take.1.1.t": "taken t boot 1"},
		"who it was is no process":       {"taken.1.1": "", "launch.1.1": armed, "take.1.1.t": "taken t boot x y 3"},
		"who it was is somebody else":    {"taken.1.1": "", "launch.1.1": armed, "take.1.1.t": "taken u " + boot + " 1 2 3"},
		"taken, and armed by nobody":     {"taken.1.1": "taken t " + boot + " 1 2 3", "launch.1.1": ""},
		"a launch that says what is not": {"launch.1.1": "what is this\n"},
	} {
		k, p := b.newJob(t, "true")
		for mark, content := range marks {
			write(t, p.Dir+"/"+runner.Folder+"/"+mark, content, 0o600)
		}
		if f, err := b.runner.Settle(t.Context(), k, p.Dir); job.KindOf(errors.Unwrap(err)) != job.Corrupt {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

// A connection may be cut while a folder is removed. Then it is removed again.
func TestCleanedInPart(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "true")
	h := b.launch(t, k, p)
	hosttest.Until(t, "it has ended", func() bool {
		s, err := b.runner.Probe(t.Context(), []runner.Handle{h})
		return err == nil && s[0].State == runner.Ended
	})
	if err := b.runner.Remember(t.Context(), k, p.Dir); err != nil {
		t.Fatal(err)
	}
	took, err := filepath.Glob(path.Join(p.Dir, runner.Folder, "take.*"))
	if err != nil || len(took) != 1 {
		t.Fatal(took, err)
	}
	if err := os.Remove(took[0]); err != nil {
		t.Fatal(err)
	}
	if err := b.runner.Clean(t.Context(), k, p.Dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path.Join(p.Dir, runner.Folder)); !os.IsNotExist(err) {
		t.Errorf("its folder is there: %v", err)
	}
}

func TestAPartOfAnExitFileIsNoEvidence(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "true")
	wait := b.watch(t, b.Spool)
	h := b.launch(t, k, p)
	wait(runner.EndName(k, 0))
	b.leaves(t, h, runner.Active)
	name := b.runner.RoomName(k, 0)
	whole := strings.TrimRight(read(t, name), " ")
	half := whole[:len(whole)/2]
	for _, content := range []string{"", "   ", half, half + "   ", whole[:len(whole)-1], strings.Replace(whole, h.Token, "another", 1)} {
		write(t, name, content, 0o600)
		if s := b.state(t, h); s != runner.Lost {
			t.Errorf("with %q it is %s", content, s)
		}
	}
	write(t, name, whole, 0o600)
	if s := b.state(t, h); s != runner.Ended {
		t.Errorf("with all of it it is %s", s)
	}
}

// small puts the spool on a file system of its own, with a megabyte of room.
func (b *bench) small(t *testing.T) string {
	t.Helper()
	full := t.TempDir()
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("PAWL_TEST_REQUIRE") != "" && os.Geteuid() == 0 {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("mount a small file system: %v (it takes root)", err)
	}
	t.Cleanup(func() { syscall.Unmount(full, syscall.MNT_DETACH) })
	b.Spool = full + "/ends"
	var err error
	if b.runner, err = Open(t.Context(), Config{Host: b.Host, Spool: b.Spool}); err != nil {
		t.Fatal(err)
	}
	return full
}

// fill leaves no room on a file system.
func fill(t *testing.T, full string) {
	t.Helper()
	if err := os.WriteFile(full+"/fill", make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
}

// Where there is no room to tell the end, nothing is started. Whoever asks hears why, and the
// launch can be revoked.
func TestNoRoomForTheEnd(t *testing.T) {
	for what, fill := range map[string]func(*testing.T, string){
		"a full disk": fill,
		"no more files": func(t *testing.T, full string) {
			if err := syscall.Mount("tmpfs", full, "tmpfs", syscall.MS_REMOUNT, "nr_inodes=3"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			fill(t, b.small(t))
			k, p := b.newJob(t, "echo > ran")
			h := b.launch(t, k, p)
			var s runner.Status
			hosttest.Until(t, "its wrapper is gone", func() bool {
				all, err := b.runner.Probe(t.Context(), []runner.Handle{h})
				if err != nil {
					t.Fatal(err)
				}
				s = all[0]
				return s.State != runner.Active
			})
			rooms := path.Join(b.Spool, spool.Rooms)
			if s.State != runner.Ended || s.End.NotStarted != runner.NoRoom+runner.NoRoomIn+rooms {
				t.Errorf("%+v, %+v", s, s.End)
			}
			if f := b.settle(t, k, p); f.Started {
				t.Errorf("%+v", f)
			}
			if now := b.state(t, h); now != runner.Lost { // as any that is revoked
				t.Errorf("it is %s", now)
			}
			b.nothing(t, k, p)
		})
	}
}

// The name that decides takes no room but its own. A wrapper that cannot make it has not taken the
// launch.
func TestNoRoomToTakeALaunch(t *testing.T) {
	const take = "true >.pawl/taken.$at"
	for what, c := range map[string]struct {
		fill    string
		started bool
	}{
		"room for a name":   {"cat /dev/zero >fill", true},
		"no room for names": {"while true >fill.$((n += 1)); do :; done", false},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			spools := b.Spool
			b.Work = b.small(t)
			if err := syscall.Mount("tmpfs", b.Work, "tmpfs", syscall.MS_REMOUNT, "size=1m,nr_inodes=100"); err != nil {
				t.Fatal(err)
			}
			b.Spool = spools
			var err error
			if b.runner, err = Open(t.Context(), Config{Host: b.Host, Spool: b.Spool}); err != nil {
				t.Fatal(err)
			}
			b.runner.FS = editor{b.runner.FS, func(text string) string {
				return strings.Replace(text, take, c.fill+" 2>/dev/null\n"+take, 1)
			}}
			k, p := b.newJob(t, "exit 3")
			h := b.launch(t, k, p)
			switch s := b.leaves(t, h, runner.Active); {
			case !exists(p.Dir+"/fill") && !exists(p.Dir+"/fill.1"):
				t.Error("nothing was filled")
			case s != runner.Ended:
				t.Errorf("it is %s", s)
			}
			all, err := b.runner.Probe(t.Context(), []runner.Handle{h})
			if err != nil {
				t.Fatal(err)
			}
			if e := all[0].End; c.started && e.Code != 3 || !c.started && e.NotStarted != runner.NoRoom {
				t.Errorf("%+v", e)
			}
			fills, _ := filepath.Glob(p.Dir + "/fill*")
			for _, name := range fills {
				os.Remove(name)
			}
			if f := b.settle(t, k, p); f.Started != c.started {
				t.Errorf("%+v", f)
			}
		})
	}
}

// nothing sees that nothing of a launch ran, and that there is no room for its end.
func (b bench) nothing(t *testing.T, k runner.Key, p runner.Plan) {
	t.Helper()
	for _, name := range []string{p.Dir + "/ran", b.runner.RoomName(k, 0)} {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}

// Where the program has filled the disk there is no room for a message; that for what is kept of
// the end was made before.
func TestADiskThatIsFull(t *testing.T) {
	b := newBench(t)
	b.Work = b.small(t)
	k, p := b.newJob(t, "cat /dev/zero >fill; exit 3")
	b.launch(t, k, p)
	if e := b.end(t, k); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

// Each shell that may be a machine's /bin/sh runs the script, with the tools that belong to it.
func TestShells(t *testing.T) {
	for _, shell := range []string{"dash", "bash", "busybox", "mksh", "ksh", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			binary, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			bin := t.TempDir()
			path := bin + ":/usr/bin:/bin"
			links := []string{"sh"}
			if shell == "busybox" {
				links, path = []string{"sh", "ln", "mv", "cat", "date", "dd", "sleep", "printf", "rm"}, bin
			}
			for _, l := range links {
				if err := os.Symlink(binary, bin+"/"+l); err != nil {
					t.Fatal(err)
				}
			}
			b := newBench(t)
			wrap := func(p runner.Plan, k runner.Key) (exec.Cmd, spool.Names) {
				t.Helper()
				m, err := spool.NewNames(k, p.Dir)
				if err != nil {
					t.Fatal(err)
				}
				text, err := b.runner.script(k, p, m.Token, b.booted(t), 4242, "")
				if err != nil {
					t.Fatal(err)
				}
				write(t, m.Own("run"), text, 0o600)
				return exec.Cmd{Path: bin + "/sh", Args: []string{"sh", ".pawl/" + filepath.Base(m.Own("run"))}, Dir: p.Dir, Env: []string{"PATH=" + path}}, m
			}
			run := func(p runner.Plan, k runner.Key) (runner.End, string) {
				t.Helper()
				c, m := wrap(p, k)
				out, err := os.Create(m.Own("log"))
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				if c.Stdout, c.Stderr = out, out; c.Run() != nil {
					t.Errorf("the wrapper: %s", read(t, out.Name()))
				}
				took, told := read(t, m.Taken()), read(t, b.runner.RoomName(k, 0))
				// Run again, it does nothing.
				c = exec.Cmd{Path: c.Path, Args: c.Args, Dir: c.Dir, Env: c.Env}
				if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "take.1.1") {
					t.Errorf("the wrapper, run again: %v: %s", err, out)
				}
				if read(t, m.Taken()) != took || read(t, b.runner.RoomName(k, 0)) != told {
					t.Error("the second run left something")
				}
				name := runner.EndName(k, 0)
				e, err := runner.ParseEnd(name, []byte(read(t, b.Spool+"/"+name)))
				if err != nil {
					t.Error(err)
				}
				return e, read(t, p.Dir+"/stderr")
			}
			k, p := b.newJob(t, "")
			p.Argv = []string{"/usr/bin/printf", `%s\000`, "-n", "it's", "", "new\nline", "\xff", "$(id)", "*", `\`}
			p.Env = map[string]string{"IFS": "a", "UID": "5", "OPTIND": "abc", "A": "it's\n$(id)", "PATH": "/nowhere", "LC_ALL": "C"}
			e, stderr := run(p, k)
			if diff := cmp.Diff(p.Argv[2:], strings.Split(strings.TrimSuffix(read(t, p.Dir+"/stdout"), "\x00"), "\x00")); diff != "" || e.Code != 0 || stderr != "" {
				t.Errorf("%+v; stderr %q; arguments (-want +got):\n%s", e, stderr, diff)
			}
			k, p = b.newJob(t, "")
			p.Argv, p.Env = []string{"/bin/cat", "/proc/self/environ"}, map[string]string{"IFS": "a", "UID": "5", "OPTIND": "abc", "A": "it's\n$(id)"}
			run(p, k)
			got := strings.Split(read(t, p.Dir+"/stdout"), "\x00")
			for name, value := range p.Env {
				if !slices.Contains(got, name+"="+value) {
					t.Errorf("no %s=%q in %q", name, value, got)
				}
			}
			for _, test := range []struct {
				argv       []string
				code       int
				notStarted []string // one of them is a part of it
			}{
				{[]string{"/bin/sh", "-c", "exit 3"}, 3, nil},
				{[]string{"/bin/sh", "-c", "kill -TERM $$"}, 128 + 15, nil},
				{[]string{"/bin/sh", "-c", "exit 126"}, 126, nil},
				{[]string{"/bin/sh", "-c", "exit 127"}, 127, nil},
				{[]string{"/nowhere/absent"}, 127, []string{"/nowhere/absent: not found", "/nowhere/absent: inaccessible", "/nowhere/absent: No such file or directory", "no such file or directory: /nowhere/absent"}},
				{[]string{"absent"}, 127, []string{"absent: not found", "absent: inaccessible or not found", "command not found: absent"}},
				{[]string{"-x", "y"}, 127, []string{"-x: ", "not found: -x"}},
				{[]string{"/etc/passwd"}, 126, []string{"/etc/passwd: Permission denied", "/etc/passwd: can't execute: Permission denied", "/etc/passwd: cannot execute [Permission denied]", "permission denied: /etc/passwd"}},
				{[]string{"/etc"}, 126, []string{"/etc: Permission denied", "/etc: Is a directory", "permission denied: /etc", "/etc: cannot execute", "/etc: can't execute: Is a directory"}},
				{[]string{"./script"}, 127, []string{"script: not found", "script: No such file or directory", "bad interpreter", "script: cannot execute: required file not found"}},
				{[]string{"/bin/echo", strings.Repeat("x", 200<<10)}, 126, []string{"/bin/echo: Argument list too long", "argument list too long: /bin/echo", "/bin/echo: cannot execute [Argument list too long]"}},
			} {
				k, p := b.newJob(t, "")
				p.Argv = test.argv
				p.Env = map[string]string{"LC_ALL": "xx_XX.pawl", "PATH": "/nowhere:/usr/bin"}
				write(t, p.Dir+"/script", "#!/nowhere/interpreter\n", 0o755)
				e, stderr := run(p, k)
				other := test.notStarted != nil && e.Code == 126+127-test.code // shells differ
				if e.Code != test.code && !other || (stderr == "") != (test.notStarted == nil) {
					t.Errorf("%.100q: code %d, want %d; stderr %q", test.argv, e.Code, test.code, stderr)
				}
				if (e.NotStarted == "") != (test.notStarted == nil) ||
					test.notStarted != nil && !slices.ContainsFunc(test.notStarted, func(s string) bool { return strings.Contains(e.NotStarted, s) }) {
					t.Errorf("%.100q: not started: %q; stderr %q", test.argv, e.NotStarted, stderr)
				}
			}
			k, p = b.newJob(t, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
			if e, _ := run(p, k); e.User == 0 || e.Ran == 0 || time.Since(e.Ended).Abs() > time.Minute {
				t.Errorf("times of a program that computes: %+v", e)
			}
			fill(t, b.small(t))
			k, p = b.newJob(t, "echo > ran")
			c, m := wrap(p, k)
			if out, err := c.CombinedOutput(); err == nil {
				t.Errorf("the wrapper without room: %s", out)
			}
			if _, err := os.Stat(m.Taken()); !os.IsNotExist(err) {
				t.Errorf("it is taken: %v", err)
			}
			b.nothing(t, k, p)
		})
	}
}

// Who reads a pipe waits for somebody to write.
func TestAPipeIsNotReadForAReason(t *testing.T) {
	b := newBench(t)
	k, p := b.newJob(t, "exit 127")
	p.Stderr = "pipe"
	if err := syscall.Mkfifo(p.Dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(p.Dir+"/pipe", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	wait := b.watch(t, b.Spool)
	b.launch(t, k, p)
	wait(runner.EndName(k, 0))
	if e := b.end(t, k); e.Code != 127 || e.NotStarted != "" {
		t.Errorf("%+v", e)
	}
}

// task is what a child of the test does before it dies.
type task struct {
	Settle bool
	Key    runner.Key
	Plan   runner.Plan
	Spool  string
}

func child(text string) int {
	var task task
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		panic(err)
	}
	h, err := local.Open(local.Config{ID: "test-machine"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	r, err := Open(ctx, Config{Host: h, Spool: task.Spool})
	if err != nil {
		panic(err)
	}
	if task.Settle {
		_, err = r.Settle(ctx, task.Key, task.Plan.Dir)
	} else {
		_, err = r.Launch(ctx, task.Key, task.Plan)
	}
	if err != nil {
		panic(err)
	}
	return 0
}

// dies runs a task in a process that is killed at a point.
func (b bench) dies(t *testing.T, point string, task task) {
	t.Helper()
	task.Spool = b.Spool
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "PROCESS_TEST_TASK="+string(text), "PAWL_CRASH="+point)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil || c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed at %s: %v\n%s", point, err, out)
	}
}

// Whoever dies at whichever point, many who settle agree, and the program runs exactly if they say
// that it started.
func TestCrashes(t *testing.T) {
	type death struct {
		point  string
		settle bool
	}
	for name, deaths := range map[string][]death{
		"a launcher before it armed":      {{"launch.armfile", false}},
		"a launcher before the start":     {{"launch.armed", false}},
		"a launcher after the start":      {{"launch.started", false}},
		"a settler before any launch":     {{"settle.linked", true}},
		"a launcher, then a settler":      {{"launch.armfile", false}, {"settle.linked", true}},
		"a launcher, then a settler late": {{"launch.armed", false}, {"settle.linked", true}},
		"a launcher, then two settlers":   {{"launch.armed", false}, {"settle.linked", true}, {"settle.revoked", true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			k, p := b.newJob(t, "echo ran >>ran")
			wait := b.watch(t, b.Spool)
			for _, d := range deaths {
				b.dies(t, d.point, task{Settle: d.settle, Key: k, Plan: p})
			}
			fates := make([]runner.Fate, 5)
			var wg sync.WaitGroup
			for i := range fates {
				wg.Go(func() { fates[i] = b.settle(t, k, p) })
			}
			wg.Wait()
			for _, f := range fates {
				if diff := cmp.Diff(fates[0], f); diff != "" {
					t.Fatalf("settlers do not agree (-first +other):\n%s", diff)
				}
			}
			if fates[0].Started {
				if !slices.Contains(deaths, death{"launch.started", false}) {
					t.Error("it started without a start")
				}
			} else {
				k.Launch++
				b.launch(t, k, p)
			}
			wait(runner.EndName(k, 0))
			if got := read(t, p.Dir+"/ran"); got != "ran\n" {
				t.Errorf("it ran: %q", got)
			}
		})
	}
}

// An end that nobody takes, as that of a job of a service that is gone, is forgotten like a mark.
func TestEndsThatNobodyTakes(t *testing.T) {
	b := newBench(t)
	name := func(n byte) string {
		return filepath.Join(b.Spool, runner.EndName(runner.Key{Job: job.ID{n}, Attempt: 1, Launch: 1}, 0))
	}
	aside := filepath.Join(b.Spool, "another.file")
	for _, file := range []string{name(1), name(2), aside} {
		write(t, file, "", 0o600)
	}
	before := time.Now().Add(-2 * time.Hour)
	for _, file := range []string{name(1), aside} {
		if err := os.Chtimes(file, before, before); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.runner.Forget(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if exists(name(1)) || !exists(name(2)) || !exists(aside) {
		t.Errorf("the old one: %t, the new one: %t, what is none: %t", exists(name(1)), exists(name(2)), exists(aside))
	}
}
