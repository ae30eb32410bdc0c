package sqlite

import (
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
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	db, err := openWriter(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := migrationsOf(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(ctx, 5); err != nil {
		t.Fatal(err)
	}
	var process string
	if err := db.QueryRowContext(ctx, "SELECT process FROM sessions").Scan(&process); err != nil || process != "h:7" {
		t.Errorf("process %q before, %v", process, err)
	}
	if _, err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, dir)
	all, err := s.Sessions(ctx)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if diff := cmp.Diff(store.Process{Host: "h:7"}, all[0].Process); diff != "" || all[0].Command != store.Work || !all[0].Crashed {
		t.Errorf("%+v\n%s", all[0], diff)
	}
}
