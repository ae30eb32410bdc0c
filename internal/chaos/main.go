// Command chaos kills the service again and again, and then looks whether it kept its promises.
//
// It builds the real binary and runs its hidden command "pawl chaos", a load of mixed jobs, in rounds. Each round has a
// fresh folder. In a storm the process is killed at random moments; in the other rounds it dies at the named points of
// package crash, all of them. It is started again until all jobs have ended, and then the database, the folder, the
// processes of the machine, and a ledger that the jobs themselves write are compared.
//
// The last line is a JSON object; "broken" is empty when every promise was kept, and the exit code is 0 then.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	seconds := flag.Int("seconds", 60, "how long to go on; the first storm and the named points are never cut short")
	seed := flag.Uint64("seed", 0, "seed of loads and moments; 0: a random one")
	jobs := flag.Int("jobs", 500, "jobs of a storm")
	keep := flag.Bool("keep", false, "keep the folders of rounds that broke nothing too")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := run(ctx, os.Stdout, *seed, *jobs, time.Duration(*seconds)*time.Second, *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain data
	}
	fmt.Println(string(line))
	if len(s.Broken) > 0 {
		os.Exit(1)
	}
}

// run builds the binary and goes on for d.
func run(ctx context.Context, out io.Writer, seed uint64, jobs int, d time.Duration, keep bool) (summary, error) {
	dir, err := os.MkdirTemp("", "pawl-chaos-")
	if err != nil {
		return summary{}, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as /proc shows it
		return summary{}, err
	}
	fmt.Fprintf(out, "seed %d, folder %s\n", seed, dir)
	bin := filepath.Join(dir, "pawl")
	if err := build(ctx, bin); err != nil {
		return summary{}, err
	}
	h := &harness{bin: bin, dir: dir, out: out, limit: 90 * time.Second, keep: keep, sum: summary{Seed: seed, Broken: []string{}}}

	end := time.Now().Add(d)
	h.storms(ctx, seed, jobs, stormKills)
	points := newTour(seed, 3)
	for round := seed; ctx.Err() == nil; round++ {
		if !points.must() && !time.Now().Before(end) {
			break
		}
		if entries := points.next(); entries != nil {
			points.round(h.points(ctx, round, pointJobs, entries))
			continue
		}
		h.storms(ctx, round+1, jobs, stormKills)
	}
	h.sum.Broken = append(h.sum.Broken, points.report(out)...)
	if !keep && len(h.sum.Broken) == 0 {
		return h.sum, os.RemoveAll(dir)
	}
	fmt.Fprintf(out, "left for you to look at: %s\n", dir)
	return h.sum, ctx.Err()
}

const (
	stormKills = 20
	pointJobs  = 60 // a round of points has a smaller load: it is run to its end again and again
)

// build builds the binary from the module that this program stands in.
func build(ctx context.Context, bin string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", bin}, flags...), "github.com/pawl-jobs/pawl/cmd/pawl")...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return nil
}
