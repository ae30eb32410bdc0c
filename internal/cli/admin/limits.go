package admin

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// keyRule says what keys there are.
const keyRule = `KEY is what jobs share. Each job has these keys without naming them; they count where a limit is set:

  tenant                              all jobs
  user/NAME                           those of a user
  kind/NAME                           those of a kind; programs are of the kind app
  system/NAME                         programs on a system, such as local
  system/NAME/user/NAME               programs of a user there
  system/NAME/partition/NAME          programs in a partition there
  system/NAME/partition/NAME/user/NAME

A job file names more in limits, such as license/matlab. A * as the last part stands for a family of
keys: user/* gives each user a limit of that size, except those users whose own limit is set.

Some keys count events, not jobs. Their limits are rates: at most MOST events within any --per.

  starts/system/NAME                  programs that begin on a system
  launches/system/NAME                programs that are launched there
  dials/system/NAME                   new connections to its host by SSH
  releases/GROUP                      blocked jobs that go on once what blocked them has cleared;
                                      without a limit 10 within 1s

Two kinds of key are Pawl's own. One job has a turn of each at a time. They are listed while they
are in use, and cannot be set:

  order/KEY                           jobs that go in order
  unique/KIND/KEY                     equal jobs that never run at once`

func limitsCommand() *cobra.Command {
	cmd := limitList.by(&cobra.Command{
		Use:   "limits",
		Short: "Show and set how many jobs run at once, and at which rate",
		Long: `Limits lists how many jobs may run at once under each key, how many do, and how many wait; see pawl
limits list. With one of the commands below it shows one key, or sets its limit.

` + keyRule,
		Example: "  pawl limits",
		Args:    term.NoSubject,
	})
	cmd.AddCommand(limitsListCommand(), limitsShowCommand(), limitsSetCommand(), limitsRemoveCommand())
	return cmd
}

func limitsListCommand() *cobra.Command {
	return limitList.by(&cobra.Command{
		Use:   "list",
		Short: "List the limits",
		Long: `List prints one line for each limit that is set and each key in use: how many jobs may have a turn, how
many have one, how many wait for one, and how many programs have a place among those that are made
ready ahead of their turn, whether they wait already or are still being made ready. MOST is shut if
a group of blocked jobs closes the line; see pawl recovery list. Below these it prints one line for
each rate: when the next moment is free; a family shows it for each key in use.`,
		Example: "  pawl limits list\n  pawl limits list -o json",
		Args:    cobra.NoArgs,
	})
}

var limitList = list[service.LimitUse]{
	ask:   func(ctx context.Context, at *target.Target) ([]service.LimitUse, error) { return at.Limits(ctx) },
	name:  func(l *service.LimitUse) string { return l.Key },
	table: printLimits,
	none:  "no limit is set: pawl limits set KEY MOST sets one",
}

func printLimits(out io.Writer, all []service.LimitUse, _ bool) error {
	counts := term.NewTable(out, false, append([]term.Column{{Title: "KEY", Least: 12}},
		term.Titles("MOST", "IN USE", "WAITING", "AHEAD")...)...)
	rates := term.NewTable(out, false, append([]term.Column{{Title: "RATE", Least: 12}},
		term.Titles("MOST", "WITHIN", "FREE IN")...)...)
	for i := range all {
		if l := &all[i]; job.Rated(l.Key) {
			rates.Row(l.Key, l.Set.Most, l.Set.Per, freeIn(l))
		} else {
			counts.Row(l.Key, mostOf(l), l.InUse, l.Waiting, l.Ahead)
		}
	}
	if len(counts.Rows) > 0 {
		if err := counts.Flush(); err != nil || len(rates.Rows) == 0 {
			return err
		}
		fmt.Fprintln(out)
	}
	return rates.Flush()
}

// freeIn says when the next moment of a key is free.
func freeIn(l *service.LimitUse) string {
	if l.FreeIn == nil {
		return "-"
	}
	return strconv.FormatInt(*l.FreeIn, 10) + " ms"
}

// mostOf says how many jobs may have a turn.
func mostOf(l *service.LimitUse) string {
	switch {
	case l.Shut:
		return "shut"
	case l.Set == nil:
		return "-"
	}
	return strconv.Itoa(l.Set.Most)
}

func limitsShowCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show a limit, and the owners who share it",
		Long: "Show prints a limit, and for each owner how many jobs have a turn and how many wait. For a\n" +
			"family it counts all its keys together.\n\n" + keyRule,
		Example: "  pawl limits show system/local\n  pawl limits show system/local -o yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				l, err := at.Limit(ctx, args[0])
				if err != nil {
					return err
				}
				return f.Print(cmd.OutOrStdout(), l, []string{l.Key},
					func() error { return printLimit(cmd.OutOrStdout(), &l) })
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

