package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// A Watcher looks after the programs of one machine while no worker has their jobs. It hears of ends from the spool,
// of wishes from the broker, and of children that died without a word from the host; it makes one change of each end.
// Two watchers at once do no harm: the rows decide.
type Watcher struct {
	kind   *Kind
	store  store.Reader
	broker broker.Broker
	exits  chan struct{} // a child has died
}

// A wrapper that has told its end has patience to go; it is looked at again and again meanwhile.
const (
	patience  = 200 * time.Millisecond
	lookAgain = 2 * time.Millisecond
)

// NewWatcher returns the watcher of kind's host.
func NewWatcher(k *Kind, s store.Reader, b broker.Broker) *Watcher {
	return &Watcher{kind: k, store: s, broker: b, exits: make(chan struct{}, 1)}
}

// Exited tells the watcher that a program's wrapper has died. It does not block.
func (w *Watcher) Exited() {
	select {
	case w.exits <- struct{}{}:
	default:
	}
}

// Duty is the watcher as a duty of its machine.
func (w *Watcher) Duty() engine.Duty {
	return engine.Duty{Name: "watch/" + w.kind.cfg.Host.ID(), Run: w.run}
}

// A watch is one holding of the duty.
type watch struct {
	*Watcher
	held *engine.Held
	jobs map[job.ID]*watched // in custody monitor, as far as known
	mark time.Time           // newest entry into monitor that was seen
	soon *time.Timer         // when to look again at those that have told their end
	ends map[string]bool     // names in the spool that are to be taken in

	ctx    context.Context // of the holding: kills outlast a watch that is lost
	wg     sync.WaitGroup
	killed chan job.ID // nothing of the program is alive any more
}

// watched is a job in custody monitor.
type watched struct {
	row     job.Job
	handle  runner.Handle
	wish    job.Wish // that is being carried out
	killing bool
	told    *ending   // its message has come; something of it may still be alive
	since   time.Time // when it came
	looked  bool      // it was probed since it came into monitor
	missed  bool      // it was said that nobody can tell what has become of it
}

