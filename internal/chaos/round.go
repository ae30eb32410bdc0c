package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/crash"
)

// A summary is the last line of the program.
type summary struct {
	Seed          uint64   `json:"seed"`
	Kills         int      `json:"kills"`
	Jobs          int      `json:"jobs"`
	Lost          int      `json:"lost"`           // accepted, and not there or not ended
	LaunchedTwice int      `json:"launched_twice"` // attempts whose program was started twice
	Poison        int      `json:"poison"`         // jobs that were at work in too many kills
	Broken        []string `json:"broken"`         // what does not hold, as "name: what was seen"
}

// A harness runs rounds. Its methods may be called side by side.
type harness struct {
	bin   string
	dir   string
	limit time.Duration // for one start of the binary; what takes longer is stuck
	keep  bool

	mu  sync.Mutex
	out io.Writer // guarded by mu
	n   int       // guarded by mu: rounds so far
	sum summary   // guarded by mu
}

func (h *harness) printf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.out, format+"\n", args...)
}

// A round is one folder and the load in it.
type round struct {
	h      *harness
	name   string
	dir    string // with the data folder, the ledger, and what the processes said
	seed   uint64
	jobs   int
	lease  time.Duration // of the next start; 0: the usual one
	path   string        // in which programs are looked up
	starts int
	kills  int
	tally  *tally
	began  time.Time
	broken []string
}

func (h *harness) begin(name string, seed uint64, jobs int) *round {
	h.mu.Lock()
	h.n++
	r := &round{h: h, name: fmt.Sprintf("%d %s", h.n, name), dir: filepath.Join(h.dir, fmt.Sprintf("%d-%s", h.n, name)), seed: seed, jobs: jobs, began: time.Now()}
	h.mu.Unlock()
	r.tally = &tally{name: r.ledger()}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		r.breaks("harness: %v", err)
	}
	r.path = os.Getenv("PATH")
	if wait := slowness[seed%uint64(len(slowness))]; wait > 0 {
		slow := filepath.Join(r.dir, "slow")
		if err := slowly(slow, wait); err != nil {
			r.breaks("harness: %v", err)
		}
		r.path = slow + ":" + r.path
	}
	return r
}

// slowness is for how long wrappers of a round wait, by its seed. The longest wait is more than the time that some
// programs of the load have.
var slowness = [...]time.Duration{0, 200 * time.Millisecond, 0, 400 * time.Millisecond}

func (r *round) data() string   { return filepath.Join(r.dir, "data") }
func (r *round) ledger() string { return filepath.Join(r.dir, "ledger") }

