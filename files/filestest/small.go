package filestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
)

func quickLink(t *testing.T, f files.FS, dir string) {
	a, b, c := path.Join(dir, "a"), path.Join(dir, "b"), path.Join(dir, "c")
	put(t, f, a, "first")
	put(t, f, c, "other")
	must(t, files.QuickLink(t.Context(), f, a, b))
	for _, from := range []string{a, c} {
		if err := files.QuickLink(t.Context(), f, from, b); !errors.Is(err, fs.ErrExist) {
			t.Errorf("to a name that is there: %v", err)
		}
	}
	must(t, f.Remove(t.Context(), a))
	if got := read(t, f, b); got != "first" {
		t.Errorf("the second name: %q", got)
	}
	for _, to := range []string{path.Join(dir, "d"), path.Join(dir, "absent", "d")} {
		if err := files.QuickLink(t.Context(), f, a, to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of a name that is not there to %s: %v", to, err)
		}
	}
}

// contents are what a careless way through a shell would change.
var contents = []string{
	"", "\n", "a line\n", "no end", "it's $HOME `id` $(id)\n", `back\slash \101 \0 %s %%` + "\n", "\x00", "a\x00b\\0\n",
	"\xff\xfe\r\n", "-n", "'", strings.Repeat("'\\\x00", 10_000), strings.Repeat("x", files.MaxSmall),
}

