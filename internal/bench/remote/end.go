package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/job"
)

type latencyFigures struct {
	RTT           float64 `json:"rtt_ms"`
	JobsPerSecond float64 `json:"jobs_per_second"`

	jobs int
}

// Rows implements [bench.Figures].
func (f *latencyFigures) Rows(row func(name, format string, args ...any)) {
	row("far away", "%.0f jobs/s through all states where a round trip takes %.0f ms longer; %d jobs",
		f.JobsPerSecond, f.RTT, f.jobs)
}

// latency measures jobs that go through all states over a slow connection.
func (p *part) latency(ctx context.Context) (_ *latencyFigures, err error) {
	slow, err := bed.StartDelay(p.server.Addr(), p.rtt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, slow.Close()) }()
	b, err := p.openBed(ctx, far, slow.Port)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	l, err := p.newLoad()
	if err != nil {
		return nil, err
	}
	took, counts, err := l.run(b, far, p.slow)
	if err != nil {
		return nil, err
	}
	if failed := b.Warm() + p.slow - counts[job.Finished]; failed > 0 {
		return nil, fmt.Errorf("%d of the jobs failed: %w", failed, b.Failure())
	}
	return &latencyFigures{
		RTT:           bench.Rounded(float64(p.rtt)/float64(time.Millisecond), 3),
		JobsPerSecond: bench.Rounded(float64(p.slow)/took.Seconds(), 2), jobs: p.slow,
	}, nil
}

type endFigures struct {
	P50   float64 `json:"notice_p50_ms"`
	P99   float64 `json:"notice_p99_ms"`
	Naive float64 `json:"naive_p50_ms"`

	programs, naive int
	poll            time.Duration
}

// Rows implements [bench.Figures].
func (f *endFigures) Rows(row func(name, format string, args ...any)) {
	row("end to ARCHIVING", "p50 %.2f ms, p99 %.2f ms, of %d programs one after another", f.P50, f.P99, f.programs)
	row("naive way", "p50 %.0f ms, of %d programs; it asks each %s", f.Naive, f.naive, f.poll)
}

// end measures how soon ends are noticed.
func (p *part) end(ctx context.Context) (_ *endFigures, err error) {
	b, err := p.openBed(ctx, far, p.server.Port)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var ours []time.Duration
	for i := range p.ends {
		took, err := b.OneEnd(p.dir, fmt.Sprint(i), far)
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
	}
	theirs, err := p.naiveEnds(ctx)
	if err != nil {
		return nil, err
	}
	f := &endFigures{programs: p.ends, naive: len(theirs), poll: p.poll}
	f.P50, f.P99, _ = bench.Spread(ours)
	f.Naive, _, _ = bench.Spread(theirs)
	return f, nil
}