func (r *round) breaks(format string, args ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// storm kills the process at random moments, and then lets it come to its end. It returns how many kills are left to
// do, which all came too late.
func (h *harness) storm(ctx context.Context, seed uint64, jobs, kills int) (left int) {
	r := h.begin("storm", seed, jobs)
	rnd := rand.New(rand.NewPCG(seed, 1))
	if seed%3 == 1 {
		r.lease = 2 * time.Second // renewals and their deadlines come into play
	}
	for left = kills; left > 0 && len(r.broken) == 0 && ctx.Err() == nil; left-- {
		// The moments are spread over the work that is left, so that none comes too late. One in four comes while the
		// process is still opening the folder.
		p, late := r.start(ctx, ""), time.Duration(rnd.IntN(80))*time.Millisecond
		if rnd.IntN(4) > 0 {
			done := r.tally.count()
			share := rnd.Float64() * 2 / float64(left+1)
			p.until(func() bool { return r.tally.count() >= done+int(share*float64(jobs-done)) }, 2*time.Second)
		}
		p.until(func() bool { return false }, late)
		p.signal(syscall.SIGKILL)
		if o := p.wait(); o.ended && left > 0 {
			r.h.printf("round %s: all jobs had ended %d kills too early", r.name, left)
			break
		}
	}
	r.finish(ctx)
	if len(r.broken) > 0 {
		return 0
	}
	return left
}

// storms goes on with new rounds until the process was killed often enough.
func (h *harness) storms(ctx context.Context, seed uint64, jobs, kills int) {
	for kills > 0 && ctx.Err() == nil {
		kills = h.storm(ctx, seed, jobs, kills)
		seed++
	}
}

// points lets the process die at each of the named points. It returns the entries that were tried, as far as there
// was work left, and those of them that were passed.
func (h *harness) points(ctx context.Context, seed uint64, jobs int, entries []entry) (tried, passed []entry) {
	r := h.begin("points", seed, jobs)
	defer func() {
		r.lease = 0
		r.finish(ctx)
	}()
	for _, e := range entries {
		tried = append(tried, e)
		r.lease = e.plan().lease
		for _, at := range append(slices.Clone(e.plan().before), e.String()) {
			o := r.start(ctx, at).wait()
			if o.died && at == e.String() {
				passed = append(passed, e)
			}
			if o.ended || len(r.broken) > 0 || ctx.Err() != nil {
				return tried, passed
			}
		}
	}
	return tried, passed
}

// finish starts the process until it exits 0, and checks everything.
func (r *round) finish(ctx context.Context) {
	for len(r.broken) == 0 && ctx.Err() == nil {
		if r.start(ctx, "").wait().ended {
			break
		}
	}
	c := &checker{round: r}
	if len(r.broken) == 0 && ctx.Err() == nil {
		c.check(ctx)
	}
	if len(r.broken) > 0 || ctx.Err() != nil {
		if err := end(r.dir); err != nil {
			r.h.printf("round %s: %v", r.name, err)
		}
	}
	if ctx.Err() != nil {
		return
	}
	h := r.h
	h.mu.Lock()
	h.sum.Kills += r.kills
	h.sum.Jobs += c.jobs
	h.sum.Lost += c.lost
	h.sum.LaunchedTwice += c.twice
	h.sum.Poison += c.poison
	for _, b := range r.broken {
		h.sum.Broken = append(h.sum.Broken, fmt.Sprintf("%s (round %s, seed %d)", b, r.name, r.seed))
	}
	h.mu.Unlock()
	h.printf("round %s: seed %d, %d jobs, %d starts, %d kills, %s; states %v; broken %d",
		r.name, r.seed, c.jobs, r.starts, r.kills, time.Since(r.began).Round(time.Millisecond), c.states, len(r.broken))
	for _, b := range r.broken {
		h.printf("    %s", b)
	}
	if len(r.broken) == 0 && !h.keep {
		os.RemoveAll(r.dir)
	}
}

// A proc is one start of the binary.
type proc struct {
	r       *round
	at      string // the point at which it is to die
	cmd     *exec.Cmd
	said    string // file with what it wrote
	done    chan struct{}
	began   time.Time
	killed  atomic.Bool // by us
	failure error       // to start it
}

// An outcome is how a start of the binary ended.
type outcome struct {
	ended bool // exit code 0: all jobs have ended
	died  bool // at its point
}

func (r *round) start(ctx context.Context, at string) *proc {
	r.starts++
	p := &proc{r: r, at: at, done: make(chan struct{}), began: time.Now(), said: filepath.Join(r.dir, fmt.Sprintf("said.%02d", r.starts))}
	args := []string{"chaos", "--dir", r.data(), "--ledger", r.ledger(), "--jobs", fmt.Sprint(r.jobs), "--seed", fmt.Sprint(r.seed)}
	if r.lease > 0 {
		args = append(args, "--lease", r.lease.String())
	}
	// Not CommandContext: this process is killed when the round says so.
	p.cmd = exec.Command(r.h.bin, args...)
	p.cmd.Dir = r.dir
	// Under the race detector a process else waits for a second before it ends.
	p.cmd.Env = []string{"PATH=" + r.path, "HOME=" + r.dir, "GORACE=atexit_sleep_ms=10"}
	if at != "" {
		p.cmd.Env = append(p.cmd.Env, crash.Variable+"="+at)
	}
	f, err := os.Create(p.said)
	if err == nil {
		fmt.Fprintf(f, "%s %s\n", strings.Join(args, " "), at)
		p.cmd.Stdout, p.cmd.Stderr = f, f
		err = p.cmd.Start()
		f.Close()
	}
	if err != nil {
		p.failure = err
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait() //nolint:errcheck // its state tells
	}()
	go func() {
		select {
		case <-ctx.Done():
			p.signal(syscall.SIGKILL)
		case <-p.done:
		}
	}()
	return p
}

func (p *proc) signal(s syscall.Signal) {
	if p.failure != nil {
		return
	}
	if err := p.cmd.Process.Signal(s); err == nil && s == syscall.SIGKILL {
		p.killed.Store(true)
	}
}

// until returns when the condition holds, the process has ended, or the time is over.
func (p *proc) until(holds func() bool, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-over.C:
			return
		case <-p.done:
			return
		}
	}
}

