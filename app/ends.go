package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// How the watcher hears of ends, and what it makes of them.

// takeIn makes changes from the messages in the spool. A message stays if it is not whole, or if
// its job is not yet in monitor. It goes if its job is past that launch.
func (x *watch) takeIn(ctx context.Context) error {
	if len(x.ends) == 0 {
		return nil
	}
	strangers := map[string]runner.Key{}
	fsys := x.sys.Host.Files()
	for _, name := range slices.Sorted(maps.Keys(x.ends)) {
		key, _, err := runner.ParseEndName(name)
		if err != nil {
			if ours := strings.HasPrefix(name, "."); !ours { // a file on its way has another name
				x.kind.cfg.Log.Warn("what is in the spool and is no message of an end is removed", "name", name)
				x.discard(ctx, name)
			}
			delete(x.ends, name)
			continue
		}
		if x.past[name] {
			delete(x.past, name)
			x.discard(ctx, name)
			continue
		}
		w := x.jobs[key.Job]
		if w == nil || w.handle.Key != key {
			strangers[name] = key
			continue
		}
		var end runner.End
		var torn error
		err = x.caution.look(ctx, key.Job, func() error {
			b, err := files.ReadFile(ctx, fsys, path.Join(x.sys.Spool, name), runner.MaxEnd)
			if err == nil {
				end, torn = runner.ParseEnd(name, b)
			}
			return err
		})
		if ctx.Err() != nil || job.KindOf(err) == job.Unavailable {
			return x.unreachable(ctx, err)
		}
		if err != nil {
			delete(x.ends, name)
			if !errors.Is(err, fs.ErrNotExist) {
				x.kind.cfg.Log.Error("a message of an end cannot be read; looking at the program instead", "job",
					key.Job, "error", err)
			}
			continue
		}
		if err = torn; err != nil {
			x.torn(w)
			continue
		}
		delete(x.ends, name)
		switch {
		case err == nil && end.Token != w.handle.Token || w.told != nil && w.told.name != name:
			x.kind.cfg.Log.Warn("a message that is not of this launch, or a second one, is discarded", "job",
				key.Job, "name", name)
			x.discard(ctx, name)
			continue
		case err != nil:
			w.told = &ending{w: w, name: name}
		default:
			w.told = &ending{w: w, end: &end, name: name}
		}
		w.since, x.open[w] = time.Now(), true
		x.lookIn(0)
	}
	return x.sort(ctx, strangers)
}

// torn makes the watch read a message again that is not whole: its writer is at work, or is gone.
// So the program is looked at, too.
func (x *watch) torn(w *watched) {
	if w.since.IsZero() {
		w.since = time.Now()
	}
	w.looked, x.open[w] = false, true
	if time.Since(w.since) < wrapperGrace {
		x.lookIn(lookAgain)
	} else {
		x.lookIn(time.Second)
	}
}

// sort looks up the jobs of messages that fit no running program.
func (x *watch) sort(ctx context.Context, strangers map[string]runner.Key) error {
	if len(strangers) == 0 {
		return nil
	}
	ids := make([]job.ID, 0, len(strangers))
	for _, k := range strangers {
		ids = append(ids, k.Job)
	}
	slices.SortFunc(ids, job.ID.Compare)
	found, err := x.store.Find(ctx, store.FindQuery{IDs: ids})
	if err != nil {
		return x.unreachable(ctx, err)
	}
	rows := map[job.ID]job.Job{}
	for _, j := range found {
		rows[j.ID] = j
	}
	again := false
	for _, name := range slices.Sorted(maps.Keys(strangers)) {
		k := strangers[name]
		j, there := rows[k.Job]
		if !there || !j.Live || k.Launch < j.Launch {
			x.discard(ctx, name) // the job is past this launch
			continue
		}
		if err := x.see(ctx, j); err != nil {
			return err
		}
		if w := x.jobs[k.Job]; w != nil && w.handle.Key == k {
			again = true
		}
	}
	if again {
		return x.takeIn(ctx)
	}
	return nil
}

