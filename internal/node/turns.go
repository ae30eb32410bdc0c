package node

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
	"github.com/pawl-jobs/pawl/store"
)

// LocalTurns is the key of the limit of how many programs run at once on this machine.
var LocalTurns = job.SystemKey(job.SystemLocal)

// localTenant is whose jobs the commands of this program run.
const localTenant = "default"

// asideFile holds the limit that a run with --jobs has put aside, for as long as that run has the
// folder.
const asideFile = "limit-aside"

// An aside is a limit that another one stands in for.
type aside struct {
	For  int        `json:"for"`  // the most of the one that stands in for it
	Kept *job.Limit `json:"kept"` // nil: there was none
}

// setTurns sets how many programs run at once in the folder: as many as the machine has cores, if
// the folder is new; and while this process has it, as many as o says. A process that died with a
// limit of its own has left the one that it put aside, which is put back first.
func (n *Node) setTurns(ctx context.Context, o *Options) error {
	if err := n.putBack(ctx); err != nil {
		return err
	}
	if !o.Unlimited && !folder.Known(n.Dir) {
		if err := n.limitTurns(ctx, runtime.GOMAXPROCS(0)); err != nil {
			return err
		}
	}
	if o.Jobs == 0 {
		return nil
	}
	set, err := n.turnsSet(ctx)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(aside{o.Jobs, set})
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(n.Dir, asideFile), string(doc)+"\n"); err != nil {
		return job.Errorf(job.Unavailable, "put the limit %s aside: %w", LocalTurns, err)
	}
	n.free = append(n.free, func() error { return n.putBack(context.WithoutCancel(ctx)) })
	return n.limitTurns(ctx, o.Jobs)
}

// limitTurns sets the limit. It takes in the jobs that are there at once, so that none that comes
// next waits for that.
func (n *Node) limitTurns(ctx context.Context, most int) error {
	eff, err := store.SetLimit(ctx, n.Store, localTenant, job.Limit{Key: LocalTurns, Most: most})
	for paid := 1; err == nil && eff.Owed && paid > 0; {
		paid, eff, err = n.Store.Pay(ctx, 1000)
	}
	return err
}

// turnsSet returns the limit that is set; nil: there is none.
func (n *Node) turnsSet(ctx context.Context) (*job.Limit, error) {
	all, err := n.Store.Limits(ctx, localTenant)
	for i := range all {
		if all[i].Key == LocalTurns {
			return &all[i], err
		}
	}
	return nil, err
}

// putBack puts the limit back that was put aside, unless somebody has set another one since.
func (n *Node) putBack(ctx context.Context) error {
	name := filepath.Join(n.Dir, asideFile)
	b, err := folder.ReadOwn(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var a aside
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return job.Errorf(job.Corrupt, "%s holds the limit %s that a run with --jobs has put aside: %w: remove "+
			"it, and set the limit with pawl limits set", name, LocalTurns, err)
	}
	set, err := n.turnsSet(ctx)
	switch {
	case err != nil:
		return err
	case set == nil || set.Most != a.For:
	case a.Kept == nil:
		_, err = store.RemoveLimit(ctx, n.Store, localTenant, LocalTurns)
	default:
		_, err = store.SetLimit(ctx, n.Store, localTenant, *a.Kept)
	}
	if err != nil {
		return err
	}
	return os.Remove(name)
}
