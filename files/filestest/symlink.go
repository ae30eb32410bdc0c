package filestest

import (
	"errors"
	"io/fs"
	"path"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// linker skips the test for a file system without symbolic links.
func linker(t *testing.T, f files.FS) files.Linker {
	t.Helper()
	l, ok := f.(files.Linker)
	if !ok {
		t.Skip("the file system has no symbolic links")
	}
	return l
}

func symlink(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	must(t, f.Mkdir(t.Context(), path.Join(dir, "d")))
	put(t, f, path.Join(dir, "d", "f"), "content")
	for name, target := range map[string]string{
		"absolute": path.Join(dir, "d", "f"), "relative": "d/f",
		"d/up": "../d/./f",
	} {
		must(t, l.Symlink(t.Context(), target, path.Join(dir, name)))
		if got := read(t, f, path.Join(dir, name)); got != "content" {
			t.Errorf("read %q by the link to %s", got, target)
		}
		info, err := f.Stat(t.Context(), path.Join(dir, name))
		must(t, err)
		if !info.Mode().IsRegular() || info.Size() != 7 {
			t.Errorf("Stat of the link to %s: %s, %d bytes", target, info.Mode(), info.Size())
		}
	}
	must(t, l.Symlink(t.Context(), "d", path.Join(dir, "folder")))
	put(t, f, path.Join(dir, "folder", "g"), "by the link")
	if got := read(t, f, path.Join(dir, "d", "g")); got != "by the link" {
		t.Errorf("read %q", got)
	}
	wantNames(t, f, path.Join(dir, "folder"), "f", "g", "up")
	infos, err := f.List(t.Context(), dir)
	must(t, err)
	for _, info := range infos {
		if link := info.Mode().Type() == fs.ModeSymlink; link != (info.Name() != "d") {
			t.Errorf("List shows %s as %s", info.Name(), info.Mode())
		}
	}
}

func symlinkReplaces(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	a, b, name := path.Join(dir, "a"), path.Join(dir, "b"), path.Join(dir, "name")
	put(t, f, a, "a")
	must(t, f.Mkdir(t.Context(), b))
	for _, target := range []string{"a", "a", "gone", "b", "b", "a"} {
		must(t, l.Symlink(t.Context(), target, name))
	}
	if got := read(t, f, name); got != "a" {
		t.Errorf("read %q", got)
	}
	for _, taken := range []string{a, b} {
		if err := l.Symlink(t.Context(), "name", taken); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Symlink over a file or a folder: %v, want fs.ErrExist", err)
		}
	}
	if got := read(t, f, a); got != "a" {
		t.Errorf("read %q", got)
	}
	// Put replaces a link, and leaves what it leads to.
	put(t, f, name, "new")
	if got := read(t, f, a); got != "a" {
		t.Errorf("Put wrote %q through a link", got)
	}
	wantNames(t, f, dir, "a", "b", "name")
}

func symlinkDangles(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	put(t, f, path.Join(dir, "file"), "")
	for _, target := range []string{"gone", "gone/on", "../gone", "/gone", "self", "there", "file/below"} {
		name := path.Join(dir, "self")
		must(t, l.Symlink(t.Context(), "self", path.Join(dir, "there")))
		must(t, l.Symlink(t.Context(), target, name))
		_, err := l.Resolve(t.Context(), name)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Resolve of a link to %s: %v, want fs.ErrNotExist", target, err)
		}
		if at, ok := errors.AsType[*fs.PathError](err); ok && at.Path == name {
			t.Errorf("Resolve of a link to %s says that the link itself is not there: %v", target, err)
		}
		if _, err := f.Stat(t.Context(), name); err == nil {
			t.Errorf("Stat of a link to %s: no error", target)
		}
	}
	must(t, l.Symlink(t.Context(), "gone/on", path.Join(dir, "link")))
	for name, missing := range map[string]string{"link": "gone", "absent": "absent", "absent/f": "absent"} {
		_, err := l.Resolve(t.Context(), path.Join(dir, name))
		if at, ok := errors.AsType[*fs.PathError](err); !ok || path.Base(at.Path) != missing {
			t.Errorf("Resolve of %s: %v, want an error that names %s", name, err, missing)
		}
	}
}

