package share

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// far are files of a system.
type far struct{ files.FS }

func (far) Stamp(_ context.Context, at time.Time, names ...string) error {
	for _, name := range names {
		if err := os.Chtimes(name, at, at); err != nil {
			return err
		}
	}
	return nil
}

// source are files of the service, whose opening is told.
type source struct {
	files.FS
	open func(ctx context.Context)
}

func (s source) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	s.open(ctx)
	return s.FS.Open(ctx, name)
}

type world struct {
	t      *testing.T
	copies Copies
	place  Place
	file   string
	opened atomic.Int64
	open   func(ctx context.Context) // when the file is opened to be sent; nil: nothing
}

func begin(t *testing.T) *world {
	w := &world{t: t, place: Place{"lab/ada", far{local.FS{}}, filepath.Join(t.TempDir(), "shared")}}
	w.file = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(w.file, bytes.Repeat([]byte("x"), Least), 0o640); err != nil {
		t.Fatal(err)
	}
	return w
}

// copy copies the file to a name of its own.
func (w *world) copy(ctx context.Context, owner, want string) error {
	w.t.Helper()
	src := source{local.FS{}, func(ctx context.Context) {
		w.opened.Add(1)
		if w.open != nil {
			w.open(ctx)
		}
	}}
	info, err := os.Stat(w.file)
	if err != nil {
		w.t.Error(err)
		return err
	}
	var sum atomic.Int64
	to := filepath.Join(w.t.TempDir(), "copy")
	c, err := w.copies.Copy(ctx, w.place, to, "", File{owner, src, w.file, info, want}, func(n int) { sum.Add(int64(n)) })
	if err != nil {
		if sum.Load() != 0 {
			w.t.Errorf("progress of what failed: %d", sum.Load())
		}
		return err
	}
	got, err := os.Stat(to)
	if err != nil || got.Size() != Least || got.Mode() != 0o640 || sum.Load() != Least || c.Size != Least ||
		c.SHA256 != want {
		w.t.Errorf("copied %+v, progress %d, %v, %v", c, sum.Load(), got, err)
	}
	return nil
}

func (w *world) want(opened int64, left int) {
	w.t.Helper()
	all, err := filepath.Glob(filepath.Join(w.place.Folder, "*", "*"))
	if n := w.opened.Load(); err != nil || n != opened || len(all) != left {
		w.t.Errorf("sent %d times, want %d; left %q, want %d, %v", n, opened, all, left, err)
	}
}

func TestCopy(t *testing.T) {
	w := begin(t)
	for range 3 {
		if err := w.copy(t.Context(), "ada", ""); err != nil {
			t.Fatal(err)
		}
	}
	w.want(1, 1)
	if err := w.copy(t.Context(), "eve", ""); err != nil { // nothing is shared between owners
		t.Fatal(err)
	}
	w.want(2, 2)
	const sum = "9c1185a5c5e9fc54612808977ee8f548b2258d31"
	if err := w.copy(t.Context(), "ada", sum); !errors.Is(err, ErrNot) {
		t.Errorf("with a wrong sum: %v", err)
	}
	w.want(3, 2)
	if err := os.Truncate(w.file, Least-1); err != nil {
		t.Fatal(err)
	}
	if err := w.copy(t.Context(), "ada", ""); !errors.Is(err, ErrNot) {
		t.Errorf("a small file: %v", err)
	}
	if err := w.copies.Drop(t.Context(), w.place); err != nil {
		t.Fatal(err)
	}
	w.want(3, 0)
}

// Nobody gets what was changed on its way.
func TestChangedOnItsWay(t *testing.T) {
	w := begin(t)
	w.open = func(context.Context) {
		if err := os.WriteFile(w.file, bytes.Repeat([]byte("y"), Least), 0o640); err != nil {
			t.Error(err)
		}
	}
	if err := w.copy(t.Context(), "ada", ""); !errors.Is(err, ErrNot) {
		t.Errorf("it is shared: %v", err)
	}
	w.want(1, 0)
}

// The job that sends is canceled. Another one, which waits for it, sends.
func TestSenderCanceled(t *testing.T) {
	w := begin(t)
	ctx, cancel := context.WithCancel(t.Context())
	sends, errs := make(chan bool, 1), make(chan error, 2)
	w.open = func(at context.Context) {
		if at.Value(sends) == nil {
			return
		}
		sends <- true
		<-at.Done()
	}
	go func() { errs <- w.copy(context.WithValue(ctx, sends, true), "ada", "") }()
	<-sends
	go func() { errs <- w.copy(t.Context(), "ada", "") }()
	waits := func() bool {
		w.copies.mu.Lock()
		defer w.copies.mu.Unlock()
		for _, s := range w.copies.sendings {
			s.mu.Lock()
			n := len(s.waiting)
			s.mu.Unlock()
			if n == 1 {
				return true
			}
		}
		return false
	}
	if !testenv.Until(t.Context(), waits) {
		t.Fatal("nobody waits for the job that sends")
	}
	cancel()
	if err := errors.Join(<-errs, <-errs); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want one that is canceled", err)
	}
	w.want(2, 1)
}
