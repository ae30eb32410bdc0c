package sqlite

import (
	"context"
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pawl-jobs/pawl/job"
)

// driverError finds an error of the driver in err.
func driverError(err error) (e *sqlite.Error, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}

// classify gives an error of the driver its kind.
func classify(err error) error {
	e, ok := driverError(err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return job.Errorf(job.Unavailable, "the disk of the data folder is full: %w", err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL:
		return job.Errorf(job.Unavailable, "database: %w", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return job.Errorf(job.Corrupt, "database: %w", err)
	case sqlite3.SQLITE_INTERRUPT:
		return context.Canceled
	}
	return err
}
