package sqlite

import (
	"context"
	"os"
	"path/filepath"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Schema returns the version of the schema of the database in dir, also beside a process that has
// it open. Errors are those of [Open], and NotFound where there is no database; Newer is none of
// them.
func Schema(ctx context.Context, dir string) (v store.SchemaVersion, err error) {
	path := filepath.Join(dir, File)
	if _, err := os.Stat(path); err != nil {
		return v, job.Errorf(job.NotFound, "no jobs in folder %s: %w", dir, err)
	}
	db, err := openReaders(path, 1)
	if err != nil {
		return v, err
	}
	defer db.Close()
	return versionOf(ctx, db, path, migrations)
}

// Schema returns the version of the schema of the database. It asks the database.
func (s *Store) Schema(ctx context.Context) (store.SchemaVersion, error) {
	return versionOf(ctx, s.read, s.path, s.migrations)
}
