package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/job"
)

type drainFigures struct {
	Jobs     int     `json:"jobs"`
	Makespan float64 `json:"makespan_seconds"`
	Plain    float64 `json:"plain_makespan_seconds"`
	Ratio    float64 `json:"ratio"`
}

// program sleeps, and tells that it has run. It gets the time in seconds, its name and the ledger.
const program = `sleep "$1"; echo "$2" >>"$3"`

// drain measures how long many jobs take together.
func (p *part) drain(ctx context.Context) (_ *drainFigures, err error) {
	b, err := p.openBed(ctx, "drain")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	f := &drainFigures{Jobs: p.drained}
	var ours, plain, ratios []float64
	ledger := filepath.Join(p.dir, "ledger")
	finished := 0
	for i := range p.rounds {
		pawl := func() error {
			begin := time.Now()
			if _, err := b.SubmitAll(p.drained, func(n int) job.Spec {
				return job.Spec{
					System: cluster, Resources: &job.Resources{Cores: 1, Minutes: 60},
					Command: []string{"sh", "-c", program, "job", fmt.Sprint(p.seconds), fmt.Sprint(i, ".", n), ledger},
				}
			}); err != nil {
				return err
			}
			end, counts, err := b.AllEnded(begin.Add(time.Hour))
			ours = append(ours, end.Sub(begin).Seconds())
			finished = counts[job.Finished] - b.Warm()
			return err
		}
		bare := func() error {
			took, err := p.plainArray(ctx, fmt.Sprint("plain", i))
			plain = append(plain, took.Seconds())
			return err
		}
		for _, run := range inTurns(i, pawl, bare) {
			if err := run(); err != nil {
				return nil, err
			}
		}
		ratios = append(ratios, plain[i]/ours[i])
		fmt.Fprintf(p.Progress, "round %d of %d: %.2f s, as a plain array %.2f s\n", i+1, p.rounds, ours[i], plain[i])
	}
	f.Makespan, f.Plain, f.Ratio = bench.Rounded(bench.Median(ours), 3), bench.Rounded(bench.Median(plain), 3),
		bench.Rounded(bench.Median(ratios), 3)
	ran, err := bed.Launches(ledger)
	for _, times := range ran {
		if times > 1 {
			p.all.Twice++
		}
	}
	p.all.Lost += p.rounds*p.drained - min(finished, len(ran))
	return f, err
}

// plainArray runs the same programs as one array, and returns how long that took until the last has
// ended.
func (p *part) plainArray(ctx context.Context, name string) (time.Duration, error) {
	script, ledger := filepath.Join(p.dir, name), filepath.Join(p.dir, name+".ends")
	text := fmt.Sprintf("#!/bin/sh\n#SBATCH --output=/dev/null\n#SBATCH --cpus-per-task=1\n#SBATCH --time=60\n"+
		"sh -c %s job %d $SLURM_ARRAY_TASK_ID %s\n", quote(program), p.seconds, quote(ledger))
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return 0, err
	}
	begin := time.Now()
	if _, err := p.slurm.Do(ctx, "sbatch", fmt.Sprintf("--array=0-%d", p.drained-1), script); err != nil {
		return 0, err
	}
	for {
		ran, err := bed.Launches(ledger)
		if err != nil {
			return 0, err
		}
		took := time.Since(begin)
		if len(ran) == p.drained {
			return took, p.slurm.Clear(ctx)
		}
		if err := bench.Wait(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
