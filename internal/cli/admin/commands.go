// Package admin has the commands for those who look after a service: start it (serve, worker), see
// its processes, set limits, help blocked jobs, keep documents such as queues and policies, add
// other machines, and look after the database.
package admin

import (
	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/node"
)

// Commands are the commands for those who look after a service. The processes of serve and worker
// have more than those of pawl where that is given.
func Commands(more node.More) []*cobra.Command {
	return []*cobra.Command{
		serveCommand(more), workerCommand(more), workersCommand(), limitsCommand(), recoveryCommand(), systemsCommand(), lsCommand(),
		applyCommand(), getCommand(), deleteCommand(), enableCommand(), disableCommand(),
		migrateCommand(), reconcileCommand(),
	}
}
