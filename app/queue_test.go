package app_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	runnerfake "github.com/pawl-jobs/pawl/runner/fake"
)

// A scheduler is a runner with a queue, which sees to time limits itself.
type scheduler struct{ *runnerfake.Runner }

func (scheduler) Traits() runner.Traits { return runner.Traits{Limits: true, Queues: true} }

// A launch that waits in a queue is QUEUED, and one that runs is RUNNING. Its history says why, and
// where.
func TestQueue(t *testing.T) {
	var f *runnerfake.Runner
	h := open(t, func(p *parts) {
		f = runnerfake.New(p.Local.Runner)
		p.Local.Runner, p.Look = scheduler{f}, 10*time.Millisecond
	})
	gate := h.gate()
	s := scripted(`read line < "$0"; exit 3`, gate)
	s.Resources = &job.Resources{Minutes: 0.01 / 60} // the scheduler knows why it does not mind
	_, release := f.Hold("Launch")
	id := h.submit(s)
	k := runner.Key{Job: id, Attempt: 1, Launch: 1}
	for _, reason := range []string{"waits for resources", "waits for its turn"} {
		f.Lie(k, runner.Status{State: runner.Queued, Reason: reason})
		release()
		h.until(id, says(reason))
	}
	begins := time.Date(2126, 11, 28, 14, 0, 0, 0, time.UTC)
	for _, later := range []time.Duration{0, time.Minute, time.Hour} { // a minute later is no news
		f.Lie(k, runner.Status{State: runner.Queued, Reason: "waits for a node", Expected: begins.Add(later)})
		if later != time.Minute {
			h.until(id, says("waits for a node; expected to begin at "+begins.Add(later).Format(time.RFC3339)))
		}
	}
	for _, where := range []string{"on n1", "on n2"} { // it may be run again elsewhere
		f.Lie(k, runner.Status{State: runner.Active, Reason: where})
		h.until(id, says(where))
	}
	f.Truth(k)
	h.pass(gate)
	if j := h.end(id); j.Code != job.ProgramFailed {
		t.Errorf("%s %s %s", j.State, j.Code, j.Message)
	}
	for _, want := range []string{
		"QUEUED  waits for resources", "QUEUED  waits for its turn", "expected to begin at 2126-11-28T14:00:00Z",
		"expected to begin at 2126-11-28T15:00:00Z", "RUNNING  on n1", "RUNNING  on n2",
	} {
		if got := h.history(id); strings.Count(got, want) != 1 {
			t.Errorf("not once %q in\n%s", want, got)
		}
	}
	if got := h.history(id); strings.Contains(got, "14:01:00Z") {
		t.Errorf("a minute is news in\n%s", got)
	}
}

// An answer is a scheduler that answers the first launch as a test says. Nothing of that begins.
type answer struct {
	scheduler
	handle func(runner.Key) (runner.Handle, error)
}

func (a answer) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	if k.Launch == 1 {
		return a.handle(k)
	}
	return a.scheduler.Launch(ctx, k, p)
}

// What a scheduler makes of a launch: it forgets one, ends one, and refuses one.
func TestWhatSchedulersDo(t *testing.T) {
	for name, c := range map[string]struct {
		status   runner.Status
		refused  error
		code     job.Code
		launches int
		says     string
	}{
		"forgotten": {runner.Status{State: runner.Dropped}, nil, job.ProgramFailed, 2, "forgotten it before it began"},
		"ended": {
			runner.Status{State: runner.Lost, Cause: job.SchedulerTimeout, Said: "job 7 is TIMEOUT"},
			nil,
			job.SchedulerTimeout, 1, "the scheduler ended it: job 7 is TIMEOUT",
		},
		"run again": {
			runner.Status{State: runner.Ended, End: &runner.End{Code: 126, Run: 1, NotStarted: runner.RanAgain}},
			nil,
			job.SchedulerRerun, 1, "the scheduler ran it again, which rerun: fail does not allow",
		},
		"refused": {
			runner.Status{},
			&runner.Refused{Code: job.SchedulerRejected, Said: "no such partition"},
			job.SchedulerRejected, 1, "refused: no such partition",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, func(p *parts) {
				f, host := runnerfake.New(p.Local.Runner), p.Local.Host.ID()
				p.Look = 10 * time.Millisecond
				p.Local.Runner = answer{scheduler{f}, func(k runner.Key) (runner.Handle, error) {
					f.Lie(k, c.status)
					return runner.Handle{Key: k, Host: host, Token: "none"}, c.refused
				}}
			})
			id := h.submit(scripted("exit 3"))
			j := h.end(id)
			if j.Code != c.code || j.Launch != c.launches || j.Attempt != 1 {
				t.Errorf("%s %s %s, launch %d", j.State, j.Code, j.Message, j.Launch)
			}
			if c.status.Cause != "" && j.Message != c.says { // nothing of the program: it may not have begun
				t.Errorf("it ends with %q", j.Message)
			}
			if got := h.history(id); !strings.Contains(got, c.says) {
				t.Errorf("no %q in\n%s", c.says, got)
			}
		})
	}
}

// The plan of a job says whether its program may run again.
func TestRerun(t *testing.T) {
	for rerun, once := range map[job.Rerun]bool{"": false, job.RerunAccept: false, job.RerunFail: true} {
		plans := make(chan runner.Plan, 1)
		h := open(t, func(p *parts) { p.Local.Runner = planned{p.Local.Runner, plans} })
		spec := scripted("exit 3")
		spec.Rerun = rerun
		h.end(h.submit(spec))
		if p := <-plans; p.Once != once {
			t.Errorf("rerun %q: once is %t", rerun, p.Once)
		}
	}
}

// planned is a runner that tells its plans.
type planned struct {
	runner.Runner
	plans chan runner.Plan
}

func (r planned) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	r.plans <- p
	return r.Runner.Launch(ctx, k, p)
}

// A scheduler that answers, and takes no more jobs like one for now, blocks that one at once.
func TestASchedulerTakesNoMore(t *testing.T) {
	h := open(t, func(p *parts) {
		p.Local.Runner = answer{scheduler{runnerfake.New(p.Local.Runner)}, func(runner.Key) (runner.Handle, error) {
			return runner.Handle{}, &host.Trouble{
				Code: job.SchedulerQuota, Err: errors.New("too many"), Ask: map[string]string{"partition": "short", "qos": ""},
			}
		}}
	})
	id := h.submit(scripted("exit 3"))
	g := h.blocked(1)
	want := map[string]string{"partition": "short", "qos": "", app.ParamWatch: g.Params[app.ParamWatch]}
	if g.Code != job.SchedulerQuota || g.Tester != app.TesterConnection || !maps.Equal(g.Params, want) ||
		!strings.HasSuffix(g.Line, "/partition/short") {
		t.Errorf("%+v", g)
	}
	h.release(g)
	if j := h.end(id); j.Code != job.ProgramFailed || j.Launch != 2 || j.Attempt != 1 {
		t.Errorf("%s %s %s, launch %d of attempt %d", j.State, j.Code, j.Message, j.Launch, j.Attempt)
	}
}
