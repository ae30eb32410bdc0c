package main

import (
	"math"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
)

// TestMay: what may have been in force at some time of a span, by what was said and answered.
func TestMay(t *testing.T) {
	const s = time.Second
	l := &limits{s: &storm{}, said: []saying{
		{"a/*", 3, 0, 1 * s, true, false},
		{"a/x", 1, 10 * s, 11 * s, true, false},
		{"a/x", 0, 20 * s, 21 * s, true, false},
		{"a/x", math.MaxInt, 30 * s, 31 * s, true, false},
		{"b", 7, 10 * s, 11 * s, true, true},
		{"b", 2, 20 * s, 21 * s, true, false},
		{"c", 4, 10 * s, 20 * s, false, true},
	}}
	for _, c := range []struct {
		key      string
		from, to time.Duration
		want     int
	}{
		{"a/y", 5 * s, 100 * s, 3},
		{"a/y", 0, 100 * s, math.MaxInt}, // before it was said
		{"a/x", 5 * s, 6 * s, 3},
		{"a/x", 10 * s, 12 * s, 3},
		{"a/x", 12 * s, 15 * s, 1},
		{"a/x", 15 * s, 25 * s, 1},
		{"a/x", 22 * s, 25 * s, 0},
		{"a/x", 22 * s, 30 * s, 3},
		{"a/x", 40 * s, 50 * s, 3},
		{"b", 40 * s, 50 * s, 7}, // said twice: the first call may be late
		{"c", 40 * s, 50 * s, math.MaxInt},
		{"unique/k/x", 0, 50 * s, 1},
		{"other", 40 * s, 50 * s, math.MaxInt},
	} {
		if got := l.may(c.key, c.from, c.to); got != c.want {
			t.Errorf("%s from %s to %s: %d, want %d", c.key, c.from, c.to, got, c.want)
		}
	}
}

// TestInPieces: who runs between two runs of a job is found where it is certain, by clocks that
// know centiseconds alone.
func TestInPieces(t *testing.T) {
	const ms = time.Millisecond
	a, b := job.ID{1}, job.ID{2}
	program := func(id job.ID, begin, end time.Duration) ledger.Span {
		return ledger.Span{Job: id, Begin: begin + ledger.Centisecond, End: end}
	}
	task := func(id job.ID, begin, end time.Duration) ledger.Span {
		return ledger.Span{Job: id, Epoch: 3, Begin: begin, End: end}
	}
	for _, c := range []struct {
		name  string
		spans []ledger.Span
		want  bool
	}{
		{"another between", []ledger.Span{program(a, 0, 10*ms), task(b, 20*ms, 30*ms), program(a, 40*ms, 50*ms)}, true},
		{"another behind", []ledger.Span{program(a, 0, 10*ms), program(a, 20*ms, 30*ms), task(b, 40*ms, 50*ms)}, false},
		{"another before", []ledger.Span{task(b, 0, 1*ms), program(a, 10*ms, 20*ms), program(a, 30*ms, 40*ms)}, false},
		{
			"another may be behind",
			[]ledger.Span{program(a, 0, 0), program(a, 20*ms, 20*ms), task(b, 29*ms, 50*ms)},
			false,
		},
		{"another may be before", []ledger.Span{program(b, 0, 0), task(a, 9*ms, 10*ms), task(a, 20*ms, 30*ms)}, false},
		{"a program between tasks", []ledger.Span{
			task(a, 0, 1*ms), program(b, 10*ms, 10*ms),
			task(a, 30*ms, 40*ms),
		}, true},
	} {
		if _, _, got := inPieces(c.spans, func(job.ID) bool { return false }); got != c.want {
			t.Errorf("%s: found %t, want %t", c.name, got, c.want)
		}
		if _, _, got := inPieces(c.spans, func(job.ID) bool { return true }); got {
			t.Errorf("%s: found, and it lets others pass", c.name)
		}
	}
}
