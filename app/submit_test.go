package app_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/store"
)

// A launcher is a runner that launches as a test says. It counts.
type launcher struct {
	*process.Runner
	launch func(context.Context, runner.Key, runner.Plan) (runner.Handle, error)
	asked  []runner.Key // by one worker after the other
}

func (l *launcher) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	l.asked = append(l.asked, k)
	if len(l.asked) == 1 {
		return l.launch(ctx, k, p)
	}
	return l.Runner.Launch(ctx, k, p)
}

// begin launches a program and waits until it has made the file begun.
func (l *launcher) begin(ctx context.Context, h *house, k runner.Key, p runner.Plan, begun string) (runner.Handle,
	error,
) {
	launched, err := l.Runner.Launch(ctx, k, p)
	if err == nil {
		h.poll("the program", func() bool { return exists(begun) })
	}
	return launched, err
}

// launching replaces the first launch.
func launching(l *launcher) func(*parts) {
	return func(p *parts) {
		l.Runner = p.Local.Runner.(*process.Runner)
		p.Local.Runner = l
	}
}

// reluctant is a store that does not take an intent to launch before it was asked for that a few
// times.
type reluctant struct {
	store.Store
	refuses atomic.Int32
}

func (s *reluctant) refused(cs []job.Change) error {
	if slices.ContainsFunc(cs, func(c job.Change) bool { return c.Set.Intent }) && s.refuses.Add(-1) >= 0 {
		return job.Errorf(job.Unavailable, "not now")
	}
	return nil
}

func (s *reluctant) Apply(ctx context.Context, cs []job.Change, c *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	if err := s.refused(cs); err != nil {
		return nil, nil, store.Effects{}, err
	}
	return s.Store.Apply(ctx, cs, c)
}

func TestIntent(t *testing.T) {
	for name, limit := range map[string]*job.Limit{
		"it is recorded": nil,
		"it is recorded at a moment": {
			Key: job.RateOf(job.RateLaunches, job.SystemLocal), Most: 100,
			Per: job.Duration(time.Second),
		},
		"the claim of who has its turn is it": {Key: "system/local", Most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := limit == nil || limit.Per > 0
			var h *house
			l, slow := &launcher{}, &reluctant{}
			l.launch = func(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
				defer slow.refuses.Store(0)
				if j, err := store.FindJob(ctx, h.store, "default", k.Job); err != nil || !j.Live ||
					j.Launch != k.Launch {
					t.Errorf("launch %d is made, and the row knows of %d (live %t), %v", k.Launch, j.Launch, j.Live,
						err)
				}
				if asked := slow.refuses.Load() < 0; asked != recorded {
					t.Errorf("a change that is the intent was refused, and then taken: %t", asked)
				}
				return l.Runner.Launch(ctx, k, p)
			}
			h = open(t, launching(l), func(p *parts) {
				slow.Store, p.main = p.main, slow
				if limit != nil {
					if _, err := store.SetLimit(t.Context(), p.main, "default", *limit); err != nil {
						t.Error(err)
					}
				}
			})
			slow.refuses.Store(3)
			h.end(h.submit(shell(`true`)))
		})
	}
}

