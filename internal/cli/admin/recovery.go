package admin

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/jobs"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
)

// groupRule says how a group is named.
const groupRule = `GROUP is the key of a group, 24 hexadecimal digits, as pawl recovery list and pawl show JOB print
it. The filter group=GROUP chooses its jobs: for pawl list, pawl cancel, pawl pause and others.`

func recoveryCommand() *cobra.Command {
	cmd := groupList.by(&cobra.Command{
		Use:   "recovery",
		Short: "Show what blocks jobs, and let them go on or not",
		Long: `Recovery lists the groups of blocked jobs: all that wait for the same are one group, and are tested
together; see pawl recovery list. With one of the commands below it shows a group, has it tested at
once, lets its jobs go on without a test, or gives them up.

` + groupRule,
		Example: `  pawl recovery
  pawl list --filter group=$(pawl recovery list -o name)
  pawl cancel --filter group=$(pawl recovery list -o name)`,
		Args: term.NoSubject,
	})
	cmd.AddCommand(recoveryListCommand(), recoveryShowCommand(),
		turnCommand(turning{groups.TryNow, service.ActTry, "is tested now"}, "Test now whether blocked jobs may go on",
			"Try has the condition tested at once that blocks a group, or the group of a job. It does not wait "+
				"for the test: see pawl recovery show."),
		turnCommand(turning{groups.Release, service.ActRelease, "goes on"}, "Let blocked jobs go on without a test",
			`Release lets the jobs of a group go on one after the other, at the rate of releases, as if the
condition had cleared. A job that is named goes on at once. What blocked them may do so again.`),
		turnCommand(turning{groups.GiveUp, service.ActGiveUp, "given up"}, "Fail blocked jobs at once",
			`Give-up fails the jobs of a group, or the jobs that are named, with the code RECOVERY_GIVEN_UP. A
job whose program may still run is left out of a group, and is refused by name: cancel it with
pawl cancel, or with --force if its end can never be confirmed.`),
	)
	return cmd
}

func recoveryListCommand() *cobra.Command {
	return groupList.by(&cobra.Command{
		Use:   "list",
		Short: "List what blocked jobs wait for",
		Long: `List prints one line for each group of blocked jobs: the condition that blocks them, how many are
blocked, how many wait BEHIND them in the line that the group closes, for how long the first has
been blocked, how many tests were made and when the last was, when the next one is, and what the
last one said.`,
		Example: "  pawl recovery list\n  pawl recovery list -o json",
		Args:    cobra.NoArgs,
	})
}

var groupList = list[service.BlockedGroup]{
	ask:   func(ctx context.Context, at *target.Target) ([]service.BlockedGroup, error) { return at.Blocked(ctx) },
	name:  func(g *service.BlockedGroup) string { return g.Key },
	table: printGroups,
	none:  "no job is blocked",
	argument: func(g *service.BlockedGroup) cobra.Completion {
		return cobra.CompletionWithDesc(g.Key, fmt.Sprintf("%s, %s", g.Code, phrase.Plural(g.Jobs, "job")))
	},
}

func printGroups(out io.Writer, all []service.BlockedGroup, _ bool) error {
	now := time.Now()
	t := term.NewTable(out, false, term.Column{Title: "GROUP"}, term.Column{Title: "CONDITION", Least: 12},
		term.Column{Title: "JOBS"}, term.Column{Title: "BEHIND"},
		term.Column{Title: "SINCE"}, term.Column{Title: "TESTED", Spare: 2}, term.Column{Title: "NEXT"},
		term.Column{Title: "RESULT", Least: 12, Spare: 1})
	for i := range all {
		g := &all[i]
		t.Row(g.Key, g.Code, g.Jobs, g.Behind, live.Spent(now.Sub(g.Since)), tested(g, now), nextTest(g, now),
			term.OrDash(live.FirstLine(g.Result)))
	}
	return t.Flush()
}

// tested says how often a group was tested, and how long ago the last time was.
func tested(g *service.BlockedGroup, now time.Time) string {
	if g.Tests == 0 {
		return "-"
	}
	return fmt.Sprintf("%d, %s ago", g.Tests, live.Spent(now.Sub(g.Tested)))
}

// nextTest says when a group is tested next.
func nextTest(g *service.BlockedGroup, now time.Time) string {
	switch {
	case g.Clear:
		return "clear"
	case g.NextTest.IsZero():
		return "-"
	case g.NextTest.After(now):
		return "in " + live.Spent(g.NextTest.Sub(now))
	}
	return "now"
}

func recoveryShowCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "show GROUP",
		Short: "Show a group of blocked jobs, what blocks it, and its tests",
		Long:  "Show prints a group of blocked jobs: what blocks it, how that is tested, and when.\n\n" + groupRule,
		Example: "  pawl recovery show $(pawl recovery list -o name)\n  pawl recovery show $(pawl " +
			"recovery list -o name) -o yaml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: groupList.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				g, err := at.BlockedBy(ctx, args[0])
				if err != nil {
					return err
				}
				return f.Print(cmd.OutOrStdout(), g, []string{g.Key},
					func() error { return printGroup(cmd.OutOrStdout(), &g) })
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

func printGroup(out io.Writer, g *service.BlockedGroup) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, strings.ReplaceAll(value, "\n", "\n\t"))
		}
	}
	row("group", g.Key)
	row("condition", string(g.Code))
	row("message", term.CleanLines(g.Message))
	row("why", term.CleanLines(g.Why))
	row("jobs", phrase.Plural(g.Jobs, "job")+", since "+g.Since.Local().Format(time.RFC3339))
	if g.Line != "" {
		row("behind", phrase.Plural(g.Behind, "job")+" in the line of "+live.Clean(g.Line)+", which it closes")
	}
	tester := live.Clean(g.Tester)
	for _, k := range slices.Sorted(maps.Keys(g.Params)) {
		tester += " " + live.Clean(k+"="+g.Params[k])
	}
	if g.Machine != "" {
		tester += ", on machine " + live.Clean(g.Machine)
	}
	row("tester", tester)
	row("policy", term.Stages(g.Policy.Stages))
	row("what to do", target.Advice(g.Code, true, target.SystemOf(g)))
	return w.Flush()
}

// A turning is what a command wants of blocked jobs.
type turning struct {
	groups.Action
	action service.Action
	done   string // what becomes of a job that is named
}

func turnCommand(t turning, short, long string) *cobra.Command {
	var b jobs.Bulk
	name := strings.ReplaceAll(string(t.Action), "_", "-")
	cmd := &cobra.Command{
		Use:   name + " [GROUP|JOB...]",
		Short: short,
		Long:  long + "\n\n" + groupRule + "\n" + target.JobRule + "\n\n" + jobs.BulkRule,
		Example: "  pawl recovery " + name + " $(pawl recovery list -o name)\n  pawl recovery " + name +
			" wordcount\n" +
			"  pawl recovery " + name + " --filter 'state=BLOCKED label.project=x'",
		Args:              b.Args(math.MaxInt),
		ValidArgsFunction: completeBlocked,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: t.action})
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				if err := at.MakeWritable(ctx, node.Options{}); err != nil {
					return err
				}
				for _, ref := range args {
					if err := t.do(ctx, cmd.OutOrStdout(), at, ref); err != nil {
						return err
					}
				}
				if at.Node != nil && t.Action != groups.GiveUp {
					fmt.Fprintln(cmd.OutOrStdout(),
						term.Typed(cmd, "no pawl runs in this folder now: pawl run goes on with it"))
				}
				return nil
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}

// do does to a group, or to a job, what is wanted.
func (t *turning) do(ctx context.Context, out io.Writer, at *target.Target, ref string) error {
	if job.IsGroup(ref) { // which is neither an id of a job nor the end of one
		g, err := at.ActOnGroup(ctx, t.Action, ref)
		if err == nil {
			fmt.Fprintf(out, "group %s (%s): %s\n", g.Key, g.Code, term.CleanLines(g.Why))
		}
		return err
	}
	v, err := at.Lookup(ctx, ref)
	if err != nil {
		return err
	}
	if v, err = at.ActOnJob(ctx, t.Action, v.ID); err == nil {
		fmt.Fprintf(out, "job %s (%s): %s, %s\n", live.Clean(v.Name), v.ID, t.done, v.State)
	}
	return err
}

// completeBlocked completes the keys of groups, and the jobs in them.
func completeBlocked(cmd *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
	groups, _ := groupList.complete(cmd, args, part)
	jobs, how := target.CompleteJobs(job.WhereState(job.Blocked))(cmd, args, part)
	return append(groups, jobs...), how
}
