package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
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

// A gate lets programs end: each waits for a line from its pipe, and tells the time as its last
// act. No program outlasts the process that holds its gate.
type gate struct {
	pipe  *os.File
	stamp string // the file with the time
}

// openGate makes a gate in dir, which has to be closed.
func openGate(dir, name string) (*gate, error) {
	pipe := filepath.Join(dir, name+".pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return nil, fmt.Errorf("make pipe %s: %w", pipe, err)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // with both ends here it is open at once, and keeps what nobody has read
	return &gate{f, filepath.Join(dir, name+".time")}, err
}

// command returns the program of the gate.
func (g *gate) command() []string {
	return []string{"/bin/sh", "-c", `read -r _ <"$1" && exec date +%s.%N >"$2"`, "gate", g.pipe.Name(), g.stamp}
}

// open lets the program go.
func (g *gate) open() error {
	_, err := g.pipe.WriteString("go\n")
	return err
}

func (g *gate) close() error { return g.pipe.Close() }

// since returns how long before at the program told the time.
func (g *gate) since(at time.Time) (time.Duration, error) {
	b, err := os.ReadFile(g.stamp)
	if err != nil {
		return 0, err
	}
	var seconds, nanos int64
	if _, err := fmt.Sscanf(strings.TrimSpace(string(b)), "%d.%d", &seconds, &nanos); err != nil {
		return 0, fmt.Errorf("date prints %q: %w", b, err)
	}
	return at.Sub(time.Unix(seconds, nanos)), nil
}

// end measures how soon ends are noticed.
func (b *localBench) end(ctx context.Context, _ *bench.Measurement, dir string) (_ *endFigures, err error) {
	p, err := openPrograms(ctx, filepath.Join(dir, "pawl"), node.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	lines, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return nil, err
	}
	defer lines.Close()
	var ours, theirs []time.Duration
	for i := range b.ends {
		took, err := p.oneEnd(dir, fmt.Sprint(i))
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

// oneEnd runs one program and returns how long after its end the service told of it. It waits for
// the end of the job, so that nothing of it goes on beside the next.
func (p *programBed) oneEnd(dir, name string) (took time.Duration, err error) {
	g, err := openGate(dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	answers, err := p.submit(1, func(int) job.Spec { return job.Spec{Command: g.command()} })
	if err != nil {
		return 0, err
	}
	return p.noticed(g, answers[0], true)
}

// noticed opens the gate when the job is running, and returns how long after the program's end the
// service told of it.
func (p *programBed) noticed(g *gate, id job.ID, toTheEnd bool) (took time.Duration, err error) {
	for e, err := range p.Events(p.ctx, id, "") {
		at := time.Now()
		switch {
		case err != nil:
			return 0, err
		case e.State == job.Running:
			if err := bench.Wait(p.ctx, 5*time.Millisecond); err != nil { // it has reached its gate
				return 0, err
			}
			if err := g.open(); err != nil {
				return 0, err
			}
		case e.State == job.Archiving && took == 0:
			if took, err = g.since(at); err != nil || !toTheEnd {
				return took, err
			}
		case e.State == job.Failed:
			return 0, fmt.Errorf("a program of the benchmark failed: %s", e.Message)
		}
	}
	return took, p.ctx.Err()
}

// bareEnd waits for one program as its parent and writes a line about its end.
func bareEnd(ctx context.Context, lines *os.File, dir, name string) (_ time.Duration, err error) {
	g, err := openGate(dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	argv := g.command()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if err := errors.Join(bench.Wait(ctx, 5*time.Millisecond), g.open()); err != nil {
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
	return g.since(time.Now())
}
