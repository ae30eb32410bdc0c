// Package sqlite keeps the jobs of a Go program in a folder.
package sqlite

import (
	"context"
	"log/slog"
	"os"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// At is a folder, which is made if it is not there. One process has it at a time. The others ask
// that process, for instance over its API.
func At(dir string) pawl.Source {
	return func(ctx context.Context, _ *slog.Logger) (*pawl.Database, error) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		st, err := sqlite.Open(ctx, dir, sqlite.Options{})
		if err != nil {
			return nil, err
		}
		return &pawl.Database{Store: st, Broker: &local.Broker{}, Close: st.Close}, nil
	}
}
