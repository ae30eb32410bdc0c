package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/folder"
)

func unlockCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unlock HOST",
		Short: "Take a data folder from a process on a host that is dead",
		Long: `Unlock is for a data folder on a file system which machines share, when the process that has it was on
another host that will never run it again. HOST is the name of that host, which pawl doctor tells.

See that the process is dead first: the host was switched off or booted anew, or the process was
ended there. Two that write would damage the database. One that lives after all ends by itself
within about a minute. A process that died on this host needs no unlock: the next one follows at once.`,
		Example: "  pawl unlock login1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			o, err := folder.Unlock(dir, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "data folder %s is free: it was in use by %v\n", dir, &o)
			return nil
		},
	}
}