func symlinkRemove(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	must(t, f.Mkdir(t.Context(), path.Join(dir, "kept")))
	put(t, f, path.Join(dir, "kept", "f"), "")
	must(t, f.Mkdir(t.Context(), path.Join(dir, "d")))
	must(t, l.Symlink(t.Context(), "../kept", path.Join(dir, "d", "link")))
	must(t, l.Symlink(t.Context(), "kept", path.Join(dir, "link")))
	must(t, f.Remove(t.Context(), path.Join(dir, "d")))
	must(t, f.Remove(t.Context(), path.Join(dir, "link")))
	wantNames(t, f, dir, "kept")
	wantNames(t, f, path.Join(dir, "kept"), "f")
}

func symlinkMalformed(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	for _, target := range []string{"", "a\x00"} {
		if err := l.Symlink(t.Context(), target, path.Join(dir, "link")); job.KindOf(err) != job.Invalid {
			t.Errorf("Symlink to %q: %v, want kind invalid", target, err)
		}
	}
	for _, name := range []string{"", "relative", dir + "/../f", dir + "/"} {
		_, err := l.Resolve(t.Context(), name)
		for call, err := range map[string]error{"Resolve": err, "Symlink": l.Symlink(t.Context(), "x", name)} {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%s(%q): %v, want kind invalid", call, name, err)
			}
		}
	}
	wantNames(t, f, dir)
}

func resolve(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	dir, err := l.Resolve(t.Context(), dir) // which may itself be below a link
	must(t, err)
	must(t, f.Mkdir(t.Context(), path.Join(dir, "d", "e")))
	put(t, f, path.Join(dir, "d", "e", "f"), "")
	for name, target := range map[string]string{
		"one": "two", "two": path.Join(dir, "three"), "three": "d/e/f", "d/up": "../d/../link", "link": "d/e/",
		"d/e/back": "..", "strange\n": "link",
	} {
		must(t, l.Symlink(t.Context(), target, path.Join(dir, name)))
	}
	for name, want := range map[string]string{
		"": "", "d": "d", "d/e/f": "d/e/f", // no link
		"one": "d/e/f", "link": "d/e", "link/f": "d/e/f", "d/up": "d/e", "d/up/f": "d/e/f",
		"link/back": "d", "link/back/up/back/e": "d/e", "strange\n/f": "d/e/f",
	} {
		got, err := l.Resolve(t.Context(), path.Join(dir, name))
		must(t, err)
		if got != path.Join(dir, want) {
			t.Errorf("Resolve(%q) = %s, want %s", name, got, path.Join(dir, want))
		}
	}
}

func real(t *testing.T, f files.FS, dir string) {
	l := linker(t, f)
	dir, err := l.Resolve(t.Context(), dir)
	must(t, err)
	must(t, f.Mkdir(t.Context(), path.Join(dir, "d", "e")))
	put(t, f, path.Join(dir, "file"), "")
	for name, target := range map[string]string{
		"link": "d", "absent": "d/new", "far": path.Join(dir, "d", "new"), "by link": "link/new",
		"circle": "circle", "self": "self/x",
	} {
		must(t, l.Symlink(t.Context(), target, path.Join(dir, name)))
	}
	for name, want := range map[string]string{
		"": "", "d/e": "d/e", "link/e": "d/e", "x": "x", "x/y/z": "x/y/z", "link/x": "d/x", "link/x/y": "d/x/y",
		"link/e/x/y": "d/e/x/y",
		"absent":     "d/new", "absent/x": "d/new/x", "far/x/y": "d/new/x/y", "by link/x": "d/new/x",
	} {
		got, err := files.Real(t.Context(), f, path.Join(dir, name))
		must(t, err)
		if got != path.Join(dir, want) {
			t.Errorf("Real(%q) = %s, want %s", name, got, path.Join(dir, want))
		}
	}
	for _, name := range []string{"circle", "circle/x", "self", "file/x", "file/x/y"} {
		if got, err := files.Real(t.Context(), f, path.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Real(%q) = %s, %v; want fs.ErrNotExist", name, got, err)
		}
	}
}
