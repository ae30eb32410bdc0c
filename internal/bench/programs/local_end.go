package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
)

type endFigures struct {
	Programs int `json:"programs"`

	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
	Target float64 `json:"target_p99_ms"`

	BareP50 float64 `json:"bare_p50_ms"`
	BareP99 float64 `json:"bare_p99_ms"`
	BareMax float64 `json:"bare_max_ms"`
}

// Rows implements [bench.Figures].
func (f *endFigures) Rows(row func(name, format string, args ...any)) {
	row("end to ARCHIVING", "p50 %.2f ms, p99 %.2f ms, max %.2f ms; target p99 %.0f ms", f.P50, f.P99, f.Max, f.Target)
	row("bare wait", "p50 %.2f ms, p99 %.2f ms, max %.2f ms, until a durable line in a file", f.BareP50, f.BareP99,
		f.BareMax)
	row("end load", "%d programs, one after another", f.Programs)
}

// end measures how soon ends are noticed.
func (b *localBench) end(ctx context.Context, _ *bench.Measurement, dir string) (_ *endFigures, err error) {
	p, err := bed.Open(ctx, filepath.Join(dir, "pawl"), node.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	lines, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return nil, err
	}
	defer lines.Close()
	var ours, theirs []time.Duration
	for i := range b.ends {
		took, err := p.OneEnd(dir, fmt.Sprint(i), "")
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
		took, err = bareEnd(ctx, lines, dir, fmt.Sprint("bare-", i))
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, took)
	}
	f := &endFigures{Programs: b.ends, Target: 10}
	f.P50, f.P99, f.Max = bench.Spread(ours)
	f.BareP50, f.BareP99, f.BareMax = bench.Spread(theirs)
	return f, nil
}

// bareEnd waits for one program as its parent and writes a line about its end.
func bareEnd(ctx context.Context, lines *os.File, dir, name string) (_ time.Duration, err error) {
	g, err := bed.OpenGate(dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	argv := g.Command()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if err := errors.Join(bench.Wait(ctx, 5*time.Millisecond), g.Open()); err != nil {
		return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(lines, name, "ended"); err != nil {
		return 0, err
	}
	if err := lines.Sync(); err != nil {
		return 0, err
	}
	return g.Since(time.Now())
}
