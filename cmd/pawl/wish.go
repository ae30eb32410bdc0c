package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// How long a command waits for its wish to be obeyed: a cancel ends what the job runs, which takes as long as it takes;
// to suspend a program and to let it go on takes a moment.
const (
	cancelWait = 24 * time.Hour
	pauseWait  = 30 * time.Second
)

func cancelCommand() *cobra.Command {
	return wishCommand(job.WishCancel, cancelWait, "End a job",
		"Cancel ends a job and returns when nothing of it runs any more.", "  pawl cancel slow")
}

func pauseCommand() *cobra.Command {
	return wishCommand(job.WishPause, pauseWait, "Hold a job until it is resumed",
		`Pause holds a job. One that waits becomes PAUSED. A program that runs is suspended where it is, and stays RUNNING; the
command returns when it stands still. The time until it is resumed does not count for its time limit.`, "  pawl pause slow")
}

func resumeCommand() *cobra.Command {
	return wishCommand(job.WishResume, pauseWait, "Let a paused job go on",
		"Resume lets a paused job go on. A program that was suspended goes on where it was.", "  pawl resume slow")
}

func wishCommand(w job.Wish, wait time.Duration, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use:   string(w) + " JOB",
		Short: short,
		Long: long + `

While a process runs jobs in the folder, that process is asked to do it; otherwise this command does it.

` + jobRule,
		Example:           example,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		RunE: withJob(func(ctx context.Context, cmd *cobra.Command, d *desk, v *pawl.View) error {
			id := v.ID
			n, err := d.take(ctx, nodeOptions{only: []job.ID{id}})
			if err != nil {
				return err
			}
			var now pawl.View
			var obeyed bool
			if n != nil {
				defer n.close()
				now, obeyed, err = n.wishHere(ctx, id, w, wait)
			} else {
				now, obeyed, err = d.Wish(ctx, id, w, wait)
			}
			out := cmd.OutOrStdout()
			switch {
			case err != nil && ctx.Err() != nil, err == nil && !obeyed:
				fmt.Fprintf(out, "job %s: %s is asked for; the process that runs jobs in folder %s carries it out\n", id, w, d.dir)
				return exit(exitLeft)
			case err != nil:
				return err
			case w == job.WishPause && now.State == job.Running:
				fmt.Fprintf(out, "job %s (%s): %s, its program is suspended\n", now.Name, id, now.State)
			default:
				fmt.Fprintf(out, "job %s (%s): %s\n", now.Name, id, now.State)
			}
			if w == job.WishResume && n != nil && !now.State.Terminal() {
				fmt.Fprintln(out, typed(cmd, unserved(&now.Job)))
			}
			return nil
		}),
	}
}

// unserved says who goes on with a job while no process runs jobs in the folder.
func unserved(j *job.Job) string {
	if j.Program() {
		return "no pawl runs in this folder now: pawl run goes on with it"
	}
	return "no program runs in this folder now: start the one that handles " + j.Kind
}

// take opens the folder to write to it where no process has it. Otherwise there is no node, and d asks that process.
func (d *desk) take(ctx context.Context, o nodeOptions) (*node, error) {
	if d.process {
		return nil, nil
	}
	n, err := openNode(ctx, d.dir, o)
	if job.KindOf(err) != job.Locked {
		return n, err
	}
	p, noAnswer := processDesk(ctx, d.dir) // it has just begun
	if noAnswer != nil {
		return nil, job.Errorf(job.Locked, "%w, which cannot be asked (%w): stop it and try again", err, noAnswer)
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	*d = *p
	return nil, nil
}

// wishHere makes a wish in this process, which carries it out and runs no other job.
func (n *node) wishHere(ctx context.Context, id job.ID, w job.Wish, wait time.Duration) (v pawl.View, obeyed bool, err error) {
	j, err := n.Job(ctx, id)
	if err != nil {
		return v, false, err
	}
	if j.Custody != job.Monitor && (!j.Live || w == job.WishResume) {
		return n.client().Wish(ctx, id, w, wait) // nothing of it runs
	}
	// What its program has been doing since the last process died is found out, and the wish is carried out on it.
	running, stop := context.WithCancel(ctx)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(running)
		giveUp()
	}()
	v, obeyed, err = n.client().Wish(waiting, id, w, wait)
	stop()
	if broke := <-ended; broke != nil {
		return v, false, broke
	}
	return v, obeyed, err
}

func resubmitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resubmit JOB",
		Short: "Submit the request of a job once more",
		Long: `Resubmit makes a new job of a job's request, as it was given. It does not run it: the process that runs jobs in the
folder does, or the next one.

` + jobRule,
		Example:           "  pawl resubmit wordcount",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		RunE: withJob(func(ctx context.Context, cmd *cobra.Command, d *desk, v *pawl.View) error {
			n, err := d.take(ctx, nodeOptions{})
			if err != nil {
				return err
			}
			c := d.Client
			if n != nil {
				defer n.close()
				c = n.client()
			}
			again, err := c.Resubmit(ctx, v.ID)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "job %s (%s) submitted\n", again.Name, again.ID)
			switch {
			case n != nil:
				fmt.Fprintln(out, typed(cmd, unserved(&again.Job)))
			case again.Program():
				fmt.Fprintf(out, "the process that runs jobs in folder %s runs it\n", d.dir)
			}
			return nil
		}),
	}
}
