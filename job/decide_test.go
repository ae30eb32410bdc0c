package job_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// standing returns a job that stands at p after a while.
func standing(kind string, p job.Place) job.Job {
	return job.Job{
		ID: job.NewID(), Kind: kind, Place: p, Epoch: 7, N: 11, Attempt: 1, MaxAttempts: 3,
		Lane: job.LaneOf(p.State, kind == job.KindApp, 0), Since: noon.Add(-time.Hour),
	}
}

func program(p job.Place) job.Job { return standing(job.KindApp, p) }
func task(p job.Place) job.Job    { return standing("mail", p) }

func live(j job.Job) job.Job { j.Launch, j.Live = 1, true; return j }

func wishes(w job.Wish, j job.Job) job.Job { j.Wish, j.WishedBy = w, "ann"; return j }

// change returns a change of j to custody to along states.
func change(j job.Job, to job.Custody, set job.Patch, states ...job.State) job.Change {
	return job.Change{Job: j.ID, From: j.Guard(job.Fence{}), Path: path(states...), To: to, Set: set}
}

func TestNext(t *testing.T) {
	for _, tt := range []struct {
		name  string
		due   time.Time
		needs int
		state job.State
		want  job.Place
	}{
		{"nothing holds it", time.Time{}, 0, job.Pending, at(job.Pending, job.Ready)},
		{"a job that waited and is held by nothing goes on", time.Time{}, 0, job.Waiting, at(job.Pending, job.Ready)},
		{"not before its time", noon.Add(1), 0, job.Pending, at(job.Waiting, job.Gate)},
		{"at its time", noon, 0, job.Waiting, at(job.Pending, job.Ready)},
		{"not before its prerequisites", time.Time{}, 1, job.Pending, at(job.Waiting, job.Gate)},
		{"prerequisites hold it after its time", noon, 2, job.Waiting, at(job.Waiting, job.Gate)},
		{"work under way is not gated again", noon.Add(1), 1, job.StagingInputs, at(job.StagingInputs, job.Ready)},
		{"results are fetched whatever the time", noon.Add(1), 0, job.Archiving, at(job.Archiving, job.Ready)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := job.Next(&job.Job{Due: tt.due, Needs: tt.needs}, tt.state, noon); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTurn(t *testing.T) {
	const cancel, pause = job.WishCancel, job.WishPause
	worker := func(s job.State) job.Place { return at(s, job.Worker) }
	monitor := func(s job.State) job.Place { return at(s, job.Monitor) }
	over, intent := job.Patch{Over: true}, job.Patch{Intent: true}

	for _, tt := range []struct {
		name   string
		job    job.Job
		to     job.Custody
		set    job.Patch
		path   []job.State
		want   job.Place // the zero place: not diverted
		resume job.State
	}{
		{
			name: "without a wish nothing turns", job: task(worker(job.Running)), to: job.None,
			path: []job.State{job.Finished},
		},

		{
			name: "a cancel ends what would have finished", job: wishes(cancel, task(worker(job.Running))),
			to: job.None, path: []job.State{job.Finished}, want: at(job.Canceled, job.None),
		},
		{
			name: "a cancel ends what would have failed", job: wishes(cancel, task(worker(job.Running))), to: job.None,
			path: []job.State{job.Failed}, want: at(job.Canceled, job.None),
		},
		{
			name: "a cancel ends what would be tried again", job: wishes(cancel, task(worker(job.Running))),
			to: job.Gate, set: job.Patch{Retry: true, Delay: time.Hour}, path: []job.State{job.Waiting},
			want: at(job.Canceled, job.None),
		},
		{
			name: "a cancel ends what would be blocked", job: wishes(cancel, program(worker(job.StagingInputs))),
			to: job.Recovery, set: job.Patch{Block: block(), Resume: job.StagingInputs},
			path: []job.State{job.Blocked}, want: at(job.Canceled, job.None),
		},
		{
			name: "a cancel ends a program whose end is seen",
			job:  wishes(cancel, live(program(monitor(job.Running)))), to: job.Ready, set: over,
			path: []job.State{job.Archiving}, want: at(job.Canceled, job.None),
		},
		{
			name: "a cancel ends a path at its end", job: wishes(cancel, live(program(monitor(job.Queued)))),
			to: job.Ready, set: over, path: []job.State{job.Running, job.Archiving}, want: at(job.Canceled, job.None),
		},
		{
			name: "a cancel waits while the worker keeps the job",
			job:  wishes(cancel, program(worker(job.StagingInputs))), to: job.Worker, path: []job.State{job.StagingJob},
		},
		{
			name: "a cancel waits while the watcher keeps the job",
			job:  wishes(cancel, live(program(monitor(job.Queued)))), to: job.Monitor, path: []job.State{job.Running},
		},
		{
			name: "a cancel lets a live launch go to its watcher",
			job:  wishes(cancel, live(program(worker(job.SubmittingJob)))), to: job.Monitor,
			path: []job.State{job.Running},
		},
		{
			name: "a cancel lets a live launch go to the next worker",
			job:  wishes(cancel, live(program(worker(job.SubmittingJob)))), to: job.Ready,
			path: []job.State{job.SubmittingJob},
		},
		{
			name: "a live launch that cannot be canceled now is blocked",
			job:  wishes(cancel, live(program(worker(job.SubmittingJob)))), to: job.Recovery,
			set: job.Patch{Block: block(), Resume: job.SubmittingJob}, path: []job.State{job.Blocked},
		},
		{
			name: "a cancel keeps a live launch from being tried again",
			job:  wishes(cancel, live(program(worker(job.SubmittingJob)))), to: job.Gate,
			set: job.Patch{Retry: true, Delay: time.Hour}, path: []job.State{job.Waiting},
			want: at(job.SubmittingJob, job.Ready),
		},
		{
			name: "a launch that the change itself makes is live",
			job:  wishes(cancel, program(worker(job.StagingJob))), to: job.Recovery,
			set:  job.Patch{Block: block(), Intent: true, Resume: job.SubmittingJob},
			path: []job.State{job.SubmittingJob, job.Blocked},
		},
		{
			name: "an intent is recorded and not diverted", job: wishes(cancel, program(worker(job.SubmittingJob))),
			to: job.Worker, set: intent, path: []job.State{job.SubmittingJob},
		},

		{
			name: "a pause keeps the work where it would go on", job: wishes(pause, task(worker(job.Running))),
			to: job.Ready, path: []job.State{job.Pending}, want: at(job.Paused, job.User), resume: job.Pending,
		},
		{
			name: "a pause keeps the next attempt", job: wishes(pause, task(worker(job.Running))), to: job.Gate,
			set: job.Patch{Retry: true, Delay: time.Hour}, path: []job.State{job.Waiting},
			want: at(job.Paused, job.User), resume: job.Waiting,
		},
		{
			name: "a pause of a step that is given back", job: wishes(pause, program(worker(job.StagingJob))),
			to: job.Ready, path: []job.State{job.StagingJob}, want: at(job.Paused, job.User), resume: job.StagingJob,
		},
		{
			name: "a program that ended while a pause was wished goes on to its results",
			job:  wishes(pause, live(program(monitor(job.Running)))), to: job.Ready, set: over,
			path: []job.State{job.Archiving}, want: at(job.Paused, job.User), resume: job.Archiving,
		},
		{
			name: "a pause of what would be blocked goes on where the block would",
			job:  wishes(pause, program(worker(job.StagingInputs))), to: job.Recovery,
			set: job.Patch{Block: block(), Resume: job.StagingInputs}, path: []job.State{job.Blocked},
			want: at(job.Paused, job.User), resume: job.StagingInputs,
		},
		{
			name: "an end stands against a pause", job: wishes(pause, task(worker(job.Running))), to: job.None,
			path: []job.State{job.Finished},
		},
		{
			name: "a pause waits while the worker keeps the job",
			job:  wishes(pause, program(worker(job.StagingInputs))), to: job.Worker, path: []job.State{job.StagingJob},
		},
		{
			name: "a pause lets through what is to be watched", job: wishes(pause, program(worker(job.SubmittingJob))),
			to: job.Monitor, path: []job.State{job.Queued},
		},
		{
			name: "a live launch that cannot be paused now is blocked",
			job:  wishes(pause, live(program(worker(job.SubmittingJob)))), to: job.Recovery,
			set: job.Patch{Block: block(), Resume: job.SubmittingJob}, path: []job.State{job.Blocked},
		},
		{
			name: "a pause lets a live launch go to its watcher",
			job:  wishes(pause, live(program(worker(job.SubmittingJob)))), to: job.Monitor,
			path: []job.State{job.Queued},
		},

		{
			name: "only what leaves worker or monitor turns",
			job:  wishes(cancel, live(program(at(job.SubmittingJob, job.Ready)))), to: job.Worker,
			path: []job.State{job.SubmittingJob},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := change(tt.job, tt.to, tt.set, tt.path...)
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
			asked := append([]job.Entry{}, c.Path...)
			got, diverted := job.Divert(&tt.job, c)
			if diff := cmp.Diff(asked, c.Path); diff != "" {
				t.Errorf("the change that was asked for is written over:\n%s", diff)
			}
			if want := tt.want != (job.Place{}); diverted != want {
				t.Fatalf("diverted to %s: %v, want %v", got.Target(), diverted, want)
			}
			if !diverted {
				if diff := cmp.Diff(c, got); diff != "" {
					t.Errorf("not diverted, and different:\n%s", diff)
				}
				return
			}
			if err := got.Check(); err != nil {
				t.Error(err)
			}
			if got.Target() != tt.want {
				t.Errorf("diverted to %s, want %s", got.Target(), tt.want)
			}
			if tt.want.State == job.Paused && got.Set.Resume != tt.resume {
				t.Errorf("work goes on in %s, want %s", got.Set.Resume, tt.resume)
			}
			if got.From != c.From || got.Job != c.Job {
				t.Error("job or guard have changed")
			}
		})
	}
}

// "Every error of every attempt": what the worker had to say is not lost when a wish turns its
// change.
func TestTurnKeepsTheEvidence(t *testing.T) {
	evidence := json.RawMessage(`{"exit_code":3}`)
	for _, tt := range []struct {
		wish  job.Wish
		state job.State
		to    job.Custody
		want  string
	}{
		{job.WishCancel, job.Failed, job.None, "canceled by ann; exit code 3"},
		{job.WishCancel, job.Waiting, job.Gate, "canceled by ann; exit code 3"},
		{
			job.WishPause, job.Waiting, job.Gate,
			"paused by ann: it goes on when it is resumed; before that: exit code 3",
		},
	} {
		j := wishes(tt.wish, task(at(job.Running, job.Worker)))
		c := change(j, tt.to, job.Patch{Retry: tt.to == job.Gate}, tt.state)
		c.Last().Code, c.Last().Message, c.Last().Data = job.TaskFailed, "exit code 3", evidence
		got, _ := job.Divert(&j, c)
		if m := got.Last().Message; m != tt.want {
			t.Errorf("message %q, want %q", m, tt.want)
		}
		if string(got.Last().Data) != string(evidence) {
			t.Errorf("%s: data %s, want %s", tt.wish, got.Last().Data, evidence)
		}
		if canceled := tt.wish == job.WishCancel; canceled == got.Set.Retry && tt.to == job.Gate {
			t.Errorf("%s: takes another attempt: %v", tt.wish, got.Set.Retry)
		}
	}

	j := wishes(job.WishCancel, live(program(at(job.SubmittingJob, job.Worker))))
	c := change(j, job.Gate, job.Patch{Retry: true, Delay: time.Hour}, job.Waiting)
	c.Last().Code, c.Last().Message = job.LaunchFailed, "the host does not answer"
	got, _ := job.Divert(&j, c)
	if got.Last().Message != "the host does not answer" || got.Set.Retry {
		t.Errorf("kept for its worker: %+v", got)
	}
}

func TestObey(t *testing.T) {
	blocked := program(at(job.Blocked, job.Recovery))
	blocked.Resume = job.StagingInputs
	paused := func(s job.State) job.Job {
		j := program(at(job.Paused, job.User))
		j.Resume = s
		return j
	}
	due := func(j job.Job) job.Job { j.Due = noon.Add(time.Hour); return j }

	for _, tt := range []struct {
		name   string
		job    job.Job
		wish   job.Wish
		want   job.Place // the zero place: nothing happens at once
		resume job.State
	}{
		{
			name: "cancel of a waiting job", job: due(task(at(job.Waiting, job.Gate))), wish: job.WishCancel,
			want: at(job.Canceled, job.None),
		},
		{
			name: "cancel of a ready job", job: task(at(job.Pending, job.Ready)), wish: job.WishCancel,
			want: at(job.Canceled, job.None),
		},
		{
			name: "cancel before the results are fetched", job: program(at(job.Archiving, job.Ready)),
			wish: job.WishCancel, want: at(job.Canceled, job.None),
		},
		{name: "cancel of a blocked job", job: blocked, wish: job.WishCancel, want: at(job.Canceled, job.None)},
		{
			name: "cancel of a paused job", job: paused(job.Pending), wish: job.WishCancel,
			want: at(job.Canceled, job.None),
		},
		{
			name: "cancel of a blocked job with a launch goes to a worker", job: live(blocked), wish: job.WishCancel,
			want: at(job.StagingInputs, job.Ready),
		},
		{
			name: "cancel of a ready job with a launch waits for its worker",
			job:  live(program(at(job.SubmittingJob, job.Ready))), wish: job.WishCancel,
		},
		{name: "cancel waits for the worker", job: task(at(job.Running, job.Worker)), wish: job.WishCancel},
		{name: "cancel waits for the watcher", job: live(program(at(job.Running, job.Monitor))), wish: job.WishCancel},
		{name: "cancel after the end", job: task(at(job.Finished, job.None)), wish: job.WishCancel},

		{
			name: "pause of a waiting job", job: due(task(at(job.Waiting, job.Gate))), wish: job.WishPause,
			want: at(job.Paused, job.User), resume: job.Waiting,
		},
		{
			name: "pause of a ready job", job: task(at(job.Pending, job.Ready)), wish: job.WishPause,
			want: at(job.Paused, job.User), resume: job.Pending,
		},
		{
			name: "pause at the turn", job: program(at(job.SubmittingJob, job.Gate)), wish: job.WishPause,
			want: at(job.Paused, job.User), resume: job.SubmittingJob,
		},
		{
			name: "pause of a blocked job goes on where the block would", job: blocked, wish: job.WishPause,
			want: at(job.Paused, job.User), resume: job.StagingInputs,
		},
		{name: "pause of a paused job", job: paused(job.Pending), wish: job.WishPause},
		{
			name: "pause of a blocked job with a launch goes to a worker", job: live(blocked), wish: job.WishPause,
			want: at(job.StagingInputs, job.Ready),
		},
		{name: "pause waits for the worker", job: task(at(job.Running, job.Worker)), wish: job.WishPause},
		{name: "pause after the end", job: task(at(job.Finished, job.None)), wish: job.WishPause},

		{name: "resume to the queue", job: paused(job.Pending), wish: job.WishResume, want: at(job.Pending, job.Ready)},
		{
			name: "resume to a step", job: paused(job.Archiving), wish: job.WishResume,
			want: at(job.Archiving, job.Ready),
		},
		{
			name: "resume goes through the gate", job: due(paused(job.Pending)), wish: job.WishResume,
			want: at(job.Waiting, job.Gate),
		},
		{
			name: "resume after the time has come", job: paused(job.Waiting), wish: job.WishResume,
			want: at(job.Pending, job.Ready),
		},
		{name: "resume of what is not paused", job: blocked, wish: job.WishResume},
		{name: "resume of what runs", job: task(at(job.Running, job.Worker)), wish: job.WishResume},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := wishes(tt.wish, tt.job)
			c, ok := job.Obey(&j, tt.wish, noon)
			if want := tt.want != (job.Place{}); ok != want {
				t.Fatalf("obeyed: %v, want %v", ok, want)
			}
			if !ok {
				return
			}
			if err := c.Check(); err != nil {
				t.Error(err)
			}
			if c.From != j.Guard(job.Fence{}) || c.Job != j.ID {
				t.Errorf("the change goes out from %+v", c.From)
			}
			after, _ := j.Apply(c, noon)
			if after.Place != tt.want || after.Resume != tt.resume {
				t.Errorf("stands at %s to resume in %q, want %s and %q", after.Place, after.Resume, tt.want, tt.resume)
			}
		})
	}

	t.Run("a cancel tells how the work had ended", func(t *testing.T) {
		j := wishes(job.WishCancel, program(at(job.Archiving, job.Ready)))
		j.Message = "exit code 3"
		c, _ := job.Obey(&j, job.WishCancel, noon)
		if want := "canceled by ann; exit code 3"; c.Last().Message != want || c.Last().Code != job.CanceledByUser {
			t.Errorf("%+v, want message %q", c.Last(), want)
		}
	})
	t.Run("nobody in particular pauses", func(t *testing.T) {
		j := task(at(job.Pending, job.Ready))
		c, _ := job.Obey(&j, job.WishPause, noon)
		if want := "paused: it goes on when it is resumed"; c.Last().Message != want {
			t.Errorf("message %q, want %q", c.Last().Message, want)
		}
	})
}

