package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// workerRule says how a worker is named.
const workerRule = `WORKER is the id of a process in the list, or its host or host:pid, if that is only one process.`

func workersCommand() *cobra.Command {
	cmd := workerList.by(&cobra.Command{
		Use:   "workers",
		Short: "List the processes that work, or let them drain or stop",
		Long: `Workers lists the processes that run jobs, and those that ended or were lost within an hour; see
pawl workers list. With one of the commands below it shows one of them, or says what it should do.`,
		Example: "  pawl workers",
		Args:    term.NoSubject,
	})
	cmd.AddCommand(workersListCommand(), workersShowCommand(),
		steerCommand("drain", "Let workers claim nothing more", "draining",
			"What runs in them ends in its own time; they stay there, "+
				"and their duties go to others.", (*client.Client).Drain),
		steerCommand("undrain", "Let workers that drain claim again", "claiming again",
			"Those that were told to stop go on stopping.",
			(*client.Client).Undrain),
		steerCommand("stop", "Let workers end", "stopping",
			"They claim nothing more, and end once nothing is left in their hands, however long "+
				"that takes. Programs go on.", (*client.Client).Stop),
	)
	return cmd
}

func workersListCommand() *cobra.Command {
	return workerList.by(&cobra.Command{
		Use:   "list",
		Short: "List the processes that work",
		Long: `List prints one line for each process, the latest first: its host, version and roles; how many of
its slots it uses; how many jobs it holds, and which one for the longest time; and whether it lives.
A process that has ended, or has not renewed its lease, is listed for an hour; the last process of a
machine without a live one, for a week.`,
		Example: "  pawl workers list\n  pawl workers list -o wide",
		Args:    cobra.NoArgs,
	})
}

var workerList = list[service.Worker]{
	ask:   func(ctx context.Context, at *target.Target) ([]service.Worker, error) { return at.Workers(ctx) },
	name:  func(w *service.Worker) string { return w.ID.String() },
	table: printWorkers,
	wide:  true,
	argument: func(w *service.Worker) cobra.Completion {
		if over(*w) {
			return ""
		}
		return cobra.CompletionWithDesc(w.ID.Short(), w.Process.String())
	},
}

func workersShowCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:               "show WORKER",
		Short:             "Show one process, and the jobs in its hands",
		Long:              "Show prints one process, and the jobs in its hands.\n\n" + workerRule,
		Example:           "  pawl workers show $(hostname)\n  pawl workers show $(hostname) -o yaml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: workerList.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				id, err := lookupWorker(ctx, at, args[0])
				if err != nil {
					return err
				}
				w, err := at.Worker(ctx, id)
				if err != nil {
					return err
				}
				return f.Print(cmd.OutOrStdout(), w, []string{w.ID.String()},
					func() error { return printWorker(cmd.OutOrStdout(), &w) })
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

// steerCommand is a command that tells processes what to do.
func steerCommand(name, short, done, about string,
	tell func(*client.Client, context.Context, job.ID) (service.Worker, error),
) *cobra.Command {
	return &cobra.Command{
		Use:               name + " WORKER...",
		Short:             short,
		Long:              short + ". " + about + "\n\n" + workerRule,
		Example:           "  pawl workers " + name + " $(hostname)",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: workerList.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(openWorkers, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				for _, ref := range args {
					id, err := lookupWorker(ctx, at, ref)
					if err != nil {
						return err
					}
					w, err := tell(at.Client, ctx, id)
					if err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s (%s): %s\n", w.ID.Short(),
						live.Clean(w.Process.String()), done)
				}
				return nil
			})(cmd, args)
		},
	}
}

// openWorkers opens the target of a process: without one there is nobody to tell.
func openWorkers(ctx context.Context, cmd *cobra.Command) (*target.Target, error) {
	at, err := target.OpenProcess(ctx, cmd)
	if at != nil || err != nil {
		return at, err
	}
	dir, err := target.DataDir(cmd)
	if err != nil {
		return nil, err
	}
	return nil, job.Errorf(job.NotFound, "no pawl runs in folder %s: there is nobody to tell", dir)
}

// lookupWorker finds the process that ref names; see workerRule. If ref is a host, live processes
// count first.
func lookupWorker(ctx context.Context, at *target.Target, ref string) (job.ID, error) {
	if id, err := job.ParseID(ref); err == nil {
		return id, nil
	}
	all, err := at.Workers(ctx)
	if err != nil {
		return job.ID{}, err
	}
	var found []service.Worker
	for _, w := range all {
		if w.ID.Fits(ref) || w.Host == ref || w.Process.String() == ref {
			found = append(found, w)
		}
	}
	if alive := slices.DeleteFunc(slices.Clone(found), over); len(alive) > 0 {
		found = alive
	}
	switch len(found) {
	case 0:
		return job.ID{}, job.Errorf(job.NotFound, "no worker %q %s: see pawl workers", ref, at.Where())
	case 1:
		return found[0].ID, nil
	}
	var ids strings.Builder
	for i := range found {
		fmt.Fprintf(&ids, "\n%s  %s  %s", found[i].ID.Short(), live.Clean(found[i].Process.String()), found[i].State)
	}
	return job.ID{}, job.Errorf(job.Conflict, "%q names more than one worker: give the id of one of them%s", ref, &ids)
}

