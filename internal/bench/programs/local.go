// Package programs has the benchmarks that run programs: pawl bench local and pawl bench
// local-paper.
package programs

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
)

// localParts are the parts of the benchmark, in the order in which they are measured.
var localParts = []string{"run", "launch", "end", "sleep"}

// LocalCommand makes the command bench local.
func LocalCommand(o *bench.Options) *cobra.Command {
	b := &localBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "local",
		Short: "Measure programs on this machine: launches, ends, and what it costs to watch them",
		Long: `Local measures what happens around programs on this machine. It wires the service as pawl run does.

  run     the whole command pawl run on a job that does nothing, each time with a fresh folder. Beside it: sh -c true.
  launch  jobs that go through all states with one input that is copied and one output that is archived, all submitted
          at once; counted from the submit until the last is FINISHED in the database. The rival is a bare loop: as many
          workers as there are slots in a lane copy the input, run the same program and archive its output durably, with
          Pawl's own copy, and without database, history, or anything that would survive a crash.
  end     programs that end one after another while nothing else goes on: from the time that the program itself tells
          with its last act to when its job is ARCHIVING, committed, and told to whoever follows it. The rival is a
          parent that waits for such a program and notes its end in a file durably.
  sleep   programs that sleep, all watched by this process: what that costs in memory, descriptors and goroutines, how
          soon the end of one is noticed among them, and how long it takes to cancel all. The rival is package os/exec
          with a goroutine that waits for each program, for at most 1000 of them. First the limits of the system are
          compared with what so many programs need; if one of them is too low nothing is started.

peak_rss_mb is VmHWM: the most memory that this process had in RAM from the first of the sleeping programs until all were
canceled, the benchmark included. Sleeping programs read from a pipe that this process holds open, so they end with it,
however it ends.`,
		Example: "  pawl bench local\n  pawl bench local --only launch --jobs 5000\n  pawl bench local --only " +
			"sleep --sleepers 1000 -o json",
	}, b.measure)
	cmd.Flags().StringSliceVar(&b.only, "only", localParts, "parts to measure")
	cmd.Int(&b.runs, "runs", 5, 1, 1000, "run: how often")
	cmd.Int(&b.jobs, "jobs", 1500, 1, 1_000_000, "launch: jobs")
	cmd.Int(&b.slots, "slots", 0, 0, 1000,
		"launch: slots in each lane, and workers of the rival (default: those of pawl run)")
	cmd.Int(&b.ends, "ends", 200, 1, 100_000, "end: programs, one after another")
	cmd.Int(&b.sleepers, "sleepers", 10_000, 1, 1_000_000, "sleep: programs, all at once")
	cmd.Timeout(10 * time.Minute)
	cmd.Profile(&b.profile, "a CPU profile of Pawl's half of the launches")
	cmd.Check(func() error {
		for _, part := range b.only {
			if !slices.Contains(localParts, part) {
				return term.Usagef("--only %s is unknown: give some of %s", part, strings.Join(localParts, ","))
			}
		}
		if o.DB != "" {
			return term.Usage(errors.New(
				"--db: what is measured here is this machine, on an embedded database: leave it out"))
		}
		return nil
	})
	return cmd.Command
}

type localBench struct {
	only                              []string
	runs, jobs, slots, ends, sleepers int
	profile                           string
}

// localFigures are those of the parts that were measured.
type localFigures struct {
	Run    *runFigures    `json:"run,omitempty"`
	Launch *launchFigures `json:"launch,omitempty"`
	End    *endFigures    `json:"end,omitempty"`
	Sleep  *sleepFigures  `json:"sleep,omitempty"`
	bench.Machine
}

// Rows implements [bench.Figures].
func (f *localFigures) Rows(row func(name, format string, args ...any)) {
	if f.Run != nil {
		f.Run.Rows(row)
	}
	if f.Launch != nil {
		f.Launch.Rows(row)
	}
	if f.End != nil {
		f.End.Rows(row)
	}
	if f.Sleep != nil {
		f.Sleep.Rows(row)
	}
}

func (b *localBench) measure(ctx context.Context, m *bench.Measurement) (_ bench.Figures, err error) {
	if slices.Contains(b.only, "sleep") {
		if err := bed.RoomFor(m.Dir).Refuse(b.sleepers, "sleepers"); err != nil {
			return nil, err
		}
	}
	// Programs outlive their service; those of a benchmark must not.
	defer func() { err = errors.Join(err, bed.EndPrograms(m.Dir)) }()
	f := &localFigures{Machine: m.Machine}
	parts := map[string]func(ctx context.Context, m *bench.Measurement, dir string) error{
		"run": func(ctx context.Context, _ *bench.Measurement, dir string) (err error) {
			f.Run, err = b.run(ctx, dir)
			return err
		},
		"launch": func(ctx context.Context, m *bench.Measurement, dir string) (err error) {
			f.Launch, err = b.launch(ctx, m, dir)
			return err
		},
		"end": func(ctx context.Context, m *bench.Measurement, dir string) (err error) {
			f.End, err = b.end(ctx, m, dir)
			return err
		},
		"sleep": func(ctx context.Context, m *bench.Measurement, dir string) (err error) {
			f.Sleep, err = b.sleep(ctx, m, dir)
			return err
		},
	}
	for _, part := range localParts {
		if !slices.Contains(b.only, part) {
			continue
		}
		fmt.Fprintf(m.Progress, "measuring %s\n", part)
		dir := filepath.Join(m.Dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		if err := parts[part](ctx, m, dir); err != nil {
			return nil, err
		}
	}
	return f, nil
}
