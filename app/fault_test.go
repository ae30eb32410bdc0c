package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	filesfake "github.com/pawl-jobs/pawl/files/fake"
	hostfake "github.com/pawl-jobs/pawl/host/fake"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	runnerfake "github.com/pawl-jobs/pawl/runner/fake"
)

// noting is a program that leaves a line each time it runs.
func (h *house) noting() (job.Spec, string) {
	lines := filepath.Join(h.dir, "lines")
	s := scripted(`echo "$PAWL_ATTEMPT" >>"$0"`, lines)
	s.Retry = &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Base: 1}}
	return s, lines
}

// once reports an attempt that ran twice, and returns how many ran.
func (h *house) once(lines string) (n int) {
	h.Helper()
	b, err := os.ReadFile(lines)
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	ran := map[string]bool{}
	for _, attempt := range strings.Fields(string(b)) {
		if ran[attempt] {
			h.Errorf("attempt %s ran twice:\n%s", attempt, b)
		}
		ran[attempt] = true
	}
	return len(ran)
}

func TestRunnerThatMisbehaves(t *testing.T) {
	unwell := errors.New("unwell")
	for name, test := range map[string]struct {
		spoil func(r *runnerfake.Runner)
		want  string // state and attempt
	}{
		"a launch whose answer is lost":   {func(r *runnerfake.Runner) { r.Lose("Launch") }, "FINISHED 1"},
		"one that fails before it begins": {func(r *runnerfake.Runner) { r.Fail("Launch", unwell) }, "FINISHED 2"},
		"one that fails each time": {func(r *runnerfake.Runner) {
			r.Fail("Launch", unwell)
			r.Fail("Launch", unwell)
			r.Fail("Launch", unwell)
		}, "FAILED 3"},
		"one that fails and is not settled":  {func(r *runnerfake.Runner) { r.Fail("Launch", unwell); r.Fail("Settle", unwell) }, "FINISHED 1"},
		"one that is lost and not settled":   {func(r *runnerfake.Runner) { r.Lose("Launch"); r.Lose("Settle") }, "FINISHED 1"},
		"nobody can be looked at":            {func(r *runnerfake.Runner) { r.Lose("Probe"); r.Lose("Probe") }, "FINISHED 1"},
		"what the runner keeps is not freed": {func(r *runnerfake.Runner) { r.Lose("Clean") }, "FINISHED 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, func(p *parts) {
				f := runnerfake.New(p.Local.Runner)
				test.spoil(f)
				p.Local.Runner, p.Look, p.Grace = f, 20*time.Millisecond, 20*time.Millisecond
			})
			s, lines := h.noting()
			j := h.end(h.submit(s))
			if got := fmt.Sprint(j.State, " ", j.Attempt); got != test.want {
				t.Errorf("%s: %s; want %s\n%s", got, j.Message, test.want, h.history(j.ID))
			}
			h.once(lines)
		})
	}
}

// A host that cannot be reached from some call on, whichever that is, delays a job and launches
// nothing twice.
func TestHostThatDiesHalfWay(t *testing.T) {
	for n := range 40 {
		if testing.Short() && n%8 > 0 {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if n%4 > 0 {
				testenv.Aside(t)
			}
			t.Parallel()
			var f *hostfake.Host
			h := open(t, func(p *parts) {
				f = hostfake.New(p.Local.Host)
				p.on(f)
				p.Look, p.Grace = 20*time.Millisecond, 20*time.Millisecond
			})
			s, lines := h.noting()
			s.Retry.MaxAttempts = 100
			s.Retry.Backoff.Base = job.Duration(10 * time.Millisecond)
			f.DieAfter(n)
			id := h.submit(s)
			select {
			case <-f.Death():
				h.until(id, func(e job.Event) bool { return e.State != job.Pending })
				f.Revive()
			case <-h.ended(id):
			}
			if j := h.end(id); j.State != job.Finished {
				t.Errorf("%s %s\n%s", j.State, j.Message, h.history(id))
			}
			if h.once(lines) == 0 {
				t.Error("it never ran")
			}
		})
	}
}

