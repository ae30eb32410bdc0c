package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

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
		`Cancel ends jobs, and returns when nothing of them runs any more. Where a program may run on a machine that
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
RUNNING; one that waits in the queue of Slurm is held there, and stays QUEUED. The command returns
when it stands still. The time until it is resumed does not count for its time limit, but in Slurm
the time of a program that runs goes on.`,
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
		Use:   string(w.Wish) + " [JOB]...",
		Short: short,
		Long: long + `

While a process runs jobs in the folder, that process is asked to do it; otherwise this command does it.

` + target.JobRule + "\n\n" + BulkRule,
		Example:           example,
		Args:              b.Args(math.MaxInt),
		ValidArgsFunction: target.CompleteJobs(w.fit...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: w.action, Force: w.forced()})
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				named, err := lookUp(ctx, at, args)
				if err != nil {
					return err
				}
				return w.do(ctx, cmd, at, named)
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}

// lookUp finds the jobs that refs name. It is an error if one is not there.
func lookUp(ctx context.Context, at *target.Target, refs []string) ([]service.View, error) {
	named := make([]service.View, len(refs))
	for i, ref := range refs {
		var err error
		if named[i], err = at.Lookup(ctx, ref); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// askedAtOnce is for how many jobs a command waits at a time.
const askedAtOnce = 16

// do makes the wish of jobs, side by side, and waits. It says how each one stands then.
func (w *wish) do(ctx context.Context, cmd *cobra.Command, at *target.Target, named []service.View) error {
	ids := make([]job.ID, len(named))
	for i := range named {
		ids[i] = named[i].ID
	}
	if err := at.MakeWritable(ctx, node.Options{Options: engine.Options{Only: ids}}); err != nil {
		return err
	}
	waiting, end, err := w.lookAfter(ctx, at.Node, ids)
	if err != nil {
		return err
	}
	var saying sync.Mutex
	left, errs := false, make([]error, len(named), len(named)+1)
	var asking errgroup.Group
	asking.SetLimit(askedAtOnce)
	for i := range named {
		asking.Go(func() error {
			now, obeyed, err := w.one(waiting, cmd, at, &named[i])
			saying.Lock()
			defer saying.Unlock()
			switch stopped := waiting.Err() != nil; {
			case stopped && ctx.Err() == nil: // this process can look after them no longer: end has the error
			case err != nil && !stopped:
				errs[i] = err
			default:
				left = left || !obeyed
				w.say(cmd, at, ids[i], &now, obeyed)
			}
			return nil
		})
	}
	_ = asking.Wait()
	if err := errors.Join(append(errs, end())...); err != nil || !left {
		return err
	}
	return term.Exit(term.ExitLeft)
}

// lookAfter lets this process look after jobs, and after no others, if it has the folder and what
// runs of them has to be found out first. It does so until end is called. waiting ends when it can
// do so no longer.
func (w *wish) lookAfter(ctx context.Context, n *node.Node, ids []job.ID) (waiting context.Context, end func() error,
	err error,
) {
	needed := false
	for _, id := range ids {
		if n == nil || needed {
			break
		}
		j, err := n.Job(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		held := j.Custody == job.Worker || j.Custody == job.Monitor // by a process that has died
		needed = held || j.Live && w.Wish != job.WishResume
	}
	if !needed {
		return ctx, func() error { return nil }, nil
	}
	// The jobs are taken from the process that had them, what their programs have been doing since
	// then is found out, and the wish is carried out on them.
	running, stop := context.WithCancel(ctx)
	waiting, giveUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(running)
		giveUp()
	}()
	return waiting, func() error {
		stop()
		return <-ended
	}, nil
}

// one makes the wish of a job and waits. Meanwhile it says what blocks the job.
func (w *wish) one(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) (now service.View,
	obeyed bool, err error,
) {
	following, over := context.WithCancel(ctx)
	var blocks sync.WaitGroup
	if !term.Quiet(cmd) {
		blocks.Go(func() { w.tellBlocks(following, cmd.ErrOrStderr(), at.Client, v) })
	}
	now, obeyed, err = w.ask(ctx, at.Client, v.ID)
	over()
	blocks.Wait()
	return now, obeyed, err
}

// say says how a job stands after the wish.
func (w *wish) say(cmd *cobra.Command, at *target.Target, id job.ID, now *service.View, obeyed bool) {
	out := cmd.OutOrStdout()
	switch {
	case !obeyed:
		fmt.Fprintf(out, "job %s: %s is asked for; %s carries it out\n", id, w.Wish, at.Who())
	case w.Wish == job.WishPause && now.Custody == job.Monitor:
		fmt.Fprintf(out, "job %s (%s): %s, its program is suspended\n", now.Name, id, now.State)
	case now.Code == job.Abandoned:
		fmt.Fprintf(out, "job %s (%s): %s: %s\n", now.Name, id, now.State, now.Message)
	default:
		fmt.Fprintf(out, "job %s (%s): %s\n", now.Name, id, now.State)
	}
	if obeyed && w.Wish == job.WishResume && at.Node != nil && !now.State.Terminal() {
		fmt.Fprintln(out, term.Typed(cmd, unserved(now.Program(), now.Kind)))
	}
}

// tellBlocks says what blocks a job, until ctx ends. The wish waits for the end of that.
func (w *wish) tellBlocks(ctx context.Context, out io.Writer, c *client.Client, v *service.View) {
	tell := func(why string) {
		fmt.Fprintf(out, "job %s (%s): %s; %s is carried out when that is over\n", live.Clean(v.Name), v.ID,
			live.Clean(why), w.Wish)
	}
	if v.SystemSilent != nil {
		tell(v.SystemSilent.String())
	}
	for e, err := range c.Events(ctx, client.EventQuery{Job: v.ID, Follow: true}) {
		if err != nil {
			return // the wish meets the same error
		}
		if e.N <= v.N || e.Sub > 0 || e.State != job.Blocked {
			continue
		}
		tell("blocked by " + string(e.Code) + ": " + e.Message)
	}
}

// unserved says who goes on with a job while no process runs jobs in the folder.
func unserved(program bool, kind string) string {
	if program {
		return "no pawl runs in this folder now: pawl run goes on with it"
	}
	return "no program runs in this folder now: start the one that handles " + kind
}

func resubmitCommand() *cobra.Command {
	var b Bulk
	cmd := &cobra.Command{
		Use:   "resubmit [JOB]...",
		Short: "Submit the requests of jobs once more",
		Long: `Resubmit makes a new job of a job's request, as it was given. It does not run it:
the process that runs jobs in the folder does, or the next one.

` + target.JobRule + "\n\n" + BulkRule,
		Example: `  pawl resubmit wordcount
  pawl resubmit --filter 'state=FAILED created>24h' --dry-run`,
		Args:              b.Args(math.MaxInt),
		ValidArgsFunction: target.CompleteJobs(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: service.ActResubmit})
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				named, err := lookUp(ctx, at, args)
				if err == nil {
					err = at.MakeWritable(ctx, node.Options{})
				}
				for i := 0; err == nil && i < len(named); i++ {
					err = resubmit(ctx, cmd, at, named[i].ID)
				}
				return err
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}

// errNoChoice says that a command was given neither jobs nor a filter.
var errNoChoice = errors.New("no jobs are chosen: name one, or choose with --filter")

// resubmit submits the request of a job once more, and says so.
func resubmit(ctx context.Context, cmd *cobra.Command, at *target.Target, id job.ID) error {
	again, err := at.Resubmit(ctx, id)
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
}
