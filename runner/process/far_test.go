package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// A shellHost is this machine, with a shell beside it as over SSH.
type shellHost struct {
	*local.Host
	mu  sync.Mutex // guards what follows
	in  io.Writer
	out *bufio.Reader
	ran int          // how many scripts have run
	cut map[int]bool // those of them whose answer is lost
}

var errCut = errors.New("the connection was lost")

// newShellHost starts a shell by a command line.
func newShellHost(t *testing.T, argv ...string) *shellHost {
	t.Helper()
	h, err := local.Open(local.Config{ID: "test-machine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	cmd := exec.Command(argv[0], argv[1:]...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &shellHost{Host: h, in: in, out: bufio.NewReader(out)}
}

// Run implements [host.Shell].
func (h *shellHost) Run(_ context.Context, script string, _ []byte) (out []byte, code int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := fmt.Fprintf(h.in, "{ ( eval %s\n) </dev/null\necho \"=end $?\"\n}\n", spool.Quote(script)); err != nil {
		return nil, 0, err
	}
	h.ran++
	for {
		line, err := h.out.ReadString('\n')
		if rest, end := strings.CutPrefix(line, "=end "); end {
			if h.cut[h.ran] {
				return nil, 0, errCut
			}
			code, err = strconv.Atoi(strings.TrimSpace(rest))
			return out, code, err
		}
		if err != nil {
			return nil, 0, err
		}
		out = append(out, line...)
	}
}

func newShellBench(t *testing.T, h *shellHost) bench {
	t.Helper()
	b := newBench(t)
	r, err := Open(t.Context(), Config{Host: h, Spool: b.Spool})
	if err != nil {
		t.Fatal(err)
	}
	b.runner, b.Bench.Runner, b.Bench.Host = r, r, h
	return b
}

var _ host.Shell = (*shellHost)(nil)

// TestDeathsFarAway: a far machine reads the files itself, so no death here counts against a
// launch.
func TestDeathsFarAway(t *testing.T) {
	h := newShellHost(t, "/bin/sh", "-s")
	b := newShellBench(t, h)
	k, plan := b.newJob(t, "read line <gate; exit 3")
	gate := path.Join(plan.Dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	handle, err := b.runner.Launch(t.Context(), k, plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(path.Join(b.Spool, spool.WatchingNote, runner.EndName(k, runner.MaxDeaths)), 0o700); err != nil {
		t.Fatal(err)
	}
	notices, err := b.runner.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := b.runner.Probe(t.Context(), []runner.Handle{handle})
	if err != nil || all[0].State != runner.Active {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	var told []runner.Notice
	for len(told) == 0 { // the first batch tells what was there
		batch, ok := <-notices
		if !ok {
			t.Fatal("the watch ended")
		}
		told = batch
	}
	if n := told[0]; n.Key != k || n.End == nil || n.End.Code != 3 {
		t.Errorf("%+v", n)
	}
}

// TestForksOfALaunch: starting processes is most of what a launch costs. Those that many launches
// start in a row are counted in a namespace of their own, where nobody else starts any. The wrapper
// and the program are two of them.
func TestForksOfALaunch(t *testing.T) {
	const launches, workers, most = 64, 16, 3
	enter := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if err := exec.Command(enter[0], append(enter[1:], "true")...).Run(); err != nil {
		t.Skipf("only root can make a namespace: %v", err)
	}
	h := newShellHost(t, append(enter, "/bin/sh", "-s")...)
	last := func() int { // the number of the subshell that says it
		out, _, err := h.Run(t.Context(), "read -r n more </proc/self/stat; echo $n", nil)
		n, numErr := strconv.Atoi(strings.TrimSpace(string(out)))
		if err := errors.Join(err, numErr); err != nil {
			t.Fatal(err)
		}
		return n
	}
	b := newShellBench(t, h)
	keys, plans := make([]runner.Key, launches), make([]runner.Plan, launches)
	for i := range keys {
		keys[i], plans[i] = b.newJob(t, ": >ran")
	}
	before, requests := last(), h.ran
	work := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range work {
				if _, err := b.runner.Launch(t.Context(), keys[i], plans[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range keys {
		work <- i
	}
	close(work)
	all.Wait()
	requests = h.ran - requests
	for i, k := range keys {
		hosttest.Until(t, "it has ended", func() bool {
			_, err := os.Stat(path.Join(b.Spool, runner.EndName(k, 0)))
			return err == nil
		})
		if _, err := os.Stat(path.Join(plans[i].Dir, "ran")); err != nil {
			t.Error(err)
		}
	}
	each := float64(last()-before-1) / launches
	t.Logf("%d launches: %.2f processes each, in %d requests", launches, each, requests)
	if each > most {
		t.Errorf("a launch starts %.2f processes, more than %d", each, most)
	}
}

// TestAnswersThatAreLost: the outcome of a launch whose request has no answer is open, and Settle
// tells it.
func TestAnswersThatAreLost(t *testing.T) {
	for name, tt := range map[string]struct {
		cut     int
		started bool
	}{
		"of the first request":  {1, false},
		"of the second request": {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newShellHost(t, "/bin/sh", "-s")
			h.cut = map[int]bool{tt.cut: true}
			b := newShellBench(t, h)
			k, p := b.newJob(t, "echo ran >>ran")
			if _, err := b.runner.Launch(t.Context(), k, p); !errors.Is(err, errCut) || errors.Is(err, runner.ErrNotArmed) {
				t.Errorf("Launch: %v", err)
			}
			if tt.started {
				hosttest.Until(t, "it has ended", func() bool {
					_, err := os.Stat(path.Join(b.Spool, runner.EndName(k, 0)))
					return err == nil
				})
			}
			for range 2 {
				fate, err := b.runner.Settle(t.Context(), k, p.Dir)
				if err != nil || fate.Started != tt.started {
					t.Errorf("Settle: %+v, %v", fate, err)
				}
			}
			if _, err := b.runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrArmed) {
				t.Errorf("launched again: %v", err)
			}
			if _, err := os.Stat(path.Join(p.Dir, "ran")); (err == nil) != tt.started {
				t.Errorf("ran: %v", err)
			}
		})
	}
}

// TestShellAtItsLimits: a shell that cannot do what it is asked says why, and starts nothing. Other
// launches meet the same, so it is trouble of the host that may clear.
func TestShellAtItsLimits(t *testing.T) {
	for limit, says := range map[string]string{
		"ulimit -f 0":  "(signal 25, file size limit exceeded)",
		"ulimit -n 11": "Too many open files",
	} {
		t.Run(limit, func(t *testing.T) {
			h := newShellHost(t, "/bin/sh", "-c", limit+"; exec /bin/sh -s")
			b := newShellBench(t, h)
			k, p := b.newJob(t, "echo ran >>ran")
			_, err := b.runner.Launch(t.Context(), k, p)
			trouble, ok := errors.AsType[*host.Trouble](err)
			if !ok || trouble.Code != job.ShellBroken || !strings.Contains(err.Error(), says) {
				t.Errorf("Launch: %v, want the trouble %s that says %q", err, job.ShellBroken, says)
			}
			if fate, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || fate.Started {
				t.Errorf("Settle: %+v, %v", fate, err)
			}
			if _, err := os.Stat(path.Join(p.Dir, "ran")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("ran: %v", err)
			}
		})
	}
}

// TestAnArmedLaunchWithoutContent: what is linked and what it holds become durable together, so a
// power failure may leave the name alone. Nothing of that launch was started.
func TestAnArmedLaunchWithoutContent(t *testing.T) {
	for name, b := range map[string]bench{
		"by files": newBench(t), "by the shell": newShellBench(t, newShellHost(t, "/bin/sh", "-s")),
	} {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, ": >ran")
			if err := os.WriteFile(path.Join(p.Dir, runner.Folder, "launch.1.1"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if fate, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || fate.Started {
					t.Errorf("Settle: %+v, %v", fate, err)
				}
			}
			if _, err := b.runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrArmed) {
				t.Errorf("Launch: %v", err)
			}
			taken, err := os.ReadFile(path.Join(p.Dir, runner.Folder, "taken.1.1"))
			if err != nil || !strings.HasPrefix(string(taken), "revoked ") {
				t.Errorf("a wrapper that comes late finds %q, %v", taken, err)
			}
			past, err := b.runner.Past(t.Context(), runner.Key{Job: k.Job}, p.Dir)
			if err != nil || past.Open != nil || past.Started != nil {
				t.Errorf("Past: %+v, %v", past, err)
			}
		})
	}
}
