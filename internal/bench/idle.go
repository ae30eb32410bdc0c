package bench

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/service"
)

func idleCommand(o *Options) *cobra.Command {
	b := &idleBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "idle",
		Short: "Measure what a service costs that has nothing to do",
		Long: `Idle lets a service run one task, and then counts what it does while there is nothing to do: statements that reach
the database, memory, goroutines.

What is expected: a renewal of the lease three times in its length, one statement each, and once a minute the sweep, two
statements. A benchmark shorter than a minute may see no sweep.`,
		Example: "  pawl bench idle --seconds 120 --lease 30s",
	}, b.measure)
	cmd.Int(&b.seconds, "seconds", 30, 1, 3600, "for how long")
	term.DurationVar(cmd.Command, &b.lease, "lease", 15*time.Second,
		"how long the service's lease outlives its last renewal")
	cmd.Check(func() error {
		if b.lease < time.Second || b.lease > time.Hour {
			return term.Usagef("--lease %s is out of range: give 1s to 1h", b.lease)
		}
		return nil
	})
	cmd.limit = func() time.Duration { return time.Duration(b.seconds)*time.Second + time.Minute }
	return cmd.Command
}

type idleBench struct {
	seconds int
	lease   time.Duration
}

type idleFigures struct {
	Seconds int     `json:"seconds"`
	Lease   float64 `json:"lease_seconds"`

	Statements int64   `json:"statements"`
	PerMinute  float64 `json:"statements_per_minute_idle"`
	Expected   float64 `json:"renewals_per_minute_expected"`
	RSS        float64 `json:"rss_mb"`
	Goroutines int     `json:"goroutines"`
	Machine
}

// Rows implements [Figures].
func (f *idleFigures) Rows(row func(name, format string, args ...any)) {
	row("database", "%.1f statements a minute; %.1f renewals a minute expected", f.PerMinute, f.Expected)
	row("memory", "%.1f MB resident, %d goroutines", f.RSS, f.Goroutines)
	row("load", "none for %d s, lease %.0f s", f.Seconds, f.Lease)
}

// settle is how long after its last job a service is taken to be idle.
const settle = 300 * time.Millisecond

func (b *idleBench) measure(ctx context.Context, m *Measurement) (_ Figures, err error) {
	svc, err := m.openBed(ctx, m.Dir, service.Config{Options: engine.Options{Lease: b.lease}}, func(*service.Service) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.close()) }()
	if err := Wait(svc.ctx, settle); err != nil {
		return nil, err
	}
	before := svc.data.Store.Statements()
	if err := Wait(svc.ctx, time.Duration(b.seconds)*time.Second); err != nil {
		return nil, err
	}
	n := svc.data.Store.Statements() - before
	return &idleFigures{
		Seconds: b.seconds, Lease: b.lease.Seconds(),
		Statements: n, PerMinute: Rounded(float64(n)*60/float64(b.seconds), 2),
		Expected: Rounded(float64(3*time.Minute)/float64(b.lease), 2),
		RSS:      ResidentMB(), Goroutines: runtime.NumGoroutine(), Machine: m.Machine,
	}, nil
}

// Wait lets time pass.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
