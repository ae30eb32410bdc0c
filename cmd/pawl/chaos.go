package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// chaosCommand is the program that crash tests kill: the service on a folder, with a load of mixed jobs. It is hidden,
// and everything but the load is the same code as that of the other commands.
func chaosCommand() *cobra.Command {
	var ledger string
	var jobs int
	var seed uint64
	cmd := &cobra.Command{
		Use:    "chaos",
		Short:  "Run a load of mixed jobs for crash tests",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := dataDir(cmd)
			if err != nil {
				return err
			}
			return chaos(cmd.Context(), cmd.OutOrStdout(), dir, ledger, jobs, seed)
		},
	}
	cmd.Flags().StringVar(&ledger, "ledger", "", "file to which jobs append what they did")
	cmd.Flags().IntVar(&jobs, "jobs", 500, "how many jobs")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the load")
	return cmd
}

// chaosBatch is how many jobs one call submits.
const chaosBatch = 25

// chaos submits the load, again with the same external ids after each crash, and runs until every job has ended.
func chaos(ctx context.Context, out io.Writer, dir, ledger string, jobs int, seed uint64) error {
	n, err := openNode(ctx, dir, nodeOptions{slots: map[job.Lane]int{job.LaneFinish: 4, job.LaneLaunch: 4, job.LanePrepare: 8, job.LaneTask: 20}})
	if err != nil {
		return err
	}
	defer n.close() //nolint:errcheck // everything that counts is durable before
	pawl.Handle(n.Service, "chaos", func(ctx context.Context, t *pawl.Task[chaosTask]) (struct{}, error) {
		return struct{}{}, t.Args.run(ctx, ledger, &t.Job)
	})
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		err := n.Run(running)
		stop(fmt.Errorf("the service stopped: %w", err))
		ended <- err
	}()
	ids, err := chaosSubmit(running, n, ledger, jobs, seed)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := n.Wait(running, id); err != nil {
			return err
		}
	}
	stop(nil)
	if err := <-ended; err != nil {
		return err
	}
	fmt.Fprintf(out, "all %d jobs have ended; repaired by the sweep: %d\n", len(ids), n.Repaired())
	return nil
}

// chaosSubmit submits the load and notes in the ledger what was acknowledged. Some jobs are canceled at once.
func chaosSubmit(ctx context.Context, n *node, ledger string, jobs int, seed uint64) ([]job.ID, error) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var ids []job.ID
	for from := 0; from < jobs; from += chaosBatch {
		reqs := make([]pawl.Request, min(chaosBatch, jobs-from))
		for i := range reqs {
			reqs[i].Spec = chaosSpec(rnd, ledger, from+i)
		}
		answers, err := n.Submit(ctx, reqs...)
		if err != nil {
			return nil, err
		}
		for i, a := range answers {
			if err := note(ledger, "accepted %s %s", a.ID, reqs[i].Spec.ExternalID); err != nil {
				return nil, err
			}
			ids = append(ids, a.ID)
			if (from+i)%29 == 11 {
				answers, err := n.Cancel(ctx, a.ID)
				if err != nil {
					return nil, err
				}
				if answers[0].Err == nil {
					if err := note(ledger, "canceled %s", a.ID); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return ids, nil
}

// chaosSpec makes job number i: programs that end well or badly, with and without retries, and tasks that end well,
// fail and are retried, wait, or are delayed.
func chaosSpec(rnd *rand.Rand, ledger string, i int) job.Spec {
	millis := rnd.IntN(40)
	delay := rnd.IntN(200)
	ext := fmt.Sprintf("chaos-%d", i)
	if i%3 == 0 {
		// The program tells the ledger that it was launched, and which attempt that is. O_APPEND makes lines whole.
		script := fmt.Sprintf(`echo "launch $PAWL_JOB_ID $PAWL_ATTEMPT $$" >> "$0"; sleep 0.%03d; echo out; exit %d`, millis, i/3%4/3*3)
		return job.Spec{
			ExternalID: ext, Command: []string{"/bin/sh", "-c", script, ledger},
			Retry: &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(10 * time.Millisecond)}},
		}
	}
	s := pawl.NewTask("chaos", chaosTask{Millis: millis, Fails: i % 7 / 5})
	s.ExternalID = ext
	s.Retry = &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(20 * time.Millisecond)}}
	if i%11 == 0 {
		s.Delay = job.Duration(time.Duration(delay) * time.Millisecond)
	}
	return s
}

// A chaosTask is the arguments of a task of the load.
type chaosTask struct {
	Millis int `json:"millis"` // how long it takes
	Fails  int `json:"fails"`  // how many attempts fail
}

func (c chaosTask) run(ctx context.Context, ledger string, j *job.Job) error {
	if err := note(ledger, "task %s %d %d", j.ID, j.Attempt, j.Epoch); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(c.Millis) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.Attempt <= c.Fails {
		return fmt.Errorf("attempt %d fails on purpose", j.Attempt)
	}
	return nil
}

// note appends a line to the ledger.
func note(ledger, format string, args ...any) error {
	f, err := os.OpenFile(ledger, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return err
}
