// Command crashes kills the service again and again, and then looks whether it kept its promises.
//
// It builds the program internal/proof/victim and runs its load of mixed jobs, in rounds. Each
// round has a fresh database. On SQLite one process works on the folder of the database; on
// PostgreSQL three do, two of them on one folder, which is a machine, and one on another.
//
// In a storm processes are killed at random moments. Of three mostly one is killed, at times all at
// once; one is told to stop and goes in good order; one is frozen until its lease is over, and goes
// on. In the other rounds processes die at the named points of package crash, all of them, while
// the others go on. They are started again until all jobs have ended, and then the database, the
// folders, the processes of this machine, and a ledger that the jobs themselves write are compared.
//
// With ssh in place of a database there is one process on SQLite, and its programs run on another
// machine, over a private SSH server. With slurm a private Slurm begins them.
//
// Nothing tells a job that kills its processes from one that is at work whenever a storm strikes.
// So a few innocents may end as POISON: "poison" counts them, and the check holds each to the rule,
// five deaths in a row and in the last three of them no other suspect.
//
// The last line is a JSON object; "broken" is empty when every promise was kept, and the exit code
// is 0 then.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/victims"
)

func main() {
	db := flag.String("db", "sqlite", "the database: sqlite, with one process; postgres, a private server with three; "+
		"or ssh, which is sqlite, with the programs on another machine, or slurm, which begins them")
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
	s, err := run(ctx, os.Stdout, *db, *seed, *jobs, time.Duration(*seconds)*time.Second, *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crashes:", err)
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
func run(ctx context.Context, out io.Writer, db string, seed uint64, jobs int, d time.Duration,
	keep bool,
) (summary, error) {
	l, release, err := newLayout(ctx, db)
	if err != nil {
		return summary{}, err
	}
	defer release()
	dir, err := os.MkdirTemp("", "pawl-crashes-")
	if err != nil {
		return summary{}, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as /proc shows it
		return summary{}, err
	}
	fmt.Fprintf(out, "%s, seed %d, folder %s\n", db, seed, dir)
	bin := filepath.Join(dir, "victim")
	if err := victims.Build(ctx, bin); err != nil {
		return summary{}, err
	}
	h := &harness{layout: l, bin: bin, dir: dir, out: out, limit: limit, keep: keep, sum: summary{
		DB:   db,
		Seed: seed, Broken: []string{},
	}}

	end := time.Now().Add(d)
	h.storms(ctx, seed, jobs, stormStrikes)
	points := newTour(seed, 3, h.layout.points())
	for round := seed; ctx.Err() == nil; round++ {
		if !points.must() && !time.Now().Before(end) {
			break
		}
		if entries := points.next(); len(entries) > 0 {
			points.round(h.die(ctx, round, l.jobs, entries))
			continue
		}
		h.storms(ctx, round+1, jobs, stormStrikes)
	}
	h.sum.Broken = append(h.sum.Broken, points.report(out)...)
	if !keep && len(h.sum.Broken) == 0 {
		return h.sum, os.RemoveAll(dir)
	}
	fmt.Fprintf(out, "left for you to look at: %s\n", dir)
	return h.sum, ctx.Err()
}

// limit is for how long a process may go on without any job doing something. It is less than the
// minute after which a sweep looks at everything: what only that finds was forgotten.
const limit = 50 * time.Second
