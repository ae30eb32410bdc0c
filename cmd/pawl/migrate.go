package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/store/sqlite"
)

func migrateCommand() *cobra.Command {
	status := false
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database of the folder up to date",
		Long: `Migrate brings the database of a data folder to the schema of this Pawl. Every command that runs jobs does so too; this
one does nothing else. It waits for nobody: where a process runs jobs in the folder, stop that first. With --status it says
what the schema is, and changes nothing.

Exit codes: 0 the schema is up to date, 4 with --status: it is older.`,
		Example: `  pawl migrate --status
  pawl migrate`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			dir, err := dataDir(cmd)
			if err != nil {
				return err
			}
			before, err := sqlite.Schema(ctx, dir)
			if err != nil {
				return err
			}
			if status {
				fmt.Fprintf(out, "schema %d of folder %s; this Pawl knows %d\n", before.Version, dir, before.Known)
				if before.Version < before.Known {
					return exit(exitLeft)
				}
				return nil
			}
			st, err := sqlite.Open(ctx, dir, sqlite.Options{})
			if err != nil {
				return err
			}
			if err := st.Close(); err != nil {
				return err
			}
			if before.Version == before.Known {
				fmt.Fprintf(out, "schema %d of folder %s is up to date\n", before.Version, dir)
				return nil
			}
			fmt.Fprintf(out, "schema of folder %s: %d before, %d now\n", dir, before.Version, before.Known)
			return nil
		},
	}
	cmd.Flags().BoolVar(&status, "status", false, "only say what the schema is")
	return cmd
}