func fill(t *testing.T, f files.FS, dir string) {
	filler, ok := f.(files.Filler)
	if !ok {
		t.Skip("it puts one file after the other")
	}
	work := path.Join(dir, "a job's $(folder)")
	list := []files.Small{{Name: work, Mode: fs.ModeDir}, {Name: path.Join(work, ".own"), Mode: fs.ModeDir}}
	must(t, filler.Fill(t.Context(), list))
	if err := filler.Fill(t.Context(), list); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	modes := []fs.FileMode{0o644, 0o600, 0o755, 0o400, 0o711, 0o666}
	var more []files.Small
	for i, content := range contents {
		name := path.Join(work, fmt.Sprintf("in/%d/-it's\n\"f\" %d", i%2, i))
		more = append(more, files.Small{Name: name, Mode: modes[i%len(modes)], Content: []byte(content)})
	}
	must(t, filler.Fill(t.Context(), more))
	for i, s := range more {
		info, err := f.Stat(t.Context(), s.Name)
		must(t, err)
		if info.Mode() != s.Mode || read(t, f, s.Name) != contents[i] {
			t.Errorf("%s: mode %s, want %s, %d bytes, want %d", s.Name, info.Mode(), s.Mode, info.Size(), len(s.Content))
		}
	}
	// One that is there is an error, and nothing else is made.
	other := files.Small{Name: path.Join(work, "other/file"), Mode: 0o600, Content: []byte("x")}
	if err := filler.Fill(t.Context(), []files.Small{other, more[0]}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("one that is there: %v", err)
	}
	if _, err := f.Stat(t.Context(), path.Dir(other.Name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	if l, ok := f.(files.Linker); ok {
		must(t, l.Symlink(t.Context(), path.Join(dir, "elsewhere"), path.Join(work, "dangling")))
		err := filler.Fill(t.Context(), []files.Small{{Name: path.Join(work, "dangling"), Mode: 0o600}})
		if !errors.Is(err, fs.ErrExist) {
			t.Errorf("a link that leads nowhere is there: %v", err)
		}
	}
	// A file is no folder.
	below := path.Join(more[0].Name, "f")
	if err := filler.Fill(t.Context(), []files.Small{{Name: below, Mode: 0o600}}); err == nil {
		t.Error("a file below a file was made")
	}
	if err := filler.Fill(t.Context(), []files.Small{{Name: "relative", Mode: 0o600}}); err == nil {
		t.Error("a relative name was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filler.Fill(ctx, []files.Small{other}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// fillMany: calls that fill folders at the same time do not mix, and one that fails fails alone.
func fillMany(t *testing.T, f files.FS, dir string) {
	filler, ok := f.(files.Filler)
	if !ok {
		t.Skip("it puts one file after the other")
	}
	put(t, f, path.Join(dir, "file"), "x")
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			content := fmt.Sprintf("of %d\n", i)
			name := path.Join(dir, fmt.Sprintf("job %d/f", i))
			switch i % 10 {
			case 3:
				name = path.Join(dir, "file")
			case 7:
				name = path.Join(dir, "file", content)
			}
			err := filler.Fill(t.Context(), []files.Small{{Name: name, Mode: 0o644, Content: []byte(content)}})
			switch i % 10 {
			case 3:
				if !errors.Is(err, fs.ErrExist) {
					t.Errorf("%d: %v", i, err)
				}
			case 7:
				if err == nil {
					t.Errorf("%d: no error", i)
				}
			default:
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				b, err := files.ReadFile(t.Context(), f, name, 100)
				if string(b) != content || err != nil {
					t.Errorf("%d: %q, %v", i, b, err)
				}
			}
		})
	}
	all.Wait()
}

// tree returns what a walk meets: the names, each with its mode, its size and what is in it.
func tree(t *testing.T, f files.FS, root string) (all []string) {
	t.Helper()
	must(t, files.Tree(t.Context(), f, root, func(e files.Entry) error {
		said := fmt.Sprintf("%q at %q: %s %d, %v", e.Name, e.Path, e.Info.Mode(), e.Info.Size(), e.Err)
		if e.Err == nil && e.Info.Mode().IsRegular() {
			said += fmt.Sprintf(" %x", read(t, f, e.Path)) + e.Info.ModTime().UTC().String()
		}
		if e.Info.IsDir() {
			said = fmt.Sprintf("%q at %q: %s", e.Name, e.Path, e.Info.Mode())
		}
		all = append(all, said)
		return nil
	}))
	return all
}

func load(t *testing.T, f files.FS, dir string) {
	loader, ok := f.(files.Loader)
	if !ok {
		t.Skip("it reads one file after the other")
	}
	// The folder is named through a link, so its real name is another.
	work, named := path.Join(dir, "real", "it's\na folder"), path.Join(dir, "way", "it's\na folder")
	must(t, f.Mkdir(t.Context(), path.Join(work, "below", "it")))
	l, links := f.(files.Linker)
	if !links {
		named = work
	} else {
		must(t, l.Symlink(t.Context(), path.Join(dir, "real"), path.Join(dir, "way")))
		must(t, l.Symlink(t.Context(), "1", path.Join(work, "link")))
		must(t, l.Symlink(t.Context(), "below", path.Join(work, "link to a folder")))
		must(t, l.Symlink(t.Context(), dir, path.Join(work, "out")))
		must(t, l.Symlink(t.Context(), "absent", path.Join(work, "dangling")))
	}
	for i, content := range contents {
		put(t, f, path.Join(work, fmt.Sprint(i)), content)
		put(t, f, path.Join(work, "below", "it", fmt.Sprintf("%d\n\xff", i)), content)
	}
	large := strings.Repeat("large", files.MaxSmall)
	put(t, f, path.Join(work, "below", "large"), large)
	want := tree(t, f, named)
	loaded, err := loader.Load(t.Context(), named)
	must(t, err)
	if diff := cmp.Diff(want, tree(t, loaded, named)); diff != "" {
		t.Errorf("a walk (-one by one +loaded):\n%s", diff)
	}
	for _, at := range []string{work, named} {
		if got := read(t, loaded, path.Join(at, "2")); got != contents[2] {
			t.Errorf("%s/2: %q", at, got)
		}
		if got := read(t, loaded, path.Join(at, "below", "large")); got != large {
			t.Errorf("a large file has %d bytes", len(got))
		}
	}
	// What was loaded stays as it was. What was not is asked for.
	must(t, f.Remove(t.Context(), path.Join(work, "2")))
	if got := read(t, loaded, path.Join(named, "2")); got != contents[2] {
		t.Errorf("what was loaded: %q", got)
	}
	if _, err := loaded.Stat(t.Context(), path.Join(named, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
	put(t, f, path.Join(dir, "beside"), "beside")
	if got := read(t, loaded, path.Join(dir, "beside")); got != "beside" {
		t.Errorf("beside it: %q", got)
	}
	for _, name := range []string{path.Join(dir, "absent"), path.Join(work, "3")} {
		if _, err := loader.Load(t.Context(), name); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("load %s: %v", name, err)
		}
	}
	if files.Load(t.Context(), f, path.Join(dir, "absent")) != f {
		t.Error("what cannot be loaded is not read one by one")
	}
}

func loadMany(t *testing.T, f files.FS, dir string) {
	loader, ok := f.(files.Loader)
	if !ok {
		t.Skip("it reads one file after the other")
	}
	const n = 30
	for i := range n {
		work := path.Join(dir, fmt.Sprintf("job %d", i))
		must(t, f.Mkdir(t.Context(), path.Join(work, "below")))
		put(t, f, path.Join(work, "below", "f"), fmt.Sprintf("of %d\n", i))
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			work := path.Join(dir, fmt.Sprintf("job %d", i))
			loaded, err := loader.Load(t.Context(), work)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			b, err := files.ReadFile(t.Context(), loaded, path.Join(work, "below", "f"), 100)
			if want := fmt.Sprintf("of %d\n", i); string(b) != want || err != nil {
				t.Errorf("%d: %q, %v", i, b, err)
			}
		})
	}
	all.Wait()
}

func removeAll(t *testing.T, f files.FS, dir string) {
	var names []string
	for i, content := range contents {
		name := path.Join(dir, fmt.Sprintf("-it's\n%d", i))
		put(t, f, name, content)
		names = append(names, name)
	}
	must(t, f.Mkdir(t.Context(), path.Join(dir, "folder", "below", "it")))
	put(t, f, path.Join(dir, "folder", "below", "f"), "x")
	names = append(names, path.Join(dir, "folder"), path.Join(dir, "absent"), path.Join(dir, "absent", "too"))
	put(t, f, path.Join(dir, "stays"), "x")
	must(t, files.RemoveAll(t.Context(), f, names...))
	wantNames(t, f, dir, "stays")
	must(t, files.RemoveAll(t.Context(), f))
	put(t, f, names[0], "x")
	if err := files.RemoveAll(t.Context(), f, "/", names[0], "relative"); err == nil {
		t.Error("the root was removed")
	}
	wantNames(t, f, dir, "stays")
}
