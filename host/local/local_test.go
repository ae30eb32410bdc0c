package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"),
		goleak.IgnoreTopFunction("os/signal.loop"))
}

func open(t *testing.T, c Config) *Host {
	t.Helper()
	c.ID = "test-machine"
	h, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func start(t *testing.T, h *Host, argv ...string) host.Process {
	t.Helper()
	dir := t.TempDir()
	p, err := h.Start(t.Context(), host.Command{Argv: argv, Dir: dir, Stdout: dir + "/out", Stderr: dir + "/err"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func Test(t *testing.T) {
	hosttest.Run(t, func(t *testing.T) (host.Host, string) { return open(t, Config{}), t.TempDir() })
}

func TestIDIsRequired(t *testing.T) {
	if _, err := Open(Config{}); job.KindOf(err) != job.Invalid {
		t.Errorf("Open: %v", err)
	}
}

// A process that was started by nohup ignores SIGHUP; its programs do not.
func TestSignalsThatAreIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	h := open(t, Config{})
	dir := t.TempDir()
	p, err := h.Start(t.Context(), host.Command{
		Argv: []string{"/bin/sh", "-c", "kill -HUP $$; echo it ignores SIGHUP"}, Dir: dir, Stdout: dir + "/out",
		Stderr: dir + "/err",
	})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "it has ended", func() bool {
		alive, err := h.Alive(t.Context(), []host.Process{p})
		return err == nil && !alive[0]
	})
	if out, err := os.ReadFile(dir + "/out"); err != nil || len(out) > 0 {
		t.Errorf("%s%v", out, err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err) // else this process ignores it still
	}
}

func TestCloseTwice(t *testing.T) {
	h := open(t, Config{})
	h.Close()
	h.Close()
}

func TestExitsAreTold(t *testing.T) {
	exits := make(chan Exit, 1)
	h := open(t, Config{OnExit: func(e Exit) { exits <- e }})
	t.Run("a code", func(t *testing.T) {
		p := start(t, h, "/bin/sh", "-c", "exit 3")
		if e := <-exits; e.Process != p || e.Status.ExitStatus() != 3 {
			t.Errorf("%+v of %+v", e, p)
		}
	})
	t.Run("a signal", func(t *testing.T) {
		p := start(t, h, "/bin/sleep", "1000")
		if err := h.Signal(t.Context(), []host.Process{p}, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if e := <-exits; e.Process != p || e.Status.Signal() != syscall.SIGTERM {
			t.Errorf("%+v of %+v", e, p)
		}
	})
}

// Alive reaps a child that it meets, and the reaper still tells of it, once.
func TestExitsThatAliveMeetsAreTold(t *testing.T) {
	exits := make(chan Exit, 1)
	h := open(t, Config{OnExit: func(e Exit) { exits <- e }})
	for range 20 {
		p := start(t, h, "/bin/sh", "-c", "exit 3")
		hosttest.Until(t, "it is gone", func() bool {
			return !isAlive(t, h, p)
		})
		u, ok := h.Usage(p)
		if e := <-exits; e.Process != p || e.Status.ExitStatus() != 3 || !ok || e.Usage != u {
			t.Errorf("%+v of %+v, and %+v, %t", e, p, u, ok)
		}
	}
}

// Who sees a child dead before the reaper does can ask at once what it had used: here there is no
// reaper any more.
func TestAliveReaps(t *testing.T) {
	h := open(t, Config{})
	p := start(t, h, "/bin/true")
	h.Close()
	hosttest.Until(t, "it is gone", func() bool {
		return !isAlive(t, h, p)
	})
	if u, ok := h.Usage(p); !ok {
		t.Errorf("Usage: %+v, %t", u, ok)
	}
}

// What a program had in memory is told apart from what it shared with this process before it was
// itself.
func TestMemory(t *testing.T) {
	exits := make(chan Exit, 1)
	h := open(t, Config{OnExit: func(e Exit) { exits <- e }})
	size := ownMaxRSS() + 20<<20
	for what, test := range map[string]struct {
		argv     []string
		low, top int64
	}{
		"little, which cannot be told": {[]string{"/bin/true"}, 0, 0},
		"much": {[]string{
			"/bin/dd", "if=/dev/zero", "of=/dev/null",
			fmt.Sprintf("bs=%d", size), "count=1",
		}, size, size + 20<<20},
		"much, in a program's program": {[]string{
			"/bin/sh", "-c",
			fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%d count=1; true", size),
		}, size, size + 20<<20},
	} {
		start(t, h, test.argv...)
		if e := <-exits; e.Usage.MaxRSS < test.low || e.Usage.MaxRSS > test.top {
			t.Errorf("%s: %d bytes, want %d to %d", what, e.Usage.MaxRSS, test.low, test.top)
		}
	}
}

func TestAccountsAreBounded(t *testing.T) {
	var a accounts
	const n = 3*remembered + 7
	for i := range n {
		a.add(host.Process{PID: i}, host.Usage{User: time.Duration(i)})
	}
	if len(a.of) != remembered || len(a.order) != remembered {
		t.Errorf("%d and %d are remembered, want %d", len(a.of), len(a.order), remembered)
	}
	for i := range n {
		if u, ok := a.of[host.Process{PID: i}]; ok != (i >= n-remembered) || ok && u.User != time.Duration(i) {
			t.Fatalf("%d of %d: %+v, %t", i, n, u, ok)
		}
	}
}

func isAlive(t *testing.T, h *Host, p host.Process) bool {
	t.Helper()
	alive, err := h.Alive(t.Context(), []host.Process{p})
	if err != nil {
		t.Fatal(err)
	}
	return alive[0]
}

// A program costs its host process no descriptor, no goroutine, and no zombie when it has ended.
func TestProgramsCostNothing(t *testing.T) {
	var wg sync.WaitGroup
	h := open(t, Config{OnExit: func(Exit) { wg.Done() }})
	run := func(n int) (ps []host.Process) {
		for range n {
			wg.Add(1)
			ps = append(ps, start(t, h, "/bin/sleep", "1000"))
		}
		return ps
	}
	ps := run(1) // what is opened once is open now
	descriptors, goroutines := count(t), runtime.NumGoroutine()
	ps = append(ps, run(50)...)
	if n := count(t); n > descriptors {
		t.Errorf("%d descriptors with 50 programs more, %d before", n, descriptors)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines with 50 programs more, %d before", n, goroutines)
	}
	for _, p := range ps {
		if err := h.Signal(t.Context(), []host.Process{p}, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for _, p := range ps {
		if _, err := readStat(p.PID); !gone(err) {
			t.Errorf("process %d was not reaped: %v", p.PID, err)
		}
	}
	if len(h.children) != 0 {
		t.Errorf("children left: %v", h.children)
	}
}

func count(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// Children of package os/exec, and of another Host, keep their statuses.
func TestOtherChildrenAreNotReaped(t *testing.T) {
	var ours sync.WaitGroup
	count := func(e Exit) {
		if e.Status.ExitStatus() != 5 {
			t.Errorf("%+v", e)
		}
		ours.Done()
	}
	hosts := []*Host{open(t, Config{OnExit: count}), open(t, Config{OnExit: count})}
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for i := range 25 {
				err := exec.Command("/bin/sh", "-c", fmt.Sprintf("exit %d", 10+i)).Run()
				if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 10+i {
					t.Errorf("a child of os/exec: %v", err)
				}
			}
		})
	}
	for i := range 50 {
		ours.Add(1)
		start(t, hosts[i%2], "/bin/sh", "-c", "exit 5")
	}
	others.Wait()
	ours.Wait()
}

// A child of somebody else that nobody waits for stands first in the peek; the own children are
// still found.
func TestAForeignZombieHidesNobody(t *testing.T) {
	foreign := exec.Command("/bin/true")
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	defer foreign.Wait()
	// Wait for its end, and leave its status where it is.
	if err := unix.Waitid(unix.P_PID, foreign.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	exits := make(chan Exit)
	h := open(t, Config{OnExit: func(e Exit) { exits <- e }})
	for range 3 {
		p := start(t, h, "/bin/true")
		if e := <-exits; e.Process != p {
			t.Errorf("%+v ended, want %+v", e, p)
		}
	}
}

func TestWatchOverflows(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip(err)
	}
	var queue int
	fmt.Sscan(string(text), &queue)
	if queue > 100_000 {
		t.Skipf("a queue of %d is too long to fill", queue)
	}
	dir, err := os.MkdirTemp("/dev/shm", "pawl-test-") //nolint:usetesting // so many files in memory, where there is such a folder
	if err != nil {
		dir = t.TempDir()
	}
	defer os.RemoveAll(dir)
	h := open(t, Config{})
	events, err := h.Watch(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	// A file and its removal: events that the kernel cannot merge. Nobody reads meanwhile.
	name := filepath.Join(dir, "f")
	for range queue {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for e := range events {
		if e.Overflow {
			break
		}
	}
	// The watch goes on.
	if err := os.WriteFile(filepath.Join(dir, "after"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.Name == "after" {
			return
		}
	}
	t.Error("the watch ended")
}

func TestEnvironment(t *testing.T) {
	t.Setenv("PAWL_SECRET", "s")
	t.Setenv("LC_TIME", "C")
	for name, test := range map[string]struct {
		env  []string
		want []string
	}{
		"the default holds no secret": {nil, append(inherited(os.Environ()), "MORE=1")},
		"an empty one":                {[]string{}, []string{"MORE=1"}},
		"a given one":                 {[]string{"GIVEN=1"}, []string{"GIVEN=1", "MORE=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan Exit, 1)
			h, dir := open(t, Config{Env: test.env, OnExit: func(e Exit) { done <- e }}), t.TempDir()
			_, err := h.Start(t.Context(),
				host.Command{Argv: []string{"/usr/bin/env"}, Env: []string{"MORE=1"}, Dir: dir, Stdout: dir +
					"/out", Stderr: dir + "/err"})
			if err != nil {
				t.Fatal(err)
			}
			<-done
			out, err := os.ReadFile(dir + "/out")
			if err != nil {
				t.Fatal(err)
			}
			env, err := h.Environ(t.Context())
			if diff := cmp.Diff(test.want, append(env, "MORE=1")); diff != "" || err != nil {
				t.Errorf("Environ: %v (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(test.want, strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// A process whose first thread has ended is a zombie by its state, and alive.
func TestAProcessWithoutItsFirstThreadIsAlive(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	h := open(t, Config{})
	p := start(t, h, python, "-c", `import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall(60, 0)`) // exit(2) of one thread, on amd64
	if runtime.GOARCH != "amd64" {
		t.Skip("the number of exit(2) is amd64's")
	}
	hosttest.Until(t, "the first thread is a zombie", func() bool {
		s, err := readStat(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		return s.State == 'Z'
	})
	if !isAlive(t, h, p) {
		t.Error("it is dead")
	}
	if err := h.Signal(t.Context(), []host.Process{p}, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	hosttest.Until(t, "it is gone", func() bool { return !isAlive(t, h, p) })
}
