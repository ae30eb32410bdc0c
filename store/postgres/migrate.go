package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// parse returns how to connect: as dsn says, or like a pool, if like is not nil.
func parse(dsn string, like *pgxpool.Config) (c *pgxpool.Config, err error) {
	if like != nil {
		c = like.Copy()
	} else if c, err = pgxpool.ParseConfig(dsn); err != nil {
		// The error of the driver may show the connection string, and so a password.
		return nil, job.Errorf(job.Invalid,
			"the connection string of the database cannot be read: write it as "+
				"postgres://user:password@host:5432/database")
	}
	if _, set := c.ConnConfig.RuntimeParams["application_name"]; !set {
		c.ConnConfig.RuntimeParams["application_name"] = "pawl"
	}
	if c.ConnConfig.ValidateConnect == nil {
		// A standby may not know yet what the primary has answered: what it says is not there may
		// have been accepted.
		c.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return c, nil
}

// A Migrator changes the schema of a database. It takes an advisory lock: of several processes that
// begin together, one migrates and the others wait.
type Migrator struct {
	db     *sql.DB
	goose  *goose.Provider
	schema string
	newest int64 // version that it knows
}

// NewMigrator returns a migrator for a schema ("pawl" if empty) of the database dsn. The dsn must
// lead to PostgreSQL itself, not to a pooler in transaction mode.
func NewMigrator(dsn, schema string) (*Migrator, error) { return NewMigratorLike(dsn, nil, schema) }

// NewMigratorLike is [NewMigrator] for [Options.Like].
func NewMigratorLike(dsn string, like *pgxpool.Config, schema string) (*Migrator, error) {
	return newMigrator(dsn, like, schema, migrations)
}

func newMigrator(dsn string, like *pgxpool.Config, schema string, migrations fs.FS) (*Migrator, error) {
	if schema == "" {
		schema = defaultSchema
	}
	c, err := parse(dsn, like)
	if err != nil {
		return nil, err
	}
	// for goose, which knows names without a schema
	c.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	c.ConnConfig.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockPatience.Milliseconds(), 10)
	c.ConnConfig.RuntimeParams["default_transaction_isolation"] = limits["default_transaction_isolation"]
	c.ConnConfig.RuntimeParams["default_transaction_read_only"] = limits["default_transaction_read_only"]
	var options []stdlib.OptionOpenDB
	if c.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(c.BeforeConnect))
	}
	db := stdlib.OpenDB(*c.ConnConfig, options...)
	// each step has a connection of its own, with these settings: what a migration has set may
	// outlast its failure
	db.SetMaxIdleConns(0)
	m := &Migrator{db: db, schema: schema, newest: newestOf(migrations)}
	files, err := migrationsIn(migrations, schema)
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
	m.goose, err = goose.NewProvider("", db, files, goose.WithLogger(goose.NopLogger()),
		goose.WithSessionLocker(locker), goose.WithStore(versions))
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return m, nil
}

const versionTable = "pawl.migrations"

// migrationsIn returns the migrations for a schema.
func migrationsIn(migrations fs.FS, schema string) (fs.FS, error) {
	files, err := fs.Sub(migrations, "migrations")
	return migrationFiles{files, schema}, err
}

// migrationFiles are files whose text is that for a schema.
type migrationFiles struct {
	fs.FS
	schema string
}

func (m migrationFiles) Open(name string) (fs.File, error) {
	file, err := m.FS.Open(name)
	if err != nil || path.Ext(name) != ".sql" {
		return file, err
	}
	text, err := io.ReadAll(file)
	in := store.SQL(inSchema(string(text), m.schema))
	in = strings.NewReplacer("{writers}", strconv.FormatInt(writersOf(m.schema), 10),
		"{schema}", "'"+strings.ReplaceAll(m.schema, "'", "''")+"'").Replace(in)
	return migrationFile{file, strings.NewReader(in)}, err
}

type migrationFile struct {
	fs.File
	text io.Reader
}

func (f migrationFile) Read(b []byte) (int, error) { return f.text.Read(b) }

// Processes work while a schema is migrated. While a migration waits for a table, every later
// transaction waits behind it. So it waits for lockPatience at most; then it is rolled back, lets
// the others pass, and is tried again. An autovacuum gives way to it when it has waited for
// deadlock_timeout, which is a second.
const (
	lockPatience = 2 * time.Second
	lockTries    = 40
)

