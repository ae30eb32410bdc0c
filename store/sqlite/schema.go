package sqlite

import (
	"context"
	"path/filepath"

	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/store"
)

// Schema returns the version of the schema of the database in dir. Another process may have the
// database open, unless machines share the file system. Errors are those of [Open] except
// [job.Newer], and [job.NotFound] if there is no database.
func Schema(ctx context.Context, dir string) (v store.SchemaVersion, err error) {
	lock, db, err := openToRead(dir, 1, folder.Network(dir))
	if err != nil {
		return v, err
	}
	if lock != nil {
		defer lock.Close()
	}
	defer db.Close()
	return versionOf(ctx, db, filepath.Join(dir, File), migrations)
}

// Schema returns the version of the schema. It reads it from the database.
func (s *Store) Schema(ctx context.Context) (store.SchemaVersion, error) {
	v, err := versionOf(ctx, s.read, s.path, s.migrations)
	if err != nil && s.closed.Load() { // that it cannot be read then is no damage
		err = errClosed
	}
	return v, err
}
