package admin

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// A list is what a command lists, such as pawl workers and pawl workers list.
type list[T any] struct {
	ask      func(context.Context, *target.Target) ([]T, error)
	name     func(*T) string                               // for -o name
	document func([]T) any                                 // for -o json and -o yaml; nil: {"items": …}
	table    func(out io.Writer, all []T, wide bool) error // for people
	wide     bool                                          // -o wide has more columns
	none     string                                        // in place of a table without rows; empty: its titles
	// argument is how the shell completes an argument that names one, empty where it should not
	argument func(*T) cobra.Completion
}

// by makes of cmd a command that prints the list.
func (l list[T]) by(cmd *cobra.Command) *cobra.Command {
	formats := []term.Format{term.AsTable, term.AsJSON, term.AsYAML, term.AsName}
	if l.wide {
		formats = []term.Format{term.AsTable, term.AsWide, term.AsJSON, term.AsYAML, term.AsName}
	}
	var f term.Format
	term.FormatFlag(cmd, &f, formats...)
	cmd.RunE = target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
		all, err := l.ask(ctx, at)
		if err != nil {
			return err
		}
		var doc any = map[string]any{"items": all}
		if l.document != nil {
			doc = l.document(all)
		}
		out := cmd.OutOrStdout()
		return f.Print(out, doc, term.NamesOf(all, l.name), func() error {
			if len(all) == 0 && l.none != "" {
				fmt.Fprintln(out, l.none)
				return nil
			}
			return l.table(out, all, f == term.AsWide)
		})
	})
	return cmd
}

// complete completes arguments that name something of the list.
func (l list[T]) complete(cmd *cobra.Command, _ []string, _ string) (found []cobra.Completion,
	_ cobra.ShellCompDirective,
) {
	if at, err := target.Open(cmd.Context(), cmd); err == nil {
		defer at.Close()
		all, _ := l.ask(cmd.Context(), at)
		for i := range all {
			if c := l.argument(&all[i]); c != "" {
				found = append(found, c)
			}
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
