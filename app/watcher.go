package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// A Watcher looks after the programs of one system while no worker has their jobs. The spool tells
// it of ends, the broker of wishes, and the host of children that died without a message. It makes
// one change of each end. Two watchers at once do no harm, because the rows decide.
type Watcher struct {
	kind   *Kind
	sys    *System
	store  store.Reader
	broker broker.Broker

	exited chan struct{} // there are exits
	differ atomic.Pointer[Report]
	mu     sync.Mutex
	exits  []host.Process // guarded by mu: children that have died since the watcher looked
}

// The times of a wrapper that has told its end.
const (
	// wrapperGrace is how long such a wrapper may take to go. Meanwhile it is looked at every
	// lookAgain.
	wrapperGrace = 200 * time.Millisecond
	lookAgain    = 2 * time.Millisecond
)

// overlap is how far refresh goes back: an entry into monitor may be committed after a later one.
// The look at all programs finds those that took longer.
const overlap = 500 * time.Millisecond

// refreshGap is the least time between two refreshes for hints. Launches of one moment are read
// together, and ends wait less often.
const refreshGap = 50 * time.Millisecond

// maxExits is how many dead children are kept for a watcher that does not look. The watcher finds
// the others when it begins, or when it looks at all programs.
const maxExits = 100_000

// NewWatcher returns the watcher of a system. It does no I/O.
func NewWatcher(k *Kind, y *System, s store.Reader, b broker.Broker) *Watcher {
	return &Watcher{kind: k, sys: y, store: s, broker: b, exited: make(chan struct{}, 1)}
}

// Exited tells the watcher that a process of its host has died. It does not block and is safe for
// concurrent use.
func (w *Watcher) Exited(p host.Process) {
	w.mu.Lock()
	if w.exits = append(w.exits, p); len(w.exits) > maxExits {
		w.exits = w.exits[len(w.exits)-maxExits/2:] // nobody watches here
	}
	w.mu.Unlock()
	select {
	case w.exited <- struct{}{}:
	default:
	}
}

// Duty returns the duty to watch the programs of the system.
func (w *Watcher) Duty() engine.Duty {
	return engine.Duty{Name: job.WatchDuty(w.sys.Watch), Run: w.run}
}

// A watch is one term of the duty.
type watch struct {
	*Watcher
	held *engine.Held

	caution caution
	jobs    map[job.ID]*watched       // in custody monitor, as far as known
	runs    map[host.Process]*watched // the same, by the process that runs it
	// at least the programs that have told their end, or were not looked at yet
	open   map[*watched]bool
	wishes map[job.ID]bool // at least the jobs with a wish
	mark   time.Time       // newest entry into monitor that refresh has read
	soon   *time.Timer     // when to look again at programs that have told their end
	next   time.Time       // to when soon is set; zero: to no moment
	late   *time.Timer     // when the first program reaches its time limit
	due    time.Time       // to when late is set; zero: to no moment
	ends   map[string]bool // names in the spool that have not been taken in
	// past holds names of messages that have not come: the end of the program was seen without
	// them.
	past   map[string]bool
	silent bool        // the spool cannot be watched now
	news   *time.Timer // when to read what hints have told of
	read   time.Time   // when refresh was called last

	ctx   context.Context // of the term: kills outlast a watch that is lost
	wg    sync.WaitGroup
	kills chan kill // news of them

	doomed []doomed // to be ended when there is room
	dying  int      // how many are being ended
}

// A watched is a job in custody monitor.
type watched struct {
	row      job.Job // without its documents
	progress progress
	handle   runner.Handle
	wish     job.Wish // the wish that is being carried out
	killing  bool
	spare    func()           // ends the kill
	behind   []runner.Remnant // processes that the program had left when it ended
	told     *ending          // its message has come; something of it may still be alive
	since    time.Time        // when it came
	looked   bool             // it was probed since it came into monitor
	missed   bool             // it was logged that its state cannot be told
}

