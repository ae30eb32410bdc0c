// Package admin has the commands for those who look after a service: start it (serve, worker), see
// its processes, set limits, help blocked jobs, keep documents such as queues and policies, and
// look after the database.
package admin

import "github.com/spf13/cobra"

// Commands are the commands for those who look after a service.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		serveCommand(), workerCommand(), workersCommand(), limitsCommand(), recoveryCommand(),
		applyCommand(), getCommand(), deleteCommand(), enableCommand(), disableCommand(),
		migrateCommand(), reconcileCommand(),
	}
}