func printLimit(out io.Writer, l *service.LimitUse) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "key\t%s\n", live.Clean(l.Key))
	if job.Rated(l.Key) {
		of := ""
		if l.Set.Key != l.Key {
			of = ", as " + l.Set.Key + " says"
		}
		fmt.Fprintf(w, "most\t%d within %s: one every %s%s\nfree in\t%s\n", l.Set.Most, l.Set.Per, l.Set.Every(),
			of, freeIn(l))
		return w.Flush()
	}
	most := "any number of jobs"
	if l.Set != nil {
		most = phrase.Plural(l.Set.Most, "job")
		if l.Set.Key != l.Key {
			most += ", as " + l.Set.Key + " says"
		}
		if job.Ordered(l.Key) {
			most += ", for all owners together"
		}
	}
	if l.Shut {
		most += "; a group of blocked jobs closes the line"
		if l.Places != nil {
			most += " but for " + phrase.Plural(*l.Places, "job")
		}
		most += ": see pawl recovery list"
	}
	fmt.Fprintf(w, "most\t%s\nin use\t%d\nwaiting\t%d\n", most, l.InUse, l.Waiting)
	if l.Ahead > 0 || l.Set != nil && l.Set.Ahead > 0 {
		most := ""
		if l.Set != nil {
			most = fmt.Sprintf(", at most %d", l.Set.Places(job.AheadOf(l.Key)))
		}
		fmt.Fprintf(w, "made ready\t%s ahead of their turn%s\n", phrase.Plural(l.Ahead, "program"), most)
	}
	some := func(what string, n, of int, name func(i int) string) {
		for i := range n {
			fmt.Fprintf(w, "%s\t%s\n", what, name(i))
			what = ""
		}
		if more := of - n; more > 0 && n > 0 {
			fmt.Fprintf(w, "\tand %d more\n", more)
		}
	}
	some("jobs", len(l.Jobs), l.InUse, func(i int) string { return l.Jobs[i].String() })
	some("keys", len(l.Keys), l.KeysInUse, func(i int) string { return live.Clean(l.Keys[i]) })
	if err := w.Flush(); err != nil || len(l.Owners) == 0 {
		return err
	}
	fmt.Fprintln(out)
	t := term.NewTable(out, false, append([]term.Column{{Title: "OWNER", Least: 12}},
		term.Titles("WEIGHT", "IN USE", "WAITING")...)...)
	for _, o := range l.Owners {
		t.Row(o.Owner, o.Weight, o.InUse, o.Waiting)
	}
	return t.Flush()
}

func limitsSetCommand() *cobra.Command {
	var l job.Limit
	var per time.Duration
	var preset string
	cmd := &cobra.Command{
		Use:   "set KEY [MOST]",
		Short: "Set how many jobs may run at once, or how often something happens",
		Long: `Set sets how many jobs may have turns of a key at once. It takes effect at once: waiting jobs start as
far as it allows, and running jobs are not stopped. A lower limit takes no turn away: a job that is
PENDING with one still starts. With 0 no job gets a turn. Programs are made ready ahead of their turn,
twice as many as may run unless --ahead says otherwise. Owners with waiting jobs get equal shares, or
as --weight says.

With --per it sets a rate: no time of that length holds more than MOST. Moments are handed out
evenly, one after the other, to all processes; they are a little farther apart than that, so that
one may be used 100 ms late. With --preset tapis it sets the rates that Tapis Jobs has for a system
(KEY is system/NAME): 10 starts and 8 launches within 2s, and 8 connections within 4s.

` + keyRule,
		Example: "  pawl limits set system/local 50\n  pawl limits set 'user/*' 10\n  pawl limits set " +
			"license/matlab 2 --weight ada=2\n" +
			"  pawl limits set launches/system/local 8 --per 2s\n  pawl limits set system/lab --preset tapis",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.Per = job.Duration(per)
			limits, err := limitsOf(l, preset, args)
			if err != nil {
				return err
			}
			return target.With(target.OpenWriting,
				func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
					for _, l := range limits {
						set, err := at.SetLimit(ctx, l)
						if err != nil {
							return err
						}
						if err := printLimit(cmd.OutOrStdout(), &set); err != nil {
							return err
						}
					}
					return nil
				})(cmd, args)
		},
	}
	term.DurationVar(cmd, &per, "per", 0, "of a rate: within which time at most MOST happen, such as 2s")
	cmd.Flags().StringVar(&preset, "preset", "", "the rates of another service, and no MOST: tapis")
	cmd.Flags().IntVar(&l.Ahead, "ahead", 0, "how many programs are made ready before their turn comes; 0: twice MOST")
	cmd.Flags().StringToIntVar(&l.Weights, "weight", nil, "the shares of owners, such as ada=2,bob=1")
	return cmd
}

// limitsOf returns the limits that set is asked for.
func limitsOf(l job.Limit, preset string, args []string) ([]job.Limit, error) {
	if preset == "" {
		if len(args) < 2 {
			return nil, job.Errorf(job.Invalid, "MOST is missing: give it after the key, or give --preset")
		}
		most, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, job.Errorf(job.Invalid, "%q is not a number of jobs: give 0 to %d", args[1], job.MaxTurns)
		}
		l.Key, l.Most = args[0], most
		return []job.Limit{l}, nil
	}
	system, is := strings.CutPrefix(args[0], "system/")
	switch {
	case preset != "tapis":
		return nil, job.Errorf(job.Invalid, "there is no preset %q: there is tapis", preset)
	case !is || strings.Contains(system, "/"):
		return nil, job.Errorf(job.Invalid, "%q is no system: give a key such as system/local", args[0])
	case len(args) > 1 || l.Per != 0 || l.Ahead != 0 || l.Weights != nil:
		return nil, job.Errorf(job.Invalid, "--preset sets everything: give only the key with it")
	}
	return job.Tapis(system), nil
}

func limitsRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove KEY",
		Short: "Take a limit away",
		Long: "Remove takes a limit away: any number of jobs may have turns of the key then, unless its " +
			"family has a limit.\n\n" + keyRule,
		Example: "  pawl limits remove system/local",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.OpenWriting,
				func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
					if err := at.RemoveLimit(ctx, args[0]); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "limit %s: removed\n", live.Clean(args[0]))
					return nil
				})(cmd, args)
		},
	}
}
