package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// How long a command waits for its wish to be obeyed: a cancel ends what the job runs, which takes
// as long as it takes; to suspend a program and to let it go on takes a moment.
const (
	cancelWait = 24 * time.Hour
	pauseWait  = 30 * time.Second
	forceWait  = 10 * time.Second
)

func cancelCommand() *cobra.Command {
	force := false
	cmd := wishCommand(wish{job.WishCancel, cancelWait, &force, service.ActCancel, []job.Filter{target.LivingJobs}},
		"Cancel jobs",
		`Cancel ends a job and returns when nothing of it runs any more. Where its program may run on a machine that
does not answer, that is when the machine answers again. With --force it waits 10 seconds for that,
and then gives the job up: it ends, ABANDONED, although its program may still run.`,
		`  pawl cancel slow
  pawl cancel --filter 'label.project=x state=PENDING' --dry-run
  pawl cancel --force stuck`)
	cmd.Flags().BoolVar(&force, "force", false, "give the job up where its end cannot be confirmed")
	return cmd
}

func pauseCommand() *cobra.Command {
	return wishCommand(wish{job.WishPause, pauseWait, nil, service.ActPause, []job.Filter{target.PausableJobs}},
		"Hold jobs until they are resumed",
		`Pause holds a job. One that waits becomes PAUSED. A program that runs is suspended where it is, and stays
RUNNING; the command returns when it stands still. The time until it is resumed does not count for
its time limit.`,
		`  pawl pause slow
  pawl pause --filter queue=night`)
}

func resumeCommand() *cobra.Command {
	return wishCommand(wish{
		job.WishResume, pauseWait, nil, service.ActResume,
		[]job.Filter{target.PausedJobs, target.SuspendedJobs},
	}, "Let paused jobs go on",
		"Resume lets a paused job go on. A program that was suspended goes on where it was.",
		`  pawl resume slow
  pawl resume --filter queue=night`)
}

// A wish is what a command wishes.
type wish struct {
	job.Wish
	wait   time.Duration
	force  *bool // nil: there is no such thing
	action service.Action
	fit    []job.Filter // the jobs that it is for
}

func (w *wish) forced() bool { return w.force != nil && *w.force }

// ask makes the wish of one job.
func (w *wish) ask(ctx context.Context, c *client.Client, id job.ID) (v service.View, obeyed bool, err error) {
	if w.forced() {
		return c.ForceCancel(ctx, id, forceWait)
	}
	return c.Wish(ctx, id, w.Wish, w.wait)
}

func wishCommand(w wish, short, long, example string) *cobra.Command {
	var b Bulk
	cmd := &cobra.Command{
		Use:   string(w.Wish) + " [JOB]",
		Short: short,
		Long: long + `

While a process runs jobs in the folder, that process is asked to do it; otherwise this command does it.

` + target.JobRule + "\n\n" + BulkRule,
		Example:           example,
		Args:              b.Args(1),
		ValidArgsFunction: target.CompleteOne(w.fit...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: w.action, Force: w.forced()})
			}
			return target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
				return w.do(ctx, cmd, at, v)
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}

// do makes the wish of a job, waits, and says what has become of it.
func (w *wish) do(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
	id := v.ID
	if err := at.MakeWritable(ctx, node.Options{Options: engine.Options{Only: []job.ID{id}}}); err != nil {
		return err
	}
	ask := func() (service.View, bool, error) { return w.ask(ctx, at.Client, id) }
	if at.Node != nil {
		ask = func() (service.View, bool, error) { return wishHere(ctx, at.Node, id, w) }
	}
	waiting, over := context.WithCancel(ctx)
	var blocks sync.WaitGroup
	blocks.Go(func() { w.tellBlocks(waiting, cmd.ErrOrStderr(), at.Client, v) })
	now, obeyed, err := ask()
	over()
	blocks.Wait()
	out := cmd.OutOrStdout()
	switch {
	case err != nil && ctx.Err() != nil, err == nil && !obeyed:
		fmt.Fprintf(out, "job %s: %s is asked for; %s carries it out\n", id, w.Wish, at.Who())
		return term.Exit(term.ExitLeft)
	case err != nil:
		return err
	case w.Wish == job.WishPause && now.State == job.Running:
		fmt.Fprintf(out, "job %s (%s): %s, its program is suspended\n", now.Name, id, now.State)
	case now.Code == job.Abandoned:
		fmt.Fprintf(out, "job %s (%s): %s: %s\n", now.Name, id, now.State, now.Message)
	default:
		fmt.Fprintf(out, "job %s (%s): %s\n", now.Name, id, now.State)
	}
	if w.Wish == job.WishResume && at.Node != nil && !now.State.Terminal() {
		fmt.Fprintln(out, term.Typed(cmd, unserved(now.Program(), now.Kind)))
	}
	return nil
}

