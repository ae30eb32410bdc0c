package slurm

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/client"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/script"
)

// maxArray is how many launches are submitted together at most. Slurm takes arrays of up to 1,000
// tasks unless it is told otherwise.
const maxArray = 512

// An order is a launch that is to be submitted.
type order struct {
	spool.Names
	place
	key  runner.Key
	asks string            // its directives: launches that have the same can be one array
	ask  map[string]string // see [client.Ask]

	task int // the index in its array
	err  error
	done chan struct{} // closed when it is known what became of it
}

func (o *order) isTask() bool { return o.Name != o.Token }

// Launch arms a launch and submits it, together with others that wait for that.
func (r *Runner) Launch(ctx context.Context, k runner.Key, p runner.Plan) (none runner.Handle, _ error) {
	o, err := r.prepare(ctx, k, p)
	if err != nil {
		return none, err
	}
	r.orders.Add(o, maxArray, func(batch []*order) {
		// It goes on when ctx ends: the others wait for it, too.
		r.submit(context.WithoutCancel(ctx), batch)
	})
	select {
	case <-o.done:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	return r.Handle(k, o.Token, o.place), o.err
}

// prepare writes the script of a launch.
func (r *Runner) prepare(ctx context.Context, k runner.Key, p runner.Plan) (*order, error) {
	m, err := spool.NewNames(k, p.Dir)
	if err != nil {
		return nil, err
	}
	locks, err := r.Locks(ctx)
	if err != nil {
		return nil, err
	}
	o := &order{
		Names: m, key: k, ask: client.Ask(&p.Resources),
		place: place{Armed: time.Now().UnixMilli(), Dir: p.Dir, Name: m.Token}, done: make(chan struct{}),
	}
	run, err := script.Of(r.Head(k, m.Token, locks), k, p, m.Token, o.Armed)
	if err != nil {
		return nil, err
	}
	if o.asks, err = script.Directives(p); err != nil {
		return nil, err
	}
	if marked, err := r.Marks(ctx, k.Job); err != nil || marked {
		return nil, cmp.Or(err, job.Errorf(job.Conflict, "%w", runner.ErrRan))
	}
	// It may hold secrets. If a power failure empties it, it takes nothing, and the launch is revoked.
	err = r.FS.Put(ctx, m.Own("run"), strings.NewReader(run), files.PutOptions{Mode: 0o600, NoSync: true})
	if err != nil {
		return nil, spool.NotArmed(err)
	}
	return o, nil
}

// submit arms launches and submits them, by one request. Those that ask for the same are one array.
// It is called one at a time.
func (r *Runner) submit(ctx context.Context, batch []*order) {
	defer func() {
		for _, o := range batch {
			close(o.done)
		}
	}()
	arrays := r.arrays(batch)
	each(batch, func(o *order) error { return r.arm(ctx, o) })
	crash.At("slurm.armed")
	var batches []client.Batch
	arrays = slices.DeleteFunc(arrays, func(list []*order) bool {
		armed := slices.DeleteFunc(slices.Clone(list), func(o *order) bool { return o.err != nil })
		if len(armed) == 0 {
			return true
		}
		name := armed[0].Own("batch")
		err := r.FS.Put(ctx, name, strings.NewReader(batchOf(armed)), files.PutOptions{Mode: 0o600})
		each(armed, func(*order) error { return err })
		if err == nil {
			batches = append(batches, client.Batch{Name: name, Ask: armed[0].ask})
		}
		return err != nil
	})
	if len(arrays) == 0 {
		return
	}
	said, err := r.client.Submit(ctx, batches)
	crash.At("slurm.submitted")
	for i, list := range arrays {
		id, err := "", err
		if err == nil {
			id, err = said[i].ID, said[i].Err
		}
		each(list, func(o *order) error { return r.answered(ctx, o, id, err) })
		switch _, refused := errors.AsType[*runner.Refused](err); {
		case refused && len(list) > 1:
			r.alone[list[0].asks] = true
		case err == nil:
			delete(r.alone, list[0].asks)
		}
	}
}

// batchOf returns the batch script of orders.
func batchOf(list []*order) string {
	tasks := make([]script.Task, len(list))
	for i, o := range list {
		tasks[i] = script.Task{Index: o.task, Dir: o.Dir, Run: path.Base(o.Own("run"))}
	}
	return script.Batch(list[0].Name, list[0].asks, tasks)
}

// each does something for all orders that have no error, at once.
func each(list []*order, do func(*order) error) {
	var all sync.WaitGroup
	for _, o := range list {
		if o.err == nil {
			all.Go(func() { o.err = do(o) })
		}
	}
	all.Wait()
}

// arrays puts together the orders that ask for the same, and names them.
func (r *Runner) arrays(batch []*order) (arrays [][]*order) {
	at := map[string]int{}
	for _, o := range batch {
		i, ok := at[o.asks]
		if !ok || r.alone[o.asks] {
			i, arrays = len(arrays), append(arrays, nil)
			at[o.asks] = i
		}
		arrays[i] = append(arrays[i], o)
	}
	for _, list := range arrays {
		name := rand.Text()
		for i, o := range list {
			if o.task = i; len(list) > 1 {
				o.Name = name + "_" + strconv.Itoa(i)
			}
		}
	}
	return arrays
}

// arm links the name that decides who may submit a launch. It tells under which name in Slurm.
func (r *Runner) arm(ctx context.Context, o *order) error {
	err := r.Write(ctx, o.Own("arm"), fmt.Sprintf("armed %s %d %s", o.Token, o.Armed, o.Name))
	if err != nil {
		return spool.NotArmed(err)
	}
	crash.At("slurm.armfile")
	err = r.FS.Link(ctx, o.Own("arm"), o.Arming())
	if errors.Is(err, fs.ErrExist) {
		err = job.Errorf(job.Conflict, "%w", runner.ErrArmed)
	}
	return err
}

// answered notes that a launch is under way, unless an error says otherwise. It revokes it if Slurm
// has refused it. Of an array that Slurm refuses each launch can be tried again, alone.
func (r *Runner) answered(ctx context.Context, o *order, id string, err error) error {
	if refused, ok := errors.AsType[*runner.Refused](err); ok {
		if o.isTask() {
			err = job.Errorf(job.Unavailable, "Slurm does not take it as a task of a job array: %s", refused.Said)
		}
		_, revokeErr := r.revoke(ctx, o.key, o.Names, o.Dir)
		return errors.Join(err, revokeErr)
	}
	if err != nil {
		return err
	}
	if o.ID = id; o.isTask() {
		o.ID += "_" + strconv.Itoa(o.task)
	}
	// Whoever settles at this moment may have revoked it: then the job will find that out. After a
	// power failure that has taken the name Slurm is asked.
	err = r.QuickLinkOnce(ctx, o.Names, "submitted", "submitted "+o.Token+" "+o.ID, o.Of("settled"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the program has begun, and has removed the folder
	}
	return err
}
