package app_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
)

// touchy files tell what was done to them, right after it.
type touchy struct {
	fileslocal.FS
	did func(ctx context.Context, what, name string)
}

func (f touchy) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	err := f.FS.Put(ctx, name, r, o)
	f.did(ctx, "put", name)
	return err
}

func (f touchy) Mkdir(ctx context.Context, name string) error {
	err := f.FS.Mkdir(ctx, name)
	f.did(ctx, "mkdir", name)
	return err
}

func (f touchy) Link(ctx context.Context, from, to string) error {
	err := f.FS.Link(ctx, from, to)
	f.did(ctx, "link", to)
	return err
}

func (f touchy) Rename(ctx context.Context, from, to string) error {
	err := f.FS.Rename(ctx, from, to)
	f.did(ctx, "rename", to)
	return err
}

func (f touchy) Remove(ctx context.Context, name string) error {
	err := f.FS.Remove(ctx, name)
	f.did(ctx, "remove", name)
	return err
}

// once has f called after the first time that something was done where results go.
func once(what string, f func(ctx context.Context)) func(*parts) {
	var done atomic.Bool
	return func(p *parts) {
		p.Files = touchy{did: func(ctx context.Context, did, _ string) {
			if did == what && done.CompareAndSwap(false, true) {
				f(ctx)
			}
		}}
	}
}

// write writes a file and the folders above it.
func (h *house) write(text string, elem ...string) {
	h.Helper()
	name := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

// archived returns the names in the manifest of an archive.
func (h *house) archived(results string) []string {
	h.Helper()
	var m struct{ Files []struct{ Name string } }
	if err := json.Unmarshal([]byte(h.read(results, app.ManifestFile)), &m); err != nil {
		h.Error(err)
	}
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	return names
}

// copies returns what copies of results that are not published are left in an archive.
func (h *house) copies(to string) []string {
	h.Helper()
	list, err := filepath.Glob(filepath.Join(to, ".pawl-*"))
	if err != nil {
		h.Error(err)
	}
	return list
}

func TestArchive(t *testing.T) {
	t.Run("of inputs, what the program changed or made there is archived", func(t *testing.T) {
		h := open(t)
		data := filepath.Join(h.dir, "data")
		for _, name := range []string{"same", "longer", "as long", "sub/same", "sub/linked"} {
			h.write("before", data, name)
		}
		s := shell(`cd in && echo more >> longer && printf AFTER! > "as long" && echo new > sub/made && ln -s made sub/link &&
			mv sub/linked sub/moved`)
		s.Inputs = []job.Input{{From: data, To: "in"}}
		j := h.end(h.submit(s))
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		_, results := app.Places(&j)
		want := []string{"in/as long", "in/longer", "in/sub/link", "in/sub/made", "in/sub/moved", "stderr", "stdout"}
		if got := h.archived(results); !slices.Equal(got, want) {
			t.Errorf("archived %q", got)
		}
		if got := h.read(results, "in", "as long"); got != "AFTER!" {
			t.Errorf("a changed input is %q", got)
		}
		if exists(results, "in", "same") || exists(results, "in", "sub", "same") {
			t.Error("inputs that nobody changed were archived")
		}
	})
	t.Run("what is no file is named and left out", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`mkdir d && echo text > d/file && ln -s file d/link && mkfifo d/pipe && ln -s /etc etc`)))
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		want := "4 files (10 bytes) copied; left out: d/pipe (a pipe), etc (a link to /etc, outside of the job's folder)\n"
		if got := h.history(j.ID); !strings.Contains(got, want) {
			t.Errorf("the history does not say so:\n%s", got)
		}
		_, results := app.Places(&j)
		if got := h.read(results, "d", "file"); got != "text\n" {
			t.Errorf("file %q", got)
		}
		if got := h.read(results, "d", "link"); got != "text\n" {
			t.Errorf("the link is %q", got)
		}
		for _, name := range []string{"d/pipe", "etc"} {
			if exists(results, name) {
				t.Errorf("%s was archived", name)
			}
		}
	})
	t.Run("the name of the manifest is not for programs", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`echo mine > ` + app.ManifestFile)))
		if j.State != job.Failed || j.Code != job.ArchiveFailed || !strings.Contains(j.Message, app.ManifestFile) {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		folder, results := app.Places(&j)
		if got := h.read(folder, app.ManifestFile); got != "mine\n" {
			t.Errorf("in the job's folder it is %q", got)
		}
		if exists(results, app.ManifestFile) {
			t.Error("it was archived")
		}
	})
	t.Run("below a folder it is a name like others", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`mkdir d && echo mine > d/` + app.ManifestFile)))
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		_, results := app.Places(&j)
		if got := h.read(results, "d", app.ManifestFile); got != "mine\n" {
			t.Errorf("archived as %q", got)
		}
	})
	t.Run("an archive is of one job", func(t *testing.T) {
		h := open(t)
		to := filepath.Join(h.dir, "to")
		submit := func(script string) job.Job {
			s := shell(script)
			s.Archive = &job.Archive{To: to}
			return h.end(h.submit(s))
		}
		if j := submit(`echo one > one`); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		was := h.read(to, app.ManifestFile)
		j := submit(`echo two > two`)
		if j.State != job.Failed || j.Code != job.ArchiveExists || !strings.Contains(j.Message, "the archive of another job") {
			t.Errorf("%s %s %s", j.State, j.Code, j.Message)
		}
		if got := h.read(to, app.ManifestFile); got != was {
			t.Errorf("the manifest was replaced by %s", got)
		}
		if exists(to, "two") {
			t.Error("there are files of both")
		}
	})
	t.Run("an archive is of one job, also of two that run side by side", func(t *testing.T) {
		h := open(t)
		to := filepath.Join(h.dir, "to")
		gates := []string{h.gate(), h.gate()}
		var ids []job.ID
		for i, gate := range gates {
			s := scripted(`read line <"$0"; echo "$1" >"$1"`, gate, []string{"one", "two"}[i])
			s.Archive = &job.Archive{To: to}
			ids = append(ids, h.submit(s))
			h.until(ids[i], state(job.Running))
		}
		h.pass(gates[0])
		if j := h.end(ids[0]); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		h.pass(gates[1])
		// The logs of both are empty, and so the same: only the manifests differ.
		j := h.end(ids[1])
		if j.Code != job.ArchiveExists || !strings.Contains(j.Message, app.ManifestFile+": file already exists") {
			t.Errorf("%s %s %s", j.State, j.Code, j.Message)
		}
		folder, _ := app.Places(&j)
		if h.read(folder, "two") != "two\n" || h.read(to, "one") != "one\n" || exists(to, "two") {
			t.Errorf("there are files of both: %q", h.archived(to))
		}
	})
	t.Run("results of a failed program are copies: its folder stays, for people and for another attempt", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`echo theirs >result; exit 3`)))
		dir, results := app.Places(&j)
		h.write("mine", dir, "result")
		if got := h.read(results, "result"); j.State != job.Failed || got != "theirs\n" {
			t.Errorf("%s %s; the archive has %q", j.State, j.Message, got)
		}
	})
	t.Run("results of a program that ended well are its own files", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(`echo it >result; touch -d @1000000000 result`)))
		_, results := app.Places(&j)
		info, err := os.Stat(filepath.Join(results, "result"))
		if err != nil || info.ModTime().Unix() != 1e9 || h.read(results, "result") != "it\n" {
			t.Errorf("%+v, %v", info, err)
		}
	})
	t.Run("a failed program whose results cannot be archived is told with both", func(t *testing.T) {
		h := open(t)
		to := filepath.Join(h.dir, "to")
		h.write("mine", to, "stdout")
		s := shell(`echo theirs; exit 3`)
		s.Archive = &job.Archive{To: to}
		j := h.end(h.submit(s))
		program := strings.Index(j.Message, "exit code 3")
		archive := strings.Index(j.Message, "already exists")
		if j.State != job.Failed || program < 0 || archive < program {
			t.Errorf("%s %s %s", j.State, j.Code, j.Message)
		}
	})
}