// tellBlocks says of a job by what it is blocked, until ctx ends: the wish waits for the end of
// that.
func (w *wish) tellBlocks(ctx context.Context, out io.Writer, c *client.Client, v *service.View) {
	for e, err := range c.Events(ctx, client.EventQuery{Job: v.ID, Follow: true}) {
		if err != nil {
			return // the wish meets the same error
		}
		if e.N <= v.N || e.Sub > 0 || e.State != job.Blocked {
			continue
		}
		fmt.Fprintf(out, "job %s (%s): blocked by %s: %s; %s is carried out when that is over\n", live.Clean(v.Name), v.ID,
			e.Code, live.Clean(e.Message), w.Wish)
	}
}

// unserved says who goes on with a job while no process runs jobs in the folder.
func unserved(program bool, kind string) string {
	if program {
		return "no pawl runs in this folder now: pawl run goes on with it"
	}
	return "no program runs in this folder now: start the one that handles " + kind
}

// wishHere makes a wish in this process, which carries it out and runs no other job.
func wishHere(ctx context.Context, n *node.Node, id job.ID, w *wish) (v service.View, obeyed bool, err error) {
	j, err := n.Job(ctx, id)
	if err != nil {
		return v, false, err
	}
	held := j.Custody == job.Worker || j.Custody == job.Monitor // by a process that has died
	if !held && (!j.Live || w.Wish == job.WishResume) {
		return w.ask(ctx, n.Client(), id) // nothing of it runs
	}
	// The job is taken from the process that had it, what its program has been doing since then is
	// found out, and the wish is carried out on it.
	running, stop := context.WithCancel(ctx)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(running)
		giveUp()
	}()
	v, obeyed, err = w.ask(waiting, n.Client(), id)
	stop()
	if broke := <-ended; broke != nil {
		return v, false, broke
	}
	return v, obeyed, err
}

func resubmitCommand() *cobra.Command {
	var b Bulk
	cmd := &cobra.Command{
		Use:   "resubmit [JOB]",
		Short: "Submit the requests of jobs once more",
		Long: `Resubmit makes a new job of a job's request, as it was given. It does not run it:
the process that runs jobs in the folder does, or the next one.

` + target.JobRule + "\n\n" + BulkRule,
		Example: `  pawl resubmit wordcount
  pawl resubmit --filter 'state=FAILED created>24h' --dry-run`,
		Args:              b.Args(1),
		ValidArgsFunction: target.CompleteJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: service.ActResubmit})
			}
			return target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
				if err := at.MakeWritable(ctx, node.Options{}); err != nil {
					return err
				}
				again, err := at.Resubmit(ctx, v.ID)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if term.Quiet(cmd) {
					fmt.Fprintln(out, again.ID)
					return nil
				}
				fmt.Fprintf(out, "job %s (%s) submitted\n", again.Name, again.ID)
				switch {
				case at.Node != nil:
					fmt.Fprintln(out, term.Typed(cmd, unserved(again.Program(), again.Kind)))
				case again.Program():
					fmt.Fprintf(out, "%s runs it\n", at.Who())
				}
				return nil
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}

// errNoChoice says that a command was given neither jobs nor a filter.
var errNoChoice = errors.New("no jobs are chosen: name one, or choose with --filter")