// wait returns when the process has ended. One that does not is made to tell what it is doing.
func (p *proc) wait() outcome {
	r := p.r
	over := time.NewTimer(r.h.limit)
	defer over.Stop()
	select {
	case <-p.done:
	case <-over.C:
		p.interrogate()
		return outcome{}
	}
	if p.failure != nil {
		r.breaks("harness: start %s: %v", r.h.bin, p.failure)
		return outcome{}
	}
	said, err := os.ReadFile(p.said)
	if err != nil {
		r.breaks("harness: %v", err)
	}
	if bytes.Contains(said, []byte("WARNING: DATA RACE")) {
		r.breaks("data_race: see %s", p.said)
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		r.breaks("harness: no wait status")
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		r.kills++
		if !p.killed.Load() && p.at == "" {
			r.breaks("exit: killed by somebody else")
		}
		return outcome{died: !p.killed.Load()}
	case status.Signaled() || status.ExitStatus() != 0:
		r.breaks("exit: %s, after %s: %s", p.cmd.ProcessState, time.Since(p.began).Round(time.Millisecond), tail(said))
	default:
		if m := repaired.FindSubmatch(said); m == nil || string(m[1]) != "0" {
			r.breaks("repaired: the sweep had something to repair: %s", tail(said))
		}
		return outcome{ended: true}
	}
	return outcome{}
}

var repaired = regexp.MustCompile(`repaired by the sweep: (\d+)`)

// interrogate keeps evidence of a process that hangs: which jobs have not ended, and what all its goroutines do.
func (p *proc) interrogate() {
	r := p.r
	list, err := unfinished(r.data())
	if err != nil {
		list = append(list, err.Error())
	}
	p.signal(syscall.SIGQUIT)
	p.until(func() bool { return false }, 5*time.Second)
	p.signal(syscall.SIGKILL)
	<-p.done
	r.breaks("stuck: start %d (%s) did not end within %s; goroutines in %s; not ended: %s",
		r.starts, p.at, r.h.limit, p.said, strings.Join(list, " | "))
}

// tail returns the last lines of what a process said, in one.
func tail(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// A tally counts the jobs that have begun, as the ledger grows.
type tally struct {
	name   string
	offset int64
	rest   []byte
	begun  map[string]bool
}

func (t *tally) count() int {
	f, err := os.Open(t.name)
	if err != nil {
		return 0
	}
	defer f.Close()
	if t.begun == nil {
		t.begun = map[string]bool{}
	}
	b, err := io.ReadAll(io.NewSectionReader(f, t.offset, 1<<30))
	if err != nil && !errors.Is(err, io.EOF) {
		return len(t.begun)
	}
	t.offset += int64(len(b))
	b = append(t.rest, b...)
	end := bytes.LastIndexByte(b, '\n') + 1
	for line := range bytes.Lines(b[:end]) {
		if w := strings.Fields(string(line)); len(w) > 1 && (w[0] == "launch" || w[0] == "task") {
			t.begun[w[1]] = true
		}
	}
	t.rest = bytes.Clone(b[end:])
	return len(t.begun)
}