func TestPublishedBeforeACrash(t *testing.T) {
	for what, name := range map[string]string{
		"link":   "files that have their name are found again",
		"remove": "files whose copies are gone are found again",
		"rename": "a folder that has its name is found again",
	} {
		t.Run(name, func(t *testing.T) {
			died := make(chan struct{})
			h := open(t, once(what, func(context.Context) { close(died); panic(death{}) }))
			s := shell(`echo a > a; echo b > b`)
			if what == "link" || what == "remove" {
				s.Archive = &job.Archive{To: filepath.Join(h.dir, "to")}
			}
			j := h.end(h.submit(s))
			if j.State != job.Finished {
				t.Fatalf("%s %s", j.State, j.Message)
			}
			<-died
			_, results := app.Places(&j)
			if got := h.archived(results); !slices.Equal(got, []string{"a", "b", "stderr", "stdout"}) {
				t.Errorf("archived %q", got)
			}
			if a, b := h.read(results, "a"), h.read(results, "b"); a != "a\n" || b != "b\n" {
				t.Errorf("a is %q and b is %q", a, b)
			}
			if left := append(h.copies(results), h.copies(filepath.Join(h.dir, "archive", ".staging"))...); len(left) > 0 {
				t.Errorf("left in the archive: %q", left)
			}
		})
	}
	t.Run("a file of another is a conflict although it is as large", func(t *testing.T) {
		to := filepath.Join(t.TempDir(), "to")
		var h *house
		// The worker has published one file and died, and somebody else comes before the next one.
		h = open(t, once("link", func(context.Context) {
			h.write("mine", to, "b")
			panic(death{})
		}))
		s := shell(`printf text > a; printf text > b`)
		s.Archive = &job.Archive{To: to}
		j := h.end(h.submit(s))
		conflict := strings.Contains(j.Message, to+"/b: file already exists")
		if j.State != job.Failed || j.Code != job.ArchiveExists || !conflict {
			t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
		}
		if a, b := h.read(to, "a"), h.read(to, "b"); a != "text" || b != "mine" {
			t.Errorf("a is %q and b is %q", a, b)
		}
		if exists(to, app.ManifestFile) {
			t.Error("there is a manifest")
		}
		folder, _ := app.Places(&j)
		if got := h.read(folder, "b"); got != "text" {
			t.Errorf("in the folder of the job: %q", got)
		}
	})
}