// patiently makes a step, and tries again when other transactions were in its way.
func (m *Migrator) patiently(ctx context.Context, step func() error) error {
	for try := 1; ; try++ {
		err := step()
		code := codeOf(err)
		switch {
		case code != codeLockTimeout && code != codeDeadlock:
			return classify(err)
		case try == lockTries:
			return job.Errorf(job.Unavailable, "other transactions hold its tables, for too long to wait: try "+
				"again when they have ended; pg_stat_activity shows them: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPatience + rand.N(lockPatience)):
		}
	}
}

// Up brings the schema up to date. It creates the schema if there is none.
func (m *Migrator) Up(ctx context.Context) error {
	// A role that may not make schemas can still migrate one. In a schema that it may not use the
	// search path, by which goose finds tables, would find none.
	there, may, server := false, false, 0
	err := m.db.QueryRowContext(ctx, "SELECT count(*) > 0, coalesce(bool_and(has_schema_privilege(oid, 'USAGE')), true), "+
		serverVersion+" FROM pg_namespace WHERE nspname = $1", m.schema).Scan(&there, &may, &server)
	if err == nil {
		err = checkServer(server)
	}
	if err == nil && !may {
		return job.Errorf(job.Unavailable, "the role may not use schema %s: "+askRights, m.schema)
	}
	if err == nil && !there {
		_, err = m.db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{m.schema}.Sanitize())
	}
	if err != nil && codeOf(err) != codeUnique { // another process has just made it
		return fmt.Errorf("make schema %s: %w", m.schema, classify(err))
	}
	err = m.patiently(ctx, func() error {
		_, err := m.goose.Up(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", m.schema, err)
	}
	return nil
}

// Down takes the schema back to a version. The content that later versions added is lost. Version 0
// is no schema: all jobs are lost.
func (m *Migrator) Down(ctx context.Context, version int64) error {
	if version < 0 || version > m.newest {
		return job.Errorf(job.Invalid, "there is no version %d: give one from 0 to %d", version, m.newest)
	}
	v, err := m.Version(ctx)
	if err == nil && v.Version > v.Known {
		err = job.Errorf(job.Newer, "it has version %d and this Pawl knows up to %d: take it back with the newer "+
			"Pawl that migrated it", v.Version, v.Known)
	}
	if err == nil {
		err = m.patiently(ctx, func() error {
			_, err := m.goose.DownTo(ctx, version)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("migrate schema %s down to version %d: %w", m.schema, version, err)
	}
	return nil
}

// Drop removes the schema with all of its content.
func (m *Migrator) Drop(ctx context.Context) error {
	return m.patiently(ctx, func() error {
		_, err := m.db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{m.schema}.Sanitize()+" CASCADE")
		return err
	})
}

// Version returns the version of the schema; 0 if there is none. It does not use goose for that,
// which would create its own table.
func (m *Migrator) Version(ctx context.Context) (v store.SchemaVersion, err error) {
	v.Known = m.newest
	table := inSchema(versionTable, m.schema)
	there := false
	err = m.db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there)
	if err == nil && there {
		err = m.db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+table+
			" WHERE is_applied").Scan(&v.Version)
	}
	return v, classify(err)
}

// Close releases the connections to the database.
func (m *Migrator) Close() error { return m.db.Close() }

// newestOf is the newest version among migrations.
func newestOf(migrations fs.FS) int64 {
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

// Schema returns the version of the database's schema. It may be newer than this Pawl knows, if the
// newer migrations let older processes go on. So processes can be replaced one by one.
func (s *Store) Schema(ctx context.Context) (v store.SchemaVersion, err error) {
	var least int64
	err = s.call(ctx, everyone, func(t *tx) error {
		return t.commit(
			read("SELECT max(version_id) FROM "+versionTable+" WHERE is_applied",
				func(r *reader) error { v.Version = r.int64(); return nil }),
			read("SELECT least FROM pawl.era", func(r *reader) error { least = r.int64(); return nil }))
	})
	v.Known = newestOf(migrations)
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
		return job.Errorf(job.Unavailable,
			"schema %s has version %d and this Pawl needs %d: pawl migrate brings it up to date", s.o.Schema,
			v.Version, v.Known)
	}
	return job.Errorf(job.Newer, "schema %s has version %d and this Pawl knows up to %d: use the newer Pawl that "+
		"migrated it", s.o.Schema, v.Version, v.Known)
}

// begin notes the time, and sees to it that new events stand behind all that are there: in a
// cluster that was restored from a dump the ids of transactions have begun anew.
func (s *Store) begin(ctx context.Context) error {
	return s.call(ctx, everyone, func(t *tx) error {
		return t.commit(read("SELECT pawl.clock(), e.id::text FROM pawl.era e",
			func(r *reader) error { s.since, s.id = r.time(), r.text(); return nil }),
			do(`WITH RECURSIVE tenants AS (
				(SELECT e.tenant FROM pawl.events e ORDER BY e.tenant LIMIT 1)
				UNION ALL
				SELECT (SELECT e.tenant FROM pawl.events e WHERE e.tenant > t.tenant ORDER BY e.tenant LIMIT 1)
					FROM tenants t WHERE t.tenant IS NOT NULL
			), newest AS (
				SELECT max((SELECT max(e.ord) FROM pawl.events e WHERE e.tenant = t.tenant)) AS ord FROM tenants t
			)
			UPDATE pawl.era SET base = n.ord + 1 - pg_snapshot_xmax(pg_current_snapshot())::text::bigint
			FROM newest n WHERE n.ord >= base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint`))
	})
}

//go:embed grants.sql
var grants string

// Grants returns the SQL that makes a role for a service. The role has the rights in the schema
// ("pawl" if empty) that a service needs, and no more. The owner of the schema runs it after each
// migration.
func Grants(schema string) string {
	if schema == "" {
		schema = defaultSchema
	}
	name := pgx.Identifier{schema}.Sanitize()
	return strings.ReplaceAll(inSchema(grants, schema), "SCHEMA pawl ", "SCHEMA "+name+" ")
}
