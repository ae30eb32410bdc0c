package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io"
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
	"github.com/pawl-jobs/pawl/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

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
	c.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize() // for goose, which knows names without a schema
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
	versions, err := database.NewStore(database.DialectPostgres, strings.TrimPrefix(versionTable, defaultSchema+"."))
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
	there, server := false, 0 // a role that may not make schemas can still migrate one
	err := m.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1), "+serverVersion, m.schema).Scan(&there, &server)
	if err == nil {
		err = checkServer(server)
	}
	if err == nil && !there {
		_, err = m.db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{m.schema}.Sanitize())
	}
	if err != nil && codeOf(err) != codeUnique { // another process has just made it
		return fmt.Errorf("make schema %s: %w", m.schema, classify(err))
	}
	if _, err := m.goose.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema %s: %w", m.schema, classify(err))
	}
	return nil
}

// Down takes the schema back to a version: what later ones added is lost. Version 0 is none, and takes all jobs with it.
func (m *Migrator) Down(ctx context.Context, version int64) error {
	if version < 0 || version > newestMigration() {
		return job.Errorf(job.Invalid, "there is no version %d: give one from 0 to %d", version, newestMigration())
	}
	if _, err := m.goose.DownTo(ctx, version); err != nil {
		return fmt.Errorf("migrate schema %s down to version %d: %w", m.schema, version, classify(err))
	}
	return nil
}

// Drop removes the schema with everything in it.
func (m *Migrator) Drop(ctx context.Context) error {
	_, err := m.db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{m.schema}.Sanitize()+" CASCADE")
	return classify(err)
}

// Version returns the version of the schema; 0: there is none. (Goose would make its table to find that out.)
func (m *Migrator) Version(ctx context.Context) (v store.SchemaVersion, err error) {
	v.Known = newestMigration()
	table := inSchema(versionTable, m.schema)
	there := false
	err = m.db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there)
	if err == nil && there {
		err = m.db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+table+" WHERE is_applied").Scan(&v.Version)
	}
	return v, classify(err)
}

// Print writes the SQL that brings a schema ("pawl" when empty) from a version to the newest one, for those who run SQL
// themselves: what Up would do, in one transaction.
func Print(w io.Writer, schema string, from int64) error {
	if schema == "" {
		schema = defaultSchema
	}
	if from < 0 || from > newestMigration() {
		return job.Errorf(job.Invalid, "there is no version %d: give one from 0 to %d", from, newestMigration())
	}
	files, err := migrationsIn(schema)
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintln(&out, "BEGIN;")
	table := inSchema(versionTable, schema)
	if from == 0 {
		fmt.Fprintf(&out, "CREATE SCHEMA IF NOT EXISTS %s;\n", pgx.Identifier{schema}.Sanitize())
		fmt.Fprintf(&out, "CREATE TABLE %s (id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, version_id bigint NOT NULL,\n"+
			"    is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now());\nINSERT INTO %s (version_id, is_applied) VALUES (0, true);\n", table, table)
	}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return err
		}
		if version <= from {
			continue
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		_, up, _ := strings.Cut(string(text), "-- +goose Up\n")
		up, _, _ = strings.Cut(up, "-- +goose Down\n")
		fmt.Fprintf(&out, "\n-- Version %d.\n", version)
		for line := range strings.Lines(up) {
			if !strings.HasPrefix(line, "-- +goose ") {
				out.WriteString(line)
			}
		}
		fmt.Fprintf(&out, "INSERT INTO %s (version_id, is_applied) VALUES (%d, true);\n", table, version)
	}
	fmt.Fprintln(&out, "COMMIT;")
	_, err = io.WriteString(w, out.String())
	return err
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

// serverVersion asks for the version of PostgreSQL: 150003 is 15.3.
const serverVersion = "current_setting('server_version_num')::int"

func checkServer(version int) error {
	if version < 150000 {
		return job.Errorf(job.Invalid, "this is PostgreSQL %d, and Pawl needs 15 or newer", version/10000)
	}
	return nil
}

// Schema returns the version of the schema of the database. It may be newer than this Pawl knows, where the migrations
// since then let older ones go on: so processes are replaced one by one.
func (s *Store) Schema(ctx context.Context) (v store.SchemaVersion, err error) {
	var least int64
	err = s.call(ctx, everyone, func(t *tx) error {
		return t.commit(
			read("SELECT max(version_id) FROM "+versionTable+" WHERE is_applied", func(r *reader) error { v.Version = r.int64(); return nil }),
			read("SELECT least FROM pawl.era", func(r *reader) error { least = r.int64(); return nil }))
	})
	v.Known = newestMigration()
	v.Fits = err == nil && v.Version >= v.Known && least <= v.Known
	return v, err
}

// checkVersion sees that the schema is one that the statements know.
func (s *Store) checkVersion(ctx context.Context) error {
	server := 0
	err := s.call(ctx, everyone, func(t *tx) error {
		return t.commit(read("SELECT "+serverVersion, func(r *reader) error { server = r.int(); return nil }))
	})
	if err == nil {
		err = checkServer(server)
	}
	if err != nil {
		return err
	}
	v, err := s.Schema(ctx)
	switch {
	case err != nil || v.Fits:
		return err
	case v.Version < v.Known:
		return job.Errorf(job.Unavailable, "schema %s has version %d and this Pawl needs %d: pawl migrate brings it up to date", s.o.Schema, v.Version, v.Known)
	}
	return job.Errorf(job.Newer, "schema %s has version %d and this Pawl knows up to %d: use the newer Pawl that migrated it", s.o.Schema, v.Version, v.Known)
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

//go:embed grants.sql
var grants string

// Grants returns the SQL that makes a role which may do in a schema ("pawl" when empty) what a service needs, and no more. The
// schema's owner runs it after each migration.
func Grants(schema string) string {
	if schema == "" {
		schema = defaultSchema
	}
	name := pgx.Identifier{schema}.Sanitize()
	return strings.ReplaceAll(inSchema(grants, schema), "SCHEMA pawl ", "SCHEMA "+name+" ")
}
