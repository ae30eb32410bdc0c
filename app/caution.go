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

// A watcher reads files that programs can write. If such a look ever kills its process, it also
// kills the next one, which begins with the same look. So after a watch that was killed the next
// watch is cautious until it has looked at all programs: it looks at one after the other, and first
// notes at which one. After [maxDeaths] it looks no more at that job.

// maxDeaths is how often looks at one job may kill a watcher: as often as a job may kill its
// worker while it is the only suspect.
const maxDeaths = job.PoisonAt - job.AloneAt

// watchingNote is a folder in the spool. It is there while a watch goes on, or after a watch was
// killed. While a cautious watch looks at a job it makes a folder <job>.<n> in it, where n counts
// the looks at the job that may have killed a watch, with this one. A folder is there or not; it is
// never half written.
const watchingNote = ".watching"

// A caution is what a watch knows of the watch before it. The zero caution is not cautious.
type caution struct {
	fs   files.FS
	dir  string
	on   bool
	died map[job.ID]int // how many looks at a job have killed a watch
}

// newCaution finds out whether the watch before was killed, and notes that this one goes on. If it
// cannot note that, only caution is lost.
func newCaution(ctx context.Context, fsys files.FS, spool string) caution {
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

// look looks at the files of a job, unless looks at it have killed too many watches.
func (c *caution) look(ctx context.Context, id job.ID, look func() error) error {
	switch {
	case c.deadly(id):
		return errDeadly
	case !c.on:
		return look()
	}
	n := c.died[id] + 1
	marker := path.Join(c.dir, fmt.Sprintf("%s.%d", id, n))
	_ = c.fs.Mkdir(ctx, marker)
	defer c.fs.Remove(ctx, marker) //nolint:errcheck // then the next watch is cautious without need
	return look()
}

// deadly reports whether a job is no longer looked at.
func (c *caution) deadly(id job.ID) bool { return c.died[id] >= maxDeaths }

// errDeadly says that a job is no longer looked at.
var errDeadly = fmt.Errorf("%d looks at what the program left have killed the process that looked, so nobody "+
	"looks any more", maxDeaths)

// forget forgets the deaths of a job whose program is over: another attempt may be harmless.
func (c *caution) forget(ctx context.Context, id job.ID) {
	for n := range c.died[id] {
		_ = c.fs.Remove(ctx, path.Join(c.dir, fmt.Sprintf("%s.%d", id, n+1)))
	}
	delete(c.died, id)
}

// relax ends the caution because all programs were looked at.
func (c *caution) relax() { c.on = false }

// end notes that the watch ended in good order.
func (c *caution) end(ctx context.Context) {
	_ = c.fs.Remove(context.WithoutCancel(ctx), c.dir)
}

// look tells the state of programs: in one look, or one by one while the watch is cautious. A
// program that is no longer looked at may run, so it is ended.
func (x *watch) look(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	deadly := func(h runner.Handle) bool { return x.caution.deadly(h.Key.Job) }
	if !x.caution.on && !slices.ContainsFunc(hs, deadly) {
		return x.sys.Runner.Probe(ctx, hs)
	}
	all := make([]runner.Status, len(hs))
	for i, h := range hs {
		err := x.caution.look(ctx, h.Key.Job, func() error {
			s, err := x.sys.Runner.Probe(ctx, hs[i:i+1])
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
