package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/testenv"
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

// raise raises a short storm.
func raise(t *testing.T, o options) summary {
	t.Helper()
	if testing.Short() {
		t.Skip("it kills processes for a minute")
	}
	if o.db == "postgres" {
		testenv.Postgres(t) // skips where there is none
	}
	o.seed, o.out = seedOf(t), logged{t}
	sum, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", line)
	return sum
}

// TestStorm is a short form of what "make chaos" does.
func TestStorm(t *testing.T) {
	for _, o := range []options{
		{db: "sqlite", duration: 12 * time.Second, jobs: 600, sweep: true, faults: true},
		{db: "postgres", duration: 20 * time.Second, jobs: 1000, sweep: true, faults: true},
	} {
		t.Run(o.db, func(t *testing.T) {
			sum := raise(t, o)
			for _, b := range sum.Broken {
				t.Error(b)
			}
			if sum.Kills == 0 || len(sum.Faults) < 3 || sum.Jobs < o.jobs {
				t.Errorf("%d kills, faults %v, %d jobs: it was no storm", sum.Kills, sum.Faults, sum.Jobs)
			}
		})
	}
}

// TestClockSteps has the clock of the machine jump by an hour and back, and nothing else go wrong.
func TestClockSteps(t *testing.T) {
	testenv.Faketime(t) // skips where there is none
	sum := raise(t, options{db: "postgres", duration: 15 * time.Second, jobs: 500, sweep: true, faults: true, only: "clock_steps"})
	for _, b := range sum.Broken {
		t.Error(b)
	}
	if sum.Faults["clock_steps"] == 0 {
		t.Errorf("the faults were %v: no clock stepped", sum.Faults)
	}
}
