package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/crash"
)

// A proc is one start of the binary.
type proc struct {
	r       *round
	at      string // the point at which it is to die
	cmd     *exec.Cmd
	said    string // file with what it wrote
	done    chan struct{}
	began   time.Time
	killed  atomic.Bool // by us
	told    atomic.Bool // by us, to stop
	failure error       // to start it
}

// An outcome is how a start of the binary ended.
type outcome struct {
	ended bool // exit code 0: all jobs have ended
	died  bool // at its point
}

// start starts a process, to die at a point unless that is "". Its lease is that of the layout
// unless it is given.
func (r *round) start(ctx context.Context, i int, at string, lease time.Duration) {
	folder := r.h.folders[i]
	r.mu.Lock()
	r.starts++
	p := &proc{r: r, at: at, done: make(chan struct{}), began: time.Now(),
		said: filepath.Join(r.dir, fmt.Sprintf("said.%02d", r.starts))}
	r.mu.Unlock()
	r.procs[i] = p
	machines := r.h.machines()
	args := []string{
		"load", "--dir", r.folder(folder), "--ledger", r.ledger(), "--jobs", fmt.Sprint(r.jobs), "--seed",
		fmt.Sprint(r.seed),
		"--machine", fmt.Sprint(slices.Index(machines, folder)), "--machines", fmt.Sprint(len(machines)),
	}
	if lease = cmp.Or(lease, r.h.lease); lease > 0 {
		args = append(args, "--lease", lease.String())
	}
	// Not CommandContext: this process is killed when the round says so.
	p.cmd = exec.Command(r.h.bin, args...)
	p.cmd.Dir = r.dir
	// Under the race detector a process else waits for a second before it ends.
	p.cmd.Env = []string{"PATH=" + r.path, "HOME=" + r.dir, "GORACE=atexit_sleep_ms=10"}
	if r.dsn != "" {
		p.cmd.Env = append(p.cmd.Env, "PAWL_DB="+r.dsn)
	}
	if at != "" {
		p.cmd.Env = append(p.cmd.Env, crash.Variable+"="+at)
	}
	f, err := os.Create(p.said)
	if err == nil {
		fmt.Fprintf(f, "process %d: %s %s\n", i, strings.Join(args, " "), at)
		p.cmd.Stdout, p.cmd.Stderr = f, f
		err = p.cmd.Start()
		f.Close()
	}
	if err != nil {
		p.failure = err
		close(p.done)
		return
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
}

func (p *proc) signal(s syscall.Signal) {
	if p.failure != nil {
		return
	}
	if err := p.cmd.Process.Signal(s); err == nil && s == syscall.SIGKILL {
		p.killed.Store(true)
	}
}

// until returns when the condition holds, the process has ended, or the time is over. It reports
// whether the condition held.
func (p *proc) until(holds func() bool, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-over.C:
			return false
		case <-p.done:
			return false
		}
	}
	return true
}

func never() bool { return false }

// says reports whether the process has said something.
func (p *proc) says(what string) bool {
	said, err := os.ReadFile(p.said)
	return err == nil && bytes.Contains(said, []byte(what))
}

// gone reports whether the process has ended.
func (p *proc) gone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait returns when the newest start of a process has ended.
func (r *round) wait(i int) outcome {
	p := r.procs[i]
	r.procs[i] = nil
	return p.wait()
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
	if _, race, found := bytes.Cut(said, []byte("WARNING: DATA RACE")); found {
		r.breaks("data_race: see %s:%.4000s", p.said, race)
	}
	if bytes.Contains(said, []byte("found what no wake-up told of")) { // also by one that was killed then
		r.breaks("repaired: the sweep had something to repair, see %s", p.said)
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		r.breaks("harness: no wait status")
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		r.mu.Lock()
		r.kills++
		r.mu.Unlock()
		if !p.killed.Load() && p.at == "" {
			r.breaks("exit: killed by somebody else, see %s", p.said)
		}
		return outcome{died: !p.killed.Load()}
	case status.Signaled() || status.ExitStatus() != 0:
		r.breaks("exit: %s, after %s: %s", p.cmd.ProcessState, time.Since(p.began).Round(time.Millisecond), tail(said))
	default:
		return p.ended(said)
	}
	return outcome{}
}

// ended looks at what a process said that ended by itself.
func (p *proc) ended(said []byte) outcome {
	r := p.r
	m := farewell.FindSubmatch(said)
	switch {
	case m == nil:
		r.breaks("exit: without a word: %s", tail(said))
		return outcome{}
	case string(m[2]) != "0":
		r.breaks("repaired: %s times by the sweep, see %s", m[2], p.said)
		return outcome{}
	}
	stopped := string(m[1]) == "stopped in good order"
	if stopped && !p.told.Load() {
		r.breaks("exit: it stopped, and nobody told it to: %s", tail(said))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if stopped {
		r.drains++
	}
	if !bytes.Contains(said, []byte("level=WARN")) {
		r.orderly = append(r.orderly, p.cmd.Process.Pid)
	}
	return outcome{ended: !stopped}
}

var farewell = regexp.MustCompile(`(stopped in good order|all \d+ jobs have ended); repaired by the sweep: (\d+)`)

// interrogate keeps evidence of a process that hangs: which jobs have not ended, and what all its
// goroutines do.
func (p *proc) interrogate() {
	r := p.r
	list, err := r.unfinished()
	if err != nil {
		list = append(list, err.Error())
	}
	p.signal(syscall.SIGQUIT)
	p.until(never, 5*time.Second)
	p.signal(syscall.SIGKILL)
	<-p.done
	r.breaks("stuck: a process (%s) did not end within %s; goroutines in %s; not ended: %s", p.at, r.h.limit,
		p.said, strings.Join(list, " | "))
}

// tail returns the last lines of what a process said, in one.
func tail(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
