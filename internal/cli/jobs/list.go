package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/why"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// filterRule says where the grammar of filters is found.
const filterRule = `A filter is a list of terms such as state=RUNNING owner=ada label.project=x created>24h; all of
them must hold. pawl explain filter lists its fields and operators.`

func listCommand() *cobra.Command {
	var q store.Query
	var c choice
	var f term.Format
	var count bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first, or count them",
		Long: `List prints one line for each job that is chosen, newest first unless --sort says otherwise; or with
--count how many there are in each state. TIME is for how long the program ran, or for how long the
job is in its state; - if it ended without running, or its program was lost and left no time: the
history says when that was noticed. On a terminal a job has one line: ids are short, which every
command takes, and texts are cut; -o wide cuts nothing.

` + filterRule,
		Example: `  pawl list --limit 20
  pawl list --state RUNNING,PENDING --label project=x -o name
  pawl list --filter 'owner=ada created>24h' --sort name -o wide
  pawl list --args 'image=cat.png' --filter 'kind=thumbnail created>30d'
  pawl list --count --filter 'label.project=x'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.Limit < 1 || q.Limit > target.MostListed {
				return term.Usagef("--limit %d is out of range: give 1 to %d", q.Limit, target.MostListed)
			}
			if q.Filter, err = c.filter(); err != nil {
				return err
			}
			if !slices.Contains(store.Sorts, q.Sort) {
				return term.Usagef("--sort %s is not an order: give one of %s", q.Sort, strings.Join(sortNames(), ", "))
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				if count {
					n, err := at.Count(ctx, q.Filter)
					if err != nil {
						return err
					}
					return printCounts(cmd.OutOrStdout(), n, f, q.Filter)
				}
				page, err := at.List(ctx, q)
				if err != nil {
					return err
				}
				alone := (f == term.AsTable || f == term.AsWide) && saidOnce(page.Jobs)
				if err := printList(cmd, page, f, q); err != nil {
					return err
				}
				if alone {
					fmt.Fprintln(cmd.ErrOrStderr(),
						term.Typed(cmd, "no pawl serves the folder "+at.Dir+
							": its jobs wait; pawl serve runs them, or pawl run"))
				}
				if len(page.Jobs) == 0 {
					tellPattern(cmd.ErrOrStderr(), q.Filter)
				}
				return nil
			})(cmd, args)
		},
	}
	c.flags(cmd)
	cmd.Flags().IntVar(&q.Limit, "limit", 100, fmt.Sprintf("how many jobs to list, 1 to %d", target.MostListed))
	cmd.Flags().StringVar((*string)(&q.Sort), "sort", string(store.Newest), "order: "+
		strings.Join(sortNames(), ", ")+"; - is against it")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "counts" {
			name = "count"
		}
		return pflag.NormalizedName(name)
	})
	cmd.Flags().BoolVar(&count, "count", false, "count the jobs instead, by state")
	term.FormatFlag(cmd, &f, term.AsTable, term.AsWide, term.AsJSON, term.AsYAML, term.AsName)
	term.CompleteFlag(cmd, "sort", sortNames())
	return cmd
}

func sortNames() []string {
	names := make([]string, len(store.Sorts))
	for i, s := range store.Sorts {
		names[i] = string(s)
	}
	return names
}

// A choice is the flags that choose jobs.
type choice struct {
	text, name           string
	states, labels, args []string
}

func (c *choice) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.text, "filter", "", "only jobs that this filter chooses, such as 'owner=ada created>24h'")
	cmd.Flags().StringVar(&c.name, "name", "", "only jobs of this name")
	cmd.Flags().StringSliceVar(&c.states, "state", nil, "only jobs in this state; may be repeated")
	cmd.Flags().StringArrayVar(&c.labels, "label", nil, "only jobs with this label, key=value; may be repeated")
	cmd.Flags().StringArrayVar(&c.args, "args", nil, "only tasks with this argument, name=value; may be repeated")
	term.CompleteFlag(cmd, "state", stateNames())
}

func stateNames() []string {
	names := make([]string, len(job.States))
	for i, s := range job.States {
		names[i] = string(s)
	}
	return names
}

// filter makes one of the flags.
func (c *choice) filter() (job.Filter, error) {
	f, err := parseFilter(c.text)
	if err != nil {
		return nil, err
	}
	if c.name != "" {
		named := job.Filter{{Field: "name", Op: job.Is, Values: []string{c.name}}}
		if named, err = job.ParseFilter(named.String(), time.Now()); err != nil {
			return nil, term.Usagef("--name: %w", err)
		}
		f = append(f, named...)
	}
	known := make([]job.State, len(c.states))
	for i, s := range c.states {
		known[i] = job.State(strings.ToUpper(s))
		if !slices.Contains(job.States, known[i]) {
			return nil, term.Usagef("--state %s is not a state: give one such as RUNNING or FINISHED", s)
		}
	}
	f = append(f, job.WhereState(known...)...)
	for _, flag := range []struct {
		name, what, field string
		pairs             []string
	}{
		{"--label", "a label: give key=value", job.LabelField, c.labels},
		{"--args", "an argument: give name=value, such as image=cat.png", job.ArgsField, c.args},
	} {
		for _, pair := range flag.pairs {
			k, v, ok := strings.Cut(pair, "=")
			one := job.Filter{{Field: flag.field + k, Op: job.Is, Values: []string{v}}}
			named, err := job.ParseFilter(one.String(), time.Now())
			if !ok || err != nil {
				return nil, term.Usagef("%s %s is not %s", flag.name, pair, flag.what)
			}
			f = append(f, named...)
		}
	}
	return f, nil
}

// parseFilter reads the flag --filter.
func parseFilter(text string) (job.Filter, error) {
	f, err := job.ParseFilter(text, time.Now())
	if err != nil {
		return nil, term.Usagef("--%w; see pawl explain filter", err)
	}
	return f, nil
}

// saidOnce takes from each job the remark that nobody runs it, so that it can be said of all; it
// reports whether there was one.
func saidOnce(all []service.View) (said bool) {
	for i := range all {
		j := &all[i]
		alone := why.Alone(&j.Job, false)
		if rest, ok := strings.CutSuffix(j.Why, alone); ok && alone != "" {
			j.Why, said = rest, true
		}
	}
	return said
}

func printList(cmd *cobra.Command, page service.Views, f term.Format, q store.Query) error {
	names := term.NamesOf(page.Jobs, func(j *service.View) string { return j.ID.String() })
	return f.Print(cmd.OutOrStdout(), page, names, func() error { return printTable(cmd, page, f, q) })
}

func printTable(cmd *cobra.Command, page service.Views, f term.Format, q store.Query) error {
	out := cmd.OutOrStdout()
	now, c := time.Now(), term.Colours(out)
	columns := []term.Column{
		{Title: "ID"},
		{Title: "NAME", Least: 12},
		{Title: "STATE"},
		{Title: "TIME"},
		{Title: "EXIT"},
	}
	if f == term.AsWide {
		columns = append(columns, term.Titles("KIND", "CUSTODY", "OWNER", "QUEUE", "ATTEMPT", "CREATED", "LABELS")...)
	}
	t := term.NewTable(out, f == term.AsWide, append(columns, term.Column{Title: "WHY", Least: 16})...)
	for i := range page.Jobs {
		j := &page.Jobs[i]
		row := []any{j.ID, j.Name, c.Cell(j.State), spent(j, now), exitText(j)}
		if f == term.AsWide {
			row = append(row, j.Kind, j.Custody, term.OrDash(j.Owner), j.Queue,
				fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts),
				j.Created.Local().Format(time.DateTime), term.OrDash(labelText(j.Labels)))
		}
		why := term.Typed(cmd, live.FirstLine(j.Why))
		if j.Progress != nil && j.State == job.Running {
			why = progressText(j.State, j.Progress)
		}
		t.Row(append(row, why)...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case page.Next == "":
	case q.Limit < target.MostListed:
		fmt.Fprintf(out, "there are more: raise --limit, which is %d\n", q.Limit)
	default:
		fmt.Fprintf(out, "there are more, which %s does not show: choose with --filter, or count with --count\n",
			term.Typed(cmd, "pawl list"))
	}
	tellSince(out, q.Filter, page.Since)
	return nil
}

// spent returns how long a job has run so far; for a job that waits, how long it has waited; and
// "-" for a job that ended without running, or if the list does not know.
func spent(v *service.View, now time.Time) string {
	switch {
	case v.Ran != nil:
		return live.Spent(time.Duration(*v.Ran))
	case v.State.Terminal():
		return "-"
	}
	return live.Spent(now.Sub(v.Since))
}

// exitText is the exit code of a job's program, "-" where there is none.
func exitText(v *service.View) string {
	var r struct {
		ExitCode *int `json:"exit_code"`
	}
	if !v.Program() || json.Unmarshal(v.Result, &r) != nil || r.ExitCode == nil {
		return "-"
	}
	return strconv.Itoa(*r.ExitCode)
}

// tellSince says that older jobs were not looked at, unless the filter itself says so.
func tellSince(out io.Writer, f job.Filter, since time.Time) {
	own := slices.ContainsFunc(f, func(t job.Term) bool { return t.Field == "created" })
	if !since.IsZero() && !own {
		fmt.Fprintf(out, "only jobs submitted since %s were looked at: created> in the filter says how far back "+
			"to look\n", since.Local().Format(time.DateTime))
	}
}

// labelText writes labels in one line.
func labelText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, k+"="+live.Clean(labels[k]))
	}
	return strings.Join(parts, ",")
}

func printCounts(out io.Writer, n client.Counts, f term.Format, filter job.Filter) error {
	var there []string
	for _, s := range job.States {
		if n.States[s] > 0 {
			there = append(there, string(s))
		}
	}
	return f.Print(out, n, there, func() error {
		w, c := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), term.Colours(out)
		fmt.Fprintf(w, "%s\tJOBS\n", c.Plain("STATE"))
		for _, name := range there {
			s := job.State(name)
			fmt.Fprintf(w, "%s\t%d\n", c.State(s), n.States[s])
		}
		fmt.Fprintf(w, "%s\t%d\n", c.Plain("all"), n.Total)
		if err := w.Flush(); err != nil {
			return err
		}
		tellSince(out, filter, n.Since)
		return nil
	})
}