func TestLaunchOfADeadWorker(t *testing.T) {
	t.Run("one that was started is taken over", func(t *testing.T) {
		var h *house
		var first runner.Handle
		begun, lines := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "lines")
		l := &launcher{}
		l.launch = func(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
			var err error
			if first, err = l.begin(ctx, h, k, p, begun); err != nil {
				return first, err
			}
			panic(death{})
		}
		h = open(t, launching(l))
		gate := h.gate()
		id := h.submit(scripted(`echo one more >> "$2"; : > "$1"; read line < "$0"`, gate, begun, lines))
		h.until(id, state(job.Running))
		if got := h.handle(id); got != first {
			t.Errorf("taken over: %+v, launched: %+v", got, first)
		}
		h.pass(gate)
		if j := h.end(id); j.State != job.Finished || j.Attempt != 1 || j.Launch != 1 {
			t.Fatalf("%s in attempt %d, launch %d: %s", j.State, j.Attempt, j.Launch, j.Message)
		}
		if got := h.read(lines); got != "one more\n" || len(l.asked) != 1 {
			t.Errorf("launched %v; the program wrote %q", l.asked, got)
		}
	})
	t.Run("one that was not started is launched once more", func(t *testing.T) {
		l := &launcher{launch: func(context.Context, runner.Key, runner.Plan) (runner.Handle, error) { panic(death{}) }}
		h := open(t, launching(l))
		id := h.submit(shell(`echo it ran`))
		j := h.end(id)
		if j.State != job.Finished || j.Attempt != 1 || j.Launch != 2 {
			t.Fatalf("%s in attempt %d, launch %d: %s", j.State, j.Attempt, j.Launch, j.Message)
		}
		want := []runner.Key{{Job: id, Attempt: 1, Launch: 1}, {Job: id, Attempt: 1, Launch: 2}}
		if !slices.Equal(l.asked, want) {
			t.Errorf("launched %v", l.asked)
		}
		if got := h.history(id); !strings.Contains(got, "the launch before was not started") {
			t.Errorf("the history does not say so:\n%s", got)
		}
		_, results := app.Places(&j)
		if got := h.read(results, "stdout"); got != "it ran\n" {
			t.Errorf("stdout %q", got)
		}
	})
	t.Run("one whose folder is gone is lost", func(t *testing.T) {
		l := &launcher{launch: func(_ context.Context, _ runner.Key, p runner.Plan) (runner.Handle, error) {
			if err := os.RemoveAll(p.Dir); err != nil {
				t.Error(err)
			}
			panic(death{})
		}}
		h := open(t, launching(l))
		j := h.end(h.submit(shell(`true`)))
		if j.State != job.Failed || j.Code != job.ProgramLost || len(l.asked) != 1 {
			t.Errorf("%s %s after %v: %s", j.State, j.Code, l.asked, j.Message)
		}
	})
	t.Run("one that was started is ended when the job was canceled meanwhile", func(t *testing.T) {
		var h *house
		var first runner.Handle
		begun := filepath.Join(t.TempDir(), "begun")
		l := &launcher{}
		l.launch = func(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
			var err error
			if first, err = l.begin(ctx, h, k, p, begun); err != nil {
				return first, err
			}
			if _, err := h.svc.Cancel(h.ctx, k.Job); err != nil {
				h.Error(err)
			}
			panic(death{})
		}
		h = open(t, launching(l))
		j := h.end(h.submit(scripted(`: > "$0"; exec sleep 1000`, begun)))
		if j.State != job.Canceled || len(l.asked) != 1 {
			t.Fatalf("%s after %v", j.State, l.asked)
		}
		if left := alive(t, placeOf(t, first).Process.PID); len(left) > 0 {
			t.Errorf("of the group there is still %q", left)
		}
	})
}

// A silent launcher starts a program, and then does not answer until it is healed.
type silentLauncher struct {
	launcher
	healed   atomic.Bool
	silences atomic.Int32 // how often it has not answered
}

func (l *silentLauncher) Settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	if !l.healed.Load() {
		l.silences.Add(1)
		return runner.Fate{}, &host.Trouble{Code: job.HostUnreachable, Err: errors.New("it does not answer")}
	}
	return l.Runner.Settle(ctx, k, dir)
}

// TestCancelOfASilentLaunch: where it cannot be found out whether a program was started, a cancel
// asks once more, and waits for the trouble's end like the job.
func TestCancelOfASilentLaunch(t *testing.T) {
	var h *house
	var first runner.Handle
	begun := filepath.Join(t.TempDir(), "begun")
	l := &silentLauncher{}
	l.launch = func(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
		var err error
		if first, err = l.begin(ctx, h, k, p, begun); err != nil {
			return first, err
		}
		return first, &host.Trouble{Code: job.HostUnreachable, Err: errors.New("cut off")}
	}
	h = open(t, func(p *parts) {
		l.Runner = p.Local.Runner.(*process.Runner)
		p.Local.Runner = l
	})
	id := h.submit(scripted(`: > "$0"; exec sleep 1000`, begun))
	g := h.blocked(1)
	if _, err := h.svc.Cancel(h.ctx, id); err != nil {
		t.Fatal(err)
	}
	h.poll("the second block", func() bool {
		v, err := h.svc.Job(h.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return v.State == job.Blocked && v.Wish == job.WishCancel
	})
	v, err := h.svc.View(h.ctx, id)
	if err != nil || !strings.HasPrefix(v.Why, "cannot be canceled yet: blocked by HOST_UNREACHABLE: ") {
		t.Errorf("%q, %v", v.Why, err)
	}
	l.healed.Store(true)
	h.release(g)
	if j := h.end(id); j.State != job.Canceled || l.silences.Load() != 2 {
		t.Errorf("%s, %d questions without an answer\n%s", j.State, l.silences.Load(), h.history(id))
	}
	if left := alive(t, placeOf(t, first).Process.PID); len(left) > 0 {
		t.Errorf("of the group there is still %q", left)
	}
}
