package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-jobs/pawl/internal/testenv"
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
	t.Run("from each version there is a way on, and an older Pawl goes on as well", func(t *testing.T) {
		t.Parallel()
		server := testenv.Postgres(t)
		dsn := server.Database(t)
		m := migrator(t, dsn, "")
		migrate(t, dsn, "")
		newest, conn := objects(t, dsn, "pawl"), connect(t, dsn)
		v, err := m.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for version := v.Known; version > 0; version-- {
			if err := m.Down(t.Context(), version); err != nil {
				t.Fatal(err)
			}
			if least := value[int64](t, conn, "SELECT least FROM pawl.era"); least != leastOf(version) {
				t.Errorf("version %d lets processes work that know version %d, want %d", version, least, leastOf(version))
			}
			var text strings.Builder
			if err := postgres.Print(&text, "", version); err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(t.TempDir(), "up.sql")
			if err := os.WriteFile(script, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			server.Psql(t, dsn, "-f", script)
			if diff := cmp.Diff(newest, objects(t, dsn, "pawl")); diff != "" {
				t.Errorf("from version %d (-migrated +printed):\n%s", version, diff)
			}
		}
	})
	t.Run("whoever works meanwhile is let pass", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		s, m, admin, report := open(t, dsn, postgres.Options{}), migrator(t, dsn, ""), connect(t, dsn), connect(t, dsn)
		must(t, report, "BEGIN; LOCK TABLE pawl.jobs IN ACCESS SHARE MODE") // as one that reads jobs, for long
		ended := make(chan error, 1)
		go func() { ended <- m.Down(t.Context(), 0) }()
		untilWaiting(t, admin, 1)
		submit(t, s, newTask())
		must(t, report, "COMMIT")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("a migration that failed leaves nothing to the next try", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		m := migrator(t, dsn, "")
		migrate(t, dsn, "")
		if err := m.Down(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		execute(t, dsn, "CREATE TABLE pawl.ended_hidden ()") // where version 2 makes an index, and waits without end for that
		if err := m.Up(t.Context()); err == nil {
			t.Fatal("it has not failed")
		}
		if set, err := m.LockTimeout(t.Context()); err != nil || set != "2s" {
			t.Errorf("the next try waits %s for a lock, %v", set, err)
		}
		execute(t, dsn, "DROP TABLE pawl.ended_hidden")
		if err := m.Up(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("who has made keys may delete them", func(t *testing.T) {
		t.Parallel()
		const schema = `a "b".pawl.`
		dsn := testenv.Postgres(t).Database(t)
		m, conn, role := migrator(t, dsn, schema), connect(t, dsn), parsed(t, dsn).Database
		table := pgx.Identifier{schema, "idempotency"}.Sanitize()
		migrate(t, dsn, schema)
		if err := m.Down(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		rights := map[string]bool{role + " makes": true, role + " reads": false, role + " changes": false}
		for name, may := range rights {
			right := "SELECT, UPDATE"
			if may {
				right = "SELECT, INSERT, UPDATE"
			}
			name = pgx.Identifier{name}.Sanitize()
			must(t, conn, "CREATE ROLE "+name)
			must(t, conn, "GRANT "+right+" ON "+table+" TO "+name)
		}
		has := func(name string) bool {
			return value[bool](t, conn, "SELECT has_table_privilege($1::name, $2, 'DELETE')", name, table)
		}
		for name := range rights {
			if has(name) {
				t.Fatalf("%s has had the right before", name)
			}
		}
		if err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, may := range rights {
			if has(name) != may {
				t.Errorf("%s may delete: %t", name, !may)
			}
		}
		must(t, conn, "REVOKE ALL ON "+table+" FROM "+pgx.Identifier{role + " makes"}.Sanitize())
		must(t, conn, "GRANT INSERT ON "+table+" TO PUBLIC")
		if err := m.Down(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name := range rights {
			if !has(name) {
				t.Errorf("where all may make keys, %s may not delete any", name)
			}
		}
	})
	t.Run("a version that this Pawl does not know is not taken back by it", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		execute(t, dsn, "INSERT INTO pawl.migrations (version_id, is_applied) VALUES (999, true)")
		if err := migrator(t, dsn, "").Down(t.Context(), 0); job.KindOf(err) != job.Newer {
			t.Errorf("%v", err)
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
	t.Run("versions side by side", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		const later = "INSERT INTO pawl.migrations (version_id, is_applied) VALUES (999, true)"
		execute(t, dsn, later)
		open(t, dsn, postgres.Options{}) // a later version that lets us go on
		execute(t, dsn, "UPDATE pawl.era SET least = 999")
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); job.KindOf(err) != job.Newer {
			t.Errorf("a later version that does not: %v", err)
		}
		execute(t, dsn, "UPDATE pawl.era SET least = 1; DELETE FROM pawl.migrations WHERE version_id > 0")
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); job.KindOf(err) != job.Unavailable {
			t.Errorf("an older schema: %v", err)
		}
	})
}

// TestDocumentedVersion: the operations page shows what the newest version prints when it makes a schema.
func TestDocumentedVersion(t *testing.T) {
	t.Parallel()
	v, err := migrator(t, testenv.Postgres(t).Database(t), "").Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/operations.md")
	if want := fmt.Sprintf("in pawl: 0 before, %d now\n", v.Known); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("no %q, %v", want, err)
	}
}

// raised are the migrations that older processes cannot work with. One that is not among them adds nothing that they must
// know of, and takes nothing away.
var raised []int64

// leastOf returns which version a process must know at least to work with a version of the schema.
func leastOf(version int64) int64 {
	least := int64(1)
	for _, v := range raised {
		if v <= version {
			least = v
		}
	}
	return least
}

// TestMigrationsStopNobody: an index that is made in a transaction keeps all others from writing until it is there, and an
// index of all jobs that were ever kept takes long.
func TestMigrationsStopNobody(t *testing.T) {
	names, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	made := regexp.MustCompile(`(?i)CREATE (UNIQUE )?INDEX (CONCURRENTLY )?`)
	for _, name := range names[1:] { // the first one finds nobody at work
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range made.FindAllSubmatch(text, -1) {
			if len(m[2]) == 0 {
				t.Errorf("%s: %s: make it CONCURRENTLY, in a file with %q; CONTRIBUTING.md shows how", name, m[0], "-- +goose NO TRANSACTION")
			}
		}
	}
}

func TestSchemas(t *testing.T) {
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

// TestRole runs the store as a role that has only the rights which the operations page lists, and shows the second wall.
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
	if _, err := s.Put(t.Context(), store.Resource{Tenant: acme, Kind: "queue", Name: "q", Doc: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), store.Resource{Tenant: store.Site, Kind: "key", Name: "k", Doc: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"": false, "other": false, acme: true, "*": true} {
		if _, err := conn.Exec(t.Context(), "SELECT set_config('job.tenant', $1, false)", tenant); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"specs", "ended", "events", "resources"} {
			var n int
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pawl."+table).Scan(&n); err != nil || (n > 0) != want {
				t.Errorf("as tenant %q %d rows of %s are seen, %v", tenant, n, table, err)
			}
		}
		tag, err := conn.Exec(t.Context(), "UPDATE pawl.specs SET notes = '{}' WHERE id = $1", [16]byte(id))
		if err != nil || (tag.RowsAffected() > 0) != want {
			t.Errorf("as tenant %q %d rows are changed, %v", tenant, tag.RowsAffected(), err)
		}
		_, err = conn.Exec(t.Context(), "INSERT INTO pawl.resources VALUES ('acme', 'queue', $1, 1, now(), '{}')", "of "+tenant)
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
		"DROP TABLE pawl.jobs", "ALTER TABLE pawl.jobs DISABLE ROW LEVEL SECURITY", "CREATE TABLE pawl.x ()", "TRUNCATE pawl.jobs",
		"INSERT INTO pawl.era (least) VALUES (999)", "DELETE FROM pawl.era", "UPDATE pawl.labels SET value = ''", "UPDATE pawl.events SET message = ''",
		"UPDATE pawl.prerequisites SET need = ''", "DELETE FROM pawl.duties", "SELECT FROM pawl.others",
		"INSERT INTO pawl.migrations (version_id, is_applied) VALUES (999, true)", "UPDATE pawl.migrations SET is_applied = false", "DELETE FROM pawl.migrations",
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
	execute(t, dsn, strings.ReplaceAll(postgres.Grants(""), "pawl_service", role)+"ALTER ROLE "+role+" LOGIN PASSWORD '"+password+"'")
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
