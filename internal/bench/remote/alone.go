package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// launches measures launches alone, beside a bare loop. The folders of both are made before.
func (p *part) launches(ctx context.Context, f *launchFigures, quiet float64) (err error) {
	sys, closed, err := node.OpenSystem(ctx, p.server.System("alone", filepath.Join(p.dir, "alone"), p.server.Port),
		p.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	shell, err := p.openBare()
	if err != nil {
		return err
	}
	defer shell.close()
	var ours, theirs, ratios, forks []float64
	alone := func(i int) func() error {
		return func() error {
			// The first launches of a connection find out what the others know.
			if i == 0 {
				if _, _, err := p.launchAlone(ctx, sys, "warm", min(p.jobs, 16)); err != nil {
					return err
				}
			}
			took, started, err := p.launchAlone(ctx, sys, fmt.Sprint("alone-", i), p.jobs)
			if err != nil {
				return err
			}
			ours = append(ours, float64(p.jobs)/took.Seconds())
			forks = append(forks, (started-quiet*took.Seconds())/float64(p.jobs))
			return nil
		}
	}
	bare := func(i int) func() error {
		return func() error {
			took, err := p.launchBare(ctx, shell, fmt.Sprint("bare-", i), p.jobs)
			theirs = append(theirs, float64(p.jobs)/took.Seconds())
			return err
		}
	}
	for i := range p.rounds {
		for _, run := range inTurns(i, alone(i), bare(i)) {
			if err := run(); err != nil {
				return err
			}
		}
		ratios = append(ratios, ours[i]/theirs[i])
		fmt.Fprintf(p.Progress, "round %d of %d: %.0f launches/s alone, bare loop %.0f\n", i+1, p.rounds, ours[i],
			theirs[i])
	}
	f.Launches, f.Bare, f.RatioBare = bench.Rounded(bench.Median(ours), 1), bench.Rounded(bench.Median(theirs), 1),
		bench.Rounded(bench.Median(ratios), 3)
	f.Forks = bench.Rounded(bench.Median(forks), 2)
	return nil
}

// A tally is a pipe into which each program writes a line.
type tally struct{ *os.File }

func newTally(name string) (*tally, error) {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return nil, fmt.Errorf("make pipe %s: %w", name, err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0) // with both ends here it is open at once
	return &tally{f}, err
}

// program returns the program that writes a line.
func (t *tally) program() []string {
	return []string{"/bin/sh", "-c", `echo >"$1"`, "launched", t.Name()}
}

// wait waits until n programs have run.
func (t *tally) wait(ctx context.Context, n int) error {
	stop := context.AfterFunc(ctx, func() { t.Close() })
	defer stop()
	lines := bufio.NewReader(t)
	for range n {
		if _, err := lines.ReadByte(); err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("wait for %d programs: %w", n, err))
		}
	}
	return nil
}

// launchAlone launches n programs by the runner of a system, as many at once as a lane has slots.
// It returns how long it took until all have run, and how many processes the machine has started
// meanwhile.
func (p *part) launchAlone(ctx context.Context, sys *app.System, name string, n int) (
	took time.Duration, started float64, err error,
) {
	done, err := newTally(filepath.Join(p.dir, name+".pipe"))
	if err != nil {
		return 0, 0, err
	}
	defer done.Close()
	plans, keys := make([]runner.Plan, n), make([]runner.Key, n)
	for i := range plans {
		keys[i] = runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
		plans[i] = runner.Plan{
			Dir: filepath.Join(p.dir, name, fmt.Sprint(i)), Argv: done.program(), Stdout: "stdout", Stderr: "stderr",
		}
		if err := os.MkdirAll(filepath.Join(plans[i].Dir, runner.Folder), 0o755); err != nil {
			return 0, 0, err
		}
	}
	before, err := forked()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	var next atomic.Int64
	workers, ctx := errgroup.WithContext(ctx)
	for range engine.DefaultSlots[job.LanePrepare] {
		workers.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if _, err := sys.Runner.Launch(ctx, keys[i], plans[i]); err != nil {
					return err
				}
			}
		})
	}
	workers.Go(func() error { return done.wait(ctx, n) })
	if err := workers.Wait(); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	now, err := forked()
	return took, now - before, err
}

// A bare is one long sh -s, without Pawl.
type bare struct {
	client *ssh.Client
	in     *bufio.Writer
	out    *bufio.Reader
}

func (p *part) openBare() (*bare, error) {
	client, err := p.server.Dial()
	if err != nil {
		return nil, err
	}
	s, err := client.NewSession()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	in, err1 := s.StdinPipe()
	out, err2 := s.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if err := s.Start("exec /bin/sh -s"); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &bare{client, bufio.NewWriter(in), bufio.NewReader(out)}, nil
}

func (b *bare) close() { _ = b.client.Close() }

// ask has the shell run commands, and waits until it has.
func (b *bare) ask(commands string) error {
	if _, err := b.in.WriteString(commands + "\necho done\n"); err != nil {
		return err
	}
	if err := b.in.Flush(); err != nil {
		return err
	}
	line, err := b.out.ReadString('\n')
	if err == nil && line != "done\n" {
		err = fmt.Errorf("it answers %q", line)
	}
	return err
}

// perRequest is how many programs the bare loop starts by one request.
const perRequest = 50

// launchBare has the shell start n programs, each in a session of its own that writes its pid and
// its exit code.
func (p *part) launchBare(ctx context.Context, b *bare, name string, n int) (took time.Duration, err error) {
	done, err := newTally(filepath.Join(p.dir, name+".pipe"))
	if err != nil {
		return 0, err
	}
	defer done.Close()
	dirs := make([]string, n)
	for i := range dirs {
		dirs[i] = filepath.Join(p.dir, name, fmt.Sprint(i))
		if err := os.MkdirAll(dirs[i], 0o755); err != nil {
			return 0, err
		}
	}
	const wrapper = `echo $$ >pid; "$@"; echo $? >code`
	run := quoted(append([]string{"setsid", "/bin/sh", "-c", wrapper, "bare"}, done.program()...))
	begin := time.Now()
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		for from := 0; from < n; from += perRequest {
			var text strings.Builder
			for _, dir := range dirs[from:min(from+perRequest, n)] {
				fmt.Fprintf(&text, "(cd %s && exec %s </dev/null >stdout 2>stderr) &\n", quote(dir), run)
			}
			if err := b.ask(text.String()); err != nil {
				return fmt.Errorf("bare loop: %w", err)
			}
		}
		return nil
	})
	work.Go(func() error { return done.wait(ctx, n) })
	err = work.Wait()
	return time.Since(begin), err
}
