package sqlite

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A session that an older Pawl began has its host and pid as one text. It is known after the way up, and the way down
// leads back to that.
func TestMigrationOfProcesses(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	ctx := t.Context()
	if err := s.Begin(ctx, store.Session{ID: job.NewID(), Process: store.Process{Host: "h", PID: 7, Machine: "m"}, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	downTo(t, s, 5, func(db *sql.DB) {
		var process string
		if err := db.QueryRowContext(ctx, "SELECT process FROM sessions").Scan(&process); err != nil || process != "h:7" {
			t.Errorf("process %q before, %v", process, err)
		}
	})
	s = openAt(t, dir)
	all, err := s.Sessions(ctx)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if diff := cmp.Diff(store.Process{Host: "h:7"}, all[0].Process); diff != "" || all[0].Command != store.Work || !all[0].Crashed {
		t.Errorf("%+v\n%s", all[0], diff)
	}
}

// downTo closes a store and takes its database down to a version, of which look sees what is left.
func downTo(t *testing.T, s *Store, version int64, look func(*sql.DB)) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := openWriter(s.path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := migrationsOf(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	look(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// none returns what looks whether each of the queries counts nothing.
func none(t *testing.T, counts ...string) func(*sql.DB) {
	return func(db *sql.DB) {
		t.Helper()
		for _, q := range counts {
			var n int
			if err := db.QueryRowContext(t.Context(), q).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d, %v", q, n, err)
			}
		}
	}
}
