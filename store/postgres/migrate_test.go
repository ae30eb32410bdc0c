package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

func TestMigrations(t *testing.T) {
	t.Parallel()
	t.Run("up, down and up again", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		m := migrator(t, dsn, "")
		if v, err := m.Version(t.Context()); err != nil || v.Version != 0 || v.Known == 0 {
			t.Errorf("before: %+v, %v", v, err)
		}
		migrate(t, dsn, "")
		first := objects(t, dsn, "pawl")
		if v, err := m.Version(t.Context()); err != nil || v.Version != v.Known {
			t.Errorf("after: %+v, %v", v, err)
		}
		migrate(t, dsn, "") // nothing to do
		if err := m.Down(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for _, name := range objects(t, dsn, "pawl") {
			if !strings.Contains(name, "migrations") {
				t.Errorf("%s is left", name)
			}
		}
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); job.KindOf(err) != job.Unavailable {
			t.Errorf("a store without a schema: %v", err)
		}
		migrate(t, dsn, "")
		if diff := cmp.Diff(first, objects(t, dsn, "pawl")); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
		if err := m.Down(t.Context(), 1000); job.KindOf(err) != job.Invalid {
			t.Errorf("down to a version that is not there: %v", err)
		}
	})
	t.Run("the printed SQL makes the same", func(t *testing.T) {
		t.Parallel()
		server := testenv.Postgres(t)
		ours, theirs := server.Database(t), server.Database(t)
		migrate(t, ours, "jobs of ann")
		var text strings.Builder
		if err := postgres.Print(&text, "jobs of ann", 0); err != nil {
			t.Fatal(err)
		}
		execute(t, theirs, text.String())
		if diff := cmp.Diff(objects(t, ours, "jobs of ann"), objects(t, theirs, "jobs of ann")); diff != "" {
			t.Errorf("(-migrated +printed):\n%s", diff)
		}
		migrate(t, theirs, "jobs of ann") // knows that it was done
		open(t, theirs, postgres.Options{Schema: "jobs of ann"})
	})
	t.Run("of many at once one migrates", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				m, err := postgres.NewMigrator(dsn, "")
				if err == nil {
					err = m.Up(t.Context())
					m.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		open(t, dsn, postgres.Options{})
	})
}

// TestDocumentedVersion: the page of PostgreSQL shows what the newest version prints when it makes
// a schema.
func TestDocumentedVersion(t *testing.T) {
	t.Parallel()
	v, err := migrator(t, testenv.Postgres(t).Database(t), "").Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/operations/postgresql.md")
	if want := fmt.Sprintf("in pawl: 0 before, %d now\n", v.Known); err != nil ||
		!strings.Contains(string(text), want) {
		t.Errorf("no %q, %v", want, err)
	}
}

func TestSchemas(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	stores := map[string]*postgres.Store{}
	for _, schema := range []string{"", `a "b".pawl.`} {
		migrate(t, dsn, schema)
		stores[schema] = open(t, dsn, postgres.Options{Schema: schema})
	}
	for schema, s := range stores {
		through(t, s)
		if page, err := s.List(t.Context(), store.Query{Tenant: acme}); err != nil || len(page.Jobs) != 1 {
			t.Errorf("schema %q has %d jobs, %v", schema, len(page.Jobs), err)
		}
	}
}

