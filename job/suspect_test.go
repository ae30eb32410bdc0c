package job_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestExpired(t *testing.T) {
	worn := func(j job.Job) job.Job { j.Recoveries = job.MaxRecoveries; return j }
	suspected := func(n int, j job.Job) job.Job { j.Suspect = n; return j }
	for _, tt := range []struct {
		name    string
		job     job.Job
		crashed bool
		want    job.Place
		set     job.Patch
		code    job.Code
	}{
		{"a task starts again", task(at(job.Running, job.Worker)), true, at(job.Pending, job.Ready), job.Patch{Recovery: true, Crash: true}, ""},
		{"a program's step starts again", program(at(job.StagingInputs, job.Worker)), true, at(job.StagingInputs, job.Ready), job.Patch{Recovery: true, Crash: true}, ""},
		{"a launch is looked for again", live(program(at(job.SubmittingJob, job.Worker))), true, at(job.SubmittingJob, job.Ready), job.Patch{Recovery: true, Crash: true}, ""},
		{"an end in good order is nobody's fault", task(at(job.Running, job.Worker)), false, at(job.Pending, job.Ready), job.Patch{}, ""},
		{"too many crashes", worn(task(at(job.Running, job.Worker))), true, at(job.Failed, job.None), job.Patch{Recovery: true, Crash: true}, job.RecoveryLimit},
		{"a suspect has two crashes alone", suspected(3, task(at(job.Running, job.Worker))), true, at(job.Pending, job.Ready), job.Patch{Recovery: true, Crash: true}, ""},
		{"a suspect has a third crash alone", suspected(4, task(at(job.Running, job.Worker))), true, at(job.Failed, job.None), job.Patch{Recovery: true, Crash: true}, job.Poison},
		{"a program that is a suspect has a third crash alone", suspected(4, program(at(job.Archiving, job.Worker))), true, at(job.Failed, job.None), job.Patch{Recovery: true, Crash: true}, job.Poison},
		{"more crashes than it takes", suspected(7, task(at(job.Running, job.Worker))), true, at(job.Failed, job.None), job.Patch{Recovery: true, Crash: true}, job.Poison},
		{"a suspect whose launch may still run", suspected(4, live(program(at(job.SubmittingJob, job.Worker)))), true, at(job.SubmittingJob, job.Ready), job.Patch{Recovery: true, Crash: true}, ""},
		{"a suspect is given back in good order", suspected(4, task(at(job.Running, job.Worker))), false, at(job.Pending, job.Ready), job.Patch{}, ""},
		{"too many crashes, and a launch that may still run", worn(live(program(at(job.SubmittingJob, job.Worker)))), true, at(job.SubmittingJob, job.Ready), job.Patch{Recovery: true, Crash: true}, ""},
		{"many crashes, and then an end in good order", worn(task(at(job.Running, job.Worker))), false, at(job.Pending, job.Ready), job.Patch{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := job.Expired(&tt.job, tt.crashed)
			if err := c.Check(); err != nil {
				t.Error(err)
			}
			if c.Target() != tt.want || c.From != tt.job.Guard(job.Fence{}) {
				t.Errorf("from %+v to %s, want %s", c.From, c.Target(), tt.want)
			}
			if diff := cmp.Diff(tt.set, c.Set); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if c.Last().Message == "" || c.Last().Code != tt.code {
				t.Errorf("code %q, message %q; want a message and code %q", c.Last().Code, c.Last().Message, tt.code)
			}
		})
	}
}

// TestSuspicion follows a job that kills every process that runs it, and one that is only near it.
func TestSuspicion(t *testing.T) {
	crash := func(j job.Job) job.Job {
		j.Custody, j.State = job.Worker, job.Claimed(j.State, j.Program())
		j, _ = j.Apply(job.Expired(&j, true), noon)
		return j
	}
	for _, j := range []job.Job{task(at(job.Pending, job.Ready)), program(at(job.Pending, job.Ready))} {
		own := j.Lane
		for n := 1; n < job.PoisonAt; n++ {
			j = crash(j)
			lane := own
			if n >= job.AloneAt {
				lane = job.LaneAlone
			}
			if j.State.Terminal() || j.Suspect != n || j.Lane != lane {
				t.Errorf("after %d crashes: %s, suspect %d, lane %s; want lane %s", n, j.Place, j.Suspect, j.Lane, lane)
			}
		}
		innocent := j
		if j = crash(j); j.State != job.Failed || j.Code != job.Poison {
			t.Errorf("after %d crashes: %s %s", job.PoisonAt, j.Place, j.Code)
		}

		innocent.Custody = job.Worker
		innocent.State = job.Claimed(innocent.State, innocent.Program())
		again := change(innocent, job.Ready, job.Patch{Clear: true}, innocent.State)
		if !innocent.Program() {
			again = change(innocent, job.Ready, job.Patch{Clear: true, Retry: true}, job.Pending)
		}
		if innocent, _ = innocent.Apply(again, noon); innocent.Suspect != 0 || innocent.Lane != own {
			t.Errorf("after a step that came to an end: suspect %d, lane %s", innocent.Suspect, innocent.Lane)
		}
	}
}

func TestCleared(t *testing.T) {
	held := int64(7)
	for _, tt := range []struct {
		name  string
		place job.Place
		epoch int64 // 7: the one in which the process held it
		n     int   // how often it is suspected
		clear bool
	}{
		{"still held", at(job.Running, job.Worker), held, 2, false},
		{"taken by expiry", at(job.Pending, job.Ready), held + 1, 2, true},
		{"suspected long before", at(job.Pending, job.Ready), held + 1, 4, true},
		{"claimed again", at(job.Running, job.Worker), held + 2, 1, true},
		{"paused meanwhile", at(job.Paused, job.User), held + 2, 1, true},
		{"its next worker has let go of it, too", at(job.Pending, job.Ready), held + 3, 2, false},
		{"it was taken at an earlier time", at(job.Pending, job.Ready), held - 1, 2, false},
		{"ended", at(job.Failed, job.None), held + 1, job.PoisonAt, false},
		{"no suspect", at(job.Pending, job.Ready), held + 1, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := task(tt.place)
			j.Epoch, j.Suspect = tt.epoch, tt.n
			j.Lane = job.LaneOf(j.State, false, j.Suspect)
			want := j
			if tt.clear {
				want.Suspect, want.Lane = 0, job.LaneTask
			}
			got, ok := j.Cleared(held)
			if ok != tt.clear {
				t.Errorf("cleared: %v, want %v", ok, tt.clear)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("row (-want +got):\n%s", diff)
			}
			if again, ok := got.Cleared(held); ok || again.Suspect != got.Suspect {
				t.Errorf("cleared again: %+v", again)
			}
		})
	}
}
