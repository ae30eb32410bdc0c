package sqlite

import (
	"context"
	"os"
	"path/filepath"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Schema returns the version of the schema of the database in dir. Another process may have the
// database open. Errors are those of [Open] except [job.Newer], and [job.NotFound] if there is no
// database.
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

// Schema returns the version of the schema. It reads it from the database.
func (s *Store) Schema(ctx context.Context) (store.SchemaVersion, error) {
	return versionOf(ctx, s.read, s.path, s.migrations)
}
