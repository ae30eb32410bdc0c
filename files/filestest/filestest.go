// Package filestest is the test suite that every [files.FS] passes.
package filestest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// Run tests a file system. For each test, open returns the file system and an empty folder on it,
// and registers the clean-up with t.Cleanup. Tests of an optional interface, such as
// [files.Linker], are skipped if the file system has not got it. [RunRights] has the tests that
// need another user.
func Run(t *testing.T, open func(t *testing.T) (files.FS, string)) {
	tests := map[string]func(*testing.T, files.FS, string){
		"a file is read as it was put":             putAndOpen,
		"put replaces":                             putReplaces,
		"put writes aside":                         putAside,
		"a put that fails leaves nothing":          putFails,
		"a put whose context ended leaves nothing": putCanceled,
		"put keeps the mode":                       putMode,
		"puts of one name do not mix":              putConcurrently,
		"a name that is not there":                 notExist,
		"a malformed name":                         malformed,
		"a folder cannot be opened":                openFolder,
		"a reader can seek":                        seek,
		"list is sorted and one level deep":        list,
		"mkdir makes the folders above":            mkdir,
		"rename replaces":                          rename,
		"link never replaces":                      link,
		"a quick link never replaces":              quickLink,
		"of many who link one wins":                linkConcurrently,
		"remove is recursive and can be repeated":  remove,
		"strange names":                            strange,
		"copy":                                     copies,
		"copy of what is settled":                  copiesSettled,
		"a symbolic link is followed":              symlink,
		"a symbolic link replaces only a link":     symlinkReplaces,
		"a symbolic link that leads nowhere":       symlinkDangles,
		"a symbolic link is removed, not followed": symlinkRemove,
		"a malformed symbolic link":                symlinkMalformed,
		"resolve follows every link":               resolve,
		"a name that is not there leads somewhere": real,
		"what is in a folder is on its volume":     volume,
		"a folder has the mode that it is given":   modes,
		"there is room on a file system":           space,
		"a file says when it was changed":          stamp,
		"a folder is filled at once":               fill,
		"many folders are filled at once":          fillMany,
		"many files are read at once":              readMany,
		"many files are copied at once":            copyMany,
		"a folder is loaded at once":               load,
		"many folders are loaded at once":          loadMany,
		"many names are removed at once":           removeAll,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, dir := open(t)
			test(t, f, dir)
		})
	}
}

func putAndOpen(t *testing.T, f files.FS, dir string) {
	for _, content := range []string{"", "hello\n", strings.Repeat("0123456789", 100_000)} {
		for _, o := range []files.PutOptions{{}, {NoSync: true}} {
			name := path.Join(dir, "f")
			must(t, f.Put(t.Context(), name, strings.NewReader(content), o))
			if got := read(t, f, name); got != content {
				t.Errorf("read %d bytes, want the %d that were put", len(got), len(content))
			}
			info, err := f.Stat(t.Context(), name)
			must(t, err)
			if info.Name() != "f" || info.Size() != int64(len(content)) || !info.Mode().IsRegular() {
				t.Errorf("Stat: %s %d %s", info.Name(), info.Size(), info.Mode())
			}
		}
	}
}

func putAside(t *testing.T, f files.FS, dir string) {
	name, aside := path.Join(dir, "f"), path.Join(dir, "aside")
	o := files.PutOptions{Aside: aside}
	if err := f.Put(t.Context(), name, strings.NewReader("text"), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Put aside of nothing: %v", err)
	}
	must(t, f.Mkdir(t.Context(), aside))
	must(t, f.Put(t.Context(), name, strings.NewReader("text"), o))
	if got := read(t, f, name); got != "text" {
		t.Errorf("read %q", got)
	}
	wantNames(t, f, dir, "aside", "f")
}

