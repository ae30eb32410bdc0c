package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/job"
)

// A Gate lets programs end: each waits for a line from its pipe, and tells the time as its last
// act. No program outlasts the process that holds its gate.
type Gate struct {
	pipe  *os.File
	stamp string // the file with the time
}

// OpenGate makes a gate in dir, which has to be closed.
func OpenGate(dir, name string) (*Gate, error) {
	pipe := filepath.Join(dir, name+".pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return nil, fmt.Errorf("make pipe %s: %w", pipe, err)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // with both ends here it is open at once, and keeps what nobody has read
	return &Gate{f, filepath.Join(dir, name+".time")}, err
}

// Pipe is the file from which the program reads.
func (g *Gate) Pipe() string { return g.pipe.Name() }

// Command returns the program of the gate.
func (g *Gate) Command() []string {
	return []string{"/bin/sh", "-c", `read -r _ <"$1" && exec date +%s.%N >"$2"`, "gate", g.pipe.Name(), g.stamp}
}

// Open lets the program go.
func (g *Gate) Open() error {
	_, err := g.pipe.WriteString("go\n")
	return err
}

// Close closes the pipe. It ends programs that wait for it.
func (g *Gate) Close() error { return g.pipe.Close() }

// Since returns how long before at the program told the time.
func (g *Gate) Since(at time.Time) (time.Duration, error) {
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

// OneEnd runs one program on a system, or on the local one if that is empty, and returns how long
// after its end the service told of it. It waits for the end of the job, so that nothing of it goes
// on beside the next.
func (b *Bed) OneEnd(dir, name, system string) (took time.Duration, err error) {
	g, err := OpenGate(dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	answers, err := b.SubmitAll(1, func(int) job.Spec { return job.Spec{Command: g.Command(), System: system} })
	if err != nil {
		return 0, err
	}
	return b.Noticed(g, answers[0], true)
}

// Noticed opens the gate when the job is running, and returns how long after the program's end the
// service told of it.
func (b *Bed) Noticed(g *Gate, id job.ID, toTheEnd bool) (took time.Duration, err error) {
	for e, err := range b.Events(b.ctx, id, "") {
		at := time.Now()
		switch {
		case err != nil:
			return 0, err
		case e.State == job.Running:
			if err := bench.Wait(b.ctx, 5*time.Millisecond); err != nil { // it has reached its gate
				return 0, err
			}
			if err := g.Open(); err != nil {
				return 0, err
			}
		case e.State == job.Archiving && took == 0:
			if took, err = g.Since(at); err != nil || !toTheEnd {
				return took, err
			}
		case e.State == job.Failed:
			return 0, fmt.Errorf("a program of the benchmark failed: %s", e.Message)
		}
	}
	return took, b.ctx.Err()
}
