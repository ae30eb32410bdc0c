package jobs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func historyCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "history JOB",
		Short: "Show everything that happened to a job",
		Long: `History prints one line for each change of a job's state or custody, and for each event that somebody
or the job itself wrote (pawl event); below that how long it has been in each state; and then the
evidence of each failure: how it ended, its times and usage, the ends of its logs.

` + target.JobRule,
		Example: `  pawl history wordcount
  pawl history wordcount -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: target.CompleteJob,
		RunE: target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
			h, err := at.History(ctx, v.ID)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if f != term.AsTable {
				return f.Document(out, h)
			}
			return printHistory(out, h, term.Typed(cmd, "pawl history "+v.ID.Short()+" -o yaml"))
		}),
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML)
	return cmd
}

// printHistory prints a history; all is the command that prints it whole.
func printHistory(out io.Writer, h client.History, all string) error {
	c := term.Colours(out)
	t := term.NewTable(out, false, term.Column{Title: "N"}, term.Column{Title: "TIME"}, term.Column{Title: "SPENT"},
		term.Column{Title: "STATE"},
		term.Column{Title: "CUSTODY", Spare: 2}, term.Column{Title: "CAUSE", Spare: 1},
		term.Column{Title: "CODE", Least: 12}, term.Column{Title: "MESSAGE", Least: 16})
	for i, e := range h.Events {
		held := "-"
		if i+1 < len(h.Events) {
			held = live.Spent(h.Events[i+1].At.Sub(e.At))
		}
		at := e.At.Local()
		t.Row(eventNumber(&e), term.Cell{
			Text:  at.Format("2006-01-02 15:04:05.000"),
			Short: at.Format("15:04:05.000"),
		}, held,
			c.Cell(e.State), e.Custody, e.Cause, e.Code, live.FirstLine(eventText(&e)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(h.Spent) > 0 {
		fmt.Fprintln(out)
		t := term.NewTable(out, false, term.Titles("STATE", "IN ALL", "TIMES")...)
		for _, s := range h.Spent {
			t.Row(c.Cell(s.State), live.Spent(time.Duration(s.Seconds*float64(time.Second))), s.Times)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, e := range h.Events {
		what := "evidence of "
		if e.Name != "" {
			what = "data of "
		}
		term.PrintFields(out, what+eventNumber(&e), e.Data, all)
	}
	return nil
}

// eventNumber is the number of an event in its job's history: that of a change, and with a second
// one what was written after that change.
func eventNumber(e *job.Event) string {
	if e.Sub > 0 {
		return fmt.Sprintf("%d.%d", e.N, e.Sub)
	}
	return fmt.Sprint(e.N)
}

// eventText is what an event says. One that was written begins with its name.
func eventText(e *job.Event) string {
	switch {
	case e.Name == "":
		return e.Message
	case e.Message == "":
		return e.Name
	}
	return e.Name + ": " + e.Message
}
