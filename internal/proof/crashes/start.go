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
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/proof/victims"
)

// A proc is one start of the binary.
type proc struct {
	*victims.Process
	r       *round
	at      string // the point at which it is to die
	began   time.Time
	failure error // to start it
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
	said := filepath.Join(r.dir, fmt.Sprintf("said.%02d", r.starts))
	r.mu.Unlock()
	machines := r.h.machines()
	args := []string{
		"load", "--dir", r.folder(folder), "--ledger", r.ledger(), "--jobs", fmt.Sprint(r.jobs), "--seed", fmt.Sprint(r.seed),
		"--machine", fmt.Sprint(slices.Index(machines, folder)), "--machines", fmt.Sprint(len(machines)),
	}
	if r.h.far != nil || r.h.slurm != nil {
		args = append(args, "--system", r.farSystem())
	}
	if r.h.slurm != nil {
		args = append(args, "--scheduled")
	}
	if lease = cmp.Or(lease, r.h.lease); lease > 0 {
		args = append(args, "--lease", lease.String())
	}
	// Not CommandContext: this process is killed when the round says so.
	cmd := exec.Command(r.h.bin, args...)
	cmd.Dir = r.dir
	// Under the race detector a process else waits for a second before it ends.
	cmd.Env = []string{"PATH=" + r.path, "HOME=" + r.dir, "GORACE=atexit_sleep_ms=10 " + os.Getenv("GORACE")}
	if r.dsn != "" {
		cmd.Env = append(cmd.Env, "PAWL_DB="+r.dsn)
	}
	if at != "" {
		cmd.Env = append(cmd.Env, crash.Variable+"="+at)
	}
	p := &proc{r: r, at: at, began: time.Now()}
	p.Process, p.failure = victims.Start(cmd, said, fmt.Sprintf("process %d: %s %s", i, strings.Join(args, " "), at))
	r.procs[i] = p
	context.AfterFunc(ctx, func() { p.Signal(syscall.SIGKILL) })
}

// wait returns when the newest start of a process has ended.
func (r *round) wait(i int) outcome {
	p := r.procs[i]
	r.procs[i] = nil
	return p.wait()
}

// wait returns when the process has ended. One that is stuck is made to tell what it is doing.
func (p *proc) wait() outcome {
	r := p.r
	if why := p.stuck(); why != "" {
		p.interrogate(why)
		return outcome{}
	}
	if p.failure != nil {
		r.breaks("harness: start %s: %v", r.h.bin, p.failure)
		return outcome{}
	}
	said, err := os.ReadFile(p.Said)
	if err != nil {
		r.breaks("harness: %v", err)
	}
	if _, race, found := bytes.Cut(said, []byte("WARNING: DATA RACE")); found {
		r.breaks("data_race: see %s:%.4000s", p.Said, race)
	}
	if bytes.Contains(said, []byte(victims.Swept)) { // also by one that was killed then
		r.breaks("repaired: the sweep had something to repair, see %s", p.Said)
	}
	switch {
	case p.Died():
		r.mu.Lock()
		r.kills++
		r.mu.Unlock()
		if !p.Killed.Load() && p.at == "" {
			r.breaks("exit: killed by somebody else, see %s", p.Said)
		}
		return outcome{died: !p.Killed.Load()}
	case !p.Cmd.ProcessState.Success():
		r.breaks("exit: %s, after %s: %s",
			p.Cmd.ProcessState, time.Since(p.began).Round(time.Millisecond), victims.Last(said, 3))
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
		r.breaks("exit: without a word: %s", victims.Last(said, 3))
		return outcome{}
	case string(m[2]) != "0":
		r.breaks("repaired: %s times by the sweep, see %s", m[2], p.Said)
		return outcome{}
	}
	stopped := string(m[1]) == "stopped in good order"
	if stopped && !p.Told.Load() {
		r.breaks("exit: it stopped, and nobody told it to: %s", victims.Last(said, 3))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if stopped {
		r.drains++
	}
	if !bytes.Contains(said, []byte("level=WARN")) {
		r.orderly = append(r.orderly, p.Cmd.Process.Pid)
	}
	return outcome{ended: !stopped}
}

var farewell = regexp.MustCompile(`(stopped in good order|all \d+ jobs have ended); repaired by the sweep: (\d+)`)

// stuck returns when the process has ended, with "", or why it is taken to be stuck.
func (p *proc) stuck() (why string) {
	patience := newPatience(p.r.h.limit, time.Now())
	look := time.NewTicker(p.r.h.limit / 50)
	defer look.Stop()
	for {
		select {
		case <-p.Ended:
			return ""
		case now := <-look.C:
			if why := patience.over(now, p.r.written()); why != "" {
				return why
			}
		}
	}
}

// written returns the size of the ledger.
func (r *round) written() int64 {
	info, err := os.Stat(r.ledger())
	if err != nil {
		return 0
	}
	return info.Size()
}

// interrogate keeps evidence of a process that is stuck: which jobs have not ended, and what all
// its goroutines do.
func (p *proc) interrogate(why string) {
	r := p.r
	list, err := r.unfinished()
	if err != nil {
		list = append(list, err.Error())
	}
	p.Interrogate()
	r.breaks("stuck: a process (%s) %s; goroutines in %s; not ended: %s", p.at, why, p.Said, strings.Join(list, " | "))
}
