package app

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// How the watcher hears of ends, and what it makes of them.

// hear takes in news of launches, and looks at those that may be over.
func (x *watch) hear(ctx context.Context, news []runner.Notice) error {
	look, err := x.takeIn(ctx, news)
	if err != nil {
		return err
	}
	return x.probe(ctx, look)
}

// takeIn takes in news of launches, and returns those that are to be looked at. An end stays with
// the runner if its job is not yet in monitor, or of another watch or service that has the same
// spool. It is acknowledged if its job is past that launch.
func (x *watch) takeIn(ctx context.Context, news []runner.Notice) (look []*watched, err error) {
	x.early = append(x.early, news...)
	heard, err := x.sort(ctx)
	if err != nil {
		return nil, err
	}
	var over []ending
	for _, n := range heard {
		w := x.jobs[n.Key.Job]
		switch {
		case w == nil || w.killing:
		case n.End != nil && !n.Look:
			over = append(over, w.ending(runner.Status{}))
		case !slices.Contains(look, w):
			look = append(look, w)
		}
	}
	return look, x.finish(ctx, over)
}

// sort takes the notices out of early that are of launches which are watched, and returns those
// that are news. It looks up the jobs of the others.
func (x *watch) sort(ctx context.Context) (heard []runner.Notice, err error) {
	var done []string
	x.early = slices.DeleteFunc(x.early, func(n runner.Notice) bool { return x.known(n, &heard, &done) })
	if len(x.early) > 0 {
		ids := make([]job.ID, len(x.early))
		for i, n := range x.early {
			ids[i] = n.Key.Job
		}
		slices.SortFunc(ids, job.ID.Compare)
		found, err := x.store.Find(ctx, store.FindQuery{IDs: slices.Compact(ids)})
		if err != nil {
			x.news.Reset(time.Second)
			return heard, x.unreachable(ctx, err)
		}
		rows := map[job.ID]job.Job{}
		found = slices.DeleteFunc(found, func(j job.Job) bool { return j.Watch != x.sys.Watch })
		for _, j := range found {
			rows[j.ID] = j
			if err := x.see(ctx, j); err != nil {
				return heard, err
			}
		}
		x.early = slices.DeleteFunc(x.early, func(n runner.Notice) bool {
			if j, ours := rows[n.Key.Job]; !ours || !j.Live || n.Key.Launch < j.Launch {
				x.past[n.Key] = ours
			}
			return x.known(n, &heard, &done)
		})
	}
	x.acknowledge(ctx, done)
	return heard, nil
}

// known takes in a notice if its launch is watched, past or of others. Done gets the name of one
// that needs no more than to be acknowledged, and heard those of launches that are watched.
func (x *watch) known(n runner.Notice, heard *[]runner.Notice, done *[]string) bool {
	w := x.jobs[n.Key.Job]
	switch ours, past := x.past[n.Key]; {
	case past && !ours:
		return true
	case past:
		*done = append(*done, n.Name)
		return true
	case w == nil || w.handle.Key != n.Key:
		return false
	case n.End != nil && n.End.Token != w.handle.Token,
		w.told != nil && n.Name != "" && !slices.Contains(w.names, n.Name):
		x.kind.cfg.Log.Warn("a message that is not of this launch, or a second one, is discarded", "job", n.Key.Job,
			"name", n.Name)
		*done = append(*done, n.Name)
		return true
	}
	if n.Name != "" && !slices.Contains(w.names, n.Name) {
		w.names = append(w.names, n.Name)
	}
	if w.told == nil {
		w.told, w.look = n.End, n.Look
	}
	*heard = append(*heard, n)
	return true
}

// acknowledge lets the runner forget ends, in one call.
func (x *watch) acknowledge(ctx context.Context, names []string) {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return
	}
	if err := x.sys.Runner.Acknowledge(ctx, names); err != nil && ctx.Err() == nil {
		x.kind.cfg.Log.Warn("messages of ends stay until the next watch", "error", err)
	}
	crash.At("watch.discarded")
}

