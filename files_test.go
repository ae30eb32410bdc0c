package pawl_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A keeper is a kind whose jobs all have the same files. It runs none.
type keeper struct{ where engine.Files }

func (keeper) Step(context.Context, *engine.Run) engine.Outcome { return engine.Back() }
func (k keeper) Files(*job.Job) (engine.Files, error)           { return k.where, nil }
func (keeper) Progress(*job.Job) (job.Progress, bool)           { return job.Progress{}, false }

// blind is a file system that does not tell where links lead.
type blind struct{ files.FS }

func TestOpenOutput(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("secret", "secret")
	put("folderly/x", "not in the folder")
	put("folder/a.txt", "a")
	put("folder/sub/b.txt", "b")
	put("folder/.pawl/script", "the environment")
	put("results/c.txt", "c")
	put("results/.pawl/script", "the environment")
	link("a.txt", "folder/inside")
	link("sub", "folder/way")
	link("../secret", "folder/out")
	link("../folderly", "folder/outway")
	link(".pawl", "folder/own")
	link("nowhere", "folder/dead")
	link("folder", "moved") // the folder itself may be reached through one

	db, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	services := map[string]*pawl.Service{}
	for kind, fsys := range map[string]files.FS{"linker": fileslocal.FS{}, "blind": blind{fileslocal.FS{}}} {
		where := engine.Files{FS: fsys, Folder: filepath.Join(dir, "moved"), Results: filepath.Join(dir, "results"), Stdout: "stdout", Stderr: "stderr"}
		services[kind] = pawl.New(pawl.Config{Store: db, Broker: &local.Broker{}, Kinds: map[string]engine.Kind{kind: keeper{where}}})
	}
	for _, c := range []struct {
		path    string
		content string        // what there is
		kind    job.ErrorKind // or why not
		blind   job.ErrorKind // where links cannot be followed
	}{
		{path: "a.txt", content: "a"},
		{path: "sub/b.txt", content: "b"},
		{path: "c.txt", content: "c"},
		{path: "inside", content: "a", blind: job.Invalid},
		{path: "way/b.txt", content: "b", blind: job.Invalid},
		{path: "out", kind: job.Invalid},
		{path: "outway/x", kind: job.Invalid},
		{path: "own/script", kind: job.NotFound, blind: job.Invalid},
		{path: ".pawl/script", kind: job.NotFound},
		{path: "dead", kind: job.NotFound, blind: job.Invalid},
		{path: "nothing", kind: job.NotFound},
		{path: "sub", kind: job.Invalid},
		{path: "../secret", kind: job.Invalid},
		{path: "sub/../a.txt", kind: job.Invalid},
		{path: "/etc/passwd", kind: job.Invalid},
		{path: ".", kind: job.Invalid},
		{path: "", kind: job.Invalid},
	} {
		for kind, svc := range services {
			want := c.kind
			if kind == "blind" && c.blind != "" {
				want = c.blind
			}
			id := submit(t, svc, task(kind, 0))[0].ID
			f, r, err := svc.OpenOutput(t.Context(), id, c.path)
			if want != "" || err != nil {
				if job.KindOf(err) != want {
					t.Errorf("%s, %q: %v, want %s", kind, c.path, err, want)
				}
				continue
			}
			b, err := io.ReadAll(r)
			r.Close()
			if err != nil || string(b) != c.content || f.Path != c.path || f.Size != int64(len(b)) {
				t.Errorf("%s, %q: %q, %+v, %v", kind, c.path, b, f, err)
			}
		}
	}
	for kind, svc := range services {
		id := submit(t, svc, task(kind, 0))[0].ID
		list, err := svc.Output(t.Context(), id)
		var names []string
		for _, f := range list {
			names = append(names, f.Path)
		}
		if got := strings.Join(names, " "); err != nil || got != "a.txt sub/b.txt" {
			t.Errorf("%s: %s, %v", kind, got, err)
		}
	}
}