// discard removes a message that was taken in.
func (x *watch) discard(ctx context.Context, name string) {
	delete(x.ends, name)
	if name == "" {
		return
	}
	if err := x.sys.Host.Files().Remove(ctx, path.Join(x.sys.Spool, name)); err != nil && ctx.Err() == nil {
		x.kind.cfg.Log.Warn("a message of an end stays in the spool until the next start", "name", name, "error", err)
	}
	crash.At("watch.discarded")
}

// An ending is the end of a program. Without end it is the news that the program is gone.
type ending struct {
	w    *watched
	end  *runner.End
	name string // of the message, if there was one

	usage *host.Usage      // what it has used; nil: not known
	kept  []runner.Remnant // processes that asked to outlive it
	stuck []runner.Remnant // processes of it that cannot be ended
	said  string           // words of its launcher, if the program is gone
}

// with returns the ending with the other news of a look at the program.
func (o *ending) with(s runner.Status) ending {
	done := *o
	done.usage, done.said, done.kept = s.Usage, s.Said, s.Kept
	return done
}

// finish puts jobs whose program is over back on their queues, all in one call. Then it removes the
// messages.
func (x *watch) finish(ctx context.Context, over []ending) error {
	if len(over) == 0 {
		return nil
	}
	slices.SortFunc(over, func(a, b ending) int { return slices.Compare(a.w.row.ID[:], b.w.row.ID[:]) })
	changes := make([]job.Change, len(over))
	for i, o := range over {
		changes[i] = o.change(x.held.Fence())
	}
	answers, err := x.held.Apply(ctx, changes)
	if err != nil {
		return x.unreachable(ctx, err)
	}
	crash.At("watch.applied")
	for i, o := range over {
		switch answers[i].Outcome {
		case store.OK, store.Diverted:
			x.forget(o.w.row.ID)
			x.caution.forget(ctx, o.w.row.ID)
			if o.name == "" {
				x.past[runner.EndName(o.w.handle.Key, 0)] = true
			}
			x.discard(ctx, o.name)
		default:
			// The row moved meanwhile, or the duty has gone to another. The row tells which.
			rows, err := x.store.Find(ctx, store.FindQuery{IDs: []job.ID{o.w.row.ID}})
			if err != nil {
				x.again(o.w)
				if err := x.unreachable(ctx, err); err != nil {
					return err
				}
				continue
			}
			for _, j := range rows {
				if err := x.see(ctx, j); err != nil {
					return err
				}
			}
			switch {
			case x.jobs[o.w.row.ID] == o.w: // the row has not moved: not again at once
				x.again(o.w)
			case o.name != "":
				x.ends[o.name] = true
			}
		}
	}
	return nil
}

// again makes the watch look at a program soon, as if its end were not known.
func (x *watch) again(w *watched) {
	w.looked, w.killing, x.open[w] = false, false, true
	x.lookIn(time.Second)
}

// change returns the change that an end makes of the job. The results are archived after every kind
// of end.
func (o *ending) change(f job.Fence) job.Change {
	n := o.w.progress
	n.End, n.Lost, n.Usage, n.Said = o.end, o.end == nil, o.usage, o.said
	e := job.Entry{State: job.Archiving}
	switch {
	case o.end != nil && o.end.NotStarted != "":
		e.Message = "the program could not be started"
	case o.end != nil:
		e.Message = fmt.Sprintf("ended with exit code %d", o.end.Code)
	case o.w.killing:
		e.Message = "the program was ended"
	default:
		e.Message = "the program is gone and left no exit code"
	}
	switch {
	case len(o.stuck) > 0:
		e.Message += "; of what it left behind these processes cannot be ended: " + runner.Remnants(o.stuck)
	case len(o.w.behind) > 0:
		e.Message += "; it left processes behind, which were ended: " + runner.Remnants(o.w.behind)
	}
	if len(o.kept) > 0 {
		e.Message += "; it left processes behind that ask to be kept (PAWL_KEEP=1): " + runner.Remnants(o.kept)
	}
	return job.Change{
		Job: o.w.row.ID, From: o.w.row.Guard(f), Path: []job.Entry{e}, To: job.Ready,
		Set: job.Patch{Over: true}, Work: n.encode(),
	}
}
