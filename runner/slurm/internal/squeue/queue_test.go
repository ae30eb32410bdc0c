package squeue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// An answer is shared, an error says nothing, and a launch is missing only in two answers.
func TestQueueIsAskedRarely(t *testing.T) {
	asked, fails := 0, false
	q := Queue{Ask: func(context.Context) (a Answer, err error) {
		asked++
		if fails {
			err = errors.New("no answer")
		}
		return a, err
	}}
	look := func(age time.Duration) *Snapshot {
		t.Helper()
		s, err := q.Look(t.Context(), age)
		if (err != nil) != fails {
			t.Error(err)
		}
		return s
	}
	for range 3 {
		if q.Missing(look(time.Hour), "T", time.Time{}) {
			t.Error("missing after one answer")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	fails = true
	if q.Missing(look(0), "T", time.Time{}) {
		t.Error("missing after an error")
	}
	fails = false
	if !q.Missing(look(0), "T", time.Time{}) {
		t.Error("not missing after a second answer")
	}
	for range 3 {
		if q.Missing(look(0), "Y", time.Now().Add(time.Hour)) {
			t.Error("missing before it was launched")
		}
	}
}

// A job is late from the first call on. One that runs again begins anew.
func TestLate(t *testing.T) {
	state := "COMPLETED"
	q := Queue{Unseen: time.Hour, Ask: func(context.Context) (Answer, error) {
		return Answer{rows: map[string]Row{"T": {State: state}}}, nil
	}}
	is := func(wantLate, wantFirst bool) {
		t.Helper()
		if _, err := q.Look(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if late, first := q.Late("T"); late != wantLate || first != wantFirst {
			t.Errorf("late %t, first %t", late, first)
		}
	}
	is(true, true)
	is(true, false)
	state = "RUNNING"
	is(true, true)
	q.Unseen, state = 0, "COMPLETED"
	is(false, false)
}
