package fake_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/job"
)

func Test(t *testing.T) {
	filestest.Run(t, func(t *testing.T) (files.FS, string) {
		f := fake.New()
		if err := f.Mkdir(t.Context(), "/work/dir"); err != nil {
			t.Fatal(err)
		}
		return f, "/work/dir"
	})
}

func put(t *testing.T, f files.FS, name, content string) error {
	t.Helper()
	return f.Put(t.Context(), name, strings.NewReader(content), files.PutOptions{})
}

// wantFile looks at a file; "-" means that there is none.
func wantFile(t *testing.T, f files.FS, name, want string) {
	t.Helper()
	got, err := files.ReadFile(t.Context(), f, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		got, err = []byte("-"), nil
	}
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
	}
}

func TestFail(t *testing.T) {
	boom := errors.New("boom")
	t.Run("always, until it is healed", func(t *testing.T) {
		f := fake.New()
		heal := f.Inject(fake.Fault{Op: "Put", Name: "*.csv", Err: boom})
		for range 2 {
			if err := put(t, f, "/a.csv", "x"); !errors.Is(err, boom) {
				t.Errorf("Put: %v", err)
			}
		}
		wantFile(t, f, "/a.csv", "-")
		if err := put(t, f, "/a.txt", "another name"); err != nil {
			t.Error(err)
		}
		if _, err := f.Stat(t.Context(), "/a.csv"); errors.Is(err, boom) {
			t.Error("another operation failed as well")
		}
		heal()
		if err := put(t, f, "/a.csv", "healed"); err != nil {
			t.Error(err)
		}
	})
	t.Run("once", func(t *testing.T) {
		f := fake.New()
		f.Inject(fake.Fault{Err: boom, Once: true})
		if _, err := f.List(t.Context(), "/"); !errors.Is(err, boom) {
			t.Errorf("List: %v", err)
		}
		if _, err := f.List(t.Context(), "/"); err != nil {
			t.Error(err)
		}
	})
	t.Run("either name of two counts", func(t *testing.T) {
		f := fake.New()
		f.Inject(fake.Fault{Op: "Rename", Name: "/b", Err: boom})
		if err := f.Rename(t.Context(), "/a", "/b"); !errors.Is(err, boom) {
			t.Errorf("Rename: %v", err)
		}
	})
	t.Run("a fault for what there is not panics", func(t *testing.T) {
		for _, fault := range []fake.Fault{{Op: "put"}, {Name: "[a"}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%+v was taken", fault)
					}
				}()
				fake.New().Inject(fault)
			}()
		}
	})
}

func TestLost(t *testing.T) {
	f := fake.New()
	f.Inject(fake.Fault{Name: "/a", Lost: true, Once: true})
	if err := put(t, f, "/a", "x"); job.KindOf(err) != job.Unavailable {
		t.Errorf("Put: %v", err)
	}
	wantFile(t, f, "/a", "x")
	heal := f.Inject(fake.Fault{Lost: true})
	if r, err := f.Open(t.Context(), "/a"); r != nil || job.KindOf(err) != job.Unavailable {
		t.Errorf("Open: %v, %v", r, err)
	}
	if err := f.Link(t.Context(), "/a", "/b"); job.KindOf(err) != job.Unavailable {
		t.Errorf("Link: %v", err)
	}
	if err := f.Link(t.Context(), "/a", "/b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Link again: %v", err)
	}
	heal()
	wantFile(t, f, "/b", "x")
}

func TestGate(t *testing.T) {
	f := fake.New()
	gate := make(chan struct{})
	f.Inject(fake.Fault{Op: "Put", Gate: gate})
	done := make(chan error)
	go func() { done <- put(t, f, "/a", "x") }()
	wantFile(t, f, "/a", "-")
	gate <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantFile(t, f, "/a", "x")

	f.Inject(fake.Fault{Name: "/b", Gate: make(chan struct{})}) // which nothing opens
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- f.Put(ctx, "/b", strings.NewReader("x"), files.PutOptions{}) }()
	gate <- struct{}{}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	if left := f.Temporaries(); len(left) > 0 {
		t.Errorf("temporary files %q", left)
	}

	close(gate)
	if err := put(t, f, "/c", "x"); err != nil {
		t.Error(err)
	}
}

