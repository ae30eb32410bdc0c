package jobs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func showCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show one job: where it stands, why, and where its files are",
		Long:  "Show prints one job: where it stands, why, and where its files are.\n\n" + target.JobRule,
		Example: `  pawl show wordcount
  pawl show wordcount -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: target.CompleteJob,
		RunE: target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
			out := cmd.OutOrStdout()
			return f.Print(out, v, []string{v.ID.String()}, func() error {
				remedy := ""
				if v.State == job.Failed || v.State == job.Blocked {
					remedy = term.Typed(cmd, at.Remedy(ctx, &v.Job))
				}
				v.Why = term.Typed(cmd, v.Why)
				return printJob(out, v, remedy, term.Typed(cmd, "pawl show "+v.ID.Short()+" -o yaml"))
			})
		}),
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

// progressText says how far a job in a state is. Steps of Pawl's own count bytes.
func progressText(s job.State, p *job.Progress) string {
	text := fmt.Sprint(p.Done)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %d", p.Total)
	}
	if s != job.Running {
		text += " bytes"
	}
	if what := live.Clean(p.What); what != "" {
		text = what + ", " + text
	}
	return text
}

// printJob prints a job; all is the command that prints it whole.
func printJob(out io.Writer, v *service.View, remedy, all string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", name, strings.ReplaceAll(value, "\n", "\n\t"))
		}
	}
	row("id", v.ID.String())
	row("name", live.Clean(v.Name))
	row("kind", v.Kind)
	row("owner", live.Clean(v.Owner))
	row("state", term.Colours(out).State(v.State))
	row("why", term.CleanLines(v.Why))
	row("what to do", remedy)
	if p := v.Progress; p != nil {
		row("progress", progressText(v.State, p))
	}
	row("checkpoint", live.Clean(v.Checkpoint))
	if v.Wish != "" {
		row("asked for", fmt.Sprintf("%s, by %s", v.Wish, v.WishedBy))
	}
	row("group", v.Group)
	if !v.Until.IsZero() {
		row("fails", v.Until.Local().Format(time.RFC3339)+", unless it goes on before")
	}
	row("attempt", fmt.Sprintf("%d of %d", v.Attempt, v.MaxAttempts))
	if v.Recoveries > 0 {
		row("recoveries", fmt.Sprint(v.Recoveries))
	}
	row("queue", fmt.Sprintf("%s, priority %d", v.Queue, v.Priority))
	row("labels", labelText(v.Labels))
	if v.Hidden {
		row("hidden", "lists leave it out")
	}
	row("created", v.Created.Local().Format(time.RFC3339))
	if v.Ran != nil && (!v.Program() || v.Result == nil) { // else the result has both
		row("started", fmt.Sprintf("%s, and has run for %s", v.Started.Local().Format(time.RFC3339),
			live.Spent(time.Duration(*v.Ran))))
	}
	if !v.Ended.IsZero() {
		row("ended", fmt.Sprintf("%s, after %s", v.Ended.Local().Format(time.RFC3339),
			live.Spent(v.Ended.Sub(v.Created))))
	}
	row("folder", v.Folder)
	row("results", v.Results)
	if err := w.Flush(); err != nil {
		return err
	}
	term.PrintFields(out, "notes", v.Notes, all)
	term.PrintFields(out, "result", v.Result, all)
	term.PrintFields(out, "request", v.Request, all)
	return nil
}
