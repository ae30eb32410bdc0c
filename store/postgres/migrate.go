package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/pawl-jobs/pawl/job"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A SchemaVersion says how old the schema of a database is.
type SchemaVersion struct {
	Version int64 // of the database; 0: it has none
	Known   int64 // that which this Pawl works with
}

func parse(dsn string) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The error of the driver may show the connection string, and so a password.
		return nil, job.Errorf(job.Invalid, "the connection string of the database cannot be read: write it as postgres://user:password@host:5432/database")
	}
	if _, set := c.ConnConfig.RuntimeParams["application_name"]; !set {
		c.ConnConfig.RuntimeParams["application_name"] = "pawl"
	}
	return c, nil
}

// A Migrator changes the schema of a database. Who runs one takes an advisory lock, so that of several processes which
// begin together one migrates and the others wait.
type Migrator struct {
	db     *sql.DB
	goose  *goose.Provider
	schema string
}

// NewMigrator returns a migrator of a schema ("pawl" when empty) for the database that a connection string names. It must
// lead to the database itself, not through a pooler in transaction mode.
func NewMigrator(dsn, schema string) (*Migrator, error) {
	if schema == "" {
		schema = defaultSchema
	}
	c, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*c.ConnConfig)
	m := &Migrator{db: db, schema: schema}
	files, err := migrationsIn(schema)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(database.DialectPostgres, inSchema(versionTable, schema))
	if err != nil {
		return nil, err
	}
	m.goose, err = goose.NewProvider("", db, files, goose.WithLogger(goose.NopLogger()), goose.WithSessionLocker(locker), goose.WithStore(versions))
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return m, nil
}

const versionTable = "pawl.migrations"

// migrationsIn returns the migrations for a schema.
func migrationsIn(schema string) (fs.FS, error) {
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(name, "migrations/")] = &fstest.MapFile{Data: []byte(inSchema(string(text), schema))}
	}
	return files, nil
}

// Up brings the schema up to date, and makes it first where it is not there.
func (m *Migrator) Up(ctx context.Context) error {
	if _, err := m.db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{m.schema}.Sanitize()); err != nil && codeOf(err) != codeUnique {
		return fmt.Errorf("make schema %s: %w", m.schema, classify(err))
	}
	if _, err := m.goose.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema %s: %w", m.schema, classify(err))
	}
	return nil
}

// Close releases the database.
func (m *Migrator) Close() error { return m.db.Close() }

// newestMigration is the newest version among the migrations.
func newestMigration() int64 {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		return 0
	}
	version, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		return 0
	}
	return version
}

// Schema returns the version of the schema of the database.
func (s *Store) Schema(ctx context.Context) (v SchemaVersion, err error) {
	v.Known = newestMigration()
	err = s.call(ctx, everyone, func(t *tx) error {
		return t.commit(read("SELECT max(version_id) FROM "+versionTable+" WHERE is_applied", func(r *reader) error {
			v.Version = r.int64()
			return nil
		}))
	})
	if code := codeOf(err); code == codeUndefinedTable || code == codeNoSchema {
		err = nil
	}
	return v, err
}

// checkVersion sees that the schema is one that the statements know.
func (s *Store) checkVersion(ctx context.Context) error {
	v, err := s.Schema(ctx)
	switch {
	case err != nil:
		return err
	case v.Version == 0:
		return job.Errorf(job.Unavailable, "the database has no schema %s: pawl migrate makes it", s.o.Schema)
	case v.Version > v.Known:
		return job.Errorf(job.Newer, "schema %s has version %d and this Pawl knows up to %d: use the newer Pawl that migrated it", s.o.Schema, v.Version, v.Known)
	case v.Version < v.Known:
		return job.Errorf(job.Unavailable, "schema %s has version %d and this Pawl needs %d: pawl migrate brings it up to date", s.o.Schema, v.Version, v.Known)
	}
	return nil
}

// checkEra sees to it that new events stand behind all that are there: in a cluster that was restored from a dump the
// ids of transactions have begun anew.
func (s *Store) checkEra(ctx context.Context) error {
	return s.call(ctx, everyone, func(t *tx) error {
		return t.commit(do(`WITH RECURSIVE tenants AS (
				(SELECT e.tenant FROM pawl.events e ORDER BY e.tenant LIMIT 1)
				UNION ALL
				SELECT (SELECT e.tenant FROM pawl.events e WHERE e.tenant > t.tenant ORDER BY e.tenant LIMIT 1) FROM tenants t WHERE t.tenant IS NOT NULL
			), newest AS (
				SELECT max((SELECT max(e.ord) FROM pawl.events e WHERE e.tenant = t.tenant)) AS ord FROM tenants t
			)
			UPDATE pawl.era SET base = n.ord + 1 - pg_snapshot_xmax(pg_current_snapshot())::text::bigint
			FROM newest n WHERE n.ord >= base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint`))
	})
}
