package systems

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

func checkCommand(complete cobra.CompletionFunc) *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "check NAME",
		Short: "Try all that jobs need of a system",
		Long: `Check tries all that jobs need of a system: it reaches the host, writes in the work folder, and
launches a program there, which it finds, ends and cleans up. It prints what works, and what to do
about the rest. It leaves nothing on the system.

The process that runs jobs does this, with its own keys and agent: pawl serve, if it runs in the
data folder or is named with --server, and otherwise this one. It has to be on the machine that
reaches the system, which is host.from in its document.

Exit codes: 0 all of it works, 4 something does not.`,
		Example: `  pawl systems check lab
  pawl systems check lab -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.OpenWriting, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				c, err := at.CheckSystem(ctx, args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if err := f.Print(out, c, nil, func() error { return printCheck(cmd, out, &c) }); err != nil {
					return err
				}
				if !c.Works {
					return term.Exit(term.ExitLeft)
				}
				return nil
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML)
	return cmd
}

// printCheck prints a check for people: a row for each step, and below them what to do.
func printCheck(cmd *cobra.Command, out io.Writer, c *job.SystemCheck) error {
	t := term.NewTable(out, false, term.Column{Title: "STEP"}, term.Column{Title: "STATE"},
		term.Column{Title: "SEEN", Least: 20})
	for _, s := range c.Steps {
		t.Row(strings.ReplaceAll(s.Step, "_", " "), s.State, term.OrDash(s.Seen))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range c.Steps {
		if s.State != job.CheckFailed {
			continue
		}
		name := strings.ReplaceAll(s.Step, "_", " ")
		if s.Code != "" {
			name += ", " + string(s.Code)
		}
		fmt.Fprintf(out, "\n%s: %s\n", name, term.CleanLines(term.Typed(cmd, s.Seen)))
		if s.Advice != "" {
			fmt.Fprintln(out, "  "+term.Typed(cmd, s.Advice))
		}
	}
	if c.Works {
		fmt.Fprintf(out, "\nsystem %s works\n", c.System)
	}
	return nil
}
