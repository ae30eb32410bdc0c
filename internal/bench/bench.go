// Package bench is the command pawl bench. It measures throughput, latency, idle cost and the API
// of a service on this machine, beside bare SQL that writes the same rows.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Command makes the command bench, with the benchmarks of this package and those that are handed
// in.
func Command(more ...func(*Options) *cobra.Command) *cobra.Command {
	o := &Options{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what this build does on this machine",
		Long: `Bench measures the service as who uses it would see it: jobs are submitted and run, tasks by a registered handler and
programs as pawl run does it, on a fresh folder that is removed at the end, and nothing is turned off for the
measurement. Each command prints its figures and the machine they were taken on.

The jobs are in the folder's own database. With --db those of all but local, ssh and slurm are in a PostgreSQL
database of yours, in a fresh schema, which is removed too.`,
		Example: "  pawl bench tasks\n  pawl bench tasks --dir /mnt/disk -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.dir, "dir", "",
		"folder, on the disk to be measured, to make the temporary one in (default: that of the system)")
	cmd.PersistentFlags().StringVar(&o.DB, "db", "", "measure on this PostgreSQL instead of an embedded "+
		"database, as postgres://user:password@host/database; in a schema of its own, which is removed")
	cmd.PersistentFlags().StringVarP(&o.output, "output", "o", "text",
		"text, or json: one object whose keys name figure and unit")
	cmd.AddCommand(tasksCommand(o), gateCommand(o), latencyCommand(o), idleCommand(o), apiCommand(o))
	for _, command := range more {
		cmd.AddCommand(command(o))
	}
	return cmd
}

// Options are those that all benchmarks have.
type Options struct {
	dir    string
	DB     string
	output string
}

// Figures are what a benchmark found. As JSON they are one object.
type Figures interface {
	// Rows calls row for each line that people read.
	Rows(row func(name, format string, args ...any))
}

// A Measurement is one run of a benchmark: a folder of its own, and where to say how it goes.
type Measurement struct {
	Dir      string
	DB       string // PostgreSQL; empty: an embedded database in a folder
	Machine  Machine
	Progress io.Writer
	Log      *slog.Logger
}

// errTime ends a benchmark that takes too long.
var errTime = errors.New("the benchmark took too long")

// measure calls f with a folder that is removed afterwards, whatever happens, and prints what f
// found. It gives up after limit.
func (o *Options) measure(cmd *cobra.Command, limit time.Duration,
	f func(context.Context, *Measurement) (Figures, error),
) (err error) {
	if o.output != "text" && o.output != "json" {
		return term.Usagef("--output %q is unknown: give text or json", o.output)
	}
	if o.dir != "" {
		if info, err := os.Stat(o.dir); err != nil || !info.IsDir() {
			return term.Usagef("--dir %s is not a folder: make it, or name another", o.dir)
		}
	}
	dir, err := os.MkdirTemp(o.dir, "pawl-bench-")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	remove := sync.OnceValue(func() error { return os.RemoveAll(dir) })
	defer func() {
		if removeErr := remove(); err == nil {
			err = removeErr
		}
	}()

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("%w: gave up after %s", errTime, limit))
	defer cancel()
	m := &Measurement{Dir: dir, DB: o.DB, Machine: thisMachine(dir), Progress: io.Discard}
	m.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if o.output == "text" {
		m.Progress = cmd.ErrOrStderr()
	}
	found, err := f(ctx, m)
	switch {
	case cmd.Context().Err() != nil:
		return errors.New("the benchmark was stopped before its end; its folder is removed")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	if err := remove(); err != nil { // before anything is printed: a reader that is gone ends this process
		return err
	}
	if o.output == "json" {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(found)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	found.Rows(row)
	m.Machine.Rows(row)
	return w.Flush()
}

// A bed is a service on a fresh database.
type bed struct {
	*service.Service
	// ctx ends when the service does.
	ctx    context.Context
	schema string // in the database that is measured, where that is PostgreSQL
	data   *node.Database
	cancel context.CancelCauseFunc
	ended  chan error // nil: it was never started
	warm   job.ID
	remove func() error
}

// openBed starts a service with the handlers that register adds, and waits until it has run a job
// of its own. Its database is in dir, unless another one is measured. cfg needs neither store nor
// broker.
func (m *Measurement) openBed(ctx context.Context, dir string, cfg service.Config, register func(*service.Service)) (*bed,
	error,
) {
	b, err := m.makeBed(ctx, dir, cfg, register)
	if err != nil {
		return nil, err
	}
	b.start()
	if _, err := b.Wait(b.ctx, b.warm); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// withSlots configures a service that runs so many tasks at once.
func withSlots(n int) service.Config {
	return service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: n}}}
}

