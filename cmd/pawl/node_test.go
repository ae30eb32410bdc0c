package main

import (
	"database/sql"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	_ "modernc.org/sqlite" // the driver
)

// A program that handles tasks has a folder's lock, and no socket.
func TestFolderThatAProgramWithoutASocketHas(t *testing.T) {
	dir := t.TempDir()
	n, err := openNode(t.Context(), dir, nodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	view := live.NewView(live.Config{Out: io.Discard}, &live.Board{})
	defer view.Close()
	r := &run{dir: dir, view: view}
	_, err = r.sit(t.Context(), nil)
	for _, want := range []string{dir + " is in use by process ", "which does not answer; nothing was submitted: wait for its end, or stop it"} {
		if job.KindOf(err) != job.Locked || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if code, ok := exitOf[job.Locked]; ok {
		t.Errorf("exit code %d, want %d", code, exitBroken)
	}
}

// A folder is not left for a database that was never reached, such as one with a slip in its name.
func TestFolderWhoseSharedDatabaseIsNotThere(t *testing.T) {
	dir := t.TempDir()
	for _, migrate := range []bool{true, false} {
		o := nodeOptions{db: "postgres://127.0.0.1:1/jobs?connect_timeout=5", migrate: migrate}
		if n, err := openNode(t.Context(), dir, o); job.KindOf(err) != job.Unavailable {
			if err == nil {
				n.close()
			}
			t.Errorf("opened with migrate %v: %v", migrate, err)
		}
	}
	n, err := openNode(t.Context(), dir, nodeOptions{})
	if err != nil {
		t.Fatalf("with its own database: %v", err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
}

func TestFolderOfANewerVersion(t *testing.T) {
	dir := t.TempDir()
	n, err := openNode(t.Context(), dir, nodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "pawl.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)`); err != nil {
		t.Fatal(err)
	}
	_, err = openNode(t.Context(), dir, nodeOptions{})
	_, readErr := openReader(t.Context(), dir)
	for what, err := range map[string]error{"to run": err, "to read": readErr} {
		if job.KindOf(err) != job.Newer || !strings.Contains(err.Error(), "use the newer Pawl") {
			t.Errorf("opened %s: %v", what, err)
		}
	}
	if code, ok := exitOf[job.Newer]; ok {
		t.Errorf("exit code %d, want %d", code, exitBroken)
	}
}
