package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// bulkRule says how many jobs are chosen.
const bulkRule = `With --filter instead of JOB it is done with all jobs that the filter chooses, newest first, and --dry-run only counts
them. Where it chooses none the exit code is 2. ` + filterRule

// bulk is the flags of a command that can act on many jobs.
type bulk struct {
	text   string
	all    bool
	dryRun bool

	asks bool // before it does anything, unless --yes is given
	yes  bool
}

func (b *bulk) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.text, "filter", "", "all jobs that this filter chooses, instead of JOB")
	cmd.Flags().BoolVar(&b.all, "all", false, "all jobs, instead of JOB")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "only say how many jobs that would be")
	if b.asks {
		cmd.Flags().BoolVarP(&b.yes, "yes", "y", false, "do not ask")
	}
}

// args sees to it that either up to most jobs are named, or a filter is given.
func (b *bulk) args(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		chosen := cmd.Flags().Changed("filter") || b.all
		switch {
		case chosen && len(args) > 0:
			return errors.New("jobs are named, and chosen by --filter or --all: do one of both")
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

// run does one action with all jobs that are chosen, and says what has become of them.
func (b *bulk) run(cmd *cobra.Command, act pawl.Bulk) (err error) {
	if act.Filter, err = parseFilter(b.text); err != nil {
		return err
	}
	act.DryRun = b.dryRun
	return withDesk(openDesk, func(ctx context.Context, cmd *cobra.Command, d *desk) error {
		out, what := cmd.OutOrStdout(), strings.ReplaceAll(string(act.Action), "_", "-")
		if b.asks && !b.yes && !b.dryRun {
			if err := b.confirm(ctx, cmd, d, act); err != nil {
				return err
			}
		}
		if !b.dryRun {
			if err := d.write(ctx, nodeOptions{}); err != nil {
				return err
			}
		}
		a, err := d.Bulk(ctx, act)
		if err != nil {
			return err
		}
		if b.dryRun {
			fmt.Fprintf(out, "%s would be chosen for %s\n", plural(a.Matched, "job"), what)
			tellSince(out, act.Filter, a.Since)
			if a.Matched == 0 {
				tellPattern(cmd.ErrOrStderr(), act.Filter)
			}
			return nil
		}
		if a.Matched == 0 && !b.all {
			tellPattern(cmd.ErrOrStderr(), act.Filter)
			return &usageError{fmt.Errorf("no job %s fits the filter: nothing was done", d.where())}
		}
		fmt.Fprintf(out, "%s: done with %d of %s\n", what, a.Done, plural(a.Matched, "job"))
		tellSince(out, act.Filter, a.Since)
		if isQuiet(cmd) {
			out = cmd.ErrOrStderr()
		}
		for _, r := range a.Refusals {
			fmt.Fprintf(out, "%s: %s\n", r.Job, r.Error)
		}
		if n := a.Refused - len(a.Refusals); n > 0 {
			fmt.Fprintf(out, "and %d more refused\n", n)
		}
		if d.node != nil && a.Done > 0 && strings.Contains(" cancel pause resume resubmit try release ", " "+string(act.Action)+" ") {
			fmt.Fprintln(cmd.OutOrStdout(), typed(cmd, "no pawl runs in this folder now: pawl run goes on with what does not end at once"))
		}
		if a.Refused > 0 {
			return exit(exitInput)
		}
		return nil
	})(cmd, nil)
}

// tellPattern says of a filter that chose nothing how a pattern is written, if = stands before what looks like one.
func tellPattern(out io.Writer, f job.Filter) {
	for _, t := range f {
		if i := slices.IndexFunc(t.Values, func(v string) bool { return strings.ContainsAny(v, "*?") }); i >= 0 && (t.Op == job.Is || t.Op == job.IsNot) {
			fmt.Fprintf(out, "%s%s%s takes the value as it stands: a pattern is written with ~, as in %s~%s\n", t.Field, t.Op, t.Values[i], t.Field, t.Values[i])
		}
	}
}

// confirm asks whether it shall be done, where somebody is there to be asked.
func (b *bulk) confirm(ctx context.Context, cmd *cobra.Command, d *desk, act pawl.Bulk) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return &usageError{fmt.Errorf("%s would not be asked about here: look with --dry-run, and then give --yes", cmd.CommandPath())}
	}
	act.DryRun = true
	a, err := d.Bulk(ctx, act)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s %s %s? y or n: ", act.Action, plural(a.Matched, "job"), d.where())
	answer, err := readAnswer(ctx, cmd.InOrStdin())
	if err != nil {
		return err
	}
	if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was done")
		return exit(exitLeft)
	}
	return nil
}

// readAnswer reads a line, unless ctx ends before that.
func readAnswer(ctx context.Context, in io.Reader) (string, error) {
	read := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		read <- strings.TrimSpace(line)
	}()
	select {
	case line := <-read:
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// each does something with each job that is named, and goes on when one refuses. The error names all refusals.
func each(ctx context.Context, refs []string, lookup func(context.Context, string) (pawl.View, error), do func(*pawl.View) error) error {
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