// TestNoRights names what is missing: the rights of a role, and not the schema.
func TestNoRights(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	admin := connect(t, dsn)
	role := "stranger_" + job.NewID().Short()
	must(t, admin, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	t.Cleanup(func() { execute(t, dsn, "DROP ROLE "+role) })
	own := "postgres://" + role + ":x" + dsn[strings.Index(dsn, "@"):]
	m, err := postgres.NewMigrator(own, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, opened := postgres.Open(t.Context(), own, postgres.Options{})
	_, version := m.Version(t.Context())
	for what, err := range map[string]error{"open": opened, "version": version, "up": m.Up(t.Context())} {
		if job.KindOf(err) != job.Unavailable || strings.Contains(err.Error(), "not there") ||
			!strings.Contains(err.Error(), "the role may not ") || !strings.Contains(err.Error(), "pawl migrate grants") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://u:secret@[bad/", "host=x port=secret"} {
		_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		if job.KindOf(err) != job.Invalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
	_, err := postgres.Open(t.Context(), "postgres://u:secret@127.0.0.1:1/x?connect_timeout=1", postgres.Options{})
	if job.KindOf(err) != job.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// TestRole runs the store as a role that has only the rights which the operations page lists, and
// shows the second wall.
func TestRole(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	execute(t, dsn, "CREATE TABLE pawl.others ()") // the schema has more than Pawl's own
	grant(t, dsn)
	theirs := granted(t, dsn)
	s := open(t, theirs, postgres.Options{})
	id := through(t, s)

	conn, err := pgx.Connect(t.Context(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := s.Put(t.Context(), store.Resource{
		Tenant: acme, Kind: "queue", Name: "q",
		Doc: []byte(`{}`),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), store.Resource{
		Tenant: store.Site, Kind: "key", Name: "k",
		Doc: []byte(`{}`),
	}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"": false, "other": false, acme: true, "*": true} {
		if _, err := conn.Exec(t.Context(), "SELECT set_config('job.tenant', $1, false)", tenant); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"specs", "ended", "events", "resources"} {
			var n int
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pawl."+table).Scan(&n); err != nil ||
				(n > 0) != want {
				t.Errorf("as tenant %q %d rows of %s are seen, %v", tenant, n, table, err)
			}
		}
		tag, err := conn.Exec(t.Context(), "UPDATE pawl.specs SET notes = '{}' WHERE id = $1", [16]byte(id))
		if err != nil || (tag.RowsAffected() > 0) != want {
			t.Errorf("as tenant %q %d rows are changed, %v", tenant, tag.RowsAffected(), err)
		}
		_, err = conn.Exec(t.Context(), "INSERT INTO pawl.resources VALUES ('acme', 'queue', $1, 1, now(), '{}')",
			"of "+tenant)
		if (err == nil) != want {
			t.Errorf("as tenant %q an insertion for another: %v", tenant, err)
		}
	}
	unwalled := value[string](t, connect(t, dsn), `SELECT coalesce(string_agg(c.relname, ', '), '')
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
		WHERE c.relnamespace = 'pawl'::regnamespace AND c.relkind = 'r' AND NOT (c.relrowsecurity AND (
			SELECT array_agg(pg_get_expr(p.polqual, c.oid)) = (SELECT array_agg(pg_get_expr(s.polqual, s.polrelid)) FROM pg_policy s WHERE s.polrelid = 'pawl.specs'::regclass)
			FROM pg_policy p WHERE p.polrelid = c.oid AND p.polcmd = '*'))`)
	if unwalled != "" {
		t.Errorf("tables with rows of tenants and without the wall that specs has: %s", unwalled)
	}
	for _, forbidden := range []string{
		"DROP TABLE pawl.jobs", "ALTER TABLE pawl.jobs DISABLE ROW LEVEL SECURITY", "CREATE TABLE pawl.x ()",
		"TRUNCATE pawl.jobs",
		"INSERT INTO pawl.era (least) VALUES (999)", "DELETE FROM pawl.era", "UPDATE pawl.labels SET value = ''",
		"UPDATE pawl.events SET message = ''",
		"UPDATE pawl.prerequisites SET need = ''", "DELETE FROM pawl.duties", "SELECT FROM pawl.others",
		"INSERT INTO pawl.migrations (version_id, is_applied) VALUES (999, true)",
		"UPDATE pawl.migrations SET is_applied = false", "DELETE FROM pawl.migrations",
	} {
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), forbidden); !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
}

// password is that of the roles that grant makes.
const password = "x"

// grant makes a role named like the database, which has only the rights that a service needs there.
func grant(t *testing.T, dsn string) {
	t.Helper()
	role := parsed(t, dsn).Database
	execute(t, dsn, strings.ReplaceAll(postgres.Grants(""), "pawl_service", role)+"ALTER ROLE "+role+
		" LOGIN PASSWORD '"+password+"'")
}

// granted returns the way to a database as the role that grant has made there.
func granted(t *testing.T, dsn string) string {
	t.Helper()
	config := parsed(t, dsn)
	return strings.Replace(dsn, config.User+":"+config.Password+"@", config.Database+":"+password+"@", 1)
}

func parsed(t *testing.T, dsn string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func migrator(t *testing.T, dsn, schema string) *postgres.Migrator {
	t.Helper()
	m, err := postgres.NewMigrator(dsn, schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// objects lists what is in a schema.
func objects(t *testing.T, dsn, schema string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `
		SELECT 'relation ' || c.relname || ' ' || c.relkind::text || ' ' || coalesce(array_to_string(c.reloptions, ','), '') || ' ' || c.relrowsecurity
			|| coalesce(' ' || pg_get_indexdef(c.oid), '')
		FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = to_regnamespace(quote_ident($1))
		UNION ALL SELECT 'column ' || a.attrelid::regclass::text || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL SELECT 'function ' || p.proname FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident($1))
		ORDER BY 1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}