func TestRetry(t *testing.T) {
	policy := job.RetryPolicy{Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(time.Minute)}}
	why := job.Entry{Code: job.TaskFailed, Message: "boom", Data: json.RawMessage(`{"n":1}`)}
	fence := job.Fence{Session: job.NewID()}
	for _, tt := range []struct {
		name    string
		attempt int
		policy  job.RetryPolicy
		want    job.Place
		set     job.Patch
	}{
		{"after a backoff", 1, policy, at(job.Waiting, job.Gate), job.Patch{Retry: true, Delay: time.Minute}},
		{"the last but one", 2, policy, at(job.Waiting, job.Gate), job.Patch{Retry: true, Delay: time.Minute}},
		{"at once", 1, job.RetryPolicy{}, at(job.Pending, job.Ready), job.Patch{Retry: true}},
		{"the last", 3, policy, at(job.Failed, job.None), job.Patch{}},
		{"more than there are", 4, policy, at(job.Failed, job.None), job.Patch{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := task(at(job.Running, job.Worker))
			j.Attempt = tt.attempt
			c := job.Retry(&j, fence, tt.policy, why, 0.5)
			if err := c.Check(); err != nil {
				t.Error(err)
			}
			if c.Target() != tt.want || c.From != j.Guard(fence) {
				t.Errorf("from %+v to %s, want %s", c.From, c.Target(), tt.want)
			}
			if diff := cmp.Diff(tt.set, c.Set); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			e := why
			e.State = tt.want.State
			if diff := cmp.Diff(e, *c.Last()); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackoffDelay(t *testing.T) {
	const s = job.Duration(time.Second)
	for _, tt := range []struct {
		name    string
		backoff job.Backoff
		want    []time.Duration // after attempts 1, 2, ...
	}{
		{"constant", job.Backoff{Kind: job.BackoffConstant, Base: 5 * s}, []time.Duration{5e9, 5e9, 5e9}},
		{"linear", job.Backoff{Kind: job.BackoffLinear, Base: 5 * s}, []time.Duration{5e9, 10e9, 15e9}},
		{"exponential", job.Backoff{Kind: job.BackoffExponential, Base: 5 * s}, []time.Duration{5e9, 10e9, 20e9, 40e9}},
		{
			"never longer than max",
			job.Backoff{Kind: job.BackoffExponential, Base: 5 * s, Max: 12 * s},
			[]time.Duration{5e9, 10e9, 12e9, 12e9},
		},
		{
			"jitter takes a part",
			job.Backoff{Kind: job.BackoffLinear, Base: 4 * s, Jitter: true},
			[]time.Duration{1e9, 2e9, 3e9},
		},
		{
			"jitter takes a part of max",
			job.Backoff{Kind: job.BackoffLinear, Base: 4 * s, Max: 6 * s, Jitter: true},
			[]time.Duration{1e9, 1.5e9},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, want := range tt.want {
				if got := tt.backoff.Delay(i+1, 0.25); got != want {
					t.Errorf("after attempt %d: %s, want %s", i+1, got, want)
				}
			}
		})
	}
	t.Run("many attempts do not overflow", func(t *testing.T) {
		b := job.Backoff{Kind: job.BackoffExponential, Base: s}
		for _, attempt := range []int{64, 1000, 5000, math.MaxInt32} {
			if got := b.Delay(attempt, 1); got != job.MaxDelay {
				t.Errorf("after attempt %d: %s", attempt, got)
			}
		}
	})
}

func TestOwesAndReleases(t *testing.T) {
	const all = job.TieDependants | job.TieUniqueStart | job.TieUniqueDone
	dependants := []job.Owed{{Debt: job.DebtDependants}}
	start, done := []job.UniqueMode{job.UntilStart}, []job.UniqueMode{job.UntilDone}
	both := append(start[:1:1], done...)
	ready, running := at(job.Pending, job.Ready), at(job.Running, job.Worker)

	for _, tt := range []struct {
		name         string
		before       job.Place
		after        job.Place
		ties         job.Ties
		wantDebts    []job.Owed
		wantReleases []job.UniqueMode
	}{
		{"a plain task", running, at(job.Finished, job.None), 0, nil, nil},
		{"an end tells the dependants", running, at(job.Finished, job.None), job.TieDependants, dependants, nil},
		{"whatever the end", running, at(job.Failed, job.None), job.TieDependants, dependants, nil},
		{"a start tells nobody", ready, running, job.TieDependants, nil, nil},
		{"a start gives up the key until start", ready, running, all, nil, start},
		{"a step gives up nothing", at(job.StagingInputs, job.Worker), at(job.StagingJob, job.Worker), all, nil, nil},
		{"another attempt gives up nothing", running, at(job.Waiting, job.Gate), all, nil, nil},
		{
			"an end before the start gives up both", at(job.Waiting, job.Gate), at(job.Canceled, job.None), all,
			dependants, both,
		},
		{"an end gives up the key until done", running, at(job.Finished, job.None), job.TieUniqueDone, nil, done},
		{"an end is told once", at(job.Finished, job.None), at(job.Finished, job.None), all, nil, nil},
		{"the key until done outlives the start", ready, running, job.TieUniqueDone, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := job.Job{Place: tt.before, Ties: tt.ties}, job.Job{Place: tt.after, Ties: tt.ties}
			if diff := cmp.Diff(tt.wantDebts, job.Owes(&before, &after)); diff != "" {
				t.Errorf("owes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantReleases, job.Releases(&before, &after)); diff != "" {
				t.Errorf("releases (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNeedMet(t *testing.T) {
	for _, s := range terminal {
		if !job.NeedEnded.Met(s) {
			t.Errorf("an end as %s does not count as ended", s)
		}
		if got, want := job.NeedFinished.Met(s), s == job.Finished; got != want {
			t.Errorf("an end as %s counts as finished: %v", s, got)
		}
	}
}

func TestApply(t *testing.T) {
	resolved := json.RawMessage(`{"system":"local"}`)
	later := noon.Add(time.Hour)
	session, claim := job.NewID(), job.NewID()

	held := task(at(job.Running, job.Worker))
	held.Session, held.Claim = session, claim
	staging := program(at(job.StagingInputs, job.Worker))
	staging.Session, staging.Claim = session, claim
	suspect := held
	suspect.Suspect, suspect.Recoveries = 1, 4

	for _, tt := range []struct {
		name   string
		job    job.Job
		change job.Change
		want   func(*job.Job) // what differs from the job before
		path   []job.State
	}{
		{
			"a claim", task(at(job.Pending, job.Ready)),
			job.Change{To: job.Worker, Path: path(job.Running), Set: job.Patch{Session: session, Claim: claim}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.Running, job.Worker), noon, 8, 12
				j.Session, j.Claim = session, claim
			},
			[]job.State{job.Running},
		},
		{
			"a path within one custody keeps epoch, holder and time", staging,
			job.Change{To: job.Worker, Path: path(job.StagingInputs, job.StagingJob, job.SubmittingJob)},
			func(j *job.Job) {
				j.Place, j.N, j.Lane = at(job.SubmittingJob, job.Worker), 14, job.LaneLaunch
			},
			[]job.State{job.StagingInputs, job.StagingJob, job.SubmittingJob},
		},
		{
			"something recorded is no new place", staging,
			job.Change{To: job.Worker, Path: path(job.StagingInputs), Work: json.RawMessage(`{"copied":3}`)},
			func(j *job.Job) { j.N, j.Work = 12, json.RawMessage(`{"copied":3}`) },
			[]job.State{job.StagingInputs},
		},
		{
			"an end", wishes(job.WishPause, held),
			job.Change{To: job.None, Path: []job.Entry{{
				State: job.Finished, Code: job.NormalCompletion,
				Message: "done",
			}}, Set: job.Patch{Result: json.RawMessage(`42`)}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N, j.Ended = at(job.Finished, job.None), noon, 8, 12, noon
				j.Session, j.Claim, j.Wish = job.ID{}, job.ID{}, ""
				j.Code, j.Message, j.Result = job.NormalCompletion, "done", json.RawMessage(`42`)
			},
			[]job.State{job.Finished},
		},
		{
			"another attempt", held,
			job.Change{To: job.Gate, Path: path(job.Waiting), Set: job.Patch{Retry: true, Delay: time.Hour}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.Waiting, job.Gate), noon, 8, 12
				j.Session, j.Claim, j.Attempt, j.Due = job.ID{}, job.ID{}, 2, later
			},
			[]job.State{job.Waiting},
		},
		{
			"what nothing gates does not wait", held,
			job.Change{To: job.Gate, Path: path(job.Waiting)},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.Pending, job.Ready), noon, 8, 12
				j.Session, j.Claim = job.ID{}, job.ID{}
			},
			[]job.State{job.Pending},
		},
		{
			"what a time gates is not ready", held,
			job.Change{To: job.Ready, Path: path(job.Running, job.Pending), Set: job.Patch{Delay: time.Hour}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N, j.Due = at(job.Waiting, job.Gate), noon, 8, 13, later
				j.Session, j.Claim = job.ID{}, job.ID{}
			},
			[]job.State{job.Running, job.Waiting},
		},
		{
			"its time comes", func() job.Job { j := task(at(job.Waiting, job.Gate)); j.Due = noon; return j }(),
			job.Change{To: job.Ready, Path: path(job.Pending)},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N, j.Due = at(job.Pending, job.Ready), noon, 8, 12, time.Time{}
			},
			[]job.State{job.Pending},
		},
		{
			"a pause keeps the time", wishes(job.WishPause,
				func() job.Job { j := task(at(job.Waiting, job.Gate)); j.Due = later; return j }()),
			job.Change{To: job.User, Path: path(job.Paused), Set: job.Patch{Resume: job.Waiting}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.Paused, job.User), noon, 8, 12
				j.Resume, j.Wish = job.Waiting, ""
			},
			[]job.State{job.Paused},
		},
		{
			"a block", staging,
			job.Change{
				To:   job.Recovery,
				Path: []job.Entry{{State: job.Blocked, Code: job.FilesystemFull, Message: "full"}},
				Set:  job.Patch{Resume: job.StagingInputs, Block: block()},
			},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.Blocked, job.Recovery), noon, 8, 12
				j.Session, j.Claim, j.Lane = job.ID{}, job.ID{}, job.LanePrepare
				j.Resume, j.Code, j.Message = job.StagingInputs, job.FilesystemFull, "full"
				j.Group, j.Until = block().Group(j.Tenant), noon.Add(48*time.Hour)
			},
			[]job.State{job.Blocked},
		},
		{
			"a release forgets the block", func() job.Job {
				j := program(at(job.Blocked, job.Recovery))
				j.Resume, j.Code, j.Message = job.StagingInputs, job.FilesystemFull, "full"
				j.Group, j.Until = "a group", later
				return j
			}(),
			job.Change{To: job.Ready, Path: path(job.StagingInputs)},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.StagingInputs, job.Ready), noon, 8, 12
				j.Resume, j.Code, j.Message, j.Group, j.Until = "", "", "", "", time.Time{}
			},
			[]job.State{job.StagingInputs},
		},
		{
			"an intent", program(at(job.SubmittingJob, job.Worker)),
			job.Change{To: job.Worker, Path: path(job.SubmittingJob), Set: job.Patch{Intent: true}},
			func(j *job.Job) { j.N, j.Launch, j.Live = 12, 1, true },
			[]job.State{job.SubmittingJob},
		},
		{
			"the end of a launch", live(program(at(job.Running, job.Monitor))),
			job.Change{To: job.Ready, Path: path(job.Archiving), Set: job.Patch{Over: true}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N, j.Lane = at(job.Archiving, job.Ready), noon, 8, 12, job.LaneFinish
				j.Live = false
			},
			[]job.State{job.Archiving},
		},
		{
			"a crash", suspect,
			job.Change{To: job.Ready, Path: path(job.Pending), Set: job.Patch{Recovery: true, Crash: true}},
			func(j *job.Job) {
				j.Place, j.Since, j.Epoch, j.N = at(job.Pending, job.Ready), noon, 8, 12
				j.Session, j.Claim, j.Recoveries, j.Suspect, j.Lane = job.ID{}, job.ID{}, 5, 2, job.LaneAlone
			},
			[]job.State{job.Pending},
		},
		{
			"cleared of suspicion", func() job.Job { j := suspect; j.Suspect, j.Lane = 3, job.LaneAlone; return j }(),
			job.Change{To: job.Worker, Path: path(job.Running), Set: job.Patch{Clear: true}},
			func(j *job.Job) { j.N, j.Suspect, j.Lane = 12, 0, job.LaneTask },
			[]job.State{job.Running},
		},
		{
			"resolved", staging,
			job.Change{To: job.Worker, Path: path(job.StagingInputs), Set: job.Patch{Resolved: resolved}},
			func(j *job.Job) { j.N, j.Resolved = 12, resolved },
			[]job.State{job.StagingInputs},
		},
		{
			"resolved only once", func() job.Job { j := staging; j.Resolved = resolved; return j }(),
			job.Change{To: job.Worker, Path: path(job.StagingInputs), Set: job.Patch{Resolved: json.RawMessage(`{}`)}},
			func(j *job.Job) { j.N = 12 },
			[]job.State{job.StagingInputs},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change.Job, tt.change.From = tt.job.ID, tt.job.Guard(job.Fence{})
			if err := tt.change.Check(); err != nil {
				t.Fatal(err)
			}
			want := tt.job
			tt.want(&want)
			got, entries := tt.job.Apply(tt.change, noon)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("row (-want +got):\n%s", diff)
			}
			var states []job.State
			for _, e := range entries {
				states = append(states, e.State)
			}
			if diff := cmp.Diff(tt.path, states); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
		})
	}
}
