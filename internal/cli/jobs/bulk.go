package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// BulkRule says how many jobs are chosen.
const BulkRule = `With --filter instead of JOB it is done with all jobs that the filter chooses, newest first, and
--dry-run only counts them. Where it chooses none the exit code is 2.

` + filterRule

// Bulk is the flags of a command that can act on many jobs.
type Bulk struct {
	text   string
	all    bool
	dryRun bool

	asks bool // before it does anything, unless --yes is given
	yes  bool
}

// Flags adds the flags that choose many jobs.
func (b *Bulk) Flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.text, "filter", "", "all jobs that this filter chooses, instead of JOB")
	cmd.Flags().BoolVar(&b.all, "all", false, "all jobs, instead of JOB")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "only say how many jobs that would be")
	if b.asks {
		cmd.Flags().BoolVarP(&b.yes, "yes", "y", false, "do not ask")
	}
}

// Args sees to it that either up to most jobs are named, or a filter is given.
func (b *Bulk) Args(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		chosen := cmd.Flags().Changed("filter") || b.all
		switch {
		case chosen && len(args) > 0:
			return errors.New("jobs are named, and also chosen by --filter or --all: do only one of these")
		case chosen && b.all && cmd.Flags().Changed("filter"):
			return errors.New("--all and --filter are both given: give one of them")
		case chosen && !b.all && strings.TrimSpace(b.text) == "":
			return errors.New("--filter is empty: give --all if all jobs are meant")
		case !chosen && len(args) == 0:
			return errNoChoice
		case !chosen && b.dryRun:
			return errors.New("--dry-run goes with --filter or --all")
		}
		return cobra.MaximumNArgs(most)(cmd, args)
	}
}

// Run does one action with all jobs that are chosen, and says what has become of them.
func (b *Bulk) Run(cmd *cobra.Command, act service.Bulk) (err error) {
	if act.Filter, err = parseFilter(b.text); err != nil {
		return err
	}
	act.DryRun = b.dryRun
	return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
		out, what := cmd.OutOrStdout(), strings.ReplaceAll(string(act.Action), "_", "-")
		if b.asks && !b.yes && !b.dryRun {
			if err := b.confirm(ctx, cmd, at, act); err != nil {
				return err
			}
		}
		if !b.dryRun {
			if err := at.MakeWritable(ctx, node.Options{}); err != nil {
				return err
			}
		}
		a, err := at.Bulk(ctx, act)
		if err != nil {
			return err
		}
		if b.dryRun {
			fmt.Fprintf(out, "%s would be chosen for %s\n", phrase.Plural(a.Matched, "job"), what)
			tellSince(out, act.Filter, a.Since)
			if a.Matched == 0 {
				tellPattern(cmd.ErrOrStderr(), act.Filter)
			}
			return nil
		}
		if a.Matched == 0 && !b.all {
			tellPattern(cmd.ErrOrStderr(), act.Filter)
			return term.Usagef("no job %s fits the filter: nothing was done", at.Where())
		}
		fmt.Fprintf(out, "%s: done with %d of %s\n", what, a.Done, phrase.Plural(a.Matched, "job"))
		tellSince(out, act.Filter, a.Since)
		if term.Quiet(cmd) {
			out = cmd.ErrOrStderr()
		}
		for _, r := range a.Refusals {
			fmt.Fprintf(out, "%s: %s\n", r.Job, r.Error)
		}
		if n := a.Refused - len(a.Refusals); n > 0 {
			fmt.Fprintf(out, "and %d more refused\n", n)
		}
		if at.Node != nil && a.Done > 0 &&
			strings.Contains(" cancel pause resume resubmit try release ", " "+string(act.Action)+" ") {
			fmt.Fprintln(cmd.OutOrStdout(),
				term.Typed(cmd, "no pawl runs in this folder now: pawl run goes on with what does not end at once"))
		}
		if a.Refused > 0 {
			return term.Exit(term.ExitInput)
		}
		return nil
	})(cmd, nil)
}

// tellPattern says of a filter that chose nothing how a pattern is written, if = stands before what
// looks like one.
func tellPattern(out io.Writer, f job.Filter) {
	for _, t := range f {
		if i := slices.IndexFunc(t.Values, func(v string) bool { return strings.ContainsAny(v, "*?") }); i >= 0 &&
			(t.Op == job.Is || t.Op == job.IsNot) {
			fmt.Fprintf(out, "%s%s%s takes the value as it stands: a pattern is written with ~, as in %s~%s\n",
				t.Field, t.Op, t.Values[i], t.Field, t.Values[i])
		}
	}
}

// confirm asks the user to confirm the action, on a terminal.
func (b *Bulk) confirm(ctx context.Context, cmd *cobra.Command, at *target.Target, act service.Bulk) error {
	if err := term.Answerable(cmd, "look with --dry-run, and then give --yes"); err != nil {
		return err
	}
	act.DryRun = true
	a, err := at.Bulk(ctx, act)
	if err != nil {
		return err
	}
	return term.Confirm(ctx, cmd, fmt.Sprintf("%s %s %s", act.Action, phrase.Plural(a.Matched, "job"), at.Where()))
}

// each does something with each job that is named, and goes on when one refuses. The error names
// all refusals.
func each(ctx context.Context, refs []string, lookup func(context.Context, string) (service.View, error),
	do func(*service.View) error,
) error {
	var errs []error
	for _, ref := range refs {
		v, err := lookup(ctx, ref)
		if err == nil {
			err = do(&v)
		}
		switch job.KindOf(err) {
		case job.NotFound, job.Conflict, job.Invalid:
			errs = append(errs, err)
		default:
			if err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}
