// Package sqlite keeps the jobs of a Go program in a folder, in a database of SQLite. It is for a
// program of one process; for several there is package postgres. [WithTx] makes rows of the program
// and jobs one transaction.
package sqlite

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// At is a folder, which is made if it is not there. One process has it at a time: for another one
// [pawl.Open] returns an error of kind [job.Locked]. The others ask that process, for instance over
// its API. Jobs are on disk once an enqueue returns. When the process dies, the next one that opens
// the folder takes its jobs at once.
func At(dir string) pawl.Source {
	return func(ctx context.Context, _ *slog.Logger) (*pawl.Database, error) {
		if dir == "" || strings.Contains(dir, "://") {
			return nil, job.Errorf(job.Invalid, "sqlite.At (%q): is no folder: give a path such as data; a URL is for "+
				"postgres.At", dir)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		st, err := sqlite.Open(ctx, dir, sqlite.Options{})
		if err != nil {
			return nil, err
		}
		bus := &local.Broker{}
		return &pawl.Database{Store: st, Broker: bus, Close: func() error {
			defer bus.Close()
			return st.Close()
		}}, nil
	}
}
