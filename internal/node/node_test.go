package node

import (
	"database/sql"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/job"
)

// A folder is not left for a database that was never reached, such as one with a slip in its name.
func TestFolderWhoseSharedDatabaseIsNotThere(t *testing.T) {
	dir := t.TempDir()
	for _, migrate := range []bool{true, false} {
		o := Options{DB: DatabaseConfig{DSN: "postgres://127.0.0.1:1/jobs?connect_timeout=5"}, Migrate: migrate}
		if n, err := Open(t.Context(), dir, o); job.KindOf(err) != job.Unavailable {
			if err == nil {
				n.Close()
			}
			t.Errorf("opened with migrate %v: %v", migrate, err)
		}
	}
	n, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatalf("with its own database: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFolderOfANewerVersion(t *testing.T) {
	dir := t.TempDir()
	n, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "pawl.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(),
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)`); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), dir, Options{})
	_, readErr := OpenReader(t.Context(), dir)
	for what, err := range map[string]error{"to run": err, "to read": readErr} {
		if job.KindOf(err) != job.Newer || !strings.Contains(err.Error(), "use the newer Pawl") {
			t.Errorf("opened %s: %v", what, err)
		}
	}
}

// A process that serves has as many slots as one that runs a job file.
func TestSlotsOfTheConfiguration(t *testing.T) {
	l, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[job.Lane]int{
		job.LaneFinish: l.Slots.Finish, job.LaneLaunch: l.Slots.Launch, job.LanePrepare: l.Slots.Prepare, job.LaneTask: l.Slots.Task,
	}
	if !maps.Equal(got, engine.DefaultSlots) {
		t.Errorf("%v, want %v", got, engine.DefaultSlots)
	}
}
