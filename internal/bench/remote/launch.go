package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

type launchFigures struct {
	JobsPerSecond float64 `json:"jobs_per_second"`
	Local         float64 `json:"local_jobs_per_second"`
	RatioLocal    float64 `json:"ratio_to_local"`
	Launches      float64 `json:"launches_per_second"`
	Bare          float64 `json:"bare_launches_per_second"`
	RatioBare     float64 `json:"ratio_to_bare"`
	Forks         float64 `json:"forks_per_launch"`
	RoundTrips    float64 `json:"round_trips_per_job"`
	Connections   int     `json:"connections"`
	Naive         float64 `json:"naive_jobs_per_second"`
	Failed        int     `json:"failed"`
	LaunchedTwice int     `json:"launched_twice"`

	jobs, rounds int
	forksPerJob  float64
}

// Rows implements [bench.Figures].
func (f *launchFigures) Rows(row func(name, format string, args ...any)) {
	row("whole way", "%.0f jobs/s through all states; local %.0f jobs/s, ratio %.2f; naive %.1f jobs/s",
		f.JobsPerSecond, f.Local, f.RatioLocal, f.Naive)
	row("launches alone", "%.0f/s; bare loop %.0f/s, ratio %.2f", f.Launches, f.Bare, f.RatioBare)
	row("cost", "%.1f forks a launch, %.1f with all of a job; %.1f round trips a job; %d connections", f.Forks,
		f.forksPerJob, f.RoundTrips, f.Connections)
	row("launch load", "%d jobs in each of %d rounds: %d failed, %d launched twice", f.jobs, f.rounds, f.Failed,
		f.LaunchedTwice)
}

// jobProgram tells its number and makes an output. It starts no process.
const jobProgram = `echo "$1" >>"$2"; echo done >out`

// A load is jobs with one input and one output.
type load struct {
	input, ledger string
	submitted     int
}

func (p *part) newLoad() (*load, error) {
	l := &load{input: filepath.Join(p.dir, "in.txt"), ledger: filepath.Join(p.dir, "ledger")}
	return l, os.WriteFile(l.input, []byte("a small input\n"), 0o600)
}

// run runs n jobs on a system, and returns how long it took until all have ended. How they end is
// told by counts of the bed.
func (l *load) run(b *bed.Bed, system string, n int) (time.Duration, map[job.State]int, error) {
	first := l.submitted
	l.submitted += n
	begin := time.Now()
	_, err := b.SubmitAll(n, func(i int) job.Spec {
		return job.Spec{
			System: system, Command: []string{"sh", "-c", jobProgram, "job", strconv.Itoa(first + i), l.ledger},
			Inputs:  []job.Input{{From: l.input}},
			Archive: &job.Archive{Include: []string{"out"}, Required: []string{"out"}},
		}
	})
	if err != nil {
		return 0, nil, err
	}
	end, counts, err := b.AllEnded(begin.Add(time.Hour))
	return end.Sub(begin), counts, err
}

// twice returns how many jobs were launched more than once.
func (l *load) twice() (n int, err error) {
	ran, err := bed.Launches(l.ledger)
	for _, times := range ran {
		if times > 1 {
			n++
		}
	}
	return n, err
}

// openBed starts a service with a system over SSH.
func (p *part) openBed(ctx context.Context, name string, port int) (*bed.Bed, error) {
	b, err := bed.Open(ctx, filepath.Join(p.dir, "pawl"), node.Options{Logger: p.Log})
	if err != nil {
		return nil, err
	}
	if err := b.AddSystem(p.server.System(name, filepath.Join(p.dir, "there"), port)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// requests returns how many requests a service made of a system so far.
func (p *part) requests(b *bed.Bed, name string) (int64, error) {
	sys, err := b.System(b.Context(), name+"/"+p.server.User)
	if err != nil {
		return 0, err
	}
	return requests(sys.Host)
}

// launch measures jobs that go through all states, and launches alone.
func (p *part) launch(ctx context.Context) (_ *launchFigures, err error) {
	f := &launchFigures{jobs: p.jobs, rounds: p.rounds}
	quiet, err := quietForks(ctx, calibration)
	if err != nil {
		return nil, err
	}
	l, err := p.newLoad()
	if err != nil {
		return nil, err
	}
	logins, err := p.server.Logins()
	if err != nil {
		return nil, err
	}
	b, err := p.openBed(ctx, far, p.server.Port)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var counts map[job.State]int
	var ours, local, ratios, trips, forks []float64
	overSSH := func() error {
		before, err := p.requests(b, far)
		if err != nil {
			return err
		}
		started, err := forked()
		if err != nil {
			return err
		}
		var took time.Duration
		if took, counts, err = l.run(b, far, p.jobs); err != nil {
			return err
		}
		after, err := p.requests(b, far)
		if err != nil {
			return err
		}
		now, err := forked()
		if err != nil {
			return err
		}
		n := float64(p.jobs)
		ours, trips = append(ours, n/took.Seconds()), append(trips, float64(after-before)/n)
		forks = append(forks, (now-started-quiet*took.Seconds())/n)
		return nil
	}
	onLocal := func() error {
		took, all, err := l.run(b, "", p.jobs)
		local, counts = append(local, float64(p.jobs)/took.Seconds()), all
		return err
	}
	for i := range p.rounds {
		for _, run := range inTurns(i, overSSH, onLocal) {
			if err := run(); err != nil {
				return nil, err
			}
		}
		ratios = append(ratios, ours[i]/local[i])
		fmt.Fprintf(p.Progress, "round %d of %d: over ssh %.0f jobs/s, local %.0f\n", i+1, p.rounds, ours[i], local[i])
	}
	f.JobsPerSecond, f.Local, f.RatioLocal = bench.Rounded(bench.Median(ours), 1),
		bench.Rounded(bench.Median(local), 1), bench.Rounded(bench.Median(ratios), 3)
	f.RoundTrips, f.forksPerJob = bench.Rounded(bench.Median(trips), 2), bench.Rounded(bench.Median(forks), 2)
	f.Failed = b.Warm() + l.submitted - counts[job.Finished]
	if f.LaunchedTwice, err = l.twice(); err != nil {
		return nil, err
	}
	now, err := p.server.Logins()
	if err != nil {
		return nil, err
	}
	f.Connections = now - logins
	if err := p.launches(ctx, f, quiet); err != nil {
		return nil, err
	}
	f.Naive, err = p.naiveJobs(ctx, l.input)
	return f, err
}

// inTurns returns what takes turns in a round, in an order that changes: what drifts weighs on all.
func inTurns[T any](round int, what ...T) []T {
	if round%2 == 1 {
		slices.Reverse(what)
	}
	return what
}
