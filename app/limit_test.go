package app_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A clock is a machine whose boot clock a test moves on.
type clock struct {
	host.Host
	ahead atomic.Int64 // nanoseconds
}

func (c *clock) Uptime(ctx context.Context) (time.Duration, error) {
	d, err := c.Host.Uptime(ctx)
	return d + time.Duration(c.ahead.Load()), err
}

// ticking has the watcher look at its machine's clock again and again, which is this one.
func ticking(c *clock) func(*parts) {
	return func(p *parts) {
		if c.Host == nil {
			c.Host = p.Local.Host
		}
		p.on(c)
		p.Look = 10 * time.Millisecond
	}
}

// lasting is a program that writes a line, ignores SIGTERM, and has a child that does so too.
func lasting() job.Spec {
	s := shell(`trap '' TERM; echo begun; : >up; (while :; do sleep 1000; done) & while :; do sleep 1000; done`)
	s.Resources = &job.Resources{Minutes: 60}
	return s
}

func says(text string) func(job.Event) bool {
	return func(e job.Event) bool { return strings.HasPrefix(e.Message, text) }
}

func TestTimeLimit(t *testing.T) {
	expired := func(t *testing.T, h *house, id job.ID, group int) {
		t.Helper()
		j := h.end(id)
		if j.State != job.Failed || j.Code != job.TimeLimit || !strings.Contains(j.Message, "was ended after 1h0m0s, which is all that resources.minutes gives it") {
			t.Fatalf("%s %s: %s\n%s", j.State, j.Code, j.Message, h.history(id))
		}
		if left := alive(t, group); len(left) > 0 {
			t.Errorf("of the group there is still %q", left)
		}
		if _, results := app.Places(&j); h.read(results, "stdout") != "begun\n" {
			t.Error("what there was is not archived")
		}
	}
	begin := func(h *house, s job.Spec) (job.ID, int) {
		h.Helper()
		id := h.submit(s)
		h.until(id, state(job.Running))
		h.poll("the program to be up", func() bool {
			j, err := h.svc.Job(h.ctx, id)
			folder, _ := app.Places(&j)
			return err == nil && exists(folder, "up")
		})
		return id, h.pid(id)
	}
	t.Run("a program that runs too long is ended with all of its group, and archived", func(t *testing.T) {
		c := &clock{}
		h := open(t, ticking(c), func(p *parts) { p.Grace = 10 * time.Millisecond })
		id, group := begin(h, lasting())
		c.ahead.Store(int64(61 * time.Minute))
		expired(t, h, id, group)
	})
	t.Run("the timer alone is enough", func(t *testing.T) {
		h := open(t, func(p *parts) { p.Grace = 10 * time.Millisecond })
		s := lasting()
		s.Resources.Minutes = 0.2 / 60
		id := h.submit(s)
		if j := h.end(id); j.Code != job.TimeLimit || !strings.Contains(j.Message, "after 200ms") {
			t.Fatalf("%s %s: %s\n%s", j.State, j.Code, j.Message, h.history(id))
		}
	})
	t.Run("its time goes on while nobody watches", func(t *testing.T) {
		c := &clock{}
		h := open(t, ticking(c), func(p *parts) { p.Grace = 10 * time.Millisecond })
		id, group := begin(h, lasting())
		h.stop()
		c.ahead.Store(int64(61 * time.Minute))
		h.start(ticking(c), func(p *parts) { p.Grace = 10 * time.Millisecond })
		expired(t, h, id, group)
	})
	t.Run("why it was ended is known after a crash between kill and archive", func(t *testing.T) {
		c := &clock{}
		h := open(t, ticking(c), func(p *parts) { p.Grace = time.Hour }) // it will not heed the first signal
		id, group := begin(h, lasting())
		c.ahead.Store(int64(61 * time.Minute))
		h.until(id, says("has run for its 1h0m0s"))
		h.stop()
		if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.ahead.Store(0)
		h.start(ticking(c))
		expired(t, h, id, group)
	})
	t.Run("a program that ends in time does not care", func(t *testing.T) {
		h := open(t)
		s := shell("exit 0")
		s.Resources = &job.Resources{Minutes: 10}
		if j := h.end(h.submit(s)); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
	})
	t.Run("another attempt has the whole time again", func(t *testing.T) {
		c := &clock{}
		h := open(t, ticking(c), func(p *parts) { p.Grace = 10 * time.Millisecond })
		s := shell(`: >up; if [ -e checkpoint ]; then echo continued; exit; fi; : >checkpoint; exec sleep 1000`)
		s.Resources = &job.Resources{Minutes: 60}
		s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: job.Duration(time.Millisecond)}}
		id, _ := begin(h, s)
		c.ahead.Store(int64(61 * time.Minute))
		h.until(id, says("has run for its"))
		c.ahead.Store(0)
		j := h.end(id)
		if got := h.stdout(&j); got != "continued\n" || j.Attempt != 2 {
			t.Errorf("attempt %d wrote %q", j.Attempt, got)
		}
	})
}

