package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
)

func deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete jobs that have ended, queues, systems, policies, or what says for how long jobs are kept",
		Long:  "Delete removes jobs that have ended, or the documents of queues, systems, policies or the retention, for good.",
		Example: `  pawl delete job wordcount
  pawl delete queue night`,
		Args: noSubject,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(deleteJobCommand())
	for _, k := range resourceKinds {
		cmd.AddCommand(&cobra.Command{
			Use:               k.kind + " NAME...",
			Aliases:           []string{k.plural},
			Short:             "Delete " + k.plural,
			Long:              k.deleting,
			Example:           "  pawl delete " + k.kind + " " + k.example,
			Args:              cobra.MinimumNArgs(1),
			ValidArgsFunction: k.complete,
			RunE: func(cmd *cobra.Command, args []string) error {
				return withDesk(openWriting, func(ctx context.Context, cmd *cobra.Command, d *desk) error {
					for _, name := range args {
						if err := k.remove(ctx, d, name); err != nil {
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

func deleteJobCommand() *cobra.Command {
	b := bulk{asks: true}
	cmd := &cobra.Command{
		Use:     "job [JOB...]",
		Aliases: []string{"jobs"},
		Short:   "Delete jobs that have ended, with their folders",
		Long: `Delete removes jobs that have ended: what is known of them, their folders, and their results in the service's own
archive. Results in a folder that the job file named (archive.to) stay. A job that has not ended is refused: cancel it first.
On a terminal it asks before it deletes what --filter chooses; elsewhere that needs --yes.

` + jobRule + "\n\n" + bulkRule,
		Example: `  pawl delete job wordcount
  pawl delete job --filter 'state=FAILED ended<30d created>365d' --dry-run
  pawl delete job --filter label.project=x --yes`,
		Args:              b.args(math.MaxInt),
		ValidArgsFunction: completeJobs(endedJobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.run(cmd, pawl.Bulk{Action: pawl.ActDelete})
			}
			return withDesk(openDesk, func(ctx context.Context, cmd *cobra.Command, d *desk) error {
				return each(ctx, args, d.lookup, func(v *pawl.View) error {
					if err := d.write(ctx, nodeOptions{}); err != nil {
						return err
					}
					if err := d.Delete(ctx, v.ID); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "job %s (%s) deleted\n", v.Name, v.ID)
					return nil
				})
			})(cmd, args)
		},
	}
	b.flags(cmd)
	return cmd
}
