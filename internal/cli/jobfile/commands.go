package jobfile

import "github.com/spf13/cobra"

// Commands are the commands about job files.
func Commands() []*cobra.Command {
	return []*cobra.Command{initCommand(), validateCommand(), explainCommand()}
}
