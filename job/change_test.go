package job_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

func at(s job.State, c job.Custody) job.Place { return job.Place{State: s, Custody: c} }

// path makes the entries of a path; a terminal one gets the code that it must have.
func path(states ...job.State) []job.Entry {
	var p []job.Entry
	for _, s := range states {
		e := job.Entry{State: s}
		if s.Terminal() {
			e.Code = job.InternalError
		}
		p = append(p, e)
	}
	return p
}

func TestChangeCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		from job.Place
		path []job.Entry
		to   job.Custody
		set  job.Patch
		want string // part of the error; empty: none
	}{
		{name: "one step", from: at(job.Pending, job.Ready), path: path(job.Running), to: job.Worker},
		{
			name: "a path", from: at(job.ProcessingInputs, job.Worker),
			path: path(job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Queued), to: job.Monitor,
		},
		{name: "a change of custody alone", from: at(job.Archiving, job.Worker), path: path(job.Archiving), to: job.Ready},
		{name: "something recorded", from: at(job.SubmittingJob, job.Worker), path: path(job.SubmittingJob), to: job.Worker, set: job.Patch{Intent: true}},
		{name: "an end", from: at(job.Running, job.Worker), path: path(job.Finished), to: job.None},
		{name: "blocked", from: at(job.Archiving, job.Worker), path: path(job.Blocked), to: job.Recovery, set: job.Patch{Block: block(), Resume: job.Archiving}},
		{name: "paused", from: at(job.Blocked, job.Recovery), path: path(job.Paused), to: job.User, set: job.Patch{Resume: job.Archiving}},

		{name: "an empty path", from: at(job.Pending, job.Ready), to: job.Worker, want: "empty path"},
		{name: "no edge", from: at(job.Pending, job.Ready), path: path(job.StagingInputs), to: job.Worker, want: "no edge from PENDING to STAGING_INPUTS"},
		{name: "no edge within the path", from: at(job.ProcessingInputs, job.Worker), path: path(job.StagingInputs, job.SubmittingJob), to: job.Worker, want: "no edge from STAGING_INPUTS to SUBMITTING_JOB"},
		{name: "out of a terminal state", from: at(job.Failed, job.None), path: path(job.Pending), to: job.Ready, want: "no edge from FAILED to PENDING"},
		{name: "past a terminal state", from: at(job.Running, job.Worker), path: path(job.Finished, job.Failed), to: job.None, want: "FINISHED/worker is no legal place"},
		{name: "no place at the end", from: at(job.Pending, job.Ready), path: path(job.Running), to: job.Ready, want: "RUNNING/ready is no legal place"},
		{name: "no place on the way", from: at(job.SubmittingJob, job.Worker), path: path(job.Queued, job.Running), to: job.Monitor, want: "QUEUED/worker is no legal place"},
		{name: "an unknown state", from: at(job.Pending, job.Ready), path: path("LOST"), to: job.Ready, want: "no edge from PENDING to LOST"},
		{name: "an unknown code", from: at(job.Running, job.Worker), path: []job.Entry{{State: job.Failed, Code: "BAD_LUCK"}}, to: job.None, want: "unknown code BAD_LUCK"},
		{name: "an unknown code on the way", from: at(job.StagingJob, job.Worker), path: []job.Entry{{State: job.StagingJob, Code: "BAD_LUCK"}, {State: job.SubmittingJob}}, to: job.Worker, want: "unknown code BAD_LUCK"},
		{name: "an end without a code", from: at(job.Running, job.Worker), path: []job.Entry{{State: job.Failed}}, to: job.None, want: "FAILED without a code"},
		{name: "blocked for ever", from: at(job.Running, job.Worker), path: path(job.Blocked), to: job.Recovery, set: job.Patch{Block: block()}, want: `work cannot go on in "" after BLOCKED`},
		{name: "blocked, to go on running", from: at(job.Running, job.Monitor), path: path(job.Blocked), to: job.Recovery, set: job.Patch{Block: block(), Resume: job.Running}, want: `work cannot go on in "RUNNING" after BLOCKED`},
		{name: "blocked, to go on paused", from: at(job.Running, job.Worker), path: path(job.Blocked), to: job.Recovery, set: job.Patch{Block: block(), Resume: job.Paused}, want: `work cannot go on in "PAUSED" after BLOCKED`},
		{name: "blocked, to go on waiting", from: at(job.Running, job.Worker), path: path(job.Blocked), to: job.Recovery, set: job.Patch{Block: block(), Resume: job.Waiting}, want: `work cannot go on in "WAITING" after BLOCKED`},
		{name: "paused for ever", from: at(job.Pending, job.Ready), path: path(job.Paused), to: job.User, want: `work cannot go on in "" after PAUSED`},
		{name: "paused, to go on as failed", from: at(job.Pending, job.Ready), path: path(job.Paused), to: job.User, set: job.Patch{Resume: job.Failed}, want: `work cannot go on in "FAILED" after PAUSED`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := job.Change{Job: job.NewID(), From: job.Guard{Place: tt.from}, Path: tt.path, To: tt.to, Set: tt.set}
			err := c.Check()
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			case err != nil && job.KindOf(err) != job.Internal:
				t.Errorf("kind %s, want internal", job.KindOf(err))
			case err != nil && !strings.Contains(err.Error(), c.Job.String()):
				t.Errorf("error %v does not name the job", err)
			}
		})
	}
}