func putReplaces(t *testing.T, f files.FS, dir string) {
	name := path.Join(dir, "f")
	put(t, f, name, "a longer first content")
	r, err := f.Open(t.Context(), name)
	must(t, err)
	defer r.Close()
	put(t, f, name, "second")
	if got := read(t, f, name); got != "second" {
		t.Errorf("read %q", got)
	}
	// Who has the old file open goes on reading the old content.
	if old, err := io.ReadAll(r); err != nil || string(old) != "a longer first content" {
		t.Errorf("the old file: %q, %v", old, err)
	}
}

func putFails(t *testing.T, f files.FS, dir string) {
	boom := errors.New("boom")
	broken := io.MultiReader(strings.NewReader("half of it"), failing{boom})
	if err := f.Put(t.Context(), path.Join(dir, "new"), broken, files.PutOptions{}); !errors.Is(err, boom) {
		t.Errorf("Put: %v, want the reader's error", err)
	}
	put(t, f, path.Join(dir, "old"), "as it was")
	broken = io.MultiReader(strings.NewReader("half of it"), failing{boom})
	if err := f.Put(t.Context(), path.Join(dir, "old"), broken, files.PutOptions{}); !errors.Is(err, boom) {
		t.Errorf("Put: %v, want the reader's error", err)
	}
	if got := read(t, f, path.Join(dir, "old")); got != "as it was" {
		t.Errorf("read %q", got)
	}
	wantNames(t, f, dir, "old")
}

