package filestest

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// Rights are the actions that [RunRights] needs beside the file system.
type Rights struct {
	// As calls f as a user for whom modes count, in the goroutine of the test.
	As func(t *testing.T, f func())
	// Chmod changes the mode of a file or a folder.
	Chmod func(name string, mode fs.FileMode) error
	// Hold sees to it that a file or a folder cannot be removed until the test is over.
	Hold func(t *testing.T, name string)
}

// RunRights tests how a file system removes files that its account has no right to remove.
func RunRights(t *testing.T, open func(t *testing.T) (files.FS, string), r Rights) {
	t.Run("a folder that may not be changed is removed", func(t *testing.T) {
		f, dir := open(t)
		r.As(t, func() {
			for _, mode := range []fs.FileMode{0o555, 0o000, 0o111, 0o444, 0o222} {
				top := path.Join(dir, "top")
				must(t, f.Mkdir(t.Context(), path.Join(top, "a", "b", "empty")))
				put(t, f, path.Join(top, "a", "b", "file"), "text")
				for _, name := range []string{"a/b/file", "a/b/empty", "a/b", "a", ""} {
					must(t, r.Chmod(path.Join(top, name), mode))
				}
				must(t, f.Remove(t.Context(), top))
				wantNames(t, f, dir)
			}
		})
	})
	t.Run("what is behind a link keeps its mode", func(t *testing.T) {
		f, dir := open(t)
		linker, ok := f.(files.Linker)
		if !ok {
			t.Skip("it has no symbolic links")
		}
		r.As(t, func() {
			other, top := path.Join(dir, "other"), path.Join(dir, "top")
			must(t, f.Mkdir(t.Context(), other))
			put(t, f, path.Join(other, "file"), "text")
			must(t, f.Mkdir(t.Context(), top))
			must(t, linker.Symlink(t.Context(), other, path.Join(top, "link")))
			must(t, r.Chmod(other, 0o555))
			must(t, r.Chmod(top, 0o555))
			must(t, f.Remove(t.Context(), top))
			info, err := f.Stat(t.Context(), other)
			must(t, err)
			if info.Mode().Perm() != 0o555 || read(t, f, path.Join(other, "file")) != "text" {
				t.Errorf("it is %s", info.Mode())
			}
			must(t, r.Chmod(other, 0o755))
		})
	})
	t.Run("a way is made through what is in it", func(t *testing.T) {
		f, dir := open(t)
		from, top := path.Join(dir, "from"), path.Join(dir, "top")
		linker, links := f.(files.Linker)
		r.As(t, func() {
			for _, name := range []string{"from/a/b", "from/c", "top/in/a", "top/in/c/x", "top/in/d/x", "top/kept"} {
				must(t, f.Mkdir(t.Context(), path.Join(dir, name)))
			}
			for _, name := range []string{"from/a/b/file", "from/c/file", "from/d", "top/in/a/b", "top/in/a/mine", "top/kept/file"} {
				put(t, f, path.Join(dir, name), "text")
			}
			if links {
				must(t, f.Remove(t.Context(), path.Join(top, "in", "c")))
				must(t, linker.Symlink(t.Context(), "../kept", path.Join(top, "in", "c")))
			}
			for _, name := range []string{"in/a", "in/d", "in", ""} {
				must(t, r.Chmod(path.Join(top, name), 0o100))
			}
			w := files.NewWay(f, top)
			must(t, w.ClearTree(t.Context(), f, from, path.Join(top, "in")))
			must(t, w.Clear(t.Context(), path.Join(top, "none", "at", "all"), 0))
			must(t, w.Clear(t.Context(), top, fs.ModeDir))
			wantNames(t, f, path.Join(top, "in", "a"), "mine")
			wantNames(t, f, path.Join(top, "kept"), "file")
			if links {
				wantNames(t, f, path.Join(top, "in"), "a")
			}
		})
	})
	t.Run("what cannot be removed stays, is named, and the rest goes", func(t *testing.T) {
		f, dir := open(t)
		top := path.Join(dir, "top")
		for _, name := range []string{"a", "held/in it", "z"} {
			must(t, f.Mkdir(t.Context(), path.Join(top, name)))
			put(t, f, path.Join(top, name, "file"), "text")
		}
		r.Hold(t, path.Join(top, "held"))
		for range 2 {
			err := f.Remove(t.Context(), top)
			if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), path.Join(top, "held")) {
				t.Errorf("%v, want a Conflict about what is held", err)
			}
			wantNames(t, f, top, "held")
		}
	})
}

func modes(t *testing.T, f files.FS, dir string) {
	if _, ok := f.(files.Moder); !ok {
		t.Skip("it has no modes")
	}
	for _, mode := range []fs.FileMode{0o700, 0o755, 0o775 | fs.ModeSetgid, 0o777 | fs.ModeSticky, 0o555} {
		name := path.Join(dir, "d"+mode.String())
		must(t, files.Mkdir(t.Context(), f, name, mode))
		put(t, f, path.Join(name, "f"), "inside")
		must(t, files.Seal(t.Context(), f, name, mode))
		info, err := f.Stat(t.Context(), name)
		must(t, err)
		if got := info.Mode(); got != mode|fs.ModeDir {
			t.Errorf("%s instead of %s", got, mode|fs.ModeDir)
		}
		if l, ok := f.(files.Linker); ok {
			link := path.Join(dir, "l"+mode.String())
			must(t, l.Symlink(t.Context(), name, link))
			if err := files.Mkdir(t.Context(), f, link, 0o700); err == nil {
				t.Errorf("a link to %s was given a mode", name)
			}
			if info, err := f.Stat(t.Context(), name); err != nil || info.Mode() != mode|fs.ModeDir {
				t.Errorf("%v, %v: what a link leads to does not keep its mode", info, err)
			}
		}
		must(t, f.Remove(t.Context(), name))
	}
}
