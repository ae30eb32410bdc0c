package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

// What a program finds in its environment that pawl serve has launched, so that it can tell of its own job.
const (
	apiVariable      = "PAWL_API_URL"
	jobTokenVariable = "PAWL_JOB_TOKEN"
	jobVariable      = "PAWL_JOB_ID"
)

// openOwn opens the desk for a command on one job. The program of that job uses the token that it was given, unless a
// server or a folder is named.
func openOwn(name string) func(context.Context, *cobra.Command) (*desk, error) {
	return func(ctx context.Context, cmd *cobra.Command) (*desk, error) {
		s := &server{url: os.Getenv(apiVariable), token: os.Getenv(jobTokenVariable)}
		if s.url == "" || s.token == "" || name != os.Getenv(jobVariable) || cmd.Flags().Changed("server") || cmd.Flags().Changed("dir") {
			return openDesk(ctx, cmd)
		}
		return serverDesk(s)
	}
}
