package slurm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// An answer is shared, an error says nothing, and a launch is missing only in two answers.
func TestQueueIsAskedRarely(t *testing.T) {
	asked, fails := 0, false
	q := queue{ask: func(context.Context) (a squeue.Answer, err error) {
		asked++
		if fails {
			err = errors.New("no answer")
		}
		return a, err
	}}
	look := func(age time.Duration) *snapshot {
		t.Helper()
		s, err := q.look(t.Context(), age)
		if (err != nil) != fails {
			t.Error(err)
		}
		return s
	}
	l := &launch{place: place{Name: "T"}}
	for range 3 {
		if q.missing(look(time.Hour), l) {
			t.Error("missing after one answer")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	fails = true
	if q.missing(look(0), l) {
		t.Error("missing after an error")
	}
	fails = false
	if !q.missing(look(0), l) {
		t.Error("not missing after a second answer")
	}
	young := &launch{place: place{Name: "Y", Armed: time.Now().Add(time.Hour).UnixMilli()}}
	for range 3 {
		if q.missing(look(0), young) {
			t.Error("missing before it was launched")
		}
	}
}
