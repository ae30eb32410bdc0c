package postgres_test

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// next is the migration of a next version that this one works beside.
//
//go:embed testdata/next.sql
var next string

// nextIndex is one that makes an index of a table which is there.
const nextIndex = `
-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_next;
CREATE INDEX CONCURRENTLY jobs_next ON pawl.jobs (created);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_next;
`

// TestNextVersion migrates to a next version while this one works: the version before is this one.
func TestNextVersion(t *testing.T) {
	t.Parallel()
	t.Run("up and down again, beside a role that has its rights from before", func(t *testing.T) {
		testenv.Aside(t)
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		grant(t, dsn)
		first, this, later := objects(t, dsn, "pawl"), migrator(t, dsn, ""), nextMigrator(t, dsn, next)
		service := granted(t, dsn)
		s := open(t, service, postgres.Options{})
		through(t, s)
		known, err := s.Schema(t.Context())
		if err != nil || !known.Fits {
			t.Fatalf("%+v, %v", known, err)
		}
		version := func(want int64) {
			t.Helper()
			is, err := s.Schema(t.Context())
			if want := (store.SchemaVersion{Version: want, Known: known.Known, Fits: true}); is != want || err != nil {
				t.Errorf("this version sees %+v, %v; want %+v", is, err, want)
			}
		}

		if err := later.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		version(known.Known + 1)
		through(t, s)
		through(t, open(t, service, postgres.Options{}))
		if !value[bool](t, connect(t, service), "SELECT has_table_privilege('pawl.next', 'INSERT')") {
			t.Error("whoever may write jobs may not write what is new")
		}
		if err := this.Up(t.Context()); err != nil {
			t.Errorf("up to a version that is older: %v", err)
		}
		if err := this.Down(t.Context(), 0); job.KindOf(err) != job.Newer {
			t.Errorf("down from a version that it does not know: %v", err)
		}

		if err := later.Down(t.Context(), known.Known); err != nil {
			t.Fatal(err)
		}
		version(known.Known)
		through(t, s)
		if diff := cmp.Diff(first, objects(t, dsn, "pawl")); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		if page, err := s.List(t.Context(), store.Query{Tenant: acme}); err != nil || len(page.Jobs) != 4 {
			t.Errorf("%d jobs are there, want 4; %v", len(page.Jobs), err)
		}
	})
	t.Run("from each version there is a way on, and an older Pawl goes on as well", func(t *testing.T) {
		t.Parallel()
		server := testenv.Postgres(t)
		for what, migration := range map[string]string{"in a transaction": next, "without": nextIndex} {
			dsn := server.Database(t)
			m, conn := nextMigrator(t, dsn, migration), connect(t, dsn)
			if err := m.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			newest := objects(t, dsn, "pawl")
			v, err := m.Version(t.Context())
			if err != nil || v.Version != v.Known {
				t.Fatalf("%+v, %v", v, err)
			}
			for version := v.Known; version > 0; version-- {
				if err := m.Down(t.Context(), version); err != nil {
					t.Fatal(err)
				}
				if least := value[int64](t, conn, "SELECT least FROM pawl.era"); least != leastOf(version) {
					t.Errorf("version %d lets processes work that know version %d, want %d", version, least,
						leastOf(version))
				}
				var text strings.Builder
				if err := postgres.PrintNext(&text, "", version, migration); err != nil {
					t.Fatal(err)
				}
				script := filepath.Join(t.TempDir(), "up.sql")
				if err := os.WriteFile(script, []byte(text.String()), 0o600); err != nil {
					t.Fatal(err)
				}
				server.Psql(t, dsn, "-f", script)
				if diff := cmp.Diff(newest, objects(t, dsn, "pawl")); diff != "" {
					t.Errorf("%s, from version %d (-migrated +printed):\n%s", what, version, diff)
				}
			}
		}
	})
	t.Run("whoever works meanwhile is let pass", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		s, m, admin, report := open(t, dsn, postgres.Options{}), nextMigrator(t, dsn, next), connect(t, dsn),
			connect(t, dsn)
		must(t, report, "BEGIN; LOCK TABLE pawl.jobs IN ACCESS SHARE MODE") // as one that reads jobs, for long
		ended := make(chan error, 1)
		go func() { ended <- m.Up(t.Context()) }()
		untilWaiting(t, admin, 1)
		submit(t, s, newTask())
		must(t, report, "COMMIT")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("a migration that failed leaves nothing to the next try", func(t *testing.T) {
		testenv.Aside(t)
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		m := nextMigrator(t, dsn, nextIndex)
		execute(t, dsn, "CREATE TABLE pawl.jobs_next ()") // where it makes an index, and waits without end for that
		if err := m.Up(t.Context()); err == nil {
			t.Fatal("it has not failed")
		}
		if set, err := m.LockTimeout(t.Context()); err != nil || set != "2s" {
			t.Errorf("the next try waits %s for a lock, %v", set, err)
		}
		execute(t, dsn, "DROP TABLE pawl.jobs_next")
		if err := m.Up(t.Context()); err != nil {
			t.Error(err)
		}
		if !value[bool](t, connect(t, dsn),
			"SELECT indisvalid FROM pg_index WHERE indexrelid = 'pawl.jobs_next'::regclass") {
			t.Error("the index is of no use")
		}
	})
	t.Run("an older Pawl is refused where the schema says so, and an older schema always", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		migrate(t, dsn, "")
		s := open(t, dsn, postgres.Options{})
		is, err := s.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := nextMigrator(t, dsn, fmt.Sprintf(
			"-- +goose Up\nUPDATE pawl.era SET least = %d;\n-- +goose Down\nUPDATE pawl.era SET least = %d;\n",
			is.Known+1, leastOf(is.Known)))
		if err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); job.KindOf(err) != job.Newer {
			t.Errorf("opened: %v", err)
		}
		if is, err := s.Schema(t.Context()); is.Fits || err != nil {
			t.Errorf("a store that is open sees %+v, %v", is, err)
		}
		if err := m.Down(t.Context(), is.Known); err != nil {
			t.Fatal(err)
		}
		open(t, dsn, postgres.Options{})
		execute(t, dsn, "DELETE FROM pawl.migrations WHERE version_id > 0")
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); job.KindOf(err) != job.Unavailable {
			t.Errorf("opened with an older schema: %v", err)
		}
	})
}

func nextMigrator(t *testing.T, dsn, migration string) *postgres.Migrator {
	t.Helper()
	m, err := postgres.NextMigrator(dsn, "", migration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// raised are the migrations that older processes cannot work with. One that is not among them adds
// nothing that they must know of, and takes nothing away.
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

// TestMigrationsStopNobody: an index that is made in a transaction keeps all others from writing
// until it is there, and an index of all jobs that were ever kept takes long. Only that of a table
// which the migration itself makes may be.
func TestMigrationsStopNobody(t *testing.T) {
	names, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	texts := map[string]string{"next": next, "nextIndex": nextIndex}
	for _, name := range names[1:] { // the first one finds nobody at work
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	made := regexp.MustCompile(`(?i)CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?\w+ ON (pawl\.\w+)`)
	for name, text := range texts {
		for _, m := range made.FindAllStringSubmatch(text, -1) {
			if m[1] == "" && !strings.Contains(text, "CREATE TABLE "+m[2]+" ") {
				t.Errorf("%s: %s: make it CONCURRENTLY, in a file with %q; CONTRIBUTING.md shows how", name, m[0],
					"-- +goose NO TRANSACTION")
			}
		}
	}
}
