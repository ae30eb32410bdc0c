package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
)

// A naive way does each thing by a session of its own, and asks from time to time whether a program
// has ended.
type naive struct {
	*part
	client *ssh.Client
	turns  chan struct{} // whoever has put its token in has a session
}

// naiveSessions is how many sessions the naive way has at once. A server grants ten by default.
const naiveSessions = 8

func (p *part) openNaive() (*naive, error) {
	client, err := p.server.Dial()
	return &naive{p, client, make(chan struct{}, naiveSessions)}, err
}

func (n *naive) close() { _ = n.client.Close() }

// run runs a command in a session of its own, and returns what it prints.
func (n *naive) run(ctx context.Context, command, stdin string) (string, error) {
	select {
	case n.turns <- struct{}{}:
		defer func() { <-n.turns }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	s, err := n.session(ctx)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if stdin != "" {
		s.Stdin = strings.NewReader(stdin)
	}
	out, err := s.Output(command)
	if err != nil {
		return "", fmt.Errorf("naive way: %s: %w", command, err)
	}
	return string(out), nil
}

// session opens a session. The server may not have noticed yet that others have ended.
func (n *naive) session(ctx context.Context) (*ssh.Session, error) {
	for {
		s, err := n.client.NewSession()
		if err == nil || !errors.As(err, new(*ssh.OpenChannelError)) {
			return s, err
		}
		if err := bench.Wait(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// start starts a program in a folder. Its exit code is in the file code.
func (n *naive) start(ctx context.Context, dir string, argv []string) error {
	const wrapper = `"$@"; echo $? >code.new; mv code.new code`
	run := quoted(append([]string{"nohup", "/bin/sh", "-c", wrapper, "naive"}, argv...))
	_, err := n.run(ctx, "cd "+quote(dir)+" && { "+run+" </dev/null >stdout 2>stderr & echo $!; }", "")
	return err
}

// wait asks every so often until a program has ended.
func (n *naive) wait(ctx context.Context, dir string) error {
	tick := time.NewTicker(n.poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		code, err := n.run(ctx, "cat "+quote(dir+"/code")+" 2>/dev/null || true", "")
		if err != nil {
			return err
		}
		switch strings.TrimSpace(code) {
		case "":
		case "0":
			return nil
		default:
			return fmt.Errorf("naive way: the program in %s ended with %s", dir, code)
		}
	}
}

// naiveJobs does the naive way what a job does, and returns how many jobs that makes per second.
func (p *part) naiveJobs(ctx context.Context, input string) (float64, error) {
	n, err := p.openNaive()
	if err != nil {
		return 0, err
	}
	defer n.close()
	content, err := os.ReadFile(input)
	if err != nil {
		return 0, err
	}
	archive := filepath.Join(p.dir, "naive-archive")
	if err := os.Mkdir(archive, 0o755); err != nil {
		return 0, err
	}
	ledger := filepath.Join(p.dir, "naive-ledger")
	begin := time.Now()
	jobs, ctx := errgroup.WithContext(ctx)
	for i := range p.naive {
		jobs.Go(func() error {
			dir, name := filepath.Join(p.dir, "naive", fmt.Sprint(i)), fmt.Sprint(i)
			if _, err := n.run(ctx, "mkdir -p "+quote(dir), ""); err != nil {
				return err
			}
			if _, err := n.run(ctx, "cat >"+quote(dir+"/in.txt"), string(content)); err != nil {
				return err
			}
			if err := n.start(ctx, dir, []string{"sh", "-c", jobProgram, "job", name, ledger}); err != nil {
				return err
			}
			if err := n.wait(ctx, dir); err != nil {
				return err
			}
			out, err := n.run(ctx, "cat "+quote(dir+"/out"), "")
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(archive, name), []byte(out), 0o644); err != nil {
				return err
			}
			_, err = n.run(ctx, "rm -r "+quote(dir), "")
			return err
		})
	}
	if err := jobs.Wait(); err != nil {
		return 0, err
	}
	return bench.Rounded(float64(p.naive)/time.Since(begin).Seconds(), 1), nil
}

// naiveEnds returns how long after the ends of programs the naive way knows of them. They end at
// some time between two questions.
func (p *part) naiveEnds(ctx context.Context) (all []time.Duration, err error) {
	n, err := p.openNaive()
	if err != nil {
		return nil, err
	}
	defer n.close()
	var mu sync.Mutex
	programs, ctx := errgroup.WithContext(ctx)
	for i := range min(p.naive, p.ends) {
		programs.Go(func() (err error) {
			dir := filepath.Join(p.dir, "naive", fmt.Sprint(i))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			g, err := bed.OpenGate(dir, "gate")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, g.Close()) }()
			if err := n.start(ctx, dir, g.Command()); err != nil {
				return err
			}
			if err := bench.Wait(ctx, rand.N(n.poll)); err != nil {
				return err
			}
			if err := g.Open(); err != nil {
				return err
			}
			if err := n.wait(ctx, dir); err != nil {
				return err
			}
			took, err := g.Since(time.Now())
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took)
			return err
		})
	}
	return all, programs.Wait()
}
