package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/job"
)

type acceptFigures struct {
	Jobs          int     `json:"jobs"`
	Arrays        int     `json:"arrays"`
	JobsPerSecond float64 `json:"jobs_per_second"`
	Loop          float64 `json:"sbatch_loop_per_second"`
	Ratio         float64 `json:"ratio"`
}

// accept measures how fast Slurm gets jobs.
func (p *part) accept(ctx context.Context) (*acceptFigures, error) {
	f := &acceptFigures{Jobs: p.jobs}
	var ours, loop, ratios []float64
	script := filepath.Join(p.dir, "loop.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#SBATCH --output=/dev/null\ntrue\n"), 0o755); err != nil {
		return nil, err
	}
	for i := range p.rounds {
		pawl := func() error {
			rate, err := p.accepted(ctx, fmt.Sprint("round", i), f)
			ours = append(ours, rate)
			return err
		}
		bare := func() error {
			rate, err := p.loopOfSbatch(ctx, script)
			loop = append(loop, rate)
			return err
		}
		for _, run := range inTurns(i, pawl, bare) {
			if err := run(); err != nil {
				return nil, err
			}
		}
		ratios = append(ratios, ours[i]/loop[i])
		fmt.Fprintf(p.Progress, "round %d of %d: %.0f jobs/s, a loop of sbatch %.0f\n", i+1, p.rounds, ours[i], loop[i])
	}
	f.JobsPerSecond, f.Loop, f.Ratio = bench.Rounded(bench.Median(ours), 1), bench.Rounded(bench.Median(loop), 1),
		bench.Rounded(bench.Median(ratios), 2)
	return f, nil
}

// accepted returns how many jobs a second are accepted: from the first intent to the last QUEUED.
func (p *part) accepted(ctx context.Context, name string, f *acceptFigures) (rate float64, err error) {
	b, closing, err := p.ready(ctx, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closing()) }()
	ids, err := submitted(b, p.jobs, job.Queued)
	if err != nil {
		return 0, err
	}
	first, last, err := acceptedBetween(b, ids)
	if err != nil {
		return 0, err
	}
	// Each job or array of Slurm has a name of its own.
	out, err := p.slurm.Do(ctx, "squeue", "-h", "-o", "%j")
	if err != nil {
		return 0, err
	}
	names := map[string]bool{}
	for _, name := range strings.Fields(out) {
		names[name] = true
	}
	f.Arrays = len(names)
	return float64(p.jobs) / last.Sub(first).Seconds(), nil
}

// acceptedBetween returns when the first job was about to be launched, and when the last was
// queued.
func acceptedBetween(b *bed.Bed, ids []job.ID) (first, last time.Time, err error) {
	for _, id := range ids {
		events, err := b.History(b.Context(), id)
		if err != nil {
			return first, last, err
		}
		for _, e := range events {
			if e.Message == job.Launching && (first.IsZero() || e.At.Before(first)) {
				first = e.At
			}
			if e.State == job.Queued {
				if e.At.After(last) {
					last = e.At
				}
				break // what follows tells why it waits
			}
		}
	}
	if first.IsZero() || !last.After(first) {
		err = errors.New("the database does not tell when jobs were launched")
	}
	return first, last, err
}

// loopOfSbatch returns how many calls of sbatch a shell makes a second.
func (p *part) loopOfSbatch(ctx context.Context, script string) (float64, error) {
	if err := p.slurm.Hold(ctx, true); err != nil {
		return 0, err
	}
	const loop = `n=0; while [ $n -lt "$1" ]; do sbatch --parsable "$2" || exit; n=$((n + 1)); done`
	begin := time.Now()
	_, err := p.slurm.Run(ctx, time.Hour, "sh", "-c", loop, "loop", fmt.Sprint(p.loop), script)
	took := time.Since(begin)
	return float64(p.loop) / took.Seconds(), errors.Join(err, p.slurm.Clear(ctx), p.slurm.Hold(ctx, false))
}
