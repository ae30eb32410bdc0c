// Command victim is the program that storms and crash tests kill. It is pawl, and something to do:
//
//	victim load                   works on mixed jobs until they have ended (internal/proof/crashes)
//	victim serve, victim worker   also run tasks of the kind "storm" (internal/proof/storm)
//
// All the rest is the code of pawl, put together as pawl is.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli"
)

// version is set at build time.
var version = "dev"

func main() {
	os.Exit(cli.Main(context.Background(), cli.Program{
		Version: version, More: stormKind,
		Commands: []*cobra.Command{loadCommand()},
	}))
}