// makeBed makes a service that does not run yet, with one job that it will run first.
func (m *Measurement) makeBed(ctx context.Context, dir string, cfg service.Config,
	register func(*service.Service),
) (_ *bed, err error) {
	b := &bed{}
	if err := b.open(ctx, m, dir); err != nil {
		return nil, err
	}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	cfg.Store, cfg.Broker, cfg.Log = b.data.Store, b.data.Bus, m.Log
	b.Service = service.New(cfg)
	service.Handle(b.Service, "warm", func(context.Context, *service.Task[struct{}]) (struct{}, error) {
		return struct{}{}, nil
	})
	register(b.Service)
	warm, err := b.Submit(b.ctx, service.Request{Spec: service.NewTask("warm", struct{}{})})
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.warm = warm[0].ID
	return b, nil
}

// open opens store and broker.
func (b *bed) open(ctx context.Context, m *Measurement, dir string) error {
	b.remove = func() error { return nil }
	if m.DB != "" {
		var err error
		if b.schema, b.remove, err = m.Schema(ctx); err != nil {
			return err
		}
	}
	d, err := node.OpenDatabase(ctx, node.DatabaseConfig{Dir: dir, DSN: m.DB, Schema: b.schema, Log: m.Log})
	if err != nil {
		return errors.Join(err, b.remove())
	}
	b.data = d
	return nil
}

// Schema makes a schema of its own in the database that is measured. remove takes it away, also
// after ctx has ended.
func (m *Measurement) Schema(ctx context.Context) (name string, remove func() error, err error) {
	name = "pawl_bench_" + job.NewID().Short()
	migrator, err := node.OpenMigrator(m.DB, name)
	if err != nil {
		return "", nil, err
	}
	remove = func() error {
		return errors.Join(migrator.Drop(context.WithoutCancel(ctx)), migrator.Close())
	}
	if err := migrator.Up(ctx); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return name, remove, nil
}

// start runs the service.
func (b *bed) start() {
	b.ended = make(chan error, 1)
	go func() {
		err := b.Run(b.ctx)
		if err == nil {
			err = b.ctx.Err()
		}
		b.cancel(err) // whoever waits for the service hears that it is gone
		b.ended <- err
	}()
}

// submitAll submits jobs, batch of them with each call. spec returns that of the nth.
func (b *bed) submitAll(jobs, batch int, spec func(n int) job.Spec) error {
	for from := 0; from < jobs; from += batch {
		reqs := make([]service.Request, min(batch, jobs-from))
		for i := range reqs {
			reqs[i].Spec = spec(from + i)
		}
		if _, err := b.Submit(b.ctx, reqs...); err != nil {
			return err
		}
	}
	return nil
}

// WarmJobs is how many jobs are in the folder of a bed before anything is measured.
const WarmJobs = 1

// unfinished chooses the jobs of a benchmark that have not ended as they should.
var unfinished = job.Filter{{Field: "state", Op: job.Is, Values: []string{
	string(job.Waiting), string(job.Pending), string(job.Running), string(job.Failed), string(job.Canceled),
}}}

// finished waits until n jobs of the benchmark are FINISHED in the database, and returns the moment
// at which the question that found nothing else was asked. It asks again when there is news, and
// not before.
func (b *bed) finished(n int) (time.Time, error) {
	news, err := b.data.Bus.Subscribe(b.ctx, engine.NewsTopic)
	if err != nil {
		return time.Time{}, err
	}
	defer news.Close()
	for {
		asked := time.Now()
		left, err := b.Count(b.ctx, unfinished)
		switch {
		case err != nil:
			return asked, err
		case left.States[job.Failed]+left.States[job.Canceled] > 0:
			return asked, fmt.Errorf("%d of the jobs of the benchmark failed",
				left.States[job.Failed]+left.States[job.Canceled])
		case len(left.States) == 0:
			all, err := b.Count(b.ctx, nil)
			if done := all.States[job.Finished]; err == nil && done != n+WarmJobs {
				err = fmt.Errorf("%d jobs of the benchmark are FINISHED, of %d", done, n+WarmJobs)
			}
			return asked, err
		}
		select {
		case <-news.Messages():
		case <-news.Lost():
		case <-b.ctx.Done():
			return asked, context.Cause(b.ctx)
		}
	}
}

// close stops the service in good order.
func (b *bed) close() error {
	b.cancel(nil)
	var err error
	if b.ended != nil {
		err = <-b.ended
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, b.data.Close(), b.remove())
}

// Rounded cuts digits that mean nothing.
func Rounded(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// Median is the value in the middle.
func Median(vs []float64) float64 {
	s := slices.Sorted(slices.Values(vs))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