func (w *Watcher) run(ctx context.Context, held *engine.Held) error {
	x := &watch{Watcher: w, held: held, jobs: map[job.ID]*watched{}, ends: map[string]bool{}, killed: make(chan job.ID), soon: time.NewTimer(time.Hour)}
	defer x.soon.Stop()
	ctx, stop := context.WithCancel(ctx)
	x.ctx = ctx
	defer x.wg.Wait()
	defer stop()
	told, err := w.broker.Subscribe(ctx, engine.WatchTopic(w.kind.cfg.Host.ID()))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer told.Close()
	for {
		if err := x.watch(ctx, told); err != nil || ctx.Err() != nil {
			return err
		}
		w.kind.cfg.Log.Warn("the watch on the spool was lost; watching anew")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// watch looks on until ctx ends or the watch on the spool is lost. It first watches, then lists.
func (x *watch) watch(ctx context.Context, told broker.Subscription) error {
	cfg := &x.kind.cfg
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, err := cfg.Host.Watch(ctx, cfg.Spool)
	if err != nil {
		return fmt.Errorf("watch %s: %w", cfg.Spool, err)
	}
	if err := x.refresh(ctx); err != nil {
		return err
	}
	if err := x.list(ctx); err != nil {
		return err
	}
	x.wake(ctx)
	if err := x.takeIn(ctx); err != nil { // before the probe: a message is better evidence than a folder that is gone
		return err
	}
	if err := x.probe(ctx, x.all()); err != nil {
		return err
	}
	x.sweep(ctx)
	tick := time.NewTicker(cfg.Reconcile)
	defer tick.Stop()
	for {
		if err := x.takeIn(ctx); err != nil {
			return err
		}
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if err := x.drain(ctx, e, events); err != nil {
				return err
			}
		case <-told.Messages():
			drainHints(told)
			if err := x.refresh(ctx); err != nil {
				return err
			}
		case <-told.Lost():
			if err := x.refresh(ctx); err != nil {
				return err
			}
		case id := <-x.killed:
			if err := x.gone(ctx, id); err != nil {
				return err
			}
		case <-x.exits:
			if err := x.probe(ctx, x.all()); err != nil {
				return err
			}
		case <-x.soon.C:
			if err := x.probe(ctx, x.unsure()); err != nil {
				return err
			}
		case <-tick.C:
			x.mark = time.Time{} // all of them, also those that no hint told of
			if err := x.refresh(ctx); err != nil {
				return err
			}
			if err := x.probe(ctx, x.all()); err != nil {
				return err
			}
			x.sweep(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// drain notes an event and all that wait behind it.
func (x *watch) drain(ctx context.Context, e host.Event, more <-chan host.Event) error {
	for ok := true; ok; {
		if e.Overflow {
			if err := x.list(ctx); err != nil {
				return err
			}
		} else {
			x.ends[e.Name] = true
		}
		select {
		case e, ok = <-more:
		default:
			return nil
		}
	}
	return nil
}

func drainHints(told broker.Subscription) {
	for {
		select {
		case <-told.Messages():
		default:
			return
		}
	}
}

// list notes everything in the spool.
func (x *watch) list(ctx context.Context) error {
	infos, err := x.kind.cfg.Host.Files().List(ctx, x.kind.cfg.Spool)
	if err != nil {
		return fmt.Errorf("list %s: %w", x.kind.cfg.Spool, err)
	}
	for _, f := range infos {
		x.ends[f.Name()] = true
	}
	return nil
}

// refresh reads the jobs that came into monitor, those with a wish, and those whose wish is being carried out.
func (x *watch) refresh(ctx context.Context) error {
	rows, err := x.store.Watched(ctx, x.kind.cfg.Host.ID(), x.mark)
	if err != nil {
		return x.unreachable(ctx, err)
	}
	var wished []job.ID
	for id, w := range x.jobs {
		if w.wish != "" {
			wished = append(wished, id)
		}
	}
	if len(wished) > 0 {
		more, err := x.store.Find(ctx, wished)
		if err != nil {
			return x.unreachable(ctx, err)
		}
		rows = append(rows, more...)
	}
	for _, j := range rows {
		x.see(ctx, j)
	}
	return nil
}

// see takes in a row.
func (x *watch) see(ctx context.Context, j job.Job) {
	if j.Custody != job.Monitor {
		delete(x.jobs, j.ID)
		return
	}
	if j.Since.After(x.mark) {
		x.mark = j.Since
	}
	w := x.jobs[j.ID]
	if w == nil || w.row.Epoch != j.Epoch {
		var n notes
		if err := json.Unmarshal(j.Work, &n); err != nil || n.Handle == nil {
			x.kind.cfg.Log.Error("a running job has no handle", "job", j.ID, "error", err)
			return
		}
		w = &watched{handle: *n.Handle}
		x.jobs[j.ID] = w
		x.soon.Reset(0) // it may have died before it came here
	}
	w.row = j
	x.obey(ctx, w)
}

// obey carries out the wish of a row.
func (x *watch) obey(ctx context.Context, w *watched) {
	suspender, can := x.kind.cfg.Runner.(runner.Suspender)
	was := w.wish
	w.wish = w.row.Wish
	switch {
	case w.wish == was:
	case w.wish == job.WishCancel:
		x.kill(w)
	case w.wish == job.WishPause && can:
		x.try("suspend", w, suspender.Suspend(ctx, w.handle))
	case w.wish == "" && can:
		x.try("resume", w, suspender.Resume(ctx, w.handle))
	}
}

func (x *watch) try(what string, w *watched, err error) {
	if err != nil {
		x.kind.cfg.Log.Error("a wish was not carried out", "wish", what, "job", w.row.ID, "error", err)
	}
}

// kill ends a program beside the loop, and tells the loop when nothing of it is alive.
func (x *watch) kill(w *watched) {
	if w.killing {
		return
	}
	w.killing = true
	ctx, id, handle := x.ctx, w.row.ID, w.handle
	x.wg.Go(func() {
		for {
			err := x.kind.cfg.Runner.Kill(ctx, handle, x.kind.cfg.Grace)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			x.kind.cfg.Log.Error("a program was not ended; trying again", "job", id, "error", err)
			select {
			case <-time.After(x.kind.cfg.Grace):
			case <-ctx.Done():
				return
			}
		}
		crash.At("watch.killed")
		select {
		case x.killed <- id:
		case <-ctx.Done():
		}
	})
}

// wake lets programs go on that the watcher before may have left suspended.
func (x *watch) wake(ctx context.Context) {
	suspender, can := x.kind.cfg.Runner.(runner.Suspender)
	for _, w := range x.jobs {
		if can && w.row.Wish == "" {
			x.try("resume", w, suspender.Resume(ctx, w.handle))
		}
	}
}

func (x *watch) all() []*watched { return slices.Collect(maps.Values(x.jobs)) }

// unsure returns the programs that have told their end, and those that nobody has looked at yet.
func (x *watch) unsure() []*watched {
	return slices.DeleteFunc(x.all(), func(w *watched) bool { return w.told == nil && w.looked })
}

// probe looks at programs, all in one call. A program is over when nothing of it is alive: what it leaves behind would
// go on writing. Its wrapper has a moment to go once it has told the end, for it may be stopped.
func (x *watch) probe(ctx context.Context, list []*watched) error {
	if len(list) == 0 {
		return nil
	}
	handles := make([]runner.Handle, len(list))
	for i, w := range list {
		handles[i] = w.handle
	}
	states, err := x.kind.cfg.Runner.Probe(ctx, handles)
	if err != nil {
		return x.unreachable(ctx, err)
	}
	var over []ending
	for i, s := range states {
		w := list[i]
		w.looked = true
		switch {
		case w.killing, s.State == runner.Active && w.told == nil:
		case s.State == runner.Active && time.Since(w.since) < patience:
			x.soon.Reset(lookAgain)
		case s.State == runner.Active, s.State == runner.Orphaned, s.Left:
			x.kill(w)
		case w.told != nil:
			over = append(over, *w.told)
		case s.State == runner.Ended, s.State == runner.Lost:
			over = append(over, ending{w: w, end: s.End})
		case !w.missed:
			w.missed = true
			x.kind.cfg.Log.Warn("it cannot be told what has become of a program: its folder cannot be reached", "job", w.row.ID, "folder", w.handle.Dir)
		}
	}
	return x.finish(ctx, over)
}

// sweep tidies up; what it cannot do now it does the next time.
func (x *watch) sweep(ctx context.Context) {
	if err := x.kind.Sweep(ctx, x.store); err != nil && ctx.Err() == nil {
		x.kind.cfg.Log.Warn("copies of results are left in archives", "error", err)
	}
}

// gone takes in that nothing of a program is alive after a kill.
func (x *watch) gone(ctx context.Context, id job.ID) error {
	w := x.jobs[id]
	if w == nil {
		return nil
	}
	states, err := x.kind.cfg.Runner.Probe(ctx, []runner.Handle{w.handle})
	if err != nil {
		return x.unreachable(ctx, err)
	}
	if w.told != nil {
		return x.finish(ctx, []ending{*w.told})
	}
	return x.finish(ctx, []ending{{w: w, end: states[0].End}})
}

// takeIn makes changes of the messages in the spool. One whose job is not yet in monitor stays; one whose job is past
// it goes.
func (x *watch) takeIn(ctx context.Context) error {
	if len(x.ends) == 0 {
		return nil
	}
	strangers := map[string]runner.Key{}
	fsys := x.kind.cfg.Host.Files()
	for name := range x.ends {
		key, _, err := runner.ParseEndName(name)
		if err != nil {
			delete(x.ends, name) // not a message
			continue
		}
		w := x.jobs[key.Job]
		if w == nil || w.handle.Key != key {
			strangers[name] = key
			continue
		}
		b, err := files.ReadFile(ctx, fsys, path.Join(x.kind.cfg.Spool, name))
		if ctx.Err() != nil || job.KindOf(err) == job.Unavailable {
			return x.unreachable(ctx, err)
		}
		delete(x.ends, name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				x.kind.cfg.Log.Error("a message of an end cannot be read; looking at the program instead", "job", key.Job, "error", err)
			}
			continue
		}
		end, err := runner.ParseEnd(name, b)
		switch {
		case err == nil && end.Token != w.handle.Token || w.told != nil && w.told.name != name:
			x.kind.cfg.Log.Warn("a message that is not of this launch, or a second one, is discarded", "job", key.Job, "name", name)
			x.discard(ctx, name)
			continue
		case err != nil:
			x.kind.cfg.Log.Error("a message of an end cannot be read; the program counts as lost", "job", key.Job, "error", err)
			w.told = &ending{w: w, name: name}
		default:
			w.told = &ending{w: w, end: &end, name: name}
		}
		w.since = time.Now()
		x.soon.Reset(0)
	}
	return x.sort(ctx, strangers)
}

// sort looks up the jobs of messages that fit no program known to run.
func (x *watch) sort(ctx context.Context, strangers map[string]runner.Key) error {
	if len(strangers) == 0 {
		return nil
	}
	ids := make([]job.ID, 0, len(strangers))
	for _, k := range strangers {
		ids = append(ids, k.Job)
	}
	found, err := x.store.Find(ctx, ids)
	if err != nil {
		return x.unreachable(ctx, err)
	}
	rows := map[job.ID]job.Job{}
	for _, j := range found {
		rows[j.ID] = j
	}
	again := false
	for name, k := range strangers {
		j, there := rows[k.Job]
		if !there || !j.Live || k.Launch < j.Launch {
			x.discard(ctx, name) // the job is past this launch
			continue
		}
		x.see(ctx, j)
		if w := x.jobs[k.Job]; w != nil && w.handle.Key == k {
			again = true
		}
	}
	if again {
		return x.takeIn(ctx)
	}
	return nil
}

// discard removes a message that has been taken in.
func (x *watch) discard(ctx context.Context, name string) {
	delete(x.ends, name)
	if name == "" {
		return
	}
	if err := x.kind.cfg.Host.Files().Remove(ctx, path.Join(x.kind.cfg.Spool, name)); err != nil && ctx.Err() == nil {
		x.kind.cfg.Log.Warn("a message of an end stays in the spool until the next start", "name", name, "error", err)
	}
	crash.At("watch.discarded")
}

// An ending is the end of a program, or without end the news that it is gone.
type ending struct {
	w    *watched
	end  *runner.End
	name string // of the message, if there was one
}

// finish puts jobs whose program is over back on their queue, all in one call, and removes the messages after that.
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
		case store.OK, store.Turned:
			delete(x.jobs, o.w.row.ID)
			x.discard(ctx, o.name)
		default:
			// The row moved meanwhile, or the duty has gone to another. The row tells which.
			rows, err := x.store.Find(ctx, []job.ID{o.w.row.ID})
			if err != nil {
				return x.unreachable(ctx, err)
			}
			for _, j := range rows {
				x.see(ctx, j)
			}
			switch {
			case x.jobs[o.w.row.ID] == o.w: // it stands as it stood: not at once again
				o.w.looked, o.w.killing = false, false
				x.soon.Reset(time.Second)
			case o.name != "":
				x.ends[o.name] = true
			}
		}
	}
	return nil
}

// change is what an end makes of the job: its results are to be archived, whatever the end.
func (o *ending) change(f job.Fence) job.Change {
	n := notes{Handle: &o.w.handle, End: o.end, Lost: o.end == nil}
	e := job.Entry{State: job.Archiving}
	switch {
	case o.end != nil:
		e.Message = fmt.Sprintf("ended with exit code %d", o.end.Code)
	case o.w.killing:
		e.Message = "the program was ended"
	default:
		e.Message = "the program is gone and left no exit code"
	}
	return job.Change{
		Job: o.w.row.ID, From: o.w.row.Guard(f), Path: []job.Entry{e}, To: job.Ready,
		Set: job.Patch{Over: true}, Work: n.encode(),
	}
}

// unreachable passes over an error that will go away: the next hint, or the next look at all programs, tries again.
func (x *watch) unreachable(ctx context.Context, err error) error {
	if ctx.Err() == nil && job.KindOf(err) != job.Unavailable {
		return fmt.Errorf("watch: %w", err)
	}
	if ctx.Err() == nil {
		x.kind.cfg.Log.Warn("watching is held up", "error", err)
	}
	return nil
}
