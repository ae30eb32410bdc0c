// Command pawl runs jobs that must not be lost.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/internal/cli"
)

// version is set at build time.
var version = "dev"

func main() {
	quick()
	os.Exit(cli.Main(context.Background(), cli.Program{Version: version}))
}

// quick has the garbage collector begin late: first at 32 MB, which a command that asks and ends
// does not reach; after a second, as it is set, with [ballast].
func quick() {
	percent := debug.SetGCPercent(800)
	time.AfterFunc(time.Second, func() {
		ballast.Store(new([32 << 20]byte))
		debug.SetGCPercent(percent)
	})
}

// ballast is never touched, so it is in no memory. The garbage collector counts it as in use, and
// so begins later: what a process that is busy keeps is a few MB, and would be gone through many
// times a second.
var ballast atomic.Pointer[[32 << 20]byte]
