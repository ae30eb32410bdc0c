package app

import (
	"context"
	"fmt"
	"path"
	"slices"
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
	switch {
	case c.deadly(id):
		return errDeadly
	case !c.on:
		return look()
	}
	n := c.died[id] + 1
	note := path.Join(c.dir, fmt.Sprintf("%s.%d", id, n))
	_ = c.fs.Mkdir(ctx, note)
	defer c.fs.Remove(ctx, note) //nolint:errcheck // then the next watch is cautious without need
	return look()
}

// deadly reports whether a job is not looked at any more.
func (c *caution) deadly(id job.ID) bool { return c.died[id] >= mostDeaths }

// errDeadly says that a job is not looked at.
var errDeadly = fmt.Errorf("%d looks at what the program left have killed the process that looked, so nobody "+
	"looks any more", mostDeaths)

// forget begins anew with a job whose program is over: another attempt may be harmless.
func (c *caution) forget(ctx context.Context, id job.ID) {
	for n := range c.died[id] {
		_ = c.fs.Remove(ctx, path.Join(c.dir, fmt.Sprintf("%s.%d", id, n+1)))
	}
	delete(c.died, id)
}

// relax ends the caution: all programs were looked at.
func (c *caution) relax() { c.on = false }

// end notes that the watch ended in good order.
func (c *caution) end(ctx context.Context) {
	_ = c.fs.Remove(context.WithoutCancel(ctx), c.dir)
}

// look tells what has become of programs: in one look, or one after the other while the watch is
// cautious. Of one that is not looked at any more something may run, so it is ended.
func (x *watch) look(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	deadly := func(h runner.Handle) bool { return x.caution.deadly(h.Key.Job) }
	if !x.caution.on && !slices.ContainsFunc(hs, deadly) {
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
			all[i], err = runner.Status{State: runner.Orphaned, Said: errDeadly.Error()}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
