package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/proof/race"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/victims"
)

func TestMain(m *testing.M) {
	code := testenv.Stopping(m).Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// built is the folder of the binary, once there is one.
var built string

// binary is the binary, under the race detector if the tests run under it. The first test that
// wants it builds it.
var binary = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "pawl-crashes-"); err != nil {
		return "", err
	}
	bin := filepath.Join(built, "victim")
	var flags []string
	if race.Enabled { // but for what the Makefile leaves out
		flags = []string{"-race", "-gcflags=all=-d=checkptr=0"}
		for _, module := range []string{"modernc.org", "github.com/santhosh-tekuri"} {
			flags = append(flags, "-gcflags="+module+"/...=-race=false")
		}
	}
	return bin, victims.Build(context.Background(), bin, flags...)
})

// logged writes to a test's log.
type logged struct{ t *testing.T }

func (l logged) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// open returns a harness with a folder of its own.
func open(t *testing.T, l layout) *harness {
	if testing.Short() {
		t.Skip("it kills processes for a minute")
	}
	dir, err := os.MkdirTemp("", "pawl-crashes-") //nolint:usetesting // other accounts may go there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return &harness{layout: l, bin: bin, dir: dir, out: logged{t}, limit: 90 * time.Second}
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
	t.Logf("PAWL_TEST_SEED=%d", seed)
	return seed
}

// TestCrashes is a short form of what "make crashes" does: it goes to a ninth of the points, which
// are others each time, or to a third in make test-all.
func TestCrashes(t *testing.T) {
	seed := seedOf(t)
	h := open(t, onSQLite())
	t.Run("side by side", func(t *testing.T) {
		t.Run("at random moments", func(t *testing.T) {
			t.Parallel()
			jobs, strikes := 40, stormStrikes/5
			switch {
			case testenv.Long():
				jobs, strikes = 300, stormStrikes
			case testenv.Every():
				jobs, strikes = 100, stormStrikes*2/5
			}
			h.storms(t.Context(), seed, jobs, strikes)
		})
		share := 9
		if testenv.Every() {
			share = 3
		}
		points := some(seed, crash.Near(), len(crash.Near())/share)
		parts := make([][]string, max(2, len(points)/15))
		for i, p := range points {
			parts[i%len(parts)] = append(parts[i%len(parts)], p)
		}
		for i, part := range parts {
			t.Run(fmt.Sprintf("at every named point, part %d", i+1), func(t *testing.T) {
				t.Parallel()
				tour := newTour(seed+uint64(i), 1, part)
				for round := seed; tour.must(); round++ {
					tour.round(h.die(t.Context(), round, 30, tour.next()))
				}
				for _, b := range tour.report(h.out) {
					t.Error(b)
				}
			})
		}
	})
	for _, b := range h.sum.Broken {
		t.Error(b)
	}
	h.sum.Seed = seed
	t.Logf("%+v", h.sum)
}

// TestCrashesOfThree is a short form of what "make crashes DB=postgres" does.
func TestCrashesOfThree(t *testing.T) {
	testenv.Aside(t)
	seed := seedOf(t)
	h := open(t, onPostgres(testenv.Postgres(t)))
	strikes, points, jobs := 3, 4, 40
	if testenv.Long() {
		strikes, points, jobs = 6, 12, 100
	}
	h.storms(t.Context(), seed, jobs, strikes)
	tour := newTour(seed, 1, crash.Near())
	entries := tour.next()[:points]
	tried, passed := h.die(t.Context(), seed, jobs*3/4, entries)
	if len(passed) == 0 {
		t.Errorf("no process died at any of %v", tried)
	}
	for _, b := range h.sum.Broken {
		t.Error(b)
	}
	t.Logf("%+v; died at %v of %v", h.sum, passed, tried)
}

// TestCrashesOverSSH is a short form of what "make crashes DB=ssh" does: it goes to a few points,
// which are others each time.
func TestCrashesOverSSH(t *testing.T) {
	testenv.Aside(t)
	crashesElsewhere(t, overSSH(testenv.SSHD(t, testenv.SSHOptions{})))
}

// TestCrashesUnderSlurm is a short form of what "make crashes DB=slurm" does, in the same way.
func TestCrashesUnderSlurm(t *testing.T) {
	testenv.Aside(t)
	crashesElsewhere(t, underSlurm(testenv.OwnSlurm(t)))
}

// some returns n of the points, and all of them in the long tests.
func some(seed uint64, points []string, n int) []string {
	if testenv.Long() {
		return points
	}
	rnd := rand.New(rand.NewPCG(seed, 3))
	rnd.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	return points[:n]
}

func crashesElsewhere(t *testing.T, l layout) {
	seed := seedOf(t)
	h := open(t, l)
	if testenv.Long() {
		h.storms(t.Context(), seed, 150, stormStrikes)
	}
	points := some(seed, h.points(), 3)
	tour := newTour(seed, 1, points)
	for round := seed; tour.must(); round++ {
		tour.round(h.die(t.Context(), round, 30, tour.next()))
	}
	for _, b := range append(tour.report(h.out), h.sum.Broken...) {
		t.Error(b)
	}
	t.Logf("%+v", h.sum)
}

func TestTheTourGoesToEveryPoint(t *testing.T) {
	for p := range plans {
		if !slices.Contains(crash.Points(), p) {
			t.Errorf("there is a plan for %s, which is no point", p)
		}
		for _, b := range plans[p].before {
			if name, _, _ := strings.Cut(b, ":"); !slices.Contains(crash.Points(), name) {
				t.Errorf("the plan for %s begins with %s, which is no point", p, b)
			}
		}
	}
	for name, l := range map[string]layout{
		"on this machine": onSQLite(), "over SSH": overSSH(&testenv.SSH{}), "under Slurm": underSlurm(&testenv.Scheduler{}),
	} {
		for _, p := range l.points() {
			if e := (entry{point: p}); e.plan().before != nil && len(l.before(e)) == 0 {
				t.Errorf("%s: no point of the plan for %s is passed", name, p)
			}
		}
	}
	tour := newTour(1, 2, crash.Points())
	seen := map[string]int{}
	for entries := tour.next(); len(entries) > 0; entries = tour.next() {
		tried := entries[:max(1, len(entries)/2)]
		for _, e := range tried {
			seen[e.String()]++
		}
		tour.round(tried, entries[:len(entries)/3])
	}
	for _, p := range crash.Points() {
		if n := seen[p+":1"]; n == 0 || n > tries {
			t.Errorf("%s was tried %d times", p, n)
		}
	}
}
