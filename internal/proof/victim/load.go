package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/crashstore"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// loadCommand runs the service on a folder, with a load of mixed jobs.
func loadCommand() *cobra.Command {
	var l load
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Work on a load of mixed jobs until they have ended",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			db := os.Getenv("PAWL_DB") // with its password
			return l.run(cmd.Context(), cmd.OutOrStdout(), dir, node.Options{
				More: node.More{Store: crashing, Handle: l.handle},
				DB:   node.DatabaseConfig{DSN: db}, Migrate: db != "",
				Look: time.Hour, // what only that would find was forgotten
				Options: engine.Options{
					Lease: lease,
					Slots: map[job.Lane]int{job.LaneFinish: 4, job.LaneLaunch: 4, job.LanePrepare: 8, job.LaneTask: 20},
				},
			})
		},
	}
	cmd.Flags().StringVar(&l.ledger, "ledger", "", "file to which jobs append what they did")
	cmd.Flags().StringVar(&l.system, "system", "", "file with the document of the system on which programs run")
	cmd.Flags().BoolVar(&l.scheduled, "scheduled", false, "a scheduler has the programs, and keeps their time in minutes")
	cmd.Flags().IntVar(&l.jobs, "jobs", 500, "how many jobs")
	cmd.Flags().Uint64Var(&l.seed, "seed", 1, "seed of the load")
	cmd.Flags().IntVar(&l.machine, "machine", 0, "which of the machines this is, from 0")
	cmd.Flags().IntVar(&l.machines, "machines", 1, "how many machines work on the load")
	term.DurationVar(cmd, &lease, "lease", 0, "how long the session outlives its last renewal")
	return cmd
}

// load is the jobs of a crash test. The same seed makes the same jobs, so that each run submits
// what the one before did, under the same external ids; so do processes that work on it side by
// side. A program belongs to the machine of whoever submitted it first.
//
// The ledger (package ledger) is what the world outside knows. The input of programs is the file
// beside it that has .input behind its name.
type load struct {
	ledger            string
	system            string // a file; empty: programs run on this machine
	scheduled         bool   // a scheduler begins them
	jobs              int
	seed              uint64
	machine, machines int
}

// batch is how many jobs one call submits. They take turns in which machine comes first: the others
// wait for it, for as long as lateAfter, for it may be down.
const (
	batch     = 25
	lateAfter = time.Second
)

// crashing puts the points of a store around it in a process that is to die at one.
func crashing(s store.Store) store.Store {
	if crash.Chosen() == "" {
		return s
	}
	return crashstore.Wrap(s)
}

// handle gives a service what the tasks of the load need.
func (l *load) handle(s *service.Service) {
	service.Handle(s, loadKind, func(ctx context.Context, t *service.Task[loadTask]) (struct{}, error) {
		return struct{}{}, t.Args.run(ctx, l, &t.Job)
	})
	service.HandleTester(s, loadTester, l.test)
}

// run submits the load, again with the same external ids after each crash, and runs until every job
// has ended. Told to stop, it stops in good order.
func (l *load) run(ctx context.Context, out io.Writer, dir string, o node.Options) error {
	n, err := node.Open(ctx, dir, o)
	if err != nil {
		return err
	}
	defer n.Close()
	running, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := n.Run(running)
		stop(fmt.Errorf("the service stopped: %w", err))
		ended <- err
	}()
	fmt.Fprintln(out, "running")
	err = l.work(running, n, stop)
	stop(nil)
	if broke := <-ended; broke != nil {
		return broke
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(out, "stopped in good order; repaired by the sweep: %d\n", n.Repaired())
		return nil
	case err != nil:
		return err
	}
	// The watcher does so once a minute.
	if err := n.App.RemoveLeftovers(ctx, n.App.Local(), n.Store); err != nil {
		return err
	}
	fmt.Fprintf(out, "all %d jobs have ended; repaired by the sweep: %d\n", l.jobs, n.Repaired())
	return nil
}

// work submits the load, and returns when every job has ended, and no death of another process is
// left unnoticed.
func (l *load) work(ctx context.Context, n *node.Node, broke func(error)) error {
	for _, limit := range loadLimits { // before there is a job that they count
		if err := n.SetLimit(ctx, limit); err != nil {
			return err
		}
	}
	if err := l.makeSystem(ctx, n); err != nil {
		return err
	}
	ids, err := l.submit(ctx, n)
	if err != nil {
		return err
	}
	l.people(ctx, n, ids, broke)
	for _, id := range ids {
		if _, err := n.Wait(ctx, id); err != nil {
			return err
		}
	}
	if l.scheduled {
		read(ctx, filepath.Join(n.Dir, "systems", farSystem, "slurm-ends"))
	}
	return buried(ctx, n)
}

// read returns when a spool has no more messages: the last one is removed after its job has ended.
// One that nobody reads is for the check.
func read(ctx context.Context, spool string) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		all, err := os.ReadDir(spool)
		if err != nil || !slices.ContainsFunc(all, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), ".") }) {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// makeSystem makes the system on which programs run, if they do so elsewhere.
func (l *load) makeSystem(ctx context.Context, n *node.Node) error {
	if l.system == "" {
		return nil
	}
	doc, err := os.ReadFile(l.system)
	if err != nil {
		return err
	}
	machine, err := os.ReadFile(filepath.Join(n.Dir, "machine"))
	if err != nil {
		return err
	}
	doc = bytes.ReplaceAll(doc, []byte("MACHINE"), bytes.TrimSpace(machine))
	_, _, err = n.Systems().Apply(ctx, doc, service.AnyVersion)
	return err
}

// buried returns when each session has ended whose lease is over.
func buried(ctx context.Context, n *node.Node) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		all, err := n.Store.Sessions(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(s store.SessionInfo) bool { return !s.Live && s.Ended.IsZero() }) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// submit submits the load and notes what was acknowledged. Some jobs are canceled at once.
func (l *load) submit(ctx context.Context, n *node.Node) ([]job.ID, error) {
	var ids []job.ID
	for len(ids) < l.jobs {
		from := len(ids)
		if from/batch%l.machines != l.machine {
			if err := l.give(ctx, from); err != nil {
				return nil, err
			}
		}
		made := make([]loadJob, min(batch, l.jobs-from))
		reqs := make([]service.Request, len(made))
		for i := range made {
			made[i] = l.job(from+i, ids)
			reqs[i] = made[i].Request
		}
		answers, err := n.Submit(ctx, reqs...)
		if err != nil {
			return nil, err
		}
		for i, a := range answers {
			m, after := &made[i], "- -"
			if len(m.After) > 0 {
				after = fmt.Sprintf("%s %s", m.After[0].Job, m.After[0].Need)
			}
			if err := l.note("accepted %s %s %s %d %s", a.ID, m.Spec.ExternalID, m.state, m.attempts, after); err != nil {
				return nil, err
			}
			ids = append(ids, a.ID)
			if (from+i)%29 == 11 {
				if _, err := l.cancel(ctx, n, a.ID); err != nil {
					return nil, err
				}
			}
		}
	}
	return ids, nil
}

// give gives another machine the time to submit the batch that begins with job number i.
func (l *load) give(ctx context.Context, i int) error {
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		lines, err := os.ReadFile(l.ledger)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.Contains(lines, fmt.Appendf(nil, " load-%d ", i)) {
			return nil
		}
		select {
		case <-look.C:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// note appends a line to the ledger.
func (l *load) note(format string, args ...any) error {
	return ledger.Note(l.ledger, format, args...)
}
