package job_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		kind  string
		has   job.Ties
		live  bool
		state job.State
		want  job.Ties
	}{
		{"send", 0, false, job.Pending, job.TieTurn},
		{"send", 0, false, job.Waiting, job.TieTurn},
		{"send", job.TieTurn, false, job.Pending, 0},
		{"send", 0, false, job.Paused, 0},
		{job.KindApp, 0, false, job.Pending, job.TieAhead},
		{job.KindApp, job.TieAhead, false, job.Pending, 0},
		{job.KindApp, 0, false, job.StagingInputs, 0},
		{job.KindApp, job.TieAhead, false, job.SubmittingJob, job.TieTurn},
		{job.KindApp, job.TieTurn, false, job.SubmittingJob, 0},
		{job.KindApp, 0, true, job.SubmittingJob, 0},
		{job.KindApp, 0, false, job.Archiving, 0},
	} {
		j := job.Job{Kind: tt.kind, Live: tt.live, Ties: job.TieLimited | tt.has, Limits: []string{"gpu"}}
		if got := j.Lacks(tt.state); got != tt.want {
			t.Errorf("%s with ties %b, live %t, in %s: lacks %b, want %b", tt.kind, tt.has, tt.live, tt.state, got, tt.want)
		}
		j.Ties = tt.has
		if got := j.Lacks(tt.state); got != 0 {
			t.Errorf("%s under no limit lacks %b in %s", tt.kind, got, tt.state)
		}
	}
}

// TestTurnsOfAProgram follows a program from its line to its end, with what it gives back and owes
// at each change.
func TestTurnsOfAProgram(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	j := job.Job{ID: job.NewID(), Kind: job.KindApp, Limits: []string{"a", "b"}, Ties: job.TieLimited, Attempt: 1, MaxAttempts: 3}
	j.Place = job.Next(&j, job.Pending, now)
	j = j.InLine(now)
	at := func(place job.Place, line string, ties job.Ties) {
		t.Helper()
		if j.Place != place || j.Line != line || j.Ties != job.TieLimited|ties {
			t.Fatalf("it is at %s in the line %q with ties %b, want %s, %q, %b", j.Place, j.Line, j.Ties, place, line, job.TieLimited|ties)
		}
	}
	change := func(c job.Change, returned []string, owed ...string) {
		t.Helper()
		before := j
		c.Job, c.From = j.ID, j.Guard(job.Fence{})
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		j, _ = j.Apply(c, now)
		if got := job.Returned(&before, &j); !slices.Equal(got, returned) {
			t.Errorf("%s to %s gives back %q, want %q", before.Place, j.Place, got, returned)
		}
		var keys []string
		for _, o := range job.Owes(&before, &j) {
			keys = append(keys, o.Key)
		}
		if !slices.Equal(keys, owed) {
			t.Errorf("%s to %s owes %q, want %q", before.Place, j.Place, keys, owed)
		}
	}
	to := func(custody job.Custody, set job.Patch, states ...job.State) job.Change {
		c := job.Change{To: custody, Set: set}
		for _, s := range states {
			e := job.Entry{State: s}
			if s == job.Finished {
				e.Code = job.NormalCompletion
			}
			c.Path = append(c.Path, e)
		}
		return c
	}
	both, ahead := []string{"a", "b"}, []string{"ahead/a", "ahead/b"}
	at(job.Place{State: job.Waiting, Custody: job.Gate}, "ahead/a", 0)
	change(job.Granted(&j), nil)
	at(job.Place{State: job.Pending, Custody: job.Ready}, "", job.TieAhead)
	change(to(job.Worker, job.Patch{}, job.ProcessingInputs), nil)
	change(to(job.Ready, job.Patch{}, job.StagingInputs, job.StagingJob, job.SubmittingJob), nil, "a")
	at(job.Place{State: job.SubmittingJob, Custody: job.Gate}, "a", job.TieAhead)
	j = j.Moved("b", true)
	if got := j.Kept(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("in the line of b it keeps %q", got)
	}
	// It is paused there, and comes back.
	change(to(job.User, job.Patch{Resume: job.SubmittingJob}, job.Paused), append(slices.Clone(ahead), "a"), append(slices.Clone(ahead), "a")...)
	at(job.Place{State: job.Paused, Custody: job.User}, "", 0)
	change(to(job.Ready, job.Patch{}, job.SubmittingJob), nil, "a")
	change(job.Granted(&j), nil)
	at(job.Place{State: job.SubmittingJob, Custody: job.Ready}, "", job.TieTurn)
	change(to(job.Worker, job.Patch{}, job.SubmittingJob), nil)
	change(to(job.Worker, job.Patch{Intent: true}, job.SubmittingJob), nil)
	// Its process dies, and the launch may run.
	change(job.Expired(&j, true), nil)
	at(job.Place{State: job.SubmittingJob, Custody: job.Ready}, "", job.TieTurn)
	change(to(job.Worker, job.Patch{}, job.SubmittingJob), nil)
	change(to(job.Monitor, job.Patch{}, job.Running), nil)
	change(to(job.Ready, job.Patch{Over: true}, job.Archiving), both, both...)
	at(job.Place{State: job.Archiving, Custody: job.Ready}, "", 0)
	// Another attempt begins anew.
	change(to(job.Worker, job.Patch{}, job.Archiving), nil)
	change(to(job.Ready, job.Patch{Retry: true}, job.Pending), nil, "ahead/a")
	at(job.Place{State: job.Waiting, Custody: job.Gate}, "ahead/a", 0)
}
