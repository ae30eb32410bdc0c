package main

import (
	"math"
	"testing"
	"time"
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
