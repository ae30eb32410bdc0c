// Package slurm has the benchmark of batch jobs of Slurm: pawl bench slurm.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// parts are the parts of the benchmark, in the order in which they are measured.
var parts = []string{"accept", "drain", "end", "queries", "pending"}

// Command makes the command bench slurm.
func Command(o *bench.Options) *cobra.Command {
	b := &slurmBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "slurm",
		Short: "Measure batch jobs of Slurm: how fast it gets them, their ends, and what it costs to watch them",
		Long: fmt.Sprintf(`Slurm starts a private Slurm on the loopback address, with one node that pretends to have %d cores, and
measures what happens around batch jobs there. It needs root, munge and Slurm (Debian: slurm-wlm, munge). Slurm, its jobs
and Pawl share the machine, so ratios of one run and counts tell more than rates do. Nothing asks Slurm but Pawl.

  accept   jobs that ask for the same, submitted at once: from the first intent to launch in the database until the last is
           QUEUED there. Meanwhile the others are staged. arrays is how many submissions that took. Beside it a plain loop
           that calls sbatch for each of --loop jobs, in turns. Slurm accepts all of them and begins none, since the
           partition is down.
  drain    jobs of --seconds: from the submit until the last is FINISHED in the database. Beside it the same programs as one
           plain array, from sbatch until the last program has ended, in turns. ratio is the plain time through ours.
  end      programs that end one after another: from the time that the program itself tells with its last act to when its job
           is ARCHIVING, committed, and told to whoever follows it. file_system is that of the folder with their messages.
  queries  jobs that wait: how often squeue, scontrol and sacct are called meanwhile, in --watch.
  pending  jobs that wait: the most memory that this process has had in RAM (VmHWM) while they were submitted and then
           looked at, the benchmark included.

started_twice counts programs that ran more than once, lost those of FINISHED jobs that did not run, and jobs without an end.`,
			bed.SlurmCores),
		Example: "  pawl bench slurm\n  pawl bench slurm --only accept,drain -o json\n  pawl bench slurm --only queries " +
			"--waiting 100 --watch 1m",
	}, b.measure)
	cmd.Flags().StringSliceVar(&b.only, "only", parts, "parts to measure")
	cmd.Int(&b.rounds, "rounds", 3, 1, 100, "accept and drain: rounds, of all that takes turns")
	cmd.Int(&b.jobs, "jobs", 2000, 1, 100_000, "accept: jobs in each round")
	cmd.Int(&b.loop, "loop", 200, 1, 100_000, "accept: calls of sbatch in the plain loop of each round")
	cmd.Int(&b.drained, "drain", 300, 1, 10_000, "drain: jobs in each round")
	cmd.Int(&b.seconds, "seconds", 1, 1, 3600, "drain: how long each of them takes")
	cmd.Int(&b.ends, "ends", 50, 1, 100_000, "end: programs, one after another")
	cmd.Int(&b.waiting, "waiting", 1000, 1, 100_000, "queries: jobs")
	term.DurationVar(cmd.Command, &b.watch, "watch", 5*time.Minute, "queries: for how long calls are counted")
	cmd.Int(&b.pending, "pending", 10_000, 1, 100_000, "pending: jobs")
	cmd.Timeout(time.Hour)
	cmd.Check(func() error { return b.check(o) })
	return cmd.Command
}

type slurmBench struct {
	only                                                         []string
	rounds, jobs, loop, drained, seconds, ends, waiting, pending int
	watch                                                        time.Duration
}

func (b *slurmBench) check(o *bench.Options) error {
	for _, part := range b.only {
		if !slices.Contains(parts, part) {
			return term.Usagef("--only %s is unknown: give some of %s", part, strings.Join(parts, ","))
		}
	}
	if b.watch <= 0 || b.watch > time.Hour {
		return term.Usagef("--watch %s is out of range: give a time up to 1h", b.watch)
	}
	if o.DB != "" {
		return term.Usage(errors.New("--db: what is measured here is Slurm, beside an embedded database: leave it out"))
	}
	return nil
}

// figures are those of the parts that were measured.
type figures struct {
	Accept  *acceptFigures  `json:"accept,omitempty"`
	Drain   *drainFigures   `json:"drain,omitempty"`
	End     *endFigures     `json:"end,omitempty"`
	Queries *queryFigures   `json:"queries,omitempty"`
	Pending *pendingFigures `json:"pending,omitempty"`
	Twice   int             `json:"started_twice"`
	Lost    int             `json:"lost"`
	bench.Machine
}

