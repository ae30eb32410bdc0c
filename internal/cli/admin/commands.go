// Package admin has the commands of an operator: start a service (serve, worker), see its
// processes, set limits, help blocked jobs, keep documents such as queues and policies, add other
// machines, and look after the database.
package admin

import (
	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/node"
)

// Commands are the commands of an operator. more adds to what the processes of serve and worker
// have by themselves.
func Commands(more node.More) []*cobra.Command {
	return []*cobra.Command{
		serveCommand(more), workerCommand(more), workersCommand(), limitsCommand(), recoveryCommand(), systemsCommand(),
		schedulesCommand(),
		lsCommand(), applyCommand(), getCommand(), deleteCommand(), enableCommand(), disableCommand(),
		migrateCommand(), reconcileCommand(), unlockCommand(),
	}
}
