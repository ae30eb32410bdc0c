package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/jobs"
	"github.com/pawl-jobs/pawl/internal/cli/target"
)

func deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete ended jobs, queues, systems, policies or the retention",
		Long: "Delete removes jobs that have ended, or the documents of queues, systems, policies or the " +
			"retention, for good.",
		Example: `  pawl delete job wordcount
  pawl delete queue night`,
		Args: noSubject,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(jobs.DeleteJobCommand())
	for _, k := range resourceKinds {
		cmd.AddCommand(&cobra.Command{
			Use:               k.kind + " NAME...",
			Aliases:           []string{k.plural},
			Short:             "Delete " + k.plural,
			Long:              k.deleting,
			Example:           "  pawl delete " + k.kind + " " + k.example,
			Args:              cobra.MinimumNArgs(1),
			ValidArgsFunction: k.list.complete,
			RunE: func(cmd *cobra.Command, args []string) error {
				return target.With(target.OpenWriting,
					func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
						for _, name := range args {
							if err := k.remove(ctx, at, name); err != nil {
								return err
							}
							fmt.Fprintf(cmd.OutOrStdout(), "%s %s deleted\n", k.kind, name)
						}
						return nil
					})(cmd, args)
			},
		})
	}
	return cmd
}