func TestCanceledWhileArchived(t *testing.T) {
	// canceling cancels the job after the first copy, and goes on as then says.
	canceling := func(h **house, ids <-chan job.ID, then func(context.Context)) func(*parts) {
		return once("put", func(ctx context.Context) {
			if _, err := (*h).svc.Cancel((*h).ctx, <-ids); err != nil {
				(*h).Error(err)
			}
			then(ctx)
		})
	}
	// leaves checks that there is something to take away. That is seen here, and not later: the
	// watcher may be about to begin.
	leaves := func(h *house, folder ...string) {
		if len(h.copies(filepath.Join(append([]string{h.dir}, folder...)...))) == 0 {
			h.Error("there is nothing to take away")
		}
	}
	dies := func(h *house, folder ...string) {
		leaves(h, folder...)
		panic(death{})
	}
	submit := func(h *house, ids chan<- job.ID) (to string, j job.Job) {
		to = filepath.Join(h.dir, "to")
		s := shell(`echo a > a; echo b > b`)
		s.Archive = &job.Archive{To: to}
		id := h.submit(s)
		ids <- id
		if j = h.end(id); j.State != job.Canceled {
			h.Fatalf("%s %s", j.State, j.Message)
		}
		return to, j
	}
	t.Run("the next watcher takes copies for the service's own archive away", func(t *testing.T) {
		var h *house
		ids := make(chan job.ID, 1)
		h = open(t, canceling(&h, ids, func(context.Context) { dies(h, "archive", ".staging") }))
		id := h.submit(shell("echo a >a"))
		ids <- id
		if j := h.end(id); j.State != job.Canceled {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		staged := filepath.Join(h.dir, "archive", ".staging")
		h.stop()
		h.start()
		h.poll("the look for leftovers", func() bool { return len(h.copies(staged)) == 0 })
	})
	t.Run("the worker takes its copies away", func(t *testing.T) {
		var h *house
		ids := make(chan job.ID, 1)
		h = open(t, canceling(&h, ids, func(ctx context.Context) { <-ctx.Done() }))
		to, j := submit(h, ids)
		if left := h.copies(to); len(left) > 0 {
			t.Errorf("left in the archive: %q", left)
		}
		if note := filepath.Join(h.dir, "work", ".archiving", j.ID.String()); exists(note) {
			t.Errorf("left behind: %s", note)
		}
	})
	t.Run("the next watcher takes the copies of a dead worker away", func(t *testing.T) {
		var h *house
		ids := make(chan job.ID, 1)
		h = open(t, canceling(&h, ids, func(context.Context) { dies(h, "to") }))
		to, j := submit(h, ids)
		h.stop()
		h.start()
		note := filepath.Join(h.dir, "work", ".archiving", j.ID.String())
		h.poll("the look for leftovers", func() bool { return len(h.copies(to)) == 0 && !exists(note) })
	})
	t.Run("the next watcher takes away what was made to see whether the folder can be written", func(t *testing.T) {
		for _, name := range []string{"its worker is dead", "its worker stops"} {
			t.Run(name, func(t *testing.T) {
				var h *house
				ids := make(chan job.ID, 1)
				h = open(t, once("mkdir", func(ctx context.Context) {
					if _, err := h.svc.Cancel(h.ctx, <-ids); err != nil {
						t.Error(err)
					}
					if name == "its worker is dead" {
						dies(h, "to")
					}
					leaves(h, "to")
					<-ctx.Done()
				}))
				to, j := submit(h, ids)
				h.stop()
				h.start()
				note := filepath.Join(h.dir, "work", ".archiving", j.ID.String())
				h.poll("the look for leftovers", func() bool { return len(h.copies(to)) == 0 && !exists(note) })
			})
		}
	})
	t.Run("copies of a job that is being archived are left alone", func(t *testing.T) {
		var h *house
		h = open(t, once("put", func(ctx context.Context) {
			if err := h.kind.RemoveLeftovers(ctx, h.kind.Local(), h.store); err != nil {
				t.Error(err)
			}
		}))
		if j := h.end(h.submit(shell(`echo a > a; echo b > b`))); j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
	})
}
