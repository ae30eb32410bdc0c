package jobs

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/service"
)

// DeleteJobCommand makes the command delete job.
func DeleteJobCommand() *cobra.Command {
	b := Bulk{asks: true}
	cmd := &cobra.Command{
		Use:     "job [JOB...]",
		Aliases: []string{"jobs"},
		Short:   "Delete jobs that have ended, with their folders",
		Long: `Delete removes jobs that have ended: what is known of them, their folders, and their results in the
service's own archive. Results in a folder that the job file named (archive.to) stay. A job that has
not ended is refused: cancel it first. On a terminal it asks before it deletes what --filter
chooses; elsewhere that needs --yes.

` + target.JobRule + "\n\n" + BulkRule,
		Example: `  pawl delete job wordcount
  pawl delete job --filter 'state=FAILED ended<30d created>365d' --dry-run
  pawl delete job --filter label.project=x --yes`,
		Args:              b.Args(math.MaxInt),
		ValidArgsFunction: target.CompleteJobs(target.EndedJobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: service.ActDelete})
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				return each(ctx, args, at.Lookup, func(v *service.View) error {
					if err := at.MakeWritable(ctx, node.Options{}); err != nil {
						return err
					}
					if err := at.Delete(ctx, v.ID); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "job %s (%s) deleted\n", v.Name, v.ID)
					return nil
				})
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}
