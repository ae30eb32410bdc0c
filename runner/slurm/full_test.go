package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/runner"
)

// cramped is a file system that takes nothing from this process, with an error.
type cramped struct {
	files.FS
	err   *atomic.Pointer[syscall.Errno] // nil: it takes all
	names bool                           // it takes second names
}

func (c cramped) full(op, name string) error {
	if err := c.err.Load(); err != nil {
		return &os.PathError{Op: op, Path: name, Err: *err}
	}
	return nil
}

func (c cramped) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	if err := c.full("put", name); err != nil {
		return err
	}
	return c.FS.Put(ctx, name, r, o)
}

func (c cramped) Link(ctx context.Context, from, to string) error {
	if err := c.full("link", to); err != nil && !c.names {
		return err
	}
	return c.FS.Link(ctx, from, to)
}

// A full disk keeps nobody from ending a program that runs. Nor does Slurm run it again, though no
// file says that it must not.
func TestKillOnAFullDisk(t *testing.T) {
	testenv.Aside(t)
	s := testenv.OwnSlurm(t, "RequeueExit=143")
	const stays = "trap '' TERM; "
	for name, c := range map[string]struct {
		err     syscall.Errno
		names   bool
		program string
		grace   time.Duration
		code    int
		lost    bool // Slurm ends its script, too, which may not tell the end
	}{
		"it ends":            {syscall.ENOSPC, false, "exec sleep 1000", time.Hour, 143, false},
		"it is forced":       {syscall.EDQUOT, true, stays + "while :; do sleep 1000; done", time.Millisecond, 137, false},
		"Slurm ends it":      {syscall.EROFS, false, stays + "exec sleep 1000", time.Millisecond, 137, true},
		"Slurm does at once": {syscall.EROFS, false, stays + "exec sleep 1000", 0, 137, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, s)
			fs := cramped{b.runner.FS, new(atomic.Pointer[syscall.Errno]), c.names}
			b.runner.FS = fs
			k, p := b.newJob(t, "echo ran >>ran; "+c.program)
			h := b.launch(t, k, p)
			until(t, "it runs", func() bool { return b.status(t, h).Started != time.Time{} && read(p.Dir+"/ran") != "" })
			fs.err.Store(&c.err)
			if err := b.runner.Kill(t.Context(), h, c.grace); err != nil {
				t.Fatal(err)
			}
			if b.Lives(t, h) {
				t.Error("something of it is alive")
			}
			id := idOf(t, b, h)
			until(t, "Slurm does not run it again", func() bool { return b.over(t, id) })
			st := b.settled(t, h)
			told := st.State == runner.Ended && st.End.Code == c.code
			if !told && !(c.lost && st.State == runner.Lost) || read(p.Dir+"/ran") != "ran\n" {
				t.Errorf("%+v, %+v; it ran: %q", st, st.End, read(p.Dir+"/ran"))
			}
		})
	}
	t.Run("it waits", func(t *testing.T) {
		b := newBench(t, s)
		fs := cramped{b.runner.FS, new(atomic.Pointer[syscall.Errno]), false}
		b.runner.FS = fs
		k, p := b.newJob(t, "true")
		p.Resources.Options = []string{"--hold"}
		h := b.launch(t, k, p)
		full := syscall.ENOSPC
		fs.err.Store(&full)
		if err := b.runner.Kill(t.Context(), h, 0); !errors.Is(err, full) || b.status(t, h).State != runner.Queued {
			t.Errorf("%v, %+v", err, b.status(t, h))
		}
		fs.err.Store(nil)
	})
}

// The disk of the jobs, which is that of the spool, has room for nothing.
func TestKillOnADiskThatIsReallyFull(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	for _, dir := range []string{b.Work, b.Spool} {
		small(t, dir, "size=2m,nr_inodes=100")
	}
	if err := b.runner.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir + "/up") })
	for _, dir := range []string{b.Work, b.Spool} {
		fill := path.Join(dir, ".fill")
		if err := os.WriteFile(fill, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("it is not full: %v", err)
		}
		for i := 0; os.WriteFile(fmt.Sprintf("%s.%d", fill, i), nil, 0o600) == nil; i++ {
		}
	}
	if err := b.runner.Kill(t.Context(), h, time.Hour); err != nil {
		t.Fatal(err)
	}
	if st := b.settled(t, h); b.Lives(t, h) || st.End == nil || !st.End.Asked {
		t.Errorf("%+v, %+v", st, st.End)
	}
}
