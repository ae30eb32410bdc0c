package checks_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func TestDeadly(t *testing.T) {
	lost := job.Event{Code: job.ProgramLost}
	if checks.Deadly([]store.Event{{Event: lost}}) {
		t.Error("a program that was lost for another reason")
	}
	lost.Message = "the program is gone; 3 looks at what the program left have killed the process that looked, " +
		"so nobody"
	if !checks.Deadly([]store.Event{{}, {Event: lost}}) {
		t.Error("it is not found")
	}
}

func TestPoisoned(t *testing.T) {
	t.Parallel()
	event := func(s job.State, c job.Custody, cause job.Cause, message string) store.Event {
		return store.Event{Event: job.Event{State: s, Custody: c, Cause: cause, Message: message}}
	}
	claimed := event(job.StagingInputs, job.Worker, job.CauseClaim, "")
	died := event(job.StagingInputs, job.Ready, job.CauseExpired, "the process that ran it died")
	drained := event(job.StagingInputs, job.Ready, job.CauseExpired, "the process that ran it gave it back")
	back := event(job.StagingInputs, job.Ready, job.CauseWork, "")
	later := event(job.StagingInputs, job.Gate, job.CauseWork, "waits for its moment")
	passed := event(job.Waiting, job.Gate, job.CauseWork, "")
	staged := event(job.StagingJob, job.Worker, job.CauseWork, "")
	paused := event(job.Paused, job.User, job.CauseExpired,
		"paused by ana: it goes on when it is resumed; before that: the process that ran it died")
	resumed := event(job.StagingInputs, job.Ready, job.CauseWish, "")
	for _, tt := range []struct {
		what    string
		between []store.Event
		want    bool
	}{
		{"nothing", nil, true},
		{"a drain", []store.Event{drained}, true},
		{"a worker gives it back", []store.Event{back}, true},
		{"it waits for its moment", []store.Event{later}, true},
		{"it waits for its turn", []store.Event{passed}, true},
		{"a step comes to its end", []store.Event{staged, died}, false},
		{"a death pauses it", []store.Event{
			staged, died, claimed, died, claimed, died, claimed, paused, resumed,
			claimed,
		}, true},
	} {
		var history []store.Event
		for range job.PoisonAt - 1 {
			history = append(history, claimed, died)
		}
		history = append(append(history, claimed), tt.between...)
		history = append(history, claimed, event(job.Failed, job.None, job.CauseExpired, ""))
		history[len(history)-1].Code = job.Poison
		if got := checks.Poisoned(history); got != tt.want {
			t.Errorf("%s before the last death: %t, want %t", tt.what, got, tt.want)
		}
	}
}