func (w *Watcher) run(ctx context.Context, held *engine.Held) error {
	x := &watch{
		Watcher: w, held: held, jobs: map[job.ID]*watched{},
		runs: map[host.Process]*watched{}, open: map[*watched]bool{}, wishes: map[job.ID]bool{},
		ends: map[string]bool{}, past: map[string]bool{}, kills: make(chan kill, maxKills),
		soon: time.NewTimer(time.Hour), late: time.NewTimer(time.Hour), news: time.NewTimer(time.Hour),
	}
	defer x.soon.Stop()
	defer x.late.Stop()
	defer x.news.Stop()
	x.caution = newCaution(ctx, w.sys.Host.Files(), w.sys.Spool)
	defer x.caution.end(ctx)
	ctx, stop := held.Context(ctx)
	x.ctx = ctx
	defer x.wg.Wait()
	defer stop()
	told, err := w.broker.Subscribe(ctx, engine.WatchTopic(w.sys.Watch))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer told.Close()
	for {
		err := x.watch(ctx, told)
		if ctx.Err() != nil || err != nil && job.KindOf(err) != job.Unavailable {
			return err
		}
		if !x.silent { // it is tried each second, and told once
			x.silent = true
			w.kind.cfg.Log.Warn("the watch on the spool was lost; watching anew", "watch", w.sys.Watch, "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// watch looks on until ctx ends or the watch on the spool is lost. It begins to watch before it
// lists.
func (x *watch) watch(ctx context.Context, told broker.Subscription) error {
	cfg := &x.kind.cfg
	ctx, stop := x.held.Context(ctx)
	defer stop()
	events, err := x.sys.Host.Watch(ctx, x.sys.Spool)
	if err != nil {
		return fmt.Errorf("watch %s: %w", x.sys.Spool, err)
	}
	if err := x.refresh(ctx); err != nil {
		return err
	}
	if err := x.list(ctx); err != nil {
		return err
	}
	if err := x.takeIn(ctx); err != nil { // before the probe: a message is better evidence than a folder that is gone
		return err
	}
	if err := x.probe(ctx, x.all()); err != nil {
		return err
	}
	x.caution.relax()
	if x.silent {
		x.silent = false
		x.kind.cfg.Log.Info("the spool is watched again", "watch", x.sys.Watch)
	}
	x.sweep(ctx)
	x.compare(ctx)
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
			x.news.Reset(max(0, refreshGap-time.Since(x.read)))
		case <-x.news.C:
			if err := x.refresh(ctx); err != nil {
				return err
			}
		case <-told.Lost():
			if err := x.refresh(ctx); err != nil {
				return err
			}
		case k := <-x.kills:
			if err := x.ended(ctx, k); err != nil {
				return err
			}
		case <-x.exited:
			if err := x.probe(ctx, x.dead()); err != nil {
				return err
			}
		case <-x.late.C:
			if err := x.overtime(ctx); err != nil {
				return err
			}
		case <-x.soon.C:
			x.next = time.Time{}
			if err := x.probe(ctx, x.unsure()); err != nil {
				return err
			}
		case <-tick.C:
			clear(x.past)
			x.mark = time.Time{} // all jobs, also without a hint
			if err := x.refresh(ctx); err != nil {
				return err
			}
			if err := x.probe(ctx, x.all()); err != nil {
				return err
			}
			if err := x.overtime(ctx); err != nil { // a timer stands still while the machine sleeps
				return err
			}
			x.sweep(ctx)
			if behind, unknown := x.Differ(); behind+unknown > 0 {
				x.compare(ctx)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// drain notes an event and the events that wait behind it.
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
	names, err := files.Names(ctx, x.sys.Host.Files(), x.sys.Spool)
	if err != nil {
		return fmt.Errorf("list %s: %w", x.sys.Spool, err)
	}
	for _, name := range names {
		x.ends[name] = true
	}
	return nil
}

// refresh reads the jobs that came into monitor, the jobs with a wish, and the jobs whose wish is
// being carried out.
func (x *watch) refresh(ctx context.Context) error {
	x.read = time.Now()
	since := x.mark
	if !since.IsZero() {
		since = since.Add(-overlap)
	}
	rows, err := x.store.Find(ctx, store.FindQuery{Watch: x.sys.Watch, Since: since})
	if err != nil {
		return x.unreachable(ctx, err)
	}
	fresh := make(map[job.ID]bool, len(rows))
	for _, j := range rows {
		fresh[j.ID] = true
		if j.Since.After(x.mark) { // only here: a row that is seen elsewhere says nothing about earlier ones
			x.mark = j.Since
		}
		if err := x.see(ctx, j); err != nil {
			return err
		}
	}
	var back []job.ID // their wish may have been taken back
	for id := range x.wishes {
		if w := x.jobs[id]; w == nil || w.wish == "" {
			delete(x.wishes, id)
		} else if !fresh[id] {
			back = append(back, id)
		}
	}
	slices.SortFunc(back, job.ID.Compare)
	for ids := range slices.Chunk(back, 500) { // a row has documents, and there may be very many
		rows, err := x.store.Find(ctx, store.FindQuery{IDs: ids})
		if err != nil {
			return x.unreachable(ctx, err)
		}
		for _, j := range rows {
			if err := x.see(ctx, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// see takes in a row.
func (x *watch) see(ctx context.Context, j job.Job) error {
	if j.Custody != job.Monitor {
		x.forget(j.ID)
		return nil
	}
	w := x.jobs[j.ID]
	fresh := w == nil || w.row.Epoch != j.Epoch
	if fresh {
		var n progress
		if err := json.Unmarshal(j.Work, &n); err != nil || n.Handle == nil {
			x.kind.cfg.Log.Error("a running job has no handle", "job", j.ID, "error", err)
			return nil
		}
		x.forget(j.ID)
		w = &watched{progress: n, handle: *n.Handle}
		x.jobs[j.ID], x.runs[w.handle.Process], x.open[w] = w, w, true
		x.lookIn(0) // it may have died before it came here
	}
	j.Request, j.Resolved, j.Work = nil, nil, nil // there may be very many
	w.row = j
	if j.Wish != "" {
		x.wishes[j.ID] = true
	}
	if fresh { // last: after an error the look at all programs sets the timer
		if err := x.time(ctx, w); err != nil {
			if err := x.unreachable(ctx, err); err != nil {
				return err
			}
		}
	}
	return x.obey(ctx, w)
}

// forget drops a job that has left monitor, or has come into it again.
func (x *watch) forget(id job.ID) {
	if w := x.jobs[id]; w != nil {
		if w.spare != nil {
			w.spare()
		}
		delete(x.jobs, id)
		delete(x.runs, w.handle.Process)
	}
}

// record records something about a program that runs on. Its job stays in monitor. It reports
// whether that was written.
func (x *watch) record(ctx context.Context, w *watched, n progress, message string) (bool, error) {
	answers, err := x.held.Apply(ctx, []job.Change{{
		Job: w.row.ID, From: w.row.Guard(x.held.Fence()), Path: []job.Entry{{State: w.row.State, Message: message}},
		To: job.Monitor, Work: n.encode(),
	}})
	if err != nil {
		return false, x.unreachable(ctx, err)
	}
	if answers[0].Outcome != store.OK {
		rows, err := x.store.Find(ctx, store.FindQuery{IDs: []job.ID{w.row.ID}}) // it moved meanwhile
		if err != nil {
			return false, x.unreachable(ctx, err)
		}
		for _, j := range rows {
			if err := x.see(ctx, j); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	w.row.N, w.progress = answers[0].Now.N, n
	return true, nil
}

// all returns all programs in the order of their jobs, so that they are handled in the same order
// each time.
func (x *watch) all() []*watched {
	return slices.SortedFunc(maps.Values(x.jobs),
		func(a, b *watched) int { return a.handle.Key.Job.Compare(b.handle.Key.Job) })
}

// dead returns the programs whose process has died.
func (x *watch) dead() (list []*watched) {
	x.mu.Lock()
	exits := x.exits
	x.exits = nil
	x.mu.Unlock()
	for _, p := range exits {
		// of the others those that are programs are looked at when they come into monitor
		if w := x.runs[p]; w != nil && !w.killing {
			list = append(list, w)
		}
	}
	return list
}

// lookIn makes the watch look at the programs of unsure, after d at the latest.
func (x *watch) lookIn(d time.Duration) {
	if at := time.Now().Add(d); x.next.IsZero() || at.Before(x.next) {
		x.next = at
		x.soon.Reset(d)
	}
}

// unsure returns the programs that have told their end, and those that must be looked at.
func (x *watch) unsure() (list []*watched) {
	for w := range x.open {
		if x.jobs[w.row.ID] != w || w.told == nil && w.looked {
			delete(x.open, w)
			continue
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *watched) int { return a.handle.Key.Job.Compare(b.handle.Key.Job) })
	return list
}

// probe looks at programs, all in one call. A program is over when nothing of it is alive:
// processes that it left would go on writing. Its wrapper gets a moment to go after it has told the
// end.
func (x *watch) probe(ctx context.Context, list []*watched) error {
	if len(list) == 0 {
		return nil
	}
	handles := make([]runner.Handle, len(list))
	for i, w := range list {
		handles[i] = w.handle
	}
	states, err := x.look(ctx, handles)
	if err != nil {
		return x.unreachable(ctx, err)
	}
	var over []ending
	for i, s := range states {
		w := list[i]
		w.looked = true
		switch {
		case w.killing, s.State == runner.Active && w.told == nil:
		case s.State == runner.Active && time.Since(w.since) < wrapperGrace:
			x.lookIn(lookAgain)
		case s.State == runner.Active, s.State == runner.Orphaned, len(s.Left) > 0:
			if w.told != nil || s.State == runner.Ended {
				w.behind = s.Left
			}
			x.kill(w)
		case w.told != nil:
			over = append(over, w.told.with(s))
		case s.State == runner.Ended, s.State == runner.Lost:
			over = append(over, (&ending{w: w, end: s.End}).with(s))
		case !w.missed:
			w.missed = true
			x.kind.cfg.Log.Warn("it cannot be told what has become of a program: its folder cannot be reached",
				"job", w.row.ID, "folder", w.handle.Dir)
		}
	}
	return x.finish(ctx, over)
}

// maxCompared is how many jobs are compared with their rows when a watch begins: the newest,
// because after a restore the database knows least of them.
const maxCompared = 1000

// compare sees whether the host knows of jobs that the database does not know, and logs that once.
func (x *watch) compare(ctx context.Context) {
	rep, err := x.kind.Compare(ctx, x.sys, x.store, maxCompared)
	if err != nil {
		if ctx.Err() == nil {
			x.kind.cfg.Log.Warn("the database was not compared with what this machine knows of jobs", "error", err)
		}
		return
	}
	was := x.differ.Swap(&rep)
	if len(rep.Behind)+len(rep.Unknown) > 0 &&
		(was == nil || len(was.Behind) != len(rep.Behind) || len(was.Unknown) != len(rep.Unknown)) {
		x.kind.cfg.Log.Warn("this machine knows of jobs that the database does not, as after a restore to an "+
			"earlier point in time: pawl reconcile tells which",
			"behind", len(rep.Behind), "unknown", len(rep.Unknown))
	}
}

// Differ returns how many rows are behind what the machine knows, and how many jobs the machine
// knows and the database does not. It knows only in the process that watches; elsewhere both are 0.
func (w *Watcher) Differ() (behind, unknown int) {
	if rep := w.differ.Load(); rep != nil {
		return len(rep.Behind), len(rep.Unknown)
	}
	return 0, 0
}

// sweep tidies up. The next sweep does what this one cannot do.
func (x *watch) sweep(ctx context.Context) {
	if err := x.kind.Sweep(ctx, x.sys, x.store); err != nil && ctx.Err() == nil {
		x.kind.cfg.Log.Warn("copies of results are left in archives", "error", err)
	}
	if err := x.sys.Runner.Forget(ctx, x.kind.cfg.Remember); err != nil && ctx.Err() == nil {
		x.kind.cfg.Log.Warn("marks of jobs that were cleaned are kept for longer", "error", err)
	}
}

// unreachable passes over an error that will go away: the next hint, or the next look at all
// programs, tries again.
func (x *watch) unreachable(ctx context.Context, err error) error {
	if ctx.Err() == nil && job.KindOf(err) != job.Unavailable {
		return fmt.Errorf("watch: %w", err)
	}
	if ctx.Err() == nil {
		x.kind.cfg.Log.Warn("watching is held up", "error", err)
	}
	return nil
}