// One change that stands for two leaves the row as the two would have left it.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := program(at(job.SubmittingJob, job.Worker))
		j.Live, j.Suspect = rapid.Bool().Draw(t, "live"), 2
		step := func(label string, live bool, to job.Custody, states ...job.State) job.Change {
			c := change(j, to, job.Patch{}, states...)
			if rapid.Bool().Draw(t, label+" launches or ends a launch") {
				c.Set.Intent, c.Set.Over = !live, live
			}
			document := func(name string) json.RawMessage {
				if rapid.Bool().Draw(t, label+" "+name) {
					return json.RawMessage(`"` + label + `"`)
				}
				return nil
			}
			c.Set.Resolved, c.Set.Result, c.Work = document("resolved"), document("result"), document("work")
			c.Set.Clear = rapid.Bool().Draw(t, label+" clear")
			c.Last().Message = label
			return c
		}

		a := step("first", j.Live, job.Worker, job.SubmittingJob, job.SubmittingJob)
		between, history := j.Apply(a, noon)
		b := step("second", between.Live, job.Recovery, job.SubmittingJob, job.Blocked)
		b.From, b.Set.Resume, b.Set.Block = between.Guard(job.Fence{}), job.SubmittingJob, block()
		if a.Set.Intent && b.Set.Intent {
			t.Skip("a worker waits for the answer to an intent")
		}
		want, rest := between.Apply(b, noon)

		joined := job.Join(a, b)
		if err := joined.Check(); err != nil {
			t.Fatal(err)
		}
		got, path := j.Apply(joined, noon)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("row (-one after the other +joined):\n%s", diff)
		}
		if diff := cmp.Diff(append(history, rest...), path); diff != "" {
			t.Errorf("history (-one after the other +joined):\n%s", diff)
		}
		if joined.From != a.From || joined.Job != a.Job {
			t.Errorf("goes out from %+v, want %+v", joined.From, a.From)
		}
	})
}

func TestFenceActor(t *testing.T) {
	session := job.NewID()
	for _, tt := range []struct {
		fence job.Fence
		want  string
	}{
		{job.Fence{Session: session}, session.String()},
		{job.Fence{Duty: "watcher@m1", Term: 3}, "watcher@m1"},
		{job.Fence{}, ""},
	} {
		if got := tt.fence.Actor(); got != tt.want {
			t.Errorf("actor of %+v is %q, want %q", tt.fence, got, tt.want)
		}
	}
}
