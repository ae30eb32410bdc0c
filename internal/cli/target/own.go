package target

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/node"
)

// OpenOwn opens the target for a command on one job. The program of that job uses the token that it
// was given, unless a server or a folder is named.
func OpenOwn(name string) func(context.Context, *cobra.Command) (*Target, error) {
	return func(ctx context.Context, cmd *cobra.Command) (*Target, error) {
		s := &Server{url: os.Getenv(node.APIVariable), token: os.Getenv(node.JobTokenVariable)}
		if s.url == "" || s.token == "" || name != os.Getenv(node.JobVariable) || cmd.Flags().Changed("server") ||
			cmd.Flags().Changed("dir") {
			return Open(ctx, cmd)
		}
		return OfServer(s)
	}
}
