package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// mostListed is how many jobs are listed at most; see [store.Query].
const mostListed = 1000

func listCommand() *cobra.Command {
	var q store.Query
	var filter, name string
	var states, labels []string
	var f format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the jobs of the folder, newest first",
		Example: `  pawl list --limit 20
  pawl list --state RUNNING,PENDING --label project=x -o name`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fill(&q, filter, name, states, labels); err != nil {
				return err
			}
			d, err := openDesk(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer d.close()
			page, err := d.List(cmd.Context(), q)
			if err != nil {
				return err
			}
			return printList(cmd, page, f, q.Limit)
		},
	}
	cmd.Flags().IntVar(&q.Limit, "limit", 100, fmt.Sprintf("how many jobs to list, 1 to %d", mostListed))
	cmd.Flags().StringVar(&name, "name", "", "only jobs of this name")
	cmd.Flags().StringVar(&filter, "filter", "", "only jobs that this filter chooses, such as 'owner=ada created>24h'")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only jobs in this state; may be repeated")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only jobs with this label, key=value; may be repeated")
	formatFlag(cmd, &f, asTable, asJSON, asYAML, asName)
	names := make([]string, len(job.States))
	for i, s := range job.States {
		names[i] = string(s)
	}
	complete(cmd, "state", names)
	return cmd
}

// fill puts the flags of list into a query.
func fill(q *store.Query, filter, name string, states, labels []string) error {
	if q.Limit < 1 || q.Limit > mostListed {
		return &usageError{fmt.Errorf("--limit %d is out of range: give 1 to %d", q.Limit, mostListed)}
	}
	f, err := job.ParseFilter(filter, time.Now())
	if err != nil {
		return &usageError{fmt.Errorf("--filter %w", err)}
	}
	if name != "" {
		f = f.And("name", job.Is, name)
	}
	known := make([]job.State, len(states))
	for i, s := range states {
		known[i] = job.State(strings.ToUpper(s))
		if !slices.Contains(job.States, known[i]) {
			return &usageError{fmt.Errorf("--state %s is not a state: give one such as RUNNING or FINISHED", s)}
		}
	}
	f = append(f, job.WhereState(known...)...)
	for _, l := range labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return &usageError{fmt.Errorf("--label %s is not a label: give key=value", l)}
		}
		term, err := job.ParseFilter(job.Filter{{Field: job.LabelField + k, Op: job.Is, Values: []string{v}}}.String(), time.Now())
		if err != nil {
			return &usageError{fmt.Errorf("--label %s is not a label: give key=value", l)}
		}
		f = append(f, term...)
	}
	q.Filter = f
	return nil
}

func printList(cmd *cobra.Command, page pawl.Views, f format, limit int) error {
	out := cmd.OutOrStdout()
	switch f {
	case asName:
		for i := range page.Jobs {
			fmt.Fprintln(out, page.Jobs[i].ID)
		}
		return nil
	case asJSON, asYAML:
		return f.document(out, page)
	}
	now, c := time.Now(), colours(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "ID\tNAME\tKIND\t%s\tAGE\tSUMMARY\n", c.plain("STATE"))
	for i := range page.Jobs {
		j := &page.Jobs[i]
		age, summary := live.Spent(now.Sub(j.Created)), typed(cmd, live.FirstLine(j.Why))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", j.ID, j.Name, j.Kind, c.state(j.State), age, summary)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case page.Next == "":
	case limit < mostListed:
		fmt.Fprintf(out, "there are older ones: raise --limit, which is %d\n", limit)
	default:
		fmt.Fprintf(out, "there are older ones, which %s does not show: %s finds them by id or name\n", typed(cmd, "pawl list"), typed(cmd, "pawl show"))
	}
	return nil
}

func showCommand() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:               "show JOB",
		Short:             "Show one job: where it stands, why, and where its files are",
		Long:              "Show prints one job: where it stands, why, and where its files are.\n\n" + jobRule,
		Example:           "  pawl show wordcount",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		RunE: withJob(func(ctx context.Context, cmd *cobra.Command, d *desk, v *pawl.View) error {
			out := cmd.OutOrStdout()
			switch f {
			case asName:
				fmt.Fprintln(out, v.ID)
				return nil
			case asJSON, asYAML:
				return f.document(out, v)
			}
			remedy := ""
			if v.State == job.Failed {
				remedy = typed(cmd, d.remedy(ctx, &v.Job))
			}
			v.Why = typed(cmd, v.Why)
			return printJob(out, v, remedy)
		}),
	}
	formatFlag(cmd, &f, asTable, asJSON, asYAML, asName)
	return cmd
}

func printJob(out io.Writer, v *pawl.View, remedy string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", name, strings.ReplaceAll(value, "\n", "\n\t"))
		}
	}
	row("id", v.ID.String())
	row("name", v.Name)
	row("kind", v.Kind)
	row("owner", v.Owner)
	row("state", colours(out).state(v.State))
	row("why", v.Why)
	row("what to do", remedy)
	if p := v.Progress; p != nil && p.Total > 0 {
		row("progress", fmt.Sprintf("%s, %d of %d bytes", p.What, p.Done, p.Total))
	} else if p != nil {
		row("progress", fmt.Sprintf("%s, %d bytes", p.What, p.Done))
	}
	if v.Wish != "" {
		row("asked for", fmt.Sprintf("%s, by %s", v.Wish, v.WishedBy))
	}
	row("attempt", fmt.Sprintf("%d of %d", v.Attempt, v.MaxAttempts))
	if v.Recoveries > 0 {
		row("recoveries", fmt.Sprint(v.Recoveries))
	}
	row("queue", fmt.Sprintf("%s, priority %d", v.Queue, v.Priority))
	row("created", v.Created.Local().Format(time.RFC3339))
	if !v.Ended.IsZero() {
		row("ended", fmt.Sprintf("%s, after %s", v.Ended.Local().Format(time.RFC3339), live.Spent(v.Ended.Sub(v.Created))))
	}
	row("folder", v.Folder)
	row("results", v.Results)
	row("result", string(v.Result))
	row("request", string(v.Request))
	return w.Flush()
}

func historyCommand() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "history JOB",
		Short: "Show everything that happened to a job",
		Long: "History prints one line for each change of a job's state or custody, and below that the evidence of each failure: how it\n" +
			"ended, its times and usage, the ends of its logs.\n\n" + jobRule,
		Example:           "  pawl history wordcount",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		RunE: withJob(func(ctx context.Context, cmd *cobra.Command, d *desk, v *pawl.View) error {
			events, err := d.History(ctx, v.ID)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if f != asTable {
				return f.document(out, map[string]any{"events": events})
			}
			return printHistory(out, events)
		}),
	}
	formatFlag(cmd, &f, asTable, asJSON, asYAML)
	return cmd
}

func printHistory(out io.Writer, events []job.Event) error {
	w, c := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), colours(out)
	fmt.Fprintf(w, "N\tTIME\tSPENT\t%s\tCUSTODY\tCAUSE\tCODE\tMESSAGE\n", c.plain("STATE"))
	for i, e := range events {
		held := "-"
		if i+1 < len(events) {
			held = live.Spent(events[i+1].At.Sub(e.At))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.N, e.At.Local().Format("2006-01-02 15:04:05.000"), held, c.state(e.State), e.Custody, e.Cause, e.Code, live.FirstLine(e.Message))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range events {
		if len(e.Data) > 0 {
			fmt.Fprintf(out, "evidence of %d: %s\n", e.N, e.Data)
		}
	}
	return nil
}
