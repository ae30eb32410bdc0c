package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func submitCommand() *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit FILE | -- COMMAND...",
		Short: "Submit the jobs of a file, or a command, and print their ids",
		Long: `Submit submits the jobs that FILE describes, all or none, and prints their ids. The server runs them,
or the process that runs jobs in the folder. Each call submits other jobs, unless a job has an
external_id or the call a --key: the same jobs under the same key, within a day, are the same jobs.

` + jobfile.CommandRule + `

With --wait it waits for the end of all of them, or so long, and says on the standard error how each has ended.

` + jobfile.Rule + `

Exit codes with --wait: those of pawl run.`,
		Example: `  pawl submit job.yaml
  pawl submit job.yaml --wait
  pawl submit job.yaml --wait=10m -o json
  pawl submit job.yaml --key monday
  pawl submit --name nap -- sleep 1`,
		Args: o.line.Args(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.wait < 0 {
				return term.Usagef("--wait=%s is in the past: give a duration such as 10m", o.wait)
			}
			s, err := target.ServerOf(cmd)
			if err != nil {
				return err
			}
			use := jobfile.Use{Away: s != nil && !s.Here(), Tasks: true}
			read := func() (jobfile.File, error) { return jobfile.Read(cmd.Context(), args[0], use) }
			if command := jobfile.BehindDash(cmd, args); command != nil {
				read = func() (jobfile.File, error) { return o.line.File(command, use) }
			}
			f, err := read()
			if err != nil {
				return err
			}
			if !use.Away {
				if err := f.Clashing(); err != nil {
					return err
				}
			}
			o.waits = cmd.Flags().Changed("wait")
			return target.With(target.OpenWriting,
				func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
					return o.submit(ctx, cmd, at, &f)
				})(cmd, args)
		},
	}
	o.line.Flags(cmd)
	term.DurationVar(cmd, &o.wait, "wait", 0, "wait for the end of the jobs, or so long")
	cmd.Flags().Lookup("wait").NoOptDefVal = "0s"
	cmd.Flags().StringVar(&o.key, "key", "", "the same jobs under the same key are submitted once")
	term.FormatFlag(cmd, &o.format, term.AsName, term.AsTable, term.AsWide, term.AsJSON, term.AsYAML)
	return cmd
}

type submitOptions struct {
	line   jobfile.CommandLine
	waits  bool
	wait   time.Duration // 0: for ever
	key    string
	format term.Format
}

func (o *submitOptions) submit(ctx context.Context, cmd *cobra.Command, at *target.Target, f *jobfile.File) error {
	specs := make([]json.RawMessage, len(f.Jobs))
	for i, e := range f.Jobs {
		specs[i] = e.Given
	}
	key := cmp.Or(o.key, job.NewID().String())
	answers, err := at.Submit(ctx, key, specs...)
	switch {
	case job.KindOf(err) == job.Unavailable && client.MayHaveBegun(err):
		return fmt.Errorf("it is not known whether the jobs were submitted: %w; submit them again with --key %s: "+
			"under one key they are submitted once", err, key)
	case err != nil:
		return fmt.Errorf("nothing was submitted: %w", err)
	}
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
		if o.format == term.AsName {
			fmt.Fprintln(cmd.OutOrStdout(), a.ID)
		}
	}
	if at.Node != nil {
		fmt.Fprintln(term.Hints(cmd), term.Typed(cmd, "nothing runs the jobs "+at.Where()+
			" now: pawl run goes on with programs, or pawl serve"))
	}
	if o.format != term.AsName && !o.waits {
		views, err := viewsOf(ctx, at, ids)
		if err != nil {
			return err
		}
		if o.format == term.AsTable || o.format == term.AsWide {
			saidOnce(views) // it was said above
		}
		return printList(cmd, service.Views{Jobs: views}, o.format, store.Query{})
	}
	if !o.waits {
		return nil
	}
	if at.Node != nil {
		return term.Exit(term.ExitLeft)
	}
	return waitFor(ctx, cmd, at, ids, o.wait, o.format)
}

// viewsOf returns jobs as they stand.
func viewsOf(ctx context.Context, at *target.Target, ids []job.ID) ([]service.View, error) {
	views := make([]service.View, len(ids))
	for i, id := range ids {
		var err error
		if views[i], err = at.Job(ctx, id); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func waitCommand() *cobra.Command {
	var f term.Format
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait until jobs have ended",
		Long: `Wait returns when all the jobs have ended, and says how. A job that is PAUSED has not ended.

` + target.JobRule + `

Exit codes: those of pawl run; 4 when the time is over.`,
		Example: `  pawl wait wordcount
  pawl wait wordcount slow --timeout 10m -o json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: target.CompleteJobs(target.LivingJobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				ids := make([]job.ID, len(args))
				for i, ref := range args {
					v, err := at.Lookup(ctx, ref)
					if err != nil {
						return err
					}
					ids[i] = v.ID
				}
				return waitFor(ctx, cmd, at, ids, limit, f)
			})(cmd, args)
		},
	}
	term.DurationVar(cmd, &limit, "timeout", 0, "for how long to wait at most (default: until they have ended)")
	term.FormatFlag(cmd, &f, term.AsTable, term.AsWide, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

// waitFor waits for the end of jobs, for so long unless that is 0, prints how they stand, and makes
// the exit code of that.
func waitFor(ctx context.Context, cmd *cobra.Command, at *target.Target, ids []job.ID, limit time.Duration,
	f term.Format,
) error {
	waiting := ctx
	if limit > 0 {
		var stop context.CancelFunc
		waiting, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	if at.Served(ctx) {
		at.Patient()
		for _, id := range ids {
			for _, err := range at.Events(waiting, client.EventQuery{Job: id, Follow: true}) {
				// else the process has ended
				if err != nil && waiting.Err() == nil && (at.Server != nil || job.KindOf(err) != job.Unavailable) {
					return err
				}
			}
		}
	}
	// how they stand is said in any case
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	views, err := viewsOf(asking, at, ids)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if f != term.AsName {
		if err := printList(cmd, service.Views{Jobs: views}, f, store.Query{}); err != nil {
			return err
		}
	}
	code, left := term.ExitOK, false
	for i := range views {
		v := &views[i]
		code, left = term.WorseExit(code, term.ExitFor(v.State)), left || !v.State.Terminal()
		if f == term.AsName {
			fmt.Fprintf(term.Hints(cmd), "job %s (%s): %s\n", v.Name, v.ID, v.State)
		}
		if v.State == job.Failed {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s  FAILED  %s: %s\n  what to do: %s\n", v.Name, v.Code, v.Message,
				term.Typed(cmd, at.Remedy(asking, &v.Job)))
		}
	}
	if left && !at.Served(asking) {
		fmt.Fprintln(term.Hints(cmd), term.Typed(cmd, "nothing runs the jobs "+at.Where()+
			" now: pawl run goes on with programs, or pawl serve"))
	}
	if code != term.ExitOK {
		return term.Exit(code)
	}
	return nil
}
