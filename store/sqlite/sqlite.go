// Package sqlite is the store on an embedded SQLite database, for one process on one machine.
//
// One goroutine owns the one connection that writes. A call is a function. The goroutine runs all
// functions that wait at that moment in one transaction, each under its own savepoint. Answers go
// out after the commit, which waits for the disk (WAL, synchronous=FULL). Readers have connections
// of their own and never wait for the writer.
//
// A lock on the folder proves that no other process has the database open. So sessions of earlier
// processes are dead, and are ended when the folder is opened.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // registers the driver "sqlite" with database/sql

	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// File is the name of the database in its folder.
const File = "pawl.db"

// Options configure a store. The zero value works.
type Options struct {
	// Now is the database's clock. Default: [time.Now].
	Now func() time.Time
	// ReadOnly opens the database even if another process has it open for writing. Calls that write
	// return an error of kind [job.Locked].
	ReadOnly bool
	// Readers is the number of connections that read. Default: 4.
	Readers int

	migrations fs.FS // those of this version by default
}

// Store implements [store.Store].
type Store struct {
	path       string // of the database
	migrations fs.FS
	now        func() time.Time
	lease      func() time.Time
	lock       *folder.Lock // nil when another process may have the database, too
	write      *writer      // nil when read-only
	read       *sql.DB
	reads      prepared
	statements atomic.Int64
	closed     atomic.Bool
}

var _ store.Store = (*Store)(nil)

//go:embed migrations/*.sql
var migrations embed.FS

// checkLimit is the size in bytes up to which a database is checked in full when it is opened:
// about 0.2 s.
const checkLimit = 64 << 20

