package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/job"
)

type endFigures struct {
	P50        float64 `json:"notice_p50_ms"`
	P99        float64 `json:"notice_p99_ms"`
	FileSystem string  `json:"file_system"`

	programs int
}

// end measures how soon ends are noticed.
func (p *part) end(ctx context.Context) (_ *endFigures, err error) {
	b, err := p.openBed(ctx, "end")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var all []time.Duration
	for i := range p.ends {
		took, err := b.OneEnd(p.dir, fmt.Sprint(i), cluster)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	f := &endFigures{programs: p.ends, FileSystem: p.Machine.FileSystem}
	f.P50, f.P99, _ = bench.Spread(all)
	return f, nil
}

type queryFigures struct {
	Waiting   int     `json:"waiting"`
	Minutes   float64 `json:"minutes"`
	Squeue    int     `json:"squeue"`
	Scontrol  int     `json:"scontrol"`
	Sacct     int     `json:"sacct"`
	PerMinute float64 `json:"per_minute"`
}

// settle is how long after the last launch it is still looked at.
const settle = 15 * time.Second

// queries measures how often Slurm is asked while jobs wait.
func (p *part) queries(ctx context.Context) (_ *queryFigures, err error) {
	b, closing, err := p.ready(ctx, "queries")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closing()) }()
	if _, err := submitted(b, p.waiting, job.Queued); err != nil {
		return nil, err
	}
	if err := bench.Wait(b.Context(), min(settle, p.watch)); err != nil {
		return nil, err
	}
	f := &queryFigures{Waiting: p.waiting, Minutes: bench.Rounded(p.watch.Minutes(), 2)}
	asked := map[string]*int{"squeue": &f.Squeue, "scontrol": &f.Scontrol, "sacct": &f.Sacct}
	count := func(sign int) (errs error) {
		for name, n := range asked {
			calls, err := p.slurm.Queries(name)
			*n, errs = *n+sign*calls, errors.Join(errs, err)
		}
		return errs
	}
	if err := errors.Join(count(-1), bench.Wait(b.Context(), p.watch), count(1)); err != nil {
		return nil, err
	}
	f.PerMinute = bench.Rounded(float64(f.Squeue+f.Scontrol+f.Sacct)/p.watch.Minutes(), 2)
	return f, nil
}

type pendingFigures struct {
	Jobs int     `json:"jobs"`
	Peak float64 `json:"peak_rss_mb"` // VmHWM
}

// wait measures the memory that jobs take that wait.
func (p *part) wait(ctx context.Context) (_ *pendingFigures, err error) {
	b, closing, err := p.ready(ctx, "pending")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closing()) }()
	_ = bed.OwnFootprint() // gives back what is garbage
	if err := bed.ForgetPeak(); err != nil {
		return nil, err
	}
	if _, err := submitted(b, p.pending, job.Queued); err != nil {
		return nil, err
	}
	begun, err := p.slurm.Queries("squeue")
	for now := begun; err == nil && now < begun+2; now, err = p.slurm.Queries("squeue") { // an answer about all of them
		if err := bench.Wait(b.Context(), 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return &pendingFigures{Jobs: p.pending, Peak: bed.PeakMB()}, err
}

// quote makes a word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
