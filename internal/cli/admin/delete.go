package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/jobs"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
)

func deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete ended jobs, queues, systems, schedules, other documents",
		Long: "Delete removes jobs that have ended, or the documents of queues, systems, kinds, schedules, policies or the " +
			"retention, for good.",
		Example: `  pawl delete job wordcount
  pawl delete queue night`,
		Args: term.NoSubject,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(jobs.DeleteJobCommand())
	for _, k := range resourceKinds {
		one := k.removing(k.kind)
		one.Aliases, one.Example = []string{k.plural}, "  pawl delete "+k.kind+" "+k.example
		cmd.AddCommand(one)
	}
	return cmd
}

// removing is a command of that name that deletes documents of a kind.
func (k *resourceKind) removing(name string) *cobra.Command {
	return k.each(&cobra.Command{
		Use: name + " NAME...", Short: "Delete " + k.plural, Long: k.deleting,
		Example: "  pawl " + k.plural + " " + name + " " + k.example,
	}, "deleted", k.remove)
}

// each makes of cmd a command that does something with each document that is named.
func (k *resourceKind) each(cmd *cobra.Command, done string,
	do func(context.Context, *target.Target, string) error,
) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.MinimumNArgs(1), k.list.complete
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return target.With(target.OpenWriting, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
			for _, name := range args {
				if err := do(ctx, at, name); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", k.kind, name, done)
			}
			return nil
		})(cmd, args)
	}
	return cmd
}
