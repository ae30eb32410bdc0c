package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/job"
)

// localTurns is the key of the limit of how many programs run at once on this machine.
var localTurns = job.SystemKey(job.SystemLocal)

// localTenant is whose jobs the commands of this program run.
const localTenant = "default"

// asideFile holds the limit that a run with --jobs has put aside, for as long as that run has the folder.
const asideFile = "limit-aside"

// An aside is a limit that another one stands in for.
type aside struct {
	For  int        `json:"for"`  // the most of the one that stands in for it
	Kept *job.Limit `json:"kept"` // nil: there was none
}

// setTurns sets how many programs run at once in the folder: as many as the machine has cores, if the folder is new; and
// while this process has it, as many as o says. A process that died with a limit of its own has left the one that it
// put aside, which is put back first.
func (n *node) setTurns(ctx context.Context, o *nodeOptions) error {
	if err := n.putBack(ctx); err != nil {
		return err
	}
	if !o.unlimited && !folder.Known(n.dir) {
		if err := n.limitTurns(ctx, runtime.GOMAXPROCS(0)); err != nil {
			return err
		}
	}
	if o.jobs == 0 {
		return nil
	}
	set, err := n.turnsSet(ctx)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(aside{o.jobs, set})
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(n.dir, asideFile), string(doc)+"\n"); err != nil {
		return job.Errorf(job.Unavailable, "put the limit %s aside: %w", localTurns, err)
	}
	n.free = append(n.free, func() error { return n.putBack(context.WithoutCancel(ctx)) })
	return n.limitTurns(ctx, o.jobs)
}

// limitTurns sets the limit. It takes in the jobs that are there at once, so that none that comes next waits for that.
func (n *node) limitTurns(ctx context.Context, most int) error {
	eff, err := n.store.SetLimit(ctx, localTenant, job.Limit{Key: localTurns, Most: most})
	for paid := 1; err == nil && eff.Owed && paid > 0; {
		paid, eff, err = n.store.Pay(ctx, 1000)
	}
	return err
}

// turnsSet returns the limit that is set; nil: there is none.
func (n *node) turnsSet(ctx context.Context) (*job.Limit, error) {
	all, err := n.store.Limits(ctx, localTenant)
	for i := range all {
		if all[i].Key == localTurns {
			return &all[i], err
		}
	}
	return nil, err
}

// putBack puts the limit back that was put aside, unless somebody has set another one since.
func (n *node) putBack(ctx context.Context) error {
	name := filepath.Join(n.dir, asideFile)
	b, err := folder.ReadOwn(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var a aside
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return job.Errorf(job.Corrupt, "%s holds the limit %s that a run with --jobs has put aside: %w: remove it, and set the limit with pawl limits set", name, localTurns, err)
	}
	set, err := n.turnsSet(ctx)
	switch {
	case err != nil:
		return err
	case set == nil || set.Most != a.For:
	case a.Kept == nil:
		_, err = n.store.RemoveLimit(ctx, localTenant, localTurns)
	default:
		_, err = n.store.SetLimit(ctx, localTenant, *a.Kept)
	}
	if err != nil {
		return err
	}
	return os.Remove(name)
}
