package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/brokertest"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

var (
	seeds = flag.Int("seeds", testenv.Times(2, 4), "how many worlds TestSeeds tries")
	first = flag.Uint64("first", 1, "the seed of the first of them")
	stop  = flag.Bool("stop", false, "stop at the first world that breaks a promise")
	seed  = flag.Uint64("seed", 0, "the seed of the one world of TestSeed")
)

// TestSeeds tries one world after the other. One that breaks a promise is told with the command
// that replays it.
func TestSeeds(t *testing.T) {
	began, told := time.Now(), time.Now()
	var all Result
	var broken []string
	done := 0
	explore(t, *first, *seeds, func(r Result) bool {
		done++
		all.Jobs, all.Deaths, all.Faults = all.Jobs+r.Jobs, all.Deaths+r.Deaths, all.Faults+r.Faults
		if len(r.Broken) > 0 {
			if broken = append(broken, fmt.Sprint(r.Seed)); len(broken) <= 3 {
				t.Errorf("seed %d, to be replayed with %s:\n%s\n%s", r.Seed, "make sim SEED="+fmt.Sprint(r.Seed), strings.Join(r.Broken, "\n"), r.Story)
			} else {
				t.Errorf("seed %d: %s", r.Seed, r.Broken[0])
			}
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "%d seeds, %.0f a minute, %d broken\n", done, float64(done)/time.Since(began).Minutes(), len(broken))
		}
		return !*stop || len(broken) == 0
	})
	fmt.Fprintf(os.Stderr, `{"seeds": %d, "seconds": %.0f, "jobs": %d, "deaths": %d, "faults": %d, "broken": [%s]}`+"\n",
		done, time.Since(began).Seconds(), all.Jobs, all.Deaths, all.Faults, strings.Join(broken, ", "))
}

// TestReplay lives worlds twice: they are the same, to the order of all that happens in them.
func TestReplay(t *testing.T) {
	if !exact {
		t.Skip("the runtime plays dice: make sim builds one that does not")
	}
	runs := [2]map[uint64]Result{}
	for i := range runs {
		runs[i] = map[uint64]Result{}
		explore(t, *first, max(4, *seeds/10), func(r Result) bool {
			runs[i][r.Seed] = r
			return true
		})
	}
	for n, r := range runs[0] {
		if again := runs[1][n]; again.Digest != r.Digest {
			t.Errorf("seed %d told %d lines, and then others (%d)", n, r.Lines, again.Lines)
		}
	}
}

// TestSeed lives one world, and tells of all that happens in it.
func TestSeed(t *testing.T) {
	if *seed == 0 {
		t.Skip("without -seed")
	}
	var said func(string)
	if testing.Verbose() {
		said = func(l string) { fmt.Fprintln(os.Stdout, l) }
	}
	if r := Run(t, *seed, said); len(r.Broken) > 0 {
		t.Errorf("%s\n%s", strings.Join(r.Broken, "\n"), r.Story)
	}
}

// explore lives worlds, each in a process of its own, as many at a time as this machine has
// processors: so that what happens in one depends on nothing but its seed.
func explore(t *testing.T, first uint64, n int, tell func(Result) (more bool)) {
	t.Helper()
	reports, next := make(chan Result), make(chan uint64)
	var over atomic.Bool
	var wg sync.WaitGroup
	for range min(runtime.NumCPU(), n) {
		wg.Go(func() {
			for seed := range next {
				reports <- child(t, seed)
			}
		})
	}
	go func() {
		for i := range n {
			if over.Load() {
				break
			}
			next <- first + uint64(i)
		}
		close(next)
		wg.Wait()
		close(reports)
	}()
	for r := range reports {
		if !over.Load() && !tell(r) {
			over.Store(true)
		}
	}
}

// child lives a world in a process of its own.
func child(t *testing.T, seed uint64) (r Result) {
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childOf, seed), "GOMAXPROCS=1", "GOGC=off")
	out, err := cmd.CombinedOutput()
	line, _, _ := bytes.Cut(out, []byte{'\n'})
	if json.Unmarshal(line, &r) != nil {
		r = Result{
			Seed: seed, Broken: []string{fmt.Sprintf("the simulation itself ended: %v", err)},
			Story: string(out[:min(len(out), 10_000)]),
		}
	}
	return r
}

// childOf is the variable that makes a child: its seed.
const childOf = "PAWL_SIM_CHILD"

func TestChild(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv(childOf), 10, 64)
	if err != nil {
		t.Skip("for the children of TestSeeds")
	}
	if err := json.NewEncoder(os.Stdout).Encode(Run(t, seed, nil)); err != nil {
		t.Fatal(err)
	}
}

// The broker of the worlds is one, when nothing goes wrong.
func TestBroker(t *testing.T) {
	brokertest.Run(t, func(*testing.T) (broker.Broker, broker.Broker) {
		h := &hub{}
		return h.join(nil), h.join(nil)
	})
}
