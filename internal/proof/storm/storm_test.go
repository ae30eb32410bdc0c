package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// logged is a test's log to write to.
type logged struct{ t *testing.T }

func (l logged) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// seedOf returns the seed of a test: a random one, unless $PAWL_TEST_SEED names one.
func seedOf(t *testing.T) uint64 {
	seed := rand.Uint64N(1 << 32)
	if v := os.Getenv("PAWL_TEST_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return seed
}

// TestStorm is a short form of what "make chaos" does. In the third storm the clock of the machine
// jumps by an hour and back, and nothing else goes wrong. They come one after the other: three at
// once leave a slow machine no time to renew a lease.
func TestStorm(t *testing.T) {
	if !testenv.Long() {
		t.Skip("it takes minutes: see make chaos and make test-long")
	}
	bin, err := build(t.Context(), t.TempDir(), "", true)
	if err != nil {
		t.Fatal(err)
	}
	storms, blocked, met := 0, 0, 0 // of all: a process alone may live through so little of its storm that nobody meets trouble there
	for name, o := range map[string]options{
		"sqlite":      {db: "sqlite", duration: 10 * time.Second, jobs: 500},
		"postgres":    {db: "postgres", duration: 15 * time.Second, jobs: 750},
		"clock steps": {db: "postgres", duration: 10 * time.Second, jobs: 350, only: "clock_steps"},
	} {
		t.Run(name, func(t *testing.T) {
			if o.db == "postgres" {
				testenv.Postgres(t) // skips where there is none
			}
			if o.only != "" {
				testenv.Faketime(t) // likewise
			}
			o.seed, o.sweep, o.faults, o.binaries, o.out = seedOf(t), true, true, bin, logged{t}
			sum, err := run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(sum)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", line)
			for _, b := range sum.Broken {
				t.Error(b)
			}
			stormy := sum.Kills > 0 && len(sum.Faults) > 2
			if o.only != "" {
				stormy = sum.Faults[o.only] > 0
			}
			if !stormy || sum.Jobs+sum.Met < o.jobs || sum.Strangers == 0 {
				t.Errorf("%d kills, faults %v, %d jobs, %d calls of strangers: it was no storm", sum.Kills, sum.Faults, sum.Jobs, sum.Strangers)
			}
			storms, blocked, met = storms+1, blocked+sum.Blocked, met+sum.Met
			// Once times in the database may be wrong no launch is looked at.
			paced := sum.Paced > 0 || sum.Faults["clock_steps"] > 0 || o.db == "sqlite" && sum.Faults["clock_wrong"] > 0
			if sum.Limits == 0 || sum.Spans == 0 || sum.SideBySide < 2 || !paced {
				t.Errorf("%d changes of limits, %d runs that told when they were, %d side by side, %d starts and launches by their rates: no limit was looked at",
					sum.Limits, sum.Spans, sum.SideBySide, sum.Paced)
			}
		})
	}
	if storms == 3 && (blocked == 0 || met == 0) {
		t.Errorf("%d times a job was blocked, and %d times there was one with its unique key: not all was looked at", blocked, met)
	}
}