func putCanceled(t *testing.T, f files.FS, dir string) {
	ctx, cancel := context.WithCancel(t.Context())
	endless := readerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	if err := f.Put(ctx, path.Join(dir, "f"), endless, files.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	wantNames(t, f, dir)
}

func putMode(t *testing.T, f files.FS, dir string) {
	for _, mode := range []fs.FileMode{0, 0o600, 0o755, 0o640} {
		name := path.Join(dir, "f")
		must(t, f.Put(t.Context(), name, strings.NewReader(""), files.PutOptions{Mode: mode}))
		info, err := f.Stat(t.Context(), name)
		must(t, err)
		want := mode
		if want == 0 {
			want = 0o644
		}
		if info.Mode().Perm() != want {
			t.Errorf("mode %o, want %o", info.Mode().Perm(), want)
		}
	}
}

func stamp(t *testing.T, f files.FS, dir string) {
	s, ok := f.(files.Stamper)
	if !ok {
		t.Skip("it sets no times")
	}
	at, name := time.Unix(1e9, 0), path.Join(dir, "f")
	if err := s.Stamp(t.Context(), at, name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	must(t, f.Put(t.Context(), name, strings.NewReader("text"), files.PutOptions{Mode: 0o400}))
	must(t, f.Put(t.Context(), name+"3", strings.NewReader("text"), files.PutOptions{}))
	must(t, s.Stamp(t.Context(), at, name, name+"3"))
	must(t, f.Link(t.Context(), name, name+"2"))
	info, err := f.Stat(t.Context(), name+"3")
	must(t, err)
	if !info.ModTime().Equal(at) {
		t.Errorf("another file was changed at %s", info.ModTime())
	}
	info, err = f.Stat(t.Context(), name+"2")
	must(t, err)
	if !info.ModTime().Equal(at) || info.Mode().Perm() != 0o400 || read(t, f, name) != "text" {
		t.Errorf("it was changed at %s, mode %s", info.ModTime(), info.Mode())
	}
}

func putConcurrently(t *testing.T, f files.FS, dir string) {
	name := path.Join(dir, "f")
	const size = 100_000
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			content := bytes.Repeat([]byte{byte('a' + i)}, size)
			if err := f.Put(t.Context(), name, bytes.NewReader(content), files.PutOptions{NoSync: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := read(t, f, name)
	if len(got) != size || strings.Count(got, got[:1]) != size {
		t.Error("the contents are mixed")
	}
	wantNames(t, f, dir, "f")
}

func notExist(t *testing.T, f files.FS, dir string) {
	absent, other := path.Join(dir, "absent"), path.Join(dir, "other")
	_, open := f.Open(t.Context(), absent)
	_, stat := f.Stat(t.Context(), absent)
	_, list := f.List(t.Context(), absent)
	_, names := files.Names(t.Context(), f, absent)
	for name, err := range map[string]error{
		"Open":                   open,
		"Stat":                   stat,
		"List":                   list,
		"Names":                  names,
		"Rename":                 f.Rename(t.Context(), absent, other),
		"Link":                   f.Link(t.Context(), absent, other),
		"Put without its folder": f.Put(t.Context(), path.Join(absent, "f"), strings.NewReader(""), files.PutOptions{}),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want fs.ErrNotExist", name, err)
		}
	}
	wantNames(t, f, dir)
}

func malformed(t *testing.T, f files.FS, dir string) {
	for _, name := range []string{"", "relative", dir + "/../f", dir + "/", dir + "/a//b", dir + "/\x00"} {
		_, open := f.Open(t.Context(), name)
		_, stat := f.Stat(t.Context(), name)
		_, list := f.List(t.Context(), name)
		_, names := files.Names(t.Context(), f, name)
		for call, err := range map[string]error{
			"Open": open, "Stat": stat, "List": list, "Names": names,
			"Put":    f.Put(t.Context(), name, strings.NewReader(""), files.PutOptions{}),
			"Mkdir":  f.Mkdir(t.Context(), name),
			"Rename": f.Rename(t.Context(), name, name),
			"Link":   f.Link(t.Context(), name, name),
			"Remove": f.Remove(t.Context(), name),
		} {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%s(%q): %v, want kind invalid", call, name, err)
			}
		}
	}
	if err := f.Remove(t.Context(), "/"); job.KindOf(err) != job.Invalid {
		t.Errorf("Remove of the root: %v, want kind invalid", err)
	}
}

func openFolder(t *testing.T, f files.FS, dir string) {
	r, err := f.Open(t.Context(), dir)
	if err == nil {
		r.Close()
	}
	if job.KindOf(err) != job.Invalid {
		t.Errorf("Open of a folder: %v, want kind invalid", err)
	}
}

func seek(t *testing.T, f files.FS, dir string) {
	name := path.Join(dir, "f")
	put(t, f, name, "0123456789")
	r, err := f.Open(t.Context(), name)
	must(t, err)
	defer r.Close()
	if _, err := r.Seek(-3, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "789" {
		t.Errorf("read %q, %v", b, err)
	}
}

func list(t *testing.T, f files.FS, dir string) {
	wantNames(t, f, dir)
	must(t, f.Mkdir(t.Context(), path.Join(dir, "b", "below")))
	put(t, f, path.Join(dir, "c"), "")
	put(t, f, path.Join(dir, ".hidden"), "")
	put(t, f, path.Join(dir, "a"), "12345")
	wantNames(t, f, dir, ".hidden", "a", "b", "c")
	infos, err := f.List(t.Context(), dir)
	must(t, err)
	if infos[1].Size() != 5 || infos[1].ModTime().IsZero() || !infos[2].IsDir() {
		t.Errorf("List: %v", infos)
	}
	put(t, f, files.TemporaryFor(path.Join(dir, "x")), "")
	wantNames(t, f, dir, ".hidden", "a", "b", "c")
	_, err = f.List(t.Context(), path.Join(dir, "a"))
	_, namesErr := files.Names(t.Context(), f, path.Join(dir, "a"))
	if err == nil || namesErr == nil {
		t.Errorf("a file was listed: %v, %v", err, namesErr)
	}
}

func mkdir(t *testing.T, f files.FS, dir string) {
	deep := path.Join(dir, "x", "y", "z")
	for range 2 {
		must(t, f.Mkdir(t.Context(), deep))
	}
	info, err := f.Stat(t.Context(), deep)
	must(t, err)
	if !info.IsDir() {
		t.Errorf("%s is no folder", deep)
	}
	put(t, f, path.Join(dir, "file"), "")
	if err := f.Mkdir(t.Context(), path.Join(dir, "file")); err == nil {
		t.Error("a folder was made in the place of a file")
	}
}

func rename(t *testing.T, f files.FS, dir string) {
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	put(t, f, a, "new")
	put(t, f, b, "old")
	must(t, f.Rename(t.Context(), a, b))
	if got := read(t, f, b); got != "new" {
		t.Errorf("read %q", got)
	}
	wantNames(t, f, dir, "b")
	if err := f.Rename(t.Context(), a, b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("repeated: %v", err)
	}
	// A folder moves with what is in it, also into another folder.
	must(t, f.Mkdir(t.Context(), path.Join(dir, "d")))
	must(t, f.Mkdir(t.Context(), path.Join(dir, "to")))
	put(t, f, path.Join(dir, "d", "f"), "inside")
	must(t, f.Rename(t.Context(), path.Join(dir, "d"), path.Join(dir, "to", "e")))
	if got := read(t, f, path.Join(dir, "to", "e", "f")); got != "inside" {
		t.Errorf("read %q", got)
	}
	// A folder is not replaced, nor does a folder replace a file.
	must(t, f.Mkdir(t.Context(), path.Join(dir, "empty")))
	must(t, f.Mkdir(t.Context(), path.Join(dir, "folder")))
	for _, names := range [][2]string{{"b", "empty"}, {"folder", "empty"}, {"folder", "b"}} {
		if err := f.Rename(t.Context(), path.Join(dir, names[0]), path.Join(dir, names[1])); err == nil {
			t.Errorf("%s replaced %s", names[0], names[1])
		}
	}
	wantNames(t, f, dir, "b", "empty", "folder", "to")
	if got := read(t, f, b); got != "new" {
		t.Errorf("read %q", got)
	}
}

func link(t *testing.T, f files.FS, dir string) {
	a, b, c := path.Join(dir, "a"), path.Join(dir, "b"), path.Join(dir, "c")
	put(t, f, a, "one")
	must(t, f.Link(t.Context(), a, b))
	put(t, f, c, "other")
	for _, from := range []string{a, c, b} {
		if err := f.Link(t.Context(), from, b); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Link over a name: %v, want fs.ErrExist", err)
		}
	}
	must(t, f.Remove(t.Context(), a))
	if got := read(t, f, b); got != "one" {
		t.Errorf("read %q", got)
	}
}

func linkConcurrently(t *testing.T, f files.FS, dir string) {
	const n = 16
	for i := range n {
		put(t, f, path.Join(dir, fmt.Sprint(i)), fmt.Sprint(i))
	}
	won := make([]bool, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			err := f.Link(t.Context(), path.Join(dir, fmt.Sprint(i)), path.Join(dir, "one"))
			if won[i] = err == nil; err != nil && !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	got := read(t, f, path.Join(dir, "one"))
	for i, w := range won {
		if w != (fmt.Sprint(i) == got) {
			t.Errorf("link %d won: %t; the name holds %s", i, w, got)
		}
	}
}

func remove(t *testing.T, f files.FS, dir string) {
	must(t, f.Mkdir(t.Context(), path.Join(dir, "a", "b")))
	put(t, f, path.Join(dir, "a", "b", "f"), "")
	put(t, f, path.Join(dir, "g"), "")
	for range 2 {
		must(t, f.Remove(t.Context(), path.Join(dir, "a")))
		must(t, f.Remove(t.Context(), path.Join(dir, "g")))
	}
	wantNames(t, f, dir)
}

func strange(t *testing.T, f files.FS, dir string) {
	names := []string{
		"-rf", "a b", "it's", "new\nline", "$HOME", "*", `back\slash`, "ümläut", "\xff\xfe",
		strings.Repeat("n", 255),
	}
	for _, name := range names {
		put(t, f, path.Join(dir, name), name)
		must(t, f.Link(t.Context(), path.Join(dir, name), path.Join(dir, "linked")))
		must(t, f.Rename(t.Context(), path.Join(dir, "linked"), path.Join(dir, "renamed")))
		if got := read(t, f, path.Join(dir, "renamed")); got != name {
			t.Errorf("read %q, want %q", got, name)
		}
		must(t, f.Remove(t.Context(), path.Join(dir, "renamed")))
		must(t, f.Remove(t.Context(), path.Join(dir, name)))
	}
	wantNames(t, f, dir)
}

func copies(t *testing.T, f files.FS, dir string) {
	src, dst := path.Join(dir, "src"), path.Join(dir, "dst")
	content := strings.Repeat("pawl\n", 50_000)
	must(t, f.Put(t.Context(), src, strings.NewReader(content), files.PutOptions{Mode: 0o750}))
	sum := sha256.Sum256([]byte(content))
	want := files.Copied{Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	var told int64
	got, err := files.Copy(t.Context(), f, dst, f, src, files.CopyOptions{
		PutOptions: files.PutOptions{NoSync: true},
		Progress:   func(n int) { told += int64(n) },
	})
	must(t, err)
	if told != want.Size {
		t.Errorf("progress of %d bytes, want %d", told, want.Size)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Copy (-want +got):\n%s", diff)
	}
	info, err := f.Stat(t.Context(), dst)
	must(t, err)
	if info.Mode().Perm() != 0o750 || read(t, f, dst) != content {
		t.Errorf("the copy differs: %s, %d bytes", info.Mode(), info.Size())
	}
	if _, err := files.Copy(t.Context(), f, dst, f, path.Join(dir, "absent"), files.CopyOptions{}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("Copy of nothing: %v", err)
	}
}

// Whether it is a copy or a second name cannot be seen, but by what stays of it.
func copiesSettled(t *testing.T, f files.FS, dir string) {
	src, dst := path.Join(dir, "src"), path.Join(dir, "dst")
	content := strings.Repeat("pawl\n", 50_000)
	must(t, f.Put(t.Context(), src, strings.NewReader(content), files.PutOptions{Mode: 0o640}))
	sum := sha256.Sum256([]byte(content))
	want := files.Copied{Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	for range 2 { // the second time the name is there
		var told int64
		got, err := files.Copy(t.Context(), f, dst, f, src,
			files.CopyOptions{Settled: true, Progress: func(n int) { told += int64(n) }})
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" || told != want.Size {
			t.Errorf("progress of %d bytes; Copy (-want +got):\n%s", told, diff)
		}
	}
	must(t, f.Remove(t.Context(), src))
	info, err := f.Stat(t.Context(), dst)
	must(t, err)
	if info.Mode().Perm() != 0o640 || read(t, f, dst) != content {
		t.Errorf("the copy differs: %s, %d bytes", info.Mode(), info.Size())
	}
	if _, err := files.Copy(t.Context(), f, dst, f, src, files.CopyOptions{Settled: true}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("Copy of nothing: %v", err)
	}
	if a, ok := f.(files.Adopter); ok {
		put(t, f, src, "another")
		if err := a.Adopt(t.Context(), src, dst); !errors.Is(err, fs.ErrExist) || read(t, f, dst) != content {
			t.Errorf("Adopt under a name that is there: %v", err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, f files.FS, name, content string) {
	t.Helper()
	must(t, f.Put(t.Context(), name, strings.NewReader(content), files.PutOptions{NoSync: true}))
}

func read(t *testing.T, f files.FS, name string) string {
	t.Helper()
	b, err := files.ReadFile(t.Context(), f, name, 1<<30)
	must(t, err)
	return string(b)
}

func wantNames(t *testing.T, f files.FS, dir string, want ...string) {
	t.Helper()
	infos, err := f.List(t.Context(), dir)
	must(t, err)
	var got []string
	for _, info := range infos {
		got = append(got, info.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names in the folder (-want +got):\n%s", diff)
	}
	names, err := files.Names(t.Context(), f, dir)
	must(t, err)
	if !slices.Equal(names, want) {
		t.Errorf("Names: %q, want %q", names, want)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
