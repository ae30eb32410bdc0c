package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	runnerfake "github.com/pawl-jobs/pawl/runner/fake"
)

// A scheduler is a runner with a queue, which sees to time limits itself.
type scheduler struct{ *runnerfake.Runner }

func (scheduler) Traits() runner.Traits { return runner.Traits{Limits: true, Queues: true} }

// A launch that waits in a queue is QUEUED, and its history says why.
func TestQueue(t *testing.T) {
	var f *runnerfake.Runner
	h := open(t, func(p *parts) {
		f = runnerfake.New(p.Local.Runner)
		p.Local.Runner, p.Reconcile = scheduler{f}, 10*time.Millisecond
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
	f.Truth(k)
	h.until(id, state(job.Running))
	h.pass(gate)
	if j := h.end(id); j.Code != job.ProgramFailed {
		t.Errorf("%s %s %s", j.State, j.Code, j.Message)
	}
	for _, want := range []string{"QUEUED  waits for resources", "QUEUED  waits for its turn", "RUNNING"} {
		if got := h.history(id); strings.Count(got, want) != 1 {
			t.Errorf("not once %q in\n%s", want, got)
		}
	}
}