func TestSuspended(t *testing.T) {
	notes := func(h *house, id job.ID) (n struct {
		Suspended   time.Duration
		SuspendedAt time.Duration `json:"suspended_at"`
	},
	) {
		h.Helper()
		j, err := h.svc.Job(h.ctx, id)
		if err != nil || json.Unmarshal(j.Work, &n) != nil {
			h.Fatalf("no notes: %v", err)
		}
		return n
	}
	pause := func(h *house, id job.ID) {
		h.Helper()
		if _, err := h.svc.Pause(h.ctx, id); err != nil {
			h.Fatal(err)
		}
	}
	resume := func(h *house, id job.ID) {
		h.Helper()
		if _, err := h.svc.Resume(h.ctx, id); err != nil {
			h.Fatal(err)
		}
	}
	// waiting is a program that ends when it is let through its gate.
	waiting := func(h *house) (job.ID, string) {
		h.Helper()
		gate, up := h.gate(), filepath.Join(h.dir, "up")
		s := scripted(`: >"$1"; read line <"$0"`, gate, up)
		s.Resources = &job.Resources{Minutes: 60}
		id := h.submit(s)
		h.until(id, state(job.Running))
		h.poll("the program to be up", func() bool { return exists(up) })
		return id, gate
	}
	t.Run("the history tells, and the time is the program's own", func(t *testing.T) {
		c := &clock{}
		h := open(t, ticking(c))
		id, gate := waiting(h)
		pid := h.pid(id)
		pause(h, id)
		h.until(id, says("suspended by ada"))
		h.poll("the program to be stopped", func() bool { return stopped(pid) })
		c.ahead.Store(int64(61 * time.Minute))
		resume(h, id)
		h.until(id, says("goes on after 1h1m"))
		if n := notes(h, id); n.SuspendedAt != 0 || n.Suspended < 61*time.Minute {
			t.Errorf("notes %+v", n)
		}
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s: %s\n%s", j.State, j.Code, j.Message, h.history(id))
		}
	})
	t.Run("one that was resumed while nobody watched goes on", func(t *testing.T) {
		h := open(t)
		id, gate := waiting(h)
		pid := h.pid(id)
		pause(h, id)
		h.until(id, says("suspended by ada"))
		h.poll("the program to be stopped", func() bool { return stopped(pid) })
		h.stop()
		resume(h, id)
		if !stopped(pid) {
			t.Error("nobody was there to let it go on")
		}
		h.start()
		h.until(id, says("goes on after"))
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
	})
	t.Run("one that was paused while nobody watched is suspended", func(t *testing.T) {
		h := open(t)
		id, gate := waiting(h)
		pid := h.pid(id)
		h.stop()
		pause(h, id)
		h.start()
		h.until(id, says("suspended by ada"))
		h.poll("the program to be stopped", func() bool { return stopped(pid) })
		resume(h, id)
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
	})
	t.Run("one that is suspended can be canceled", func(t *testing.T) {
		h := open(t)
		id, _ := waiting(h)
		pid := h.pid(id)
		pause(h, id)
		h.until(id, says("suspended by ada"))
		if _, err := h.svc.Cancel(h.ctx, id); err != nil {
			t.Fatal(err)
		}
		if j := h.end(id); j.State != job.Canceled || len(alive(t, pid)) > 0 {
			t.Fatalf("%s, alive %q", j.State, alive(t, pid))
		}
	})
}

// A passing is a reader from which a watcher may hear nothing for a while of programs that have
// come to run.
type passing struct {
	store.Reader
	silent atomic.Bool
}

func (p *passing) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	if q.Watch != "" && p.silent.Load() {
		return nil, job.Errorf(job.Unavailable, "out for a moment")
	}
	return p.Reader.Find(ctx, q)
}

// The end of a later program is no reason to know of an earlier one.
func TestTimeLimitOfAProgramThatWasHeardOfLate(t *testing.T) {
	rows := &passing{}
	h := open(t, func(p *parts) { rows.Reader, p.rows = p.rows, rows })
	h.end(h.submit(shell("true"))) // the watcher is there
	rows.silent.Store(true)
	s := shell("sleep 1000")
	s.Resources = &job.Resources{Minutes: 0.1 / 60}
	id := h.submit(s)
	h.until(id, func(e job.Event) bool { return e.State == job.Running })
	h.end(h.submit(shell("true")))
	rows.silent.Store(false)
	h.end(h.submit(shell("true")))
	if j := h.end(id); j.Code != job.TimeLimit {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	}
}
