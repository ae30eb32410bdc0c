package app

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A watcher reads what programs can write. Should such a look ever kill its process, it would kill
// the next one as well, which begins with the same look. So a watch that follows one that was
// killed is cautious until it has looked at all programs: it looks at one after the other, and says
// beforehand at which. After [mostDeaths] a job is not looked at any more.

// mostDeaths is in how many looks at a job a watcher may be killed: as often as a job may kill its
// worker while it is the only suspect.
const mostDeaths = job.PoisonAt - job.AloneAt

// watchingNote is the name of a folder in the spool, where watches do not see it: it is there while
// a watch goes on, or was killed. In it a cautious watch makes a folder <job>.<n> while it looks at
// a job in whose looks n watches were killed, with this one. A folder is there or not, and leaves
// nothing half written.
const watchingNote = ".watching"

// caution is what a watch knows of the one before it. The zero value is not cautious.
type caution struct {
	fs   files.FS
	dir  string
	on   bool
	died map[job.ID]int // in how many looks at a job watches were killed
}

// heed finds out whether the watch before was killed, and notes that this one goes on. What it
// cannot note costs only caution.
func heed(ctx context.Context, fsys files.FS, spool string) caution {
	c := caution{fs: fsys, dir: path.Join(spool, watchingNote), died: map[job.ID]int{}}
	infos, err := fsys.List(ctx, c.dir)
	c.on = err == nil
	for _, f := range infos {
		id, text, _ := strings.Cut(f.Name(), ".")
		if j, err := job.ParseID(id); err == nil {
			if n, err := strconv.Atoi(text); err == nil {
				c.died[j] = max(c.died[j], n)
			}
		}
	}
	_ = fsys.Mkdir(ctx, c.dir)
	return c
}

// look looks at what a job left, unless looks at it have killed too many.
func (c *caution) look(ctx context.Context, id job.ID, look func() error) error {
	if !c.on {
		return look()
	}
	n := c.died[id] + 1
	if n > mostDeaths {
		return errDeadly
	}
	note := path.Join(c.dir, fmt.Sprintf("%s.%d", id, n))
	_ = c.fs.Mkdir(ctx, note)
	defer c.fs.Remove(ctx, note) //nolint:errcheck // then the next watch is cautious without need
	return look()
}

// errDeadly says that a job is not looked at.
var errDeadly = fmt.Errorf("%d looks at what the program left have killed the process that looked, so nobody "+
	"looks any more", mostDeaths)

// relax ends the caution: all programs were looked at.
func (c *caution) relax() { c.on = false }

// end notes that the watch ended in good order.
func (c *caution) end(ctx context.Context) {
	_ = c.fs.Remove(context.WithoutCancel(ctx), c.dir)
}

// look tells what has become of programs: in one look, or one after the other while the watch is
// cautious.
func (x *watch) look(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	if !x.caution.on {
		return x.kind.cfg.Runner.Probe(ctx, hs)
	}
	all := make([]runner.Status, len(hs))
	for i, h := range hs {
		err := x.caution.look(ctx, h.Key.Job, func() error {
			s, err := x.kind.cfg.Runner.Probe(ctx, hs[i:i+1])
			if err == nil {
				all[i] = s[0]
			}
			return err
		})
		if err == errDeadly { //nolint:errorlint // it is not wrapped
			all[i], err = runner.Status{State: runner.Lost, Said: errDeadly.Error()}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
