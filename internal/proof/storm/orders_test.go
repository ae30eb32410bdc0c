package main

import (
	"encoding/json"
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// TestStoodInLine: who lets others pass in trouble is not before them when it was in trouble before
// it ran.
func TestStoodInLine(t *testing.T) {
	at := func(state job.State, custody job.Custody, cause job.Cause) store.Event {
		return store.Event{Event: job.Event{State: state, Custody: custody, Cause: cause}}
	}
	let := at(job.Pending, job.Ready, job.CauseTurn)
	stages := at(job.StagingInputs, job.Worker, job.CauseWork)
	runs := at(job.Running, job.Monitor, job.CauseWork)
	blocked := at(job.Blocked, job.Recovery, job.CauseWork)
	paused := at(job.Paused, job.User, job.CauseWish)
	waits := at(job.Waiting, job.Gate, job.CauseClear)
	archives := at(job.Archiving, job.Worker, job.CauseClaim)
	again := at(job.Archiving, job.Ready, job.CauseClear)
	ends := at(job.Finished, job.None, job.CauseWork)
	for _, c := range []struct {
		name, failing string
		history       []store.Event
		want          bool
	}{
		{"no trouble", "pass", []store.Event{let, stages, runs, ends}, true},
		{"blocked before it ran", "pass", []store.Event{let, stages, blocked, waits, let, stages, runs, ends}, false},
		{"blocked when it had run", "pass", []store.Event{let, stages, runs, blocked, waits, let, runs, ends}, true},
		{"blocked before it ran, and nobody passes", "block", []store.Event{let, stages, blocked, waits, runs, ends}, true},
		{"paused", "pass", []store.Event{let, stages, paused, waits, let, runs, ends}, false},
		{
			"blocked and paused with its results", "pass",
			[]store.Event{let, stages, runs, archives, blocked, paused, again, archives, ends},
			true,
		},
		{"paused in line", "block", []store.Event{paused, waits, let, runs, ends}, false},
	} {
		j := &job.Job{ID: job.ID{1}, Request: json.RawMessage(`{"command":["true"],"order":{"key":"k","failing":"` + c.failing + `"}}`)}
		if _, line := (&checker{}).goings(j, c.history); line != c.want {
			t.Errorf("%s: it stood in line: %t", c.name, line)
		}
	}
}
