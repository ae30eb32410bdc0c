package slurm

import (
	"context"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// cached is a file system in which some names are not seen, as where a client of NFS remembers that
// they were not there.
type cached struct {
	files.FS
	hides  string // how their names end
	renews bool   // until something is put into their folder
	seen   *atomic.Bool
}

func (c cached) look(name string) error {
	if path.Base(path.Dir(name)) == spool.Rooms && strings.HasSuffix(name, c.hides) && !c.seen.Load() {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return nil
}

func (c cached) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if err := c.look(name); err != nil {
		return nil, err
	}
	return c.FS.Open(ctx, name)
}

func (c cached) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if err := c.look(name); err != nil {
		return nil, err
	}
	return c.FS.Stat(ctx, name)
}

func (c cached) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	if c.renews && path.Base(path.Dir(name)) == spool.Rooms {
		c.seen.Store(true)
	}
	return c.FS.Put(ctx, name, r, o)
}

// The end of a job that Slurm says is over may not be seen yet on a network file system. Then it is
// waited for, for some time, and the folder is looked at anew.
func TestAnEndThatIsNotSeen(t *testing.T) {
	testenv.Aside(t)
	for name, c := range map[string]struct {
		renews bool
		unseen time.Duration
		waits  bool
		want   runner.State
	}{
		"it is seen later":     {false, time.Hour, true, runner.Ended},
		"it is seen by a look": {true, time.Hour, false, runner.Ended},
		"it is never seen":     {false, 0, false, runner.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testenv.Slurm(t))
			seen := new(atomic.Bool)
			b.runner.FS, b.runner.queue.Unseen = cached{b.runner.FS, "", c.renews, seen}, c.unseen
			k, p := b.newJob(t, "exit 3")
			h := b.launch(t, k, p)
			var s runner.Status
			if c.waits {
				until(t, "it says that it waits", func() bool {
					s = b.status(t, h)
					return s.State == runner.Lost || strings.HasSuffix(s.Reason, " is over, and its end is not seen yet")
				})
				for range 3 {
					if s.State != runner.Active {
						t.Fatalf("%+v", s)
					}
					s = b.status(t, h)
				}
				seen.Store(true)
			}
			if s = b.settled(t, h); s.State != c.want || c.want == runner.Ended && s.End.Code != 3 {
				t.Errorf("%+v, %+v", s, s.End)
			}
			if s = b.status(t, h); s.State != c.want {
				t.Errorf("and then %+v", s)
			}
		})
	}
}

// The end of a run before is not that of the job while the newest one may not be seen yet.
func TestALaterEndThatIsNotSeen(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	seen := new(atomic.Bool)
	b.runner.FS, b.runner.queue.Unseen = cached{b.runner.FS, ".1", false, seen}, time.Hour
	k, p := b.newJob(t, `echo ran >>ran; [ "$(wc -l <ran)" -gt 1 ] || exec sleep 1000; sleep 2`)
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return read(p.Dir+"/ran") != "" })
	id := idOf(t, b, h)
	b.requeue(t, id)
	until(t, "the second run is over", func() bool { return b.over(t, id) })
	for range 3 {
		if _, err := b.runner.queue.Look(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if s := b.status(t, h); s.State != runner.Active {
			t.Fatalf("%+v, %+v", s, s.End)
		}
	}
	seen.Store(true)
	if s := b.settled(t, h); s.State != runner.Ended || s.End.Run != 1 || s.End.Code != 0 {
		t.Errorf("%+v, %+v", s, s.End)
	}
}
