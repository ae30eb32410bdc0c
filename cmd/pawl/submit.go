package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func submitCommand() *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit FILE | -- COMMAND...",
		Short: "Submit the jobs that a file describes, or a command, and print their ids",
		Long: `Submit submits the jobs that FILE describes, all or none, and prints their ids. The server runs them, or the process that
runs jobs in the folder. Each call submits other jobs, unless a job has an external_id or the call a --key: the same jobs
under the same key, within a day, are the same jobs.

` + commandRule + `

With --wait it waits for the end of all of them, or so long, and says on the standard error how each has ended.

` + fileRule + `

Exit codes with --wait: those of pawl run.`,
		Example: `  pawl submit job.yaml
  pawl submit job.yaml --wait
  pawl submit job.yaml --wait=10m -o json
  pawl submit job.yaml --key monday
  pawl submit --name nap -- sleep 1`,
		Args: o.line.args(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.wait < 0 {
				return &usageError{fmt.Errorf("--wait=%s is in the past: give a duration such as 10m", o.wait)}
			}
			s, err := serverOf(cmd)
			if err != nil {
				return err
			}
			use := fileUse{away: s != nil && !s.here(), tasks: true}
			read := func() (jobFile, error) { return readJobs(args[0], use) }
			if command := behindDash(cmd, args); command != nil {
				read = func() (jobFile, error) { return o.line.file(command, use) }
			}
			f, err := read()
			if err != nil {
				return err
			}
			o.waits = cmd.Flags().Changed("wait")
			return withDesk(openWriting, func(ctx context.Context, cmd *cobra.Command, d *desk) error {
				return o.submit(ctx, cmd, d, &f)
			})(cmd, args)
		},
	}
	o.line.flags(cmd)
	durationVar(cmd, &o.wait, "wait", 0, "wait for the end of the jobs, or so long")
	cmd.Flags().Lookup("wait").NoOptDefVal = "0s"
	cmd.Flags().StringVar(&o.key, "key", "", "the same jobs under the same key are submitted once")
	formatFlag(cmd, &o.format, asName, asTable, asWide, asJSON, asYAML)
	return cmd
}

type submitOptions struct {
	line   commandLine
	waits  bool
	wait   time.Duration // 0: for ever
	key    string
	format format
}

func (o *submitOptions) submit(ctx context.Context, cmd *cobra.Command, d *desk, f *jobFile) error {
	specs := make([]json.RawMessage, len(f.jobs))
	for i, e := range f.jobs {
		specs[i] = e.given
	}
	answers, err := d.Submit(ctx, o.key, specs...)
	if err != nil {
		return fmt.Errorf("nothing was submitted: %w", err)
	}
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
		if o.format == asName {
			fmt.Fprintln(cmd.OutOrStdout(), a.ID)
		}
	}
	if d.node != nil {
		fmt.Fprintln(hints(cmd), typed(cmd, "nothing runs the jobs "+d.where()+" now: pawl run goes on with programs, or pawl serve"))
	}
	if o.format != asName && !o.waits {
		views, err := d.views(ctx, ids)
		if err != nil {
			return err
		}
		if o.format == asTable || o.format == asWide {
			saidOnce(views) // it was said above
		}
		return printList(cmd, pawl.Views{Jobs: views}, o.format, store.Query{})
	}
	if !o.waits {
		return nil
	}
	if d.node != nil {
		return exit(exitLeft)
	}
	return waitFor(ctx, cmd, d, ids, o.wait, o.format)
}

// views returns jobs as they stand.
func (d *desk) views(ctx context.Context, ids []job.ID) ([]pawl.View, error) {
	views := make([]pawl.View, len(ids))
	for i, id := range ids {
		var err error
		if views[i], err = d.Job(ctx, id); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func waitCommand() *cobra.Command {
	var f format
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait until jobs have ended",
		Long: `Wait returns when all the jobs have ended, and says how. A job that is PAUSED has not ended.

` + jobRule + `

Exit codes: those of pawl run; 4 when the time is over.`,
		Example: `  pawl wait wordcount
  pawl wait wordcount slow --timeout 10m -o json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeJobs(livingJobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && limit <= 0 {
				return &usageError{errors.New("--timeout is not longer than nothing: give a duration such as 10m")}
			}
			return withDesk(openDesk, func(ctx context.Context, cmd *cobra.Command, d *desk) error {
				ids := make([]job.ID, len(args))
				for i, ref := range args {
					v, err := d.lookup(ctx, ref)
					if err != nil {
						return err
					}
					ids[i] = v.ID
				}
				return waitFor(ctx, cmd, d, ids, limit, f)
			})(cmd, args)
		},
	}
	durationVar(cmd, &limit, "timeout", 0, "for how long to wait at most (default: until they have ended)")
	formatFlag(cmd, &f, asTable, asWide, asJSON, asYAML, asName)
	return cmd
}

// waitFor waits for the end of jobs, for so long unless that is 0, prints how they stand, and makes the exit code of that.
func waitFor(ctx context.Context, cmd *cobra.Command, d *desk, ids []job.ID, limit time.Duration, f format) error {
	waiting := ctx
	if limit > 0 {
		var stop context.CancelFunc
		waiting, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	if d.served(ctx) {
		d.patient()
		for _, id := range ids {
			for _, err := range d.Events(waiting, client.EventQuery{Job: id, Follow: true}) {
				if err != nil && waiting.Err() == nil && (d.server != nil || job.KindOf(err) != job.Unavailable) { // else the process has ended
					return err
				}
			}
		}
	}
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // how they stand is said in any case
	defer stop()
	views, err := d.views(asking, ids)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if f != asName {
		if err := printList(cmd, pawl.Views{Jobs: views}, f, store.Query{}); err != nil {
			return err
		}
	}
	code, left := exitOK, false
	for i := range views {
		v := &views[i]
		code, left = worse(code, exitFor(v.State)), left || !v.State.Terminal()
		if f == asName {
			fmt.Fprintf(hints(cmd), "job %s (%s): %s\n", v.Name, v.ID, v.State)
		}
		if v.State == job.Failed {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s  FAILED  %s: %s\n  what to do: %s\n", v.Name, v.Code, v.Message, typed(cmd, d.remedy(asking, &v.Job)))
		}
	}
	if left && !d.served(asking) {
		fmt.Fprintln(hints(cmd), typed(cmd, "nothing runs the jobs "+d.where()+" now: pawl run goes on with programs, or pawl serve"))
	}
	if code != exitOK {
		return exit(code)
	}
	return nil
}