// An ending is the end of a program. Without end it is the news that the program is gone.
type ending struct {
	w   *watched
	end *runner.End

	usage *host.Usage      // what it has used; nil: not known
	kept  []runner.Remnant // processes that asked to outlive it
	stuck []runner.Remnant // processes of it that cannot be ended
	said  string           // words of its launcher, if the program is gone
	cause job.Code         // why a scheduler ended it
}

// ending returns the end of a program, with what a look at it has told.
func (w *watched) ending(s runner.Status) ending {
	o := ending{w: w, end: s.End, usage: s.Usage, said: s.Said, kept: s.Kept, cause: s.Cause}
	if w.told != nil {
		o.end = w.told
	}
	return o
}

// finish puts jobs whose program is over back on their queues, all in one call. Then it
// acknowledges the ends, all in one call.
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
		for _, o := range over {
			x.again(o.w)
		}
		return x.unreachable(ctx, err)
	}
	crash.At("watch.applied")
	var done []string
	for i, o := range over {
		switch answers[i].Outcome {
		case store.OK, store.Diverted:
			x.forget(o.w.row.ID)
			x.past[o.w.handle.Key] = true
			done = append(done, o.w.names...)
		default:
			// The row moved meanwhile, or the duty has gone to another. The row tells which.
			x.again(o.w)
			if err := x.reread(ctx, o.w.row.ID); err != nil {
				return err
			}
			if x.jobs[o.w.row.ID] != o.w {
				for _, name := range o.w.names {
					x.early = append(x.early, runner.Notice{Key: o.w.handle.Key, Name: name, End: o.w.told, Look: true})
				}
			}
		}
	}
	x.acknowledge(ctx, done)
	return nil
}

// again makes the watch look at a program soon, as if its end were not known.
func (x *watch) again(w *watched) {
	w.killing = false
	x.lookIn(time.Second, w)
}

// change returns the change that an end makes of the job. The results are archived after every kind
// of end.
func (o *ending) change(f job.Fence) job.Change {
	n := o.w.progress
	n.End, n.Lost, n.Usage, n.Said, n.Cause = o.end, o.end == nil, o.usage, o.said, o.cause
	e := job.Entry{State: job.Archiving}
	switch {
	case o.end != nil && o.end.NotStarted != "":
		e.Message = "the program could not be started"
	case o.end != nil:
		e.Message = "ended with " + o.end.Exit()
		if o.cause != "" {
			e.Message += ", by the scheduler: " + o.said
		}
	case o.w.killing:
		e.Message = "the program was ended"
	case o.cause != "":
		e.Message = "the scheduler ended it: " + o.said
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
	set := job.Patch{Over: true}
	if o.w.wish == job.WishCancel { // nothing is archived, and nothing else tells of its end
		set.Result = (&program{progress: n}).result()
	}
	return job.Change{
		Job: o.w.row.ID, From: o.w.row.Guard(f), Path: []job.Entry{e}, To: job.Ready, Set: set, Work: n.encode(),
	}
}

// drop sends a job back to be launched again that a scheduler has forgotten before it began.
func (x *watch) drop(ctx context.Context, w *watched) error {
	answers, err := x.held.Apply(ctx, []job.Change{{
		Job: w.row.ID, From: w.row.Guard(x.held.Fence()), To: job.Ready, Work: w.progress.anew().encode(),
		Path: []job.Entry{{
			State: job.SubmittingJob, Message: "the scheduler has forgotten it before it began: it is submitted again",
		}},
		Set: job.Patch{Over: true},
	}})
	if err != nil || answers[0].Outcome != store.OK && answers[0].Outcome != store.Diverted {
		x.again(w) // a wish, or the next look, comes first
		return x.unreachable(ctx, err)
	}
	x.forget(w.row.ID)
	x.past[w.handle.Key] = true
	return nil
}
