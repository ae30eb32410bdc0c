package sqlite

import (
	_ "embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

//go:embed testdata/next.sql
var next string

// withNext returns the migrations of a next version, which knows one more than this one.
func withNext(t *testing.T, known int64) fs.FS {
	t.Helper()
	files := fstest.MapFS{fmt.Sprintf("migrations/%05d_next.sql", known+1): {Data: []byte(next)}}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || int64(len(names)) != known {
		t.Fatalf("%d migrations, want %d; %v", len(names), known, err)
	}
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return files
}

// TestNextVersion brings a folder from this version to a next one, and back.
func TestNextVersion(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	first := objects(t, s)
	if err := submit(ctx, s, newTask(1)); err != nil {
		t.Fatal(err)
	}
	is, err := s.Schema(ctx)
	if err != nil || !is.Fits {
		t.Fatalf("%+v, %v", is, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	later := Options{migrations: withNext(t, is.Known)}
	if _, err := Open(ctx, dir, Options{
		ReadOnly:   true,
		migrations: later.migrations,
	}); job.KindOf(err) != job.Unavailable {
		t.Errorf("read by the next version, of this one: %v", err)
	}
	s, err = Open(ctx, dir, later)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Schema(ctx); err != nil ||
		got != (store.SchemaVersion{Version: is.Known + 1, Known: is.Known + 1, Fits: true}) {
		t.Errorf("the next version sees %+v, %v", got, err)
	}
	if page, err := s.List(ctx, store.Query{Tenant: "t"}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("%d jobs are there, want 1; %v", len(page.Jobs), err)
	}
	storetest.Check(t, s, "t")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	for _, o := range []Options{{}, {ReadOnly: true}} {
		if _, err := Open(ctx, dir, o); job.KindOf(err) != job.Newer {
			t.Errorf("opened by this version, of the next (%+v): %v", o, err)
		}
	}
	if got, err := Schema(ctx, dir); err != nil ||
		got != (store.SchemaVersion{Version: is.Known + 1, Known: is.Known}) {
		t.Errorf("this version sees %+v, %v", got, err)
	}

	down(t, dir, later.migrations, is.Known)
	s = openAt(t, dir)
	if diff := cmp.Diff(first, objects(t, s)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	storetest.Check(t, s, "t")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	down(t, dir, migrations, 0)
	if diff := cmp.Diff(first, objects(t, openAt(t, dir))); diff != "" {
		t.Errorf("down to nothing, and made again (-first +again):\n%s", diff)
	}
}

// down takes the database of a folder that nobody has open back to a version.
func down(t *testing.T, dir string, migrations fs.FS, version int64) {
	t.Helper()
	db, err := openWriter(filepath.Join(dir, File), false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := migrationsOf(db, migrations)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// objects lists what is in a database.
func objects(t *testing.T, s *Store) (all []string) {
	t.Helper()
	rows, err := s.read.QueryContext(t.Context(),
		`SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var what string
		if err := rows.Scan(&what); err != nil {
			t.Fatal(err)
		}
		all = append(all, what)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
