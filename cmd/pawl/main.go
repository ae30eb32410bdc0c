// Command pawl runs jobs that must not be lost.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/pawl-jobs/pawl/internal/cli"
)

// version is set at build time.
var version = "dev"

// ballast is never touched, so it is in no memory. The garbage collector counts it as in use, and
// so begins later: what a process that is busy keeps is a few MB, and would be gone through many
// times a second.
var ballast = make([]byte, 32<<20)

func main() {
	runtime.KeepAlive(ballast)
	os.Exit(cli.Main(context.Background(), cli.Program{Version: version}))
}