func TestFull(t *testing.T) {
	f := fake.New()
	f.Full(5)
	if err := put(t, f, "/a", "123"); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := put(t, f, "/a", "456"); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Put: %v", err)
		}
	}
	wantFile(t, f, "/a", "123")
	if left := f.Temporaries(); len(left) > 0 {
		t.Errorf("temporary files %q", left)
	}
	f.Full(-1)
	if err := put(t, f, "/a", "456"); err != nil {
		t.Error(err)
	}
	wantFile(t, f, "/a", "456")
}

func TestDie(t *testing.T) {
	for _, tt := range []struct {
		name    string
		after   int64
		content string
		left    string
	}{
		{"half-way", 4, "123456", "1234"},
		{"before the first byte", 0, "123456", ""},
		{"with all written and nothing renamed", 6, "123456", "123456"},
		{"with nothing to write", 0, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fake.New()
			if err := put(t, f, "/a", "old"); err != nil {
				t.Fatal(err)
			}
			f.Die(tt.after)
			err := put(t, f, "/a", tt.content)
			_, stat := f.Stat(t.Context(), "/a")
			for call, err := range map[string]error{"Put": err, "Stat": stat, "Remove": f.Remove(t.Context(), "/a")} {
				if job.KindOf(err) != job.Unavailable {
					t.Errorf("%s: %v", call, err)
				}
			}
			f.Revive()
			wantFile(t, f, "/a", "old")
			left := f.Temporaries()
			if len(left) != 1 {
				t.Fatalf("temporary files %q", left)
			}
			wantFile(t, f, left[0], tt.left)
			if err := put(t, f, "/a", "new"); err != nil {
				t.Error(err)
			}
			wantFile(t, f, "/a", "new")
		})
	}
}

func TestDieCountsAllPuts(t *testing.T) {
	f := fake.New()
	f.Die(4)
	if err := put(t, f, "/a", "123"); err != nil {
		t.Error(err)
	}
	if err := put(t, f, "/a", "456"); job.KindOf(err) != job.Unavailable {
		t.Errorf("Put: %v", err)
	}
}

func TestLie(t *testing.T) {
	f := fake.New()
	for _, name := range []string{"/a", "/b"} {
		if err := put(t, f, name, "truth"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Symlink(t.Context(), "a", "/link"); err != nil {
		t.Fatal(err)
	}
	f.Lie("/a", fake.Lie{
		Size:    func(n int64) int64 { return n - 1 },
		Content: func(b []byte) []byte { return append([]byte("un"), b...) },
	})
	sizes := func() (got []int64) {
		for _, name := range []string{"/a", "/b", "/link"} {
			info, err := f.Stat(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Size())
		}
		infos, err := f.List(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			got = append(got, info.Size())
		}
		return got
	}
	if diff := cmp.Diff([]int64{4, 5, 4, 4, 5, 1}, sizes()); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	wantFile(t, f, "/a", "untruth")
	wantFile(t, f, "/b", "truth")
	wantFile(t, f, "/link", "untruth")
	f.Lie("/a", fake.Lie{})
	if diff := cmp.Diff([]int64{5, 5, 5, 5, 5, 1}, sizes()); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	wantFile(t, f, "/a", "truth")
}

func TestWhatTheRootIsNotFor(t *testing.T) {
	f := fake.New()
	if err := put(t, f, "/a", ""); err != nil {
		t.Fatal(err)
	}
	for call, err := range map[string]error{
		"Put":          put(t, f, "/", ""),
		"Rename from":  f.Rename(t.Context(), "/", "/b"),
		"Rename to":    f.Rename(t.Context(), "/a", "/"),
		"Link from":    f.Link(t.Context(), "/", "/b"),
		"Link to":      f.Link(t.Context(), "/a", "/"),
		"Symlink":      f.Symlink(t.Context(), "a", "/"),
		"Remove":       f.Remove(t.Context(), "/"),
		"Mkdir on /a":  f.Mkdir(t.Context(), "/a"),
		"Mkdir in /a":  f.Mkdir(t.Context(), "/a/b"),
		"Rename in /a": f.Rename(t.Context(), "/a", "/a/b"),
	} {
		if err == nil {
			t.Errorf("%s: no error", call)
		}
	}
	wantFile(t, f, "/a", "")
}