// Rows implements [bench.Figures].
func (f *figures) Rows(row func(name, format string, args ...any)) {
	if a := f.Accept; a != nil {
		row("accepted", "%.0f jobs/s, %d jobs in %d submissions; a loop of sbatch %.0f/s, ratio %.1f", a.JobsPerSecond, a.Jobs,
			a.Arrays, a.Loop, a.Ratio)
	}
	if d := f.Drain; d != nil {
		row("drained", "%d jobs in %.2f s; as one plain array %.2f s, ratio %.2f", d.Jobs, d.Makespan, d.Plain, d.Ratio)
	}
	if e := f.End; e != nil {
		row("end to ARCHIVING", "p50 %.2f ms, p99 %.2f ms, of %d programs one after another, on %s", e.P50, e.P99, e.programs,
			e.FileSystem)
	}
	if q := f.Queries; q != nil {
		row("queries", "%.2f a minute while %d jobs wait: squeue %d, scontrol %d, sacct %d in %.1f minutes", q.PerMinute,
			q.Waiting, q.Squeue, q.Scontrol, q.Sacct, q.Minutes)
	}
	if p := f.Pending; p != nil {
		row("pending", "%.1f MB at most for %d jobs that wait", p.Peak, p.Jobs)
	}
	row("promises", "%d programs started twice, %d lost", f.Twice, f.Lost)
}

// A part is what each part of the benchmark has.
type part struct {
	*slurmBench
	*bench.Measurement
	dir   string // its own
	slurm *bed.Slurm
	all   *figures
}

func (b *slurmBench) measure(ctx context.Context, m *bench.Measurement) (_ bench.Figures, err error) {
	server, err := bed.StartSlurm(ctx, filepath.Join(m.Dir, "slurm"))
	if err != nil {
		return nil, err
	}
	// Programs outlive their service; those of a benchmark must not.
	defer func() { err = errors.Join(err, server.Close(), bed.EndPrograms(m.Dir)) }()
	f := &figures{Machine: m.Machine}
	run := map[string]func(context.Context, *part) error{
		"accept":  func(ctx context.Context, p *part) (err error) { f.Accept, err = p.accept(ctx); return err },
		"drain":   func(ctx context.Context, p *part) (err error) { f.Drain, err = p.drain(ctx); return err },
		"end":     func(ctx context.Context, p *part) (err error) { f.End, err = p.end(ctx); return err },
		"queries": func(ctx context.Context, p *part) (err error) { f.Queries, err = p.queries(ctx); return err },
		"pending": func(ctx context.Context, p *part) (err error) { f.Pending, err = p.wait(ctx); return err },
	}
	for _, name := range parts {
		if !slices.Contains(b.only, name) {
			continue
		}
		fmt.Fprintf(m.Progress, "measuring %s\n", name)
		p := &part{slurmBench: b, Measurement: m, dir: filepath.Join(m.Dir, name), slurm: server, all: f}
		if err := os.Mkdir(p.dir, 0o755); err != nil {
			return nil, err
		}
		err := run[name](ctx, p)
		if err = errors.Join(err, bed.EndPrograms(p.dir), os.RemoveAll(p.dir)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return f, nil
}

// cluster is the name of the system.
const cluster = "cluster"

// openBed starts a service with a system of the private Slurm.
func (p *part) openBed(ctx context.Context, name string) (*bed.Bed, error) {
	b, err := bed.Open(ctx, p.data(name), node.Options{Logger: p.Log})
	if err != nil {
		return nil, err
	}
	if err := b.AddSystem(p.slurm.System(cluster, filepath.Join(p.dir, name, "work"))); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (p *part) data(name string) string { return filepath.Join(p.dir, name, "pawl") }

// ready is openBed with a partition that is down: jobs are accepted and wait. close cancels them.
func (p *part) ready(ctx context.Context, name string) (_ *bed.Bed, close func() error, err error) {
	b, err := p.openBed(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if err := p.slurm.Hold(ctx, true); err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, func() error {
		return errors.Join(b.Close(), p.slurm.Clear(ctx), p.slurm.Hold(ctx, false))
	}, nil
}

// submitted submits n jobs that ask for the same, and waits until all are in a state.
func submitted(b *bed.Bed, n int, state job.State) ([]job.ID, error) {
	ids, err := b.SubmitAll(n, func(int) job.Spec {
		return job.Spec{System: cluster, Command: []string{"true"}, Resources: &job.Resources{Cores: 1, Minutes: 24 * 60}}
	})
	if err == nil {
		_, err = b.Counted(func(counts map[job.State]int) bool { return counts[state] == n })
	}
	return ids, err
}

// inTurns returns what takes turns in a round, in an order that changes: what drifts weighs on all.
func inTurns(round int, what ...func() error) []func() error {
	if round%2 == 1 {
		slices.Reverse(what)
	}
	return what
}