// ended returns a channel that is closed when a job has ended.
func (h *house) ended(id job.ID) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.svc.Wait(h.ctx, id) // the test asks again
	}()
	return over
}

// A program was ended, and then its runner cannot be asked what is left of it. It is asked again.
func TestKillWhoseEndIsNotSeen(t *testing.T) {
	h := open(t, func(p *parts) {
		var killed atomic.Bool
		f := runnerfake.New(p.Local.Runner)
		f.Through(func(_ context.Context, name string, call func() error) error {
			if name == "Probe" && killed.CompareAndSwap(true, false) {
				return job.Errorf(job.Unavailable, "unwell")
			}
			err := call()
			if name == "Kill" {
				killed.Store(true)
			}
			return err
		})
		p.Local.Runner = f
	})
	id := h.submit(shell("exec sleep 1000"))
	h.until(id, state(job.Running))
	if _, err := h.svc.Cancel(h.ctx, id); err != nil {
		t.Fatal(err)
	}
	if j := h.end(id); j.State != job.Canceled {
		t.Errorf("%s %s\n%s", j.State, j.Message, h.history(id))
	}
}

// A pause that its host or its runner refuses is tried again, and is no pause until it is one.
func TestPauseThatFails(t *testing.T) {
	unwell := job.Errorf(job.Unavailable, "unwell")
	// waiting runs a program that ends when it is let through its gate, and pauses it.
	waiting := func(h *house) (job.ID, string) {
		h.Helper()
		gate, up := h.gate(), filepath.Join(h.dir, "up")
		s := scripted(`: >"$1"; read line <"$0"`, gate, up)
		s.Resources = &job.Resources{Minutes: 60}
		id := h.submit(s)
		h.until(id, state(job.Running))
		h.poll("the program to be up", func() bool { return exists(up) })
		if _, err := h.svc.Pause(h.ctx, id); err != nil {
			h.Fatal(err)
		}
		return id, gate
	}
	// failing is a house with such a clock, whose runner cannot suspend a program the first n times.
	failing := func(t *testing.T, n int32) (*house, *clock) {
		c := &clock{}
		return open(t, ticking(c), func(p *parts) {
			var calls atomic.Int32
			f := runnerfake.New(p.Local.Runner)
			f.Through(func(_ context.Context, name string, call func() error) error {
				if name == "Suspend" && calls.Add(1) <= n {
					return unwell
				}
				return call()
			})
			p.Local.Runner, p.Grace = f, 10*time.Millisecond
		}), c
	}
	t.Run("nobody knows how late it is", func(t *testing.T) {
		h := open(t, func(p *parts) {
			var paused, failed atomic.Bool
			f := hostfake.New(p.Local.Host)
			f.Through(func(_ context.Context, name string, call func() error) error {
				if name == "Uptime" && paused.Load() && failed.CompareAndSwap(false, true) {
					return unwell
				}
				return call()
			})
			p.on(f)
			// The next to ask is who has read of the pause.
			p.rows = noticed{Reader: p.rows, watched: func(js []job.Job) {
				for _, j := range js {
					paused.Store(paused.Load() || j.Wish == job.WishPause)
				}
			}}
			p.Look = 20 * time.Millisecond
		})
		id, _ := waiting(h)
		h.until(id, says("suspended by ada"))
		h.poll("the program to be stopped", func() bool { return stopped(h.pid(id)) })
	})
	t.Run("it is suspended at the second try", func(t *testing.T) {
		h, _ := failing(t, 1)
		id, _ := waiting(h)
		h.until(id, says("cannot suspend the program: unwell"))
		h.until(id, says("suspended by ada"))
		h.poll("the program to be stopped", func() bool { return stopped(h.pid(id)) })
	})
	t.Run("its time limit holds", func(t *testing.T) {
		h, c := failing(t, 1<<30)
		id, _ := waiting(h)
		h.until(id, says("cannot suspend the program: unwell"))
		c.ahead.Store(int64(61 * time.Minute))
		h.until(id, says("has run for its"))
		h.until(id, state(job.Paused))
		if n := strings.Count(h.history(id), "cannot suspend"); n != 1 {
			t.Errorf("it was said %d times", n)
		}
	})
	t.Run("it has never been suspended", func(t *testing.T) {
		h, c := failing(t, 1<<30)
		id, gate := waiting(h)
		h.until(id, says("cannot suspend the program: unwell"))
		c.ahead.Store(int64(10 * time.Minute))
		if _, err := h.svc.Resume(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		h.until(id, says("goes on after 0s"))
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished {
			t.Errorf("%s %s", j.State, j.Message)
		}
	})
	t.Run("it is still suspended when it cannot go on", func(t *testing.T) {
		var well atomic.Bool
		h := open(t, func(p *parts) {
			f := runnerfake.New(p.Local.Runner)
			f.Through(func(_ context.Context, name string, call func() error) error {
				if name == "Resume" && !well.Load() {
					return unwell
				}
				return call()
			})
			p.Local.Runner, p.Look = f, 20*time.Millisecond
		})
		id, gate := waiting(h)
		h.until(id, says("suspended by ada"))
		if _, err := h.svc.Resume(h.ctx, id); err != nil {
			h.Fatal(err)
		}
		h.until(id, says("suspended: cannot resume the program: unwell"))
		well.Store(true)
		h.until(id, says("goes on after"))
		h.pass(gate)
		h.end(id)
	})
	t.Run("a process of another user is named", func(t *testing.T) {
		h := open(t, func(p *parts) {
			f := runnerfake.New(p.Local.Runner)
			f.Through(func(_ context.Context, name string, call func() error) error {
				if err := call(); err != nil || name != "Suspend" {
					return err
				}
				return &runner.Alive{Left: []runner.Remnant{{PID: 4711, Name: "sudo", User: "somebody"}}}
			})
			p.Local.Runner = f
		})
		id, _ := waiting(h)
		h.until(id, says("suspended by ada, but for sudo (pid 4711, user somebody)"))
	})
}

// A program comes to the watcher while its host cannot be asked how late it is. It is looked after
// all the same.
func TestHostWithoutTime(t *testing.T) {
	h := open(t, func(p *parts) {
		var asked atomic.Int32
		f := hostfake.New(p.Local.Host)
		f.Through(func(_ context.Context, name string, call func() error) error {
			if name == "Uptime" && asked.Add(1) == 2 { // the first was for the launch
				return job.Errorf(job.Unavailable, "unwell")
			}
			return call()
		})
		p.on(f)
	})
	s, lines := h.noting()
	if j := h.end(h.submit(s)); j.State != job.Finished || h.once(lines) != 1 {
		t.Errorf("%s %s\n%s", j.State, j.Message, h.history(j.ID))
	}
}

// A watch that keeps silent is made up for by the deaths of children, and one that overflows by a
// look at the folder.
func TestWatchThatKeepsSilent(t *testing.T) {
	var f *hostfake.Host
	h := open(t, func(p *parts) {
		f = hostfake.New(p.Local.Host)
		f.Drop(func(string) bool { return true })
		p.on(f)
	})
	s, lines := h.noting()
	if j := h.end(h.submit(s)); j.State != job.Finished || h.once(lines) != 1 {
		t.Errorf("%s %s", j.State, j.Message)
	}
}

// An archive whose file system lies about a file's size, or dies while it is written, is not called
// one.
func TestArchiveThatMisbehaves(t *testing.T) {
	for name, spoil := range map[string]func(f *filesfake.FS){
		"a name cannot be given":  func(f *filesfake.FS) { f.Inject(filesfake.Fault{Op: "Link", Err: errors.New("unwell")}) },
		"it cannot be written":    func(f *filesfake.FS) { f.Inject(filesfake.Fault{Op: "Put", Err: errors.New("unwell")}) },
		"answers of it are lost":  func(f *filesfake.FS) { f.Inject(filesfake.Fault{Op: "Link", Lost: true}) },
		"it dies while it is fed": func(f *filesfake.FS) { f.Die(3) },
		"it cannot make a folder": func(f *filesfake.FS) { f.Inject(filesfake.Fault{Op: "Mkdir", Err: errors.New("unwell")}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := filesfake.New()
			h := open(t, func(p *parts) { p.Files = f })
			spoil(f)
			s := shell("echo results")
			s.Archive = &job.Archive{To: "/results"}
			j := h.end(h.submit(s))
			if j.State != job.Failed || j.Code != job.ArchiveFailed {
				t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
			}
			var folder string
			if r := j.Resolved; len(r) > 0 {
				v, err := h.svc.View(h.ctx, j.ID)
				if err != nil {
					t.Fatal(err)
				}
				folder = v.Job.ID.String()
				if !exists(h.dir, "work", "default", folder, "stdout") && strings.Contains(h.history(j.ID), "RUNNING") {
					t.Error("the results are nowhere")
				}
			}
		})
	}
}

// Nobody hears that an archive was published, and the worker of the next attempt dies when it has
// found that. The results of the one attempt are not taken for those of the other.
func TestArchiveOfAnEarlierAttempt(t *testing.T) {
	f := &oblivious{FS: filesfake.New()}
	h := open(t, func(p *parts) { p.Files = f })
	s := shell(`echo "$PAWL_ATTEMPT"`)
	s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
	if j := h.end(h.submit(s)); j.State != job.Failed || j.Code != job.ArchiveFailed && j.Code != job.ArchiveExists || !f.died {
		t.Errorf("%s in attempt %d, and a worker has died: %t\n%s", j.State, j.Attempt, f.died, h.history(j.ID))
	}
}

// An oblivious file system loses the answer to the first rename of a folder. Once another one has
// failed, who removes copies dies.
type oblivious struct {
	*filesfake.FS
	renamed, refused, died bool
}

func (f *oblivious) Rename(ctx context.Context, from, to string) error {
	err := f.FS.Rename(ctx, from, to)
	if err == nil && !f.renamed {
		f.renamed = true
		return job.Errorf(job.Unavailable, "the answer is lost")
	}
	f.refused = f.refused || err != nil
	return err
}

func (f *oblivious) Remove(ctx context.Context, name string) error {
	err := f.FS.Remove(ctx, name)
	if f.refused && !f.died && strings.Contains(name, ".staging/") {
		f.died = true
		panic(death{})
	}
	return err
}

// The host does not answer who archives: the program has ended, and nobody says that it may not
// have been started.
func TestHostThatDoesNotAnswerWhoArchives(t *testing.T) {
	var unwell atomic.Bool
	h := open(t, func(p *parts) {
		f := runnerfake.New(p.Local.Runner)
		f.Through(func(_ context.Context, name string, call func() error) error {
			if err := call(); err != nil {
				return err
			}
			switch {
			case name == "Launch":
				unwell.Store(true)
			case name == "Past" && unwell.Load():
				return job.Errorf(job.Unavailable, "unwell")
			}
			return nil
		})
		p.Local.Runner, p.Look, p.Grace = f, 20*time.Millisecond, 20*time.Millisecond
	})
	id := h.submit(shell("exit 0"))
	h.until(id, func(e job.Event) bool {
		return e.State == job.Archiving && strings.Contains(e.Message, "what it left cannot be looked at: ")
	})
	unwell.Store(false)
	if j := h.end(id); j.State != job.Finished || strings.Contains(h.history(id), "not known whether") {
		t.Errorf("%s %s\n%s", j.State, j.Message, h.history(id))
	}
}
