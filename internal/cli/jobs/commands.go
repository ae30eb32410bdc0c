// Package jobs has the commands about jobs: submit and wait for them, list and show them, read
// their history, logs and output, and ask that they pause, go on or end.
package jobs

import "github.com/spf13/cobra"

// Commands are the commands about jobs.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		submitCommand(), waitCommand(), watchCommand(),
		listCommand(), showCommand(), historyCommand(), eventsCommand(), logsCommand(), outputCommand(),
		cancelCommand(), pauseCommand(), resumeCommand(), resubmitCommand(),
		hideCommand(), unhideCommand(), annotateCommand(), eventCommand(),
	}
}