// over reports whether a process is there no more.
func over(w service.Worker) bool {
	return w.State == service.WorkerEnded || w.State == service.WorkerGone
}

func printWorkers(out io.Writer, all []service.Worker, wide bool) error {
	now := time.Now()
	columns := []term.Column{
		{Title: "ID"},
		{Title: "HOST", Least: 10},
		{Title: "VERSION", Least: 7, Spare: 2},
		{Title: "ROLES", Least: 8, Spare: 1},
		{Title: "SLOTS"},
		{Title: "JOBS"},
		{Title: "OLDEST", Least: 8},
		{Title: "STATE"},
	}
	if wide {
		columns = append(columns, term.Titles("PID", "MACHINE", "QUEUES", "KINDS", "TENANTS", "ADDRESS")...)
	}
	t := term.NewTable(out, wide, columns...)
	for i := range all {
		w := &all[i]
		cells := []any{
			w.ID.Short(), term.OrDash(w.Host), term.OrDash(w.Version), term.OrDash(rolesText(w)),
			slotsText(w), w.Held, oldestText(w, now),
			term.Cell{Text: stateText(w), Short: string(w.State)},
		}
		if wide {
			cells = append(cells, w.PID, term.OrDash(w.Machine), term.OrDash(strings.Join(w.Queues, ",")),
				term.OrDash(strings.Join(w.Kinds, ",")),
				term.OrDash(strings.Join(w.Tenants, ",")), term.OrDash(w.Address))
		}
		t.Row(cells...)
	}
	return t.Flush()
}

func rolesText(w *service.Worker) string {
	roles := make([]string, len(w.Roles))
	for i, r := range w.Roles {
		roles[i] = string(r)
	}
	return strings.Join(roles, ",")
}

// slotsText is how many slots are used, of all that there are.
func slotsText(w *service.Worker) string {
	var sum service.Slots
	for _, s := range w.Slots {
		sum.Used, sum.All = sum.Used+s.Used, sum.All+s.All
	}
	return fmt.Sprintf("%d/%d", sum.Used, sum.All)
}

func oldestText(w *service.Worker, now time.Time) string {
	if w.Oldest == nil {
		return "-"
	}
	what := "a job of another tenant"
	if !w.Oldest.ID.IsZero() {
		what = w.Oldest.ID.Short()
	}
	return what + " for " + live.Spent(now.Sub(w.Oldest.Since))
}

func stateText(w *service.Worker) string {
	if over(*w) {
		return string(w.State) + " since " + w.Since.Local().Format(time.DateTime)
	}
	return string(w.State)
}

func printWorker(out io.Writer, w *service.WorkerView) error {
	now := time.Now()
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s:\t%s\n", name, live.Clean(value))
		}
	}
	row("id", w.ID.String())
	row("state", stateText(&w.Worker))
	row("process", w.Process.String())
	row("version", w.Version)
	row("roles", rolesText(&w.Worker))
	row("machine", w.Machine)
	row("queues", strings.Join(w.Queues, ", "))
	row("kinds", strings.Join(w.Kinds, ", "))
	row("tenants", cmp.Or(strings.Join(w.Tenants, ", "), "all"))
	row("address", w.Address)
	var lanes []string
	for _, lane := range job.Lanes {
		if s, ok := w.Slots[lane]; ok {
			lanes = append(lanes, fmt.Sprintf("%s %d/%d", lane, s.Used, s.All))
		}
	}
	row("slots", strings.Join(lanes, ", "))
	row("started", w.Started.Local().Format(time.RFC3339))
	row("heard of", w.Renewed.Local().Format(time.RFC3339))
	row("jobs", fmt.Sprint(w.Held))
	if err := t.Flush(); err != nil || len(w.Jobs) == 0 {
		return err
	}
	fmt.Fprintln(out)
	c := term.Colours(out)
	held := term.NewTable(out, false, term.Column{Title: "ID"}, term.Column{Title: "NAME", Least: 12},
		term.Column{Title: "KIND", Least: 4, Spare: 1}, term.Column{Title: "STATE"},
		term.Column{Title: "HELD FOR"}, term.Column{Title: "WHY", Least: 12})
	for i := range w.Jobs {
		j := &w.Jobs[i]
		held.Row(j.ID, j.Name, j.Kind, c.Cell(j.State), live.Spent(now.Sub(j.Since)), live.FirstLine(j.Why))
	}
	if err := held.Flush(); err != nil {
		return err
	}
	if more := w.Held - len(w.Jobs); more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
	return nil
}
