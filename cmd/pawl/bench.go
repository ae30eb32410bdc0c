package main

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

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func benchCommand() *cobra.Command {
	o := &benchOptions{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput, latency, idle cost and programs on this machine",
		Long: `Bench measures the embedded service as who uses it would see it: jobs are submitted and run, tasks by a registered
handler and programs as pawl run does it, on a fresh folder that is removed at the end, and nothing is turned off for
the measurement. Each command prints its figures and the machine they were taken on.`,
		Example: "  pawl bench tasks\n  pawl bench tasks --dir /mnt/disk -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.dir, "dir", "", "folder, on the disk to be measured, to make the temporary one in (default: that of the system)")
	cmd.PersistentFlags().StringVarP(&o.output, "output", "o", "text", "text, or json: one object whose keys name figure and unit")
	cmd.AddCommand(benchTasksCommand(o), benchLatencyCommand(o), benchIdleCommand(o), benchLocalCommand(o), benchAPICommand(o))
	return cmd
}

// benchOptions are those that all benchmarks have.
type benchOptions struct {
	dir    string
	output string
}

// figures are what a benchmark found. As JSON they are one object.
type figures interface {
	// rows calls row for each line that people read.
	rows(row func(name, format string, args ...any))
}

// A measurement is one run of a benchmark: a folder of its own, and where to say how it goes.
type measurement struct {
	dir      string
	machine  machine
	progress io.Writer
	log      *slog.Logger
}

// errBenchTime ends a benchmark that takes too long.
var errBenchTime = errors.New("the benchmark took too long")

// measure calls f with a folder that is removed afterwards, whatever happens, and prints what f found. It gives up
// after limit.
func (o *benchOptions) measure(cmd *cobra.Command, limit time.Duration, f func(context.Context, *measurement) (figures, error)) (err error) {
	if o.output != "text" && o.output != "json" {
		return &usageError{fmt.Errorf("--output %q is unknown: give text or json", o.output)}
	}
	if o.dir != "" {
		if info, err := os.Stat(o.dir); err != nil || !info.IsDir() {
			return &usageError{fmt.Errorf("--dir %s is not a folder: make it, or name another", o.dir)}
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

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("%w: gave up after %s", errBenchTime, limit))
	defer cancel()
	m := &measurement{dir: dir, machine: thisMachine(dir), progress: io.Discard}
	m.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if o.output == "text" {
		m.progress = cmd.ErrOrStderr()
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
	found.rows(row)
	m.machine.rows(row)
	return w.Flush()
}

// A bed is a service that runs on a fresh folder.
type bed struct {
	*pawl.Service
	// ctx ends when the service does.
	ctx    context.Context
	store  *sqlite.Store
	bus    *local.Broker
	cancel context.CancelCauseFunc
	ended  chan error
}

// openBed starts a service in dir with the handlers that register adds, and waits until it has run a job of its own.
// cfg needs neither store nor broker.
func (m *measurement) openBed(ctx context.Context, dir string, cfg pawl.Config, register func(*pawl.Service)) (_ *bed, err error) {
	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	b := &bed{store: st, bus: &local.Broker{}, ended: make(chan error, 1)}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	cfg.Store, cfg.Broker, cfg.Log = st, b.bus, m.log
	b.Service = pawl.New(cfg)
	pawl.Handle(b.Service, "warm", func(context.Context, *pawl.Task[struct{}]) (struct{}, error) { return struct{}{}, nil })
	register(b.Service)
	go func() {
		err := b.Run(b.ctx)
		if err == nil {
			err = b.ctx.Err()
		}
		b.cancel(err) // whoever waits for the service hears that it is gone
		b.ended <- err
	}()
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	warm, err := b.Submit(b.ctx, pawl.Request{Spec: pawl.NewTask("warm", struct{}{})})
	if err != nil {
		return nil, err
	}
	_, err = b.Wait(b.ctx, warm[0].ID)
	return b, err
}

// warmJobs is how many jobs are in the folder of a bed before anything is measured.
const warmJobs = 1

// finished waits until n jobs of the benchmark are FINISHED in the database, and returns the moment at which the
// question that found them so was asked. It asks again when there is news, and not before.
func (b *bed) finished(n int) (time.Time, error) {
	news, err := b.bus.Subscribe(b.ctx, engine.NewsTopic)
	if err != nil {
		return time.Time{}, err
	}
	defer news.Close()
	for {
		asked := time.Now()
		count, err := b.Count(b.ctx, nil)
		if err != nil {
			return asked, err
		}
		counts := count.States
		if lost := counts[job.Failed] + counts[job.Canceled]; lost > 0 {
			return asked, fmt.Errorf("%d of the jobs of the benchmark failed", lost)
		}
		if counts[job.Finished] == n+warmJobs {
			return asked, nil
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
	err := <-b.ended
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, b.store.Close())
}

// checkRange is a usage error unless low <= value <= high.
func checkRange(flag string, value, low, high int) error {
	if value < low || value > high {
		return &usageError{fmt.Errorf("--%s %d is out of range: give %d to %d", flag, value, low, high)}
	}
	return nil
}

// rounded cuts digits that mean nothing.
func rounded(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

func median(vs []float64) float64 {
	s := slices.Sorted(slices.Values(vs))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
