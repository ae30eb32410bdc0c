package jobs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/service"
)

func logsCommand() *cobra.Command {
	var q service.LogQuery
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what a job's program has written",
		Long: `Logs prints the standard output of a job's program, from its folder or from its results. With --follow
it goes on with what is written from now on, until the job has ended; if the job is tried again,
with the log of each attempt.

` + target.JobRule,
		Example: `  pawl logs wordcount
  pawl logs --stderr fails
  pawl logs -f --tail 20 slow`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: target.CompleteJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") && q.Tail < 1 {
				return term.Usagef("--tail %d is out of range: give 1 or more", q.Tail)
			}
			return target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
				return printLog(ctx, cmd, at, v, q)
			})(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&q.Stderr, "stderr", false, "print the standard error instead")
	cmd.Flags().IntVar(&q.Tail, "tail", 0, "print only the last lines, so many (1 MiB for each, 64 MiB in all)")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "go on with what is written, until the job has ended")
	return cmd
}

func printLog(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View, q service.LogQuery) error {
	if q.Follow && !v.State.Terminal() && !at.Served(ctx) {
		fmt.Fprintln(term.Hints(cmd), term.Typed(cmd,
			"no pawl runs in this folder now: pawl run goes on with the job, and sees its end"))
	}
	r, err := at.Log(ctx, v.ID, q)
	if err != nil {
		return err
	}
	if out, is := cmd.OutOrStdout().(*live.Writer); is {
		out.Log()
	}
	size, err := io.Copy(cmd.OutOrStdout(), r)
	r.Close()
	if q.Follow {
		if ctx.Err() != nil {
			return term.Exit(term.ExitLeft)
		}
		// The end of the stream may be that of the process. The folder tells, or the server once it
		// is there again.
		at.Patient()
		if at.Server == nil && !folder.Shared(at.Dir) { // else others have the jobs
			read, lost := target.OfReader(ctx, at.Dir)
			if lost != nil {
				return lost
			}
			defer read.Close()
			at = read
		}
		j, lost := at.Job(ctx, v.ID)
		switch {
		case lost != nil:
			return lost
		case !j.State.Terminal():
			fmt.Fprintf(cmd.ErrOrStderr(),
				"the log has broken off: what ran the jobs %s has stopped, and job %s has not ended\n", at.Where(),
				v.Name)
			return term.Exit(term.ExitLeft)
		}
	}
	if err != nil || size > 0 || q.Stderr {
		return err
	}
	other, err := at.Log(ctx, v.ID, service.LogQuery{Stderr: true, Tail: 1})
	if err != nil {
		return nil // there is nothing to point at
	}
	defer other.Close()
	if n, err := other.Read(make([]byte, 1)); err == nil && n > 0 {
		fmt.Fprintln(term.Hints(cmd), "stdout is empty; see "+term.Typed(cmd, "pawl logs")+" --stderr "+
			at.Ref(ctx, &v.Job))
	}
	return nil
}

func outputCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "output JOB [PATH]",
		Short: "List the files of a job, or print one of them",
		Long: `Output lists the files of a job: those in its folder while that is there, and its results after that.
With PATH it prints the content of that file. A byte of a name that is no UTF-8 is written as \xNN,
in the list and in PATH. What cannot be looked at is listed with the reason.

` + target.JobRule,
		Example: `  pawl output wordcount
  pawl output wordcount count.txt`,
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, part string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return completePath(cmd, args[0])
			}
			return target.CompleteJob(cmd, args, part)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
				if len(args) == 2 {
					_, r, err := at.OpenOutput(ctx, v.ID, args[1])
					if err != nil {
						return err
					}
					defer r.Close()
					_, err = io.Copy(cmd.OutOrStdout(), r)
					return err
				}
				files, err := at.Output(ctx, v.ID)
				if err != nil {
					return err
				}
				return printFiles(cmd.OutOrStdout(), files, f)
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

func printFiles(out io.Writer, files []service.File, f term.Format) error {
	names := term.NamesOf(files, func(x *service.File) string { return x.Path })
	return f.Print(out, map[string]any{"files": files}, names, func() error {
		t := term.NewTable(out, true, term.Titles("SIZE", "MODIFIED", "PATH")...) // a path that is cut is none
		for _, x := range files {
			if x.Problem != "" {
				t.Row("-", "-", fmt.Sprintf("%s (%s)", x.Path, x.Problem))
				continue
			}
			t.Row(x.Size, x.Modified.Local().Format(time.DateTime), x.Path)
		}
		return t.Flush()
	})
}

// completePath completes the path of a file of a job.
func completePath(cmd *cobra.Command, ref string) (paths []cobra.Completion, _ cobra.ShellCompDirective) {
	err := target.WithJob(func(ctx context.Context, _ *cobra.Command, at *target.Target, v *service.View) error {
		files, err := at.Output(ctx, v.ID)
		for _, f := range files {
			paths = append(paths, f.Path)
		}
		return err
	})(cmd, []string{ref})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return paths, cobra.ShellCompDirectiveNoFileComp
}
