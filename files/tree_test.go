package files_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
)

// grow makes a tree below a folder: a name with a slash at the end is a folder, "a -> b" is a
// symbolic link, and anything else a file that holds its own name.
func grow(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		name, target, link := strings.Cut(name, " -> ")
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// realTemp is a temporary folder without symbolic links on the way.
func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// In a row, T stands for the folder that holds the root, which is T/data. An entry is shown as
// "name", "name/" for a folder, with " = path" if the path is not T/data/name, or as the message of
// its error.
func TestTree(t *testing.T) {
	for _, tt := range []struct {
		name string
		made []string
		want []string
	}{
		{"an empty folder", nil, nil},
		{
			"depth first and sorted",
			[]string{"data/b/c/f", "data/b/a", "data/a", "data/b.x", "data/e/"},
			[]string{"a", "b/", "b/a", "b/c/", "b/c/f", "b.x", "e/"},
		},
		{
			"links to a file inside",
			[]string{"data/d/f", "data/abs -> T/data/d/f", "data/rel -> d/f", "data/d/up -> ../d/f", "data/twice -> rel"},
			[]string{"abs = T/data/d/f", "d/", "d/f", "d/up = T/data/d/f", "rel = T/data/d/f", "twice = T/data/d/f"},
		},
		{
			"links to a folder inside",
			[]string{"data/d/e/f", "data/x -> d", "data/y -> x/e", "data/z -> y/f"},
			[]string{
				"d/", "d/e/", "d/e/f", "data/x is a symbolic link to T/data/d, which is visited under its own name",
				"data/y is a symbolic link to T/data/d/e, which is visited under its own name", "z = T/data/d/e/f",
			},
		},
		{
			"links out",
			[]string{"passwd", "data2/f", "data/a -> T/passwd", "data/b -> ../data2", "data/c -> /", "data/d -> .."},
			[]string{
				"data/a is a symbolic link to T/passwd, which is outside of data",
				"data/b is a symbolic link to T/data2, which is outside of data",
				"data/c is a symbolic link to /, which is outside of data",
				"data/d is a symbolic link to T, which is outside of data",
			},
		},
		{
			"a link out through a chain",
			[]string{"passwd", "hop -> passwd", "data/d/", "data/d/three -> ../../hop", "data/one -> two", "data/two -> d/three"},
			[]string{
				"d/", "data/d/three is a symbolic link to T/passwd, which is outside of data",
				"data/one is a symbolic link to T/passwd, which is outside of data",
				"data/two is a symbolic link to T/passwd, which is outside of data",
			},
		},
		{
			"a link out and in again",
			[]string{"back -> data/f", "data/f", "data/x -> ../back", "data/y -> ../data/../data/f"},
			[]string{"f", "x = T/data/f", "y = T/data/f"},
		},
		{
			"links that lead nowhere",
			[]string{"data/f", "data/gone -> d/gone", "data/out -> ../gone/x", "data/self -> self", "data/f2 -> f/x", "data/ab -> ba", "data/ba -> ab"},
			[]string{
				"data/ab is a symbolic link that leads nowhere",
				"data/ba is a symbolic link that leads nowhere",
				"f",
				"data/f2 is a symbolic link that leads nowhere",
				"data/gone is a symbolic link to T/data/d, which does not exist",
				"data/out is a symbolic link to T/gone, which does not exist",
				"data/self is a symbolic link that leads nowhere",
			},
		},
		{
			"a link to its own folder",
			[]string{"data/f", "data/loop -> .", "data/d/up -> ..", "data/d/root -> T/data"},
			[]string{
				"d/", "data/d/root is a symbolic link to T/data, which holds the link itself",
				"data/d/up is a symbolic link to T/data, which holds the link itself",
				"f", "data/loop is a symbolic link to T/data, which holds the link itself",
			},
		},
		{
			"two folders that link to each other",
			[]string{"data/a/x -> ../b", "data/b/y -> ../a", "data/b/f"},
			[]string{
				"a/", "data/a/x is a symbolic link to T/data/b, which is visited under its own name",
				"b/", "b/f", "data/b/y is a symbolic link to T/data/a, which is visited under its own name",
			},
		},
		{
			"a link to a folder above",
			[]string{"data/d/e/up -> ..", "data/in -> d/e"},
			[]string{
				"d/", "d/e/", "data/d/e/up is a symbolic link to T/data/d, which holds the link itself",
				"data/in is a symbolic link to T/data/d/e, which is visited under its own name",
			},
		},
		{
			"strange names",
			[]string{
				"data/new\nline", `data/"quoted" 'too'`, "data/ a b ", "data/\xff\xfe", "data/-rf", `data/back\slash`, "data/ümläut",
				"data/d\n/\xff", "data/to \xff -> d\n/\xff", "data/x\ny -> ../out\n", "out\n",
			},
			[]string{
				" a b ", `"quoted" 'too'`, "-rf", `back\slash`, "d\n/", "d\n/\xff", "new\nline", "to \xff = T/data/d\n/\xff",
				`"data/x\ny" is a symbolic link to "T/out\n", which is outside of data`, "ümläut", "\xff\xfe",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := realTemp(t)
			for _, name := range append([]string{"data/"}, tt.made...) {
				grow(t, dir, strings.ReplaceAll(name, "-> T", "-> "+dir))
			}
			var got []string
			err := files.Tree(t.Context(), local.FS{}, dir+"/data", func(e files.Entry) error {
				got = append(got, strings.ReplaceAll(show(t, dir, e), dir, "T"))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// show is an entry as TestTree writes it, once Path and Info agree with the disk.
func show(t *testing.T, dir string, e files.Entry) string {
	t.Helper()
	stat := os.Stat
	if e.Err != nil {
		stat = os.Lstat
	}
	info, err := stat(e.Path)
	if err != nil || !os.SameFile(info, e.Info) || info.Mode() != e.Info.Mode() || info.Size() != e.Info.Size() {
		t.Errorf("%q: the info is not that of %q: %v, %v", e.Name, e.Path, e.Info, err)
	}
	if e.Err != nil {
		if _, ok := errors.AsType[*files.LinkError](e.Err); !ok {
			t.Errorf("%q: %T is no LinkError", e.Name, e.Err)
		}
		return e.Err.Error()
	}
	s := e.Name
	if e.Info.IsDir() {
		s += "/"
	}
	if e.Path != path.Join(dir, "data", e.Name) {
		s += " = " + e.Path
	}
	return s
}

func names(t *testing.T, root string, then func(files.Entry) error) ([]string, error) {
	t.Helper()
	var got []string
	err := files.Tree(t.Context(), local.FS{}, root, func(e files.Entry) error {
		got = append(got, e.Name)
		return then(e)
	})
	return got, err
}

func TestTreeIsSteeredByVisit(t *testing.T) {
	dir := realTemp(t)
	grow(t, dir, "a/f", "b/f", "c/f", "link -> a")
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		at   string
		err  error
		want []string
		fail error
	}{
		{"a folder is left out", "b", fs.SkipDir, []string{"a", "a/f", "b", "c", "c/f", "link"}, nil},
		{"a link to a folder is left out", "link", fs.SkipDir, []string{"a", "a/f", "b", "b/f", "c", "c/f", "link"}, nil},
		{"an error ends the walk", "b/f", boom, []string{"a", "a/f", "b", "b/f"}, boom},
		{"an error at a folder", "b", boom, []string{"a", "a/f", "b"}, boom},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := names(t, dir, func(e files.Entry) error {
				if e.Name == tt.at {
					return tt.err
				}
				return nil
			})
			if diff := cmp.Diff(tt.want, got); diff != "" || err != tt.fail { //nolint:errorlint // as it is, not wrapped
				t.Errorf("error %v, entries (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestTreeRoot(t *testing.T) {
	ignore := func(files.Entry) error { return nil }
	t.Run("a symbolic link is resolved", func(t *testing.T) {
		dir := realTemp(t)
		grow(t, dir, "d/f", "d/out -> ../x", "d/in -> T/d/f", "x", "root -> d")
		err := files.Tree(t.Context(), local.FS{}, dir+"/root", func(e files.Entry) error {
			switch e.Name {
			case "f":
				if e.Path != dir+"/d/f" {
					t.Errorf("path %s", e.Path)
				}
			case "out":
				if e.Err == nil || !strings.HasSuffix(e.Err.Error(), "which is outside of root") {
					t.Errorf("error %v", e.Err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("it is not there", func(t *testing.T) {
		if _, err := names(t, t.TempDir()+"/absent", ignore); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("it is a file", func(t *testing.T) {
		dir := t.TempDir()
		grow(t, dir, "f")
		if got, err := names(t, dir+"/f", ignore); err == nil {
			t.Errorf("visited %q", got)
		}
	})
	t.Run("it is removed meanwhile", func(t *testing.T) {
		dir := t.TempDir()
		grow(t, dir, "d/e/f")
		_, err := names(t, dir+"/d", func(files.Entry) error { return os.RemoveAll(dir + "/d") })
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a folder in it is removed meanwhile", func(t *testing.T) {
		dir := t.TempDir()
		grow(t, dir, "a/f", "b", "c -> b")
		got, err := names(t, dir, func(e files.Entry) error {
			return errors.Join(os.RemoveAll(dir+"/a"), os.RemoveAll(dir+"/c"))
		})
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" || err != nil {
			t.Errorf("error %v, entries (-want +got):\n%s", err, diff)
		}
	})
	t.Run("the context has ended", func(t *testing.T) {
		dir := t.TempDir()
		grow(t, dir, "a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := files.Tree(ctx, local.FS{}, dir, func(files.Entry) error {
			n++
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || n != 1 {
			t.Errorf("error %v after %d entries", err, n)
		}
	})
}

func TestTreeShowsPipes(t *testing.T) {
	dir := realTemp(t)
	grow(t, dir, "to -> pipe")
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := names(t, dir, func(e files.Entry) error {
		if e.Err != nil || e.Info.Mode().Type() != fs.ModeNamedPipe {
			t.Errorf("%s: %s, %v", e.Name, e.Info.Mode(), e.Err)
		}
		return nil
	})
	if err != nil || len(got) != 2 {
		t.Errorf("%q, %v", got, err)
	}
}

// An FS that shows links and cannot resolve them is no reason to take what they lead to.
func TestTreeWithoutLinker(t *testing.T) {
	dir := realTemp(t)
	grow(t, dir, "d/link -> ../secret", "secret")
	var got []string
	err := files.Tree(t.Context(), struct{ files.FS }{local.FS{}}, dir+"/d", func(e files.Entry) error {
		got = append(got, fmt.Sprint(e.Name, ": ", e.Err))
		return nil
	})
	want := []string{"link: d/link is a symbolic link that this file system cannot follow"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, entries (-want +got):\n%s", err, diff)
	}
}

// A file system in trouble says nothing about a link.
func TestTreeInTrouble(t *testing.T) {
	lost := job.Errorf(job.Unavailable, "gone for now")
	for _, tt := range []struct {
		name  string
		fault fake.Fault
		kind  job.ErrorKind // of the error; none if empty
		want  []string
	}{
		{"a link cannot be resolved now", fake.Fault{Op: "Resolve", Name: "link", Err: lost}, job.Unavailable, []string{"d", "d/f"}},
		{"a target cannot be looked at now", fake.Fault{Op: "Stat", Name: "/root/d/f", Err: lost}, job.Unavailable, []string{"d", "d/f"}},
		{"a folder cannot be listed now", fake.Fault{Op: "List", Name: "/root/d", Err: lost}, job.Unavailable, []string{"d"}},
		{"a folder may not be listed", fake.Fault{Op: "List", Name: "/root/d", Err: fs.ErrPermission}, "", []string{"d", "list /root/d: permission denied", "link"}},
		{"a folder is damaged", fake.Fault{Op: "List", Name: "/root/d", Err: syscall.EIO}, "", []string{"d", "list /root/d: input/output error", "link"}},
		{"a link is damaged", fake.Fault{Op: "Resolve", Name: "link", Err: syscall.EIO}, "", []string{"d", "d/f", "resolve /root/link: input/output error"}},
		{"the process may open no more files", fake.Fault{Op: "List", Name: "/root/d", Err: syscall.EMFILE}, job.Unavailable, []string{"d"}},
		{
			"a link may not be followed",
			fake.Fault{Op: "Resolve", Name: "link", Err: &fs.PathError{Op: "lstat", Path: "/secret/x", Err: fs.ErrPermission}},
			"",
			[]string{"d", "d/f", "root/link is a symbolic link to /secret/x, which may not be read"},
		},
		{
			"a link goes while it is looked at",
			fake.Fault{Op: "Resolve", Name: "link", Err: &fs.PathError{Op: "lstat", Path: "/root/link", Err: fs.ErrNotExist}},
			"",
			[]string{"d", "d/f"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fake.New()
			err := errors.Join(
				f.Mkdir(t.Context(), "/root/d"),
				f.Put(t.Context(), "/root/d/f", strings.NewReader(""), files.PutOptions{}),
				f.Symlink(t.Context(), "d/f", "/root/link"))
			if err != nil {
				t.Fatal(err)
			}
			f.Inject(tt.fault)
			var got []string
			err = files.Tree(t.Context(), f, "/root", func(e files.Entry) error {
				if e.Err != nil {
					got = append(got, e.Err.Error())
				} else {
					got = append(got, e.Name)
				}
				return nil
			})
			if (err == nil) != (tt.kind == "") || err != nil && job.KindOf(err) != tt.kind {
				t.Errorf("error %v, want kind %q", err, tt.kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}
