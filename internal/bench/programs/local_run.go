package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
)

type runFigures struct {
	Runs    int       `json:"runs"`
	Seconds float64   `json:"seconds"` // median
	Target  float64   `json:"target_seconds"`
	Each    []float64 `json:"seconds_runs"`
	Shell   float64   `json:"sh_seconds"` // median
}

// Rows implements [bench.Figures].
func (f *runFigures) Rows(row func(name, format string, args ...any)) {
	row("pawl run", "%.3f s for the whole command, median of %d; sh -c true %.4f s; target %.0f s", f.Seconds,
		f.Runs, f.Shell, f.Target)
}

// run measures the command pawl run, each time with a fresh folder.
func (b *localBench) run(ctx context.Context, dir string) (*runFigures, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "true.yaml")
	if err := os.WriteFile(file, []byte("command: [\"true\"]\n"), 0o600); err != nil {
		return nil, err
	}
	f := &runFigures{Runs: b.runs, Target: 1}
	var shell []float64
	for i := range b.runs {
		ours := exec.CommandContext(ctx, self, "run", "--dir", filepath.Join(dir, fmt.Sprint(i)), file)
		ours.Args[0] = "pawl"
		took, err := timed(ours)
		if err != nil {
			return nil, err
		}
		f.Each = append(f.Each, bench.Rounded(took.Seconds(), 4))
		took, err = timed(exec.CommandContext(ctx, "/bin/sh", "-c", "true"))
		if err != nil {
			return nil, err
		}
		shell = append(shell, took.Seconds())
	}
	f.Seconds, f.Shell = bench.Rounded(bench.Median(f.Each), 4), bench.Rounded(bench.Median(shell), 5)
	return f, nil
}

// timed returns how long a command takes, from before its start until its end is known.
func timed(cmd *exec.Cmd) (time.Duration, error) {
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return time.Since(begin), nil
}