// Open opens the database in dir, and creates both if they are missing. The error is of kind
// [job.Locked] if another process has the database, [job.Newer] if a later version wrote it, and
// [job.Corrupt] if it is damaged.
func Open(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	if err := withFunctions(); err != nil {
		return nil, err
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	s := &Store{now: o.Now, migrations: o.migrations}
	if s.now == nil {
		s.now = time.Now
		// Leases are kept on the monotonic clock: it stands still while the machine sleeps, so a
		// machine that slept expires nothing, and a step of the wall clock does not either.
		opened := time.Now()
		s.lease = func() time.Time { return opened.Add(time.Since(opened)) }
	} else {
		s.lease = s.now
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	path := filepath.Join(dir, File)
	s.path = path
	far := folder.Network(dir)
	if o.ReadOnly {
		if s.lock, s.read, err = openToRead(dir, o.Readers, far); err != nil {
			return nil, err
		}
		if err := s.checkVersion(ctx, path); err != nil {
			s.Close()
			return nil, err
		}
		return s, nil
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, job.Errorf(job.Unavailable, "make data folder: %w", err)
	}
	if s.lock, err = folder.Take(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	if err := makeFile(path); err != nil {
		return nil, err
	}
	if err := prepareFile(ctx, path, far, s.migrations); err != nil {
		return nil, err
	}
	db, err := openWriter(path, far)
	if err != nil {
		return nil, err
	}
	if s.read, err = openReaders(path, o.Readers, far); err != nil {
		db.Close()
		return nil, err
	}
	if s.write, err = startWriter(ctx, db, s); err != nil {
		s.read.Close()
		db.Close()
		return nil, err
	}
	if err := s.endSessions(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// versionOf reads the version of a database's schema, and that of the migrations.
func versionOf(ctx context.Context, db *sql.DB, path string, migrations fs.FS) (v store.SchemaVersion, err error) {
	p, err := migrationsOf(db, migrations)
	if err != nil {
		return v, err
	}
	sources := p.ListSources()
	v.Known = sources[len(sources)-1].Version
	err = db.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version WHERE is_applied").Scan(&v.Version)
	switch {
	case ctx.Err() != nil:
		return v, ctx.Err()
	case job.KindOf(classify(err)) == job.Unavailable:
		return v, classify(err)
	case err != nil:
		return v, corrupt(path, classify(err))
	}
	v.Fits = v.Version == v.Known
	return v, nil
}

// checkVersion sees that a database which is opened for reading only has the schema that the
// statements know.
func (s *Store) checkVersion(ctx context.Context, path string) error {
	v, err := versionOf(ctx, s.read, path, s.migrations)
	switch {
	case err != nil:
		return err
	case v.Version > v.Known:
		return newer(path, v.Version, v.Known)
	case v.Version < v.Known:
		return job.Errorf(job.Unavailable,
			"%s was written by an older Pawl: a pawl run on its folder brings it up to date, or pawl migrate", path)
	}
	return nil
}

func migrationsOf(db *sql.DB, migrations fs.FS) (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

func newer(path string, have, want int64) error {
	return job.Errorf(job.Newer, "%s has schema version %d and this Pawl knows up to %d: use the newer Pawl that "+
		"wrote it", path, have, want)
}

// Close implements [store.Store]. Sessions that are still open end as crashed when the folder is
// opened again.
func (s *Store) Close() error {
	s.closed.Store(true)
	var err error
	if s.write != nil {
		err = s.write.close()
	}
	err = errors.Join(err, s.read.Close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Statements returns how many SQL statements have been executed, without those that only begin,
// commit or mark a transaction.
func (s *Store) Statements() int64 { return s.statements.Load() }

// openToRead opens the database of a folder for reading. Where machines share the file system this
// process then has it alone.
func openToRead(dir string, readers int, far bool) (lock *folder.Lock, db *sql.DB, err error) {
	path := filepath.Join(dir, File)
	if _, err := os.Stat(path); err != nil {
		return nil, nil, job.Errorf(job.NotFound, "no jobs in folder %s: %w", dir, err)
	}
	if far {
		if lock, err = folder.TakeToRead(dir); err != nil {
			return nil, nil, err
		}
	}
	db, err = openReaders(path, readers, far)
	if err != nil && lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return lock, db, err
}

// dsn names the database. A far one is on a file system that machines share: memory that is mapped
// from a file is not shared there, so it has a rollback journal in place of the write-ahead log,
// and this process keeps it locked. A commit is then on disk once the journal is cut, and synced.
func dsn(path, mode string, far bool) string {
	v := url.Values{"_txlock": {"immediate"}, "mode": {mode + "c"}}
	// Each commit walks through the whole cache, so a large one costs more than it saves: the
	// system's cache is behind it.
	pragmas := []string{
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "temp_store(memory)", "cache_size(-8192)",
		"wal_autocheckpoint(4000)", "journal_size_limit(67108864)", "page_size(8192)",
	}
	if far {
		v.Set("vfs", "unix-excl") // the connections of this process share the lock on the file
		pragmas[1] = "journal_mode(truncate)"
	}
	if mode == "ro" {
		v.Set("mode", "rw") // a reader of a WAL may have to recover it; query_only keeps it from writing
		// A page of a list is spread over as many pages of the file as it has jobs. Mapped, they
		// need not be copied: that is a third of the time.
		pragmas = []string{"busy_timeout(10000)", "query_only(1)", "cache_size(-16384)", "mmap_size(2147418112)"}
		if far {
			pragmas[3] = "mmap_size(0)"
		}
		if sealed(path) {
			v.Set("immutable", "1")
		}
	}
	v["_pragma"] = pragmas
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
}

// sealed reports whether a database lies in a folder in which nothing can be made, and is whole
// without its log: SQLite would make that, and the memory that its readers share, to read it.
func sealed(path string) bool {
	err := unix.Access(filepath.Dir(path), unix.W_OK)
	_, noLog := os.Stat(path + "-wal")
	return (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)) && errors.Is(noLog, fs.ErrNotExist)
}

func openWriter(path string, far bool) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(path, "rw", far))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func openReaders(path string, n int, far bool) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(path, "ro", far))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// makeFile makes the file of a database that is new. Jobs have secrets in their environment, so it
// is for its owner only, in whatever folder it is; SQLite gives the files beside it the same mode.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return job.Errorf(job.Unavailable, "open database: %w", err)
	}
	return f.Close()
}

// prepareFile checks an existing database and brings its schema up to date.
func prepareFile(ctx context.Context, path string, far bool, migrations fs.FS) error {
	db, err := openWriter(path, far)
	if err != nil {
		return err
	}
	defer db.Close()
	if info, err := os.Stat(path); err == nil && info.Size() > 0 && info.Size() <= checkLimit {
		var verdict string
		if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
			return corrupt(path, classify(err))
		}
		if verdict != "ok" {
			return corrupt(path, fmt.Errorf("%s", verdict))
		}
	}
	p, err := migrationsOf(db, migrations)
	if err != nil {
		return err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return corrupt(path, classify(err))
	}
	sources := p.ListSources()
	if want := sources[len(sources)-1].Version; have > want {
		return newer(path, have, want)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", path, classify(err))
	}
	// Statistics that somebody's ANALYZE took, perhaps of empty tables, mislead the planner when
	// they are old. Without any it chooses the plans that the statements are written for. (A
	// connection keeps those it has read.)
	if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS sqlite_stat1; DROP TABLE IF EXISTS sqlite_stat4"); err != nil {
		return fmt.Errorf("drop statistics of %s: %w", path, classify(err))
	}
	return nil
}

func corrupt(path string, err error) error {
	if k := job.KindOf(err); k != job.Corrupt && k != job.Internal {
		return err
	}
	return job.Errorf(job.Corrupt, "database %s is damaged: %w; restore a copy of its folder, or move it away to "+
		"begin anew", path, err)
}
