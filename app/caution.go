package app

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A watcher reads what programs can write. Should such a look ever kill its process, it would kill the next one as well,
// which begins with the same look. So a watch that follows one that was killed is cautious until it has looked at all
// programs: it looks at one after the other, and says beforehand at which. After [mostDeaths] a job is not looked at any more.

// mostDeaths is in how many looks at a job a watcher may be killed: as often as a job may kill its worker while it is the
// only suspect.
const mostDeaths = job.PoisonAt - job.AloneAt

// The names of what a watcher notes in its spool, where watches do not see them.
const (
	watchingNote = ".watching" // a watch goes on, or was killed
	lookingNote  = ".looking"  // at which job a cautious watch looks, and in how many looks it was killed: "<job> <n>"
)

// caution is what a watch knows of the one before it. The zero value is not cautious.
type caution struct {
	fs    files.FS
	spool string
	on    bool
	job   job.ID // in the looks at which the ones before were killed
	died  int    // how often
}

// heed finds out whether the watch before was killed, and notes that this one goes on. What it cannot note costs only
// caution.
func heed(ctx context.Context, fsys files.FS, spool string) caution {
	c := caution{fs: fsys, spool: spool}
	_, err := fsys.Stat(ctx, c.name(watchingNote))
	c.on = err == nil
	if b, err := files.ReadFile(ctx, fsys, c.name(lookingNote), 256); err == nil {
		id, n, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
		if c.job, err = job.ParseID(id); err == nil {
			_, _ = fmt.Sscan(n, &c.died) // 0: it says nothing
		}
	}
	c.put(ctx, watchingNote, "")
	return c
}

func (c *caution) name(note string) string { return path.Join(c.spool, note) }

func (c *caution) put(ctx context.Context, note, text string) {
	_ = c.fs.Put(ctx, c.name(note), strings.NewReader(text), files.PutOptions{NoSync: true})
}

// look looks at what a job left, unless looks at it have killed too many.
func (c *caution) look(ctx context.Context, id job.ID, look func() error) error {
	if !c.on {
		return look()
	}
	n := 1
	if c.job == id {
		n += c.died
	}
	if n > mostDeaths {
		return errDeadly
	}
	c.put(ctx, lookingNote, fmt.Sprintf("%s %d\n", id, n))
	defer c.fs.Remove(ctx, c.name(lookingNote)) //nolint:errcheck // then the next watch is cautious without need
	return look()
}

// errDeadly says that a job is not looked at.
var errDeadly = fmt.Errorf("%d looks at what the program left have killed the process that looked, so nobody looks any more", mostDeaths)

// relax ends the caution: all programs were looked at.
func (c *caution) relax() { c.on = false }

// end notes that the watch ended in good order.
func (c *caution) end(ctx context.Context) {
	_ = c.fs.Remove(context.WithoutCancel(ctx), c.name(watchingNote))
}

// look tells what has become of programs: in one look, or one after the other while the watch is cautious.
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
