package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/service"
)

func latencyCommand(o *Options) *cobra.Command {
	b := &latencyBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "latency",
		Short: "Measure how long after its submission a task starts on an idle service",
		Long: `Latency submits single tasks at a steady rate to a service that has nothing else to do, and notes when the handler of
each is called. A task is submitted at its time whether or not those before it have started.

p50_ms, p99_ms and max_ms count from the call of submit to the handler: two commits, one of the submission and one of
the claim. after_submit_* count from when submit has answered, so without the submission's own commit; 0 where the
handler was called before that. submit_* are the call of submit alone.`,
		Example: "  pawl bench latency --rate 200 --seconds 30",
	}, b.measure)
	cmd.Int(&b.rate, "rate", 100, 1, 5000, "tasks per second")
	cmd.Int(&b.seconds, "seconds", 10, 1, 600, "for how long")
	cmd.limit = func() time.Duration { return time.Duration(b.seconds)*time.Second + time.Minute }
	return cmd.Command
}

type latencyBench struct{ rate, seconds int }

type latencyFigures struct {
	Jobs    int `json:"jobs"`
	Rate    int `json:"rate_per_second"`
	Seconds int `json:"seconds"`

	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`

	AfterP50 float64 `json:"after_submit_p50_ms"`
	AfterP99 float64 `json:"after_submit_p99_ms"`
	AfterMax float64 `json:"after_submit_max_ms"`

	SubmitP50 float64 `json:"submit_p50_ms"`
	SubmitP99 float64 `json:"submit_p99_ms"`
	SubmitMax float64 `json:"submit_max_ms"`

	RSS float64 `json:"rss_mb"`
	Machine
}

// Rows implements [Figures].
func (f *latencyFigures) Rows(row func(name, format string, args ...any)) {
	const format = "p50 %.2f ms, p99 %.2f ms, max %.2f ms"
	row("submit to start", format, f.P50, f.P99, f.Max)
	row("submit answered to start", format, f.AfterP50, f.AfterP99, f.AfterMax)
	row("submit alone", format, f.SubmitP50, f.SubmitP99, f.SubmitMax)
	row("load", "%d tasks, %d a second for %d s", f.Jobs, f.Rate, f.Seconds)
}

// A probe is one task, in time since the benchmark began.
type probe struct {
	called, answered time.Duration
	started          atomic.Int64 // nanoseconds; 0: not yet
}

func (b *latencyBench) measure(ctx context.Context, m *Measurement) (_ Figures, err error) {
	probes := make([]probe, b.rate*b.seconds)
	var begin time.Time
	var started sync.WaitGroup
	started.Add(len(probes))
	svc, err := m.openBed(ctx, m.Dir, service.Config{}, func(s *service.Service) {
		service.Handle(s, "probe", func(_ context.Context, t *service.Task[int]) (struct{}, error) {
			if probes[t.Args].started.CompareAndSwap(0, int64(time.Since(begin))) {
				started.Done()
			}
			return struct{}{}, nil
		})
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.close()) }()

	begin = time.Now()
	var submits sync.WaitGroup
	defer submits.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range probes {
		timer.Reset(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(b.rate))))
		select {
		case <-timer.C:
		case <-svc.ctx.Done():
			return nil, context.Cause(svc.ctx)
		}
		submits.Go(func() {
			p := &probes[i]
			req := service.Request{Spec: service.NewTask("probe", i)}
			p.called = time.Since(begin)
			if _, err := svc.Submit(svc.ctx, req); err != nil {
				svc.cancel(err)
			}
			p.answered = time.Since(begin)
		})
	}
	submits.Wait()
	all := make(chan struct{})
	go func() {
		started.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-svc.ctx.Done():
		return nil, context.Cause(svc.ctx)
	}

	var whole, after, submit []time.Duration
	for i := range probes {
		p := &probes[i]
		at := time.Duration(p.started.Load())
		whole = append(whole, at-p.called)
		after = append(after, max(0, at-p.answered))
		submit = append(submit, p.answered-p.called)
	}
	f := &latencyFigures{Jobs: len(probes), Rate: b.rate, Seconds: b.seconds, RSS: ResidentMB(), Machine: m.Machine}
	f.P50, f.P99, f.Max = Spread(whole)
	f.AfterP50, f.AfterP99, f.AfterMax = Spread(after)
	f.SubmitP50, f.SubmitP99, f.SubmitMax = Spread(submit)
	return f, nil
}

// Spread returns the median, the 99th percentile (nearest rank) and the maximum, in milliseconds.
func Spread(ds []time.Duration) (p50, p99, longest float64) {
	slices.Sort(ds)
	rank := func(percent int) float64 {
		d := ds[(len(ds)*percent+99)/100-1]
		return Rounded(float64(d)/float64(time.Millisecond), 3)
	}
	return rank(50), rank(99), rank(100)
}
