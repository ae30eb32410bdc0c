package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// A Watcher looks after the programs of one system while no worker has their jobs. The runner tells
// it of ends, and the broker of wishes. It makes one change of each end. Two watchers at once do no
// harm, because the rows decide.
type Watcher struct {
	kind   *Kind
	sys    *System
	store  store.Reader
	broker broker.Broker
	differ atomic.Pointer[Comparison]
}

const (
	// firstLook is when a program is looked at first: it may have died, and nobody told, before its
	// job came to the watcher.
	firstLook = time.Second
	// overlap is how far refresh goes back: an entry into monitor may be committed after a later
	// one. The look at all programs finds those that took longer.
	overlap = 500 * time.Millisecond
	// refreshGap is the least time between two refreshes for hints: launches of one moment are read
	// together. It grows with the time that reading takes, to ten times that.
	refreshGap, maxRefreshGap = 10 * time.Millisecond, 200 * time.Millisecond
)

// NewWatcher returns the watcher of a system. It does no I/O.
func NewWatcher(k *Kind, y *System, s store.Reader, b broker.Broker) *Watcher {
	return &Watcher{kind: k, sys: y, store: s, broker: b}
}

// Duty returns the duty to watch the programs of the system.
func (w *Watcher) Duty() engine.Duty {
	return engine.Duty{Name: job.WatchDuty(w.sys.Watch), Run: w.run}
}

// A watch is one term of the duty.
type watch struct {
	*Watcher
	held *engine.Held

	jobs   map[job.ID]*watched // in custody monitor, as far as known
	open   map[*watched]bool   // at least the programs to be looked at by next
	wishes map[job.ID]bool     // at least the jobs with a wish
	mark   time.Time           // newest entry into monitor that refresh has read
	soon   *time.Timer         // when to look at the programs of open
	next   time.Time           // to when soon is set; zero: to no moment
	late   *time.Timer         // when the first program reaches its time limit
	due    time.Time           // to when late is set; zero: to no moment
	early  []runner.Notice     // of launches that are not watched yet
	// past holds launches whose end was seen otherwise, and may still be told; false: of others.
	past   map[runner.Key]bool
	silent bool          // the runner cannot tell of ends now
	news   *time.Timer   // when to read what hints have told of
	read   time.Time     // when refresh was called last
	took   time.Duration // how long it read

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
	told     *runner.End      // its end was told; something of it may still be alive
	look     bool             // it is over only when a look finds nothing of it alive
	names    []string         // of notices of its end
	until    time.Time        // when its time is over, by the clock of this process; zero: never
	missed   bool             // it was logged that its state cannot be told
	expected time.Time        // when it is to begin, as was recorded

	suspended bool // this watch has suspended it
	awake     bool // it runs on, although it was recorded that it is to be suspended
}

func (w *Watcher) run(ctx context.Context, held *engine.Held) error {
	x := &watch{
		Watcher: w, held: held, jobs: map[job.ID]*watched{}, open: map[*watched]bool{},
		wishes: map[job.ID]bool{}, past: map[runner.Key]bool{}, kills: make(chan kill, maxKills),
		soon: time.NewTimer(time.Hour), late: time.NewTimer(time.Hour), news: time.NewTimer(time.Hour),
	}
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
		err, most := x.watch(ctx, told), time.Hour // then what is left there is removed
		switch {
		case errors.Is(err, errNothing):
		case ctx.Err() != nil || err != nil && job.KindOf(err) != job.Unavailable:
			return err
		default:
			err = cmp.Or(err, errors.New("the watch was lost"))
			held.Silent(err)
			if !x.silent { // it is tried each second while programs run, and told once
				x.silent = true
				w.kind.cfg.Log.Warn("the watch over ends was lost; watching anew", "watch", w.sys.Watch, "error", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			most = w.kind.cfg.Look
		}
		if err := x.rest(ctx, told, most); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// errNothing is why a watch ends where no program runs.
var errNothing = errors.New("no program runs there")

// rest leaves another machine alone until a program runs there, for so long at most. Meanwhile its
// connection can be closed.
func (x *watch) rest(ctx context.Context, told broker.Subscription, most time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	tick := time.Tick(x.kind.cfg.Look)
	for x.sys != x.kind.Local() {
		x.mark = time.Time{} // all jobs, also without a hint
		if err := x.readRows(ctx); err != nil || len(x.jobs) > 0 {
			return err
		}
		select {
		case <-told.Messages():
			drainHints(told)
		case <-told.Lost():
		case <-tick: // files that are to be removed are an exception
			x.kind.removeLate(ctx, x.sys) //nolint:errcheck // it is tried again
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// watch looks on until ctx ends or the runner's watch is lost.
func (x *watch) watch(ctx context.Context, told broker.Subscription) error {
	cfg := &x.kind.cfg
	ctx, stop := x.held.Context(ctx)
	ends, err := x.sys.Runner.Watch(ctx)
	if err != nil {
		stop()
		return err
	}
	defer func() {
		stop()
		for range ends { // until the runner is done
		}
	}()
	x.early = nil
	if err := x.refresh(ctx); err != nil {
		return err
	}
	select {
	case before, ok := <-ends: // before the probe: an end is better evidence than a folder that is gone
		if !ok {
			return nil
		}
		if _, err := x.takeIn(ctx, before); err != nil {
			return err
		}
	case <-ctx.Done():
		return nil
	}
	if err := x.probe(ctx, x.all()); err != nil {
		return err
	}
	x.held.Silent(nil)
	if x.silent {
		x.silent = false
		x.kind.cfg.Log.Info("ends are watched again", "watch", x.sys.Watch)
	}
	x.leftovers(ctx)
	x.compare(ctx)
	tick, gap := time.Tick(cfg.Look), cfg.Look
	if x.sys == x.kind.Local() {
		gap = min(gap, listenGap)
	}
	said := time.Tick(gap)
	x.listen(ctx)
	for {
		select {
		case news, ok := <-ends:
			if !ok {
				return nil
			}
			if err := x.hear(ctx, news); err != nil {
				return err
			}
		case <-told.Messages():
			drainHints(told)
			x.news.Reset(min(max(refreshGap, 10*x.took), maxRefreshGap) - time.Since(x.read))
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
		case <-x.late.C:
			if err := x.overdue(ctx); err != nil {
				return err
			}
		case <-x.soon.C:
			x.next = time.Time{}
			if err := x.probe(ctx, x.unsure()); err != nil {
				return err
			}
		case <-said:
			x.listen(ctx)
		case <-tick:
			clear(x.past)
			x.mark = time.Time{} // all jobs, also without a hint
			if err := x.refresh(ctx); err != nil {
				return err
			}
			if err := x.probe(ctx, x.all()); err != nil {
				return err
			}
			x.leftovers(ctx)
			if behind, unknown := x.Differ(); behind+unknown > 0 {
				x.compare(ctx)
			}
			if x.sys != x.kind.Local() && len(x.jobs)+len(x.early)+len(x.doomed)+x.dying == 0 {
				return errNothing
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func drainHints(told broker.Subscription) {
	for len(told.Messages()) > 0 { // one refresh sees to many
		<-told.Messages()
	}
}

// refresh reads what is new of jobs, and takes in what was told of them before.
func (x *watch) refresh(ctx context.Context) error {
	if err := x.readRows(ctx); err != nil {
		return err
	}
	return x.hear(ctx, nil)
}

// readRows reads the jobs that came into monitor, the jobs with a wish, and the jobs whose wish is
// being carried out.
func (x *watch) readRows(ctx context.Context) error {
	x.read = time.Now()
	since := x.mark
	if !since.IsZero() {
		since = since.Add(-overlap)
	}
	rows, err := x.store.Find(ctx, store.FindQuery{Watch: x.sys.Watch, Since: since})
	x.took = time.Since(x.read)
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
		if err := x.reread(ctx, ids...); err != nil {
			return err
		}
	}
	return nil
}

// reread takes in rows as they are now.
func (x *watch) reread(ctx context.Context, ids ...job.ID) error {
	rows, err := x.store.Find(ctx, store.FindQuery{IDs: ids})
	if err != nil {
		return x.unreachable(ctx, err)
	}
	for _, j := range rows {
		if err := x.see(ctx, j); err != nil {
			return err
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
		x.jobs[j.ID] = w
		if x.lookIn(firstLook, w); n.Limit > 0 {
			x.lookIn(n.Limit, w)
		}
	}
	j.Request, j.Resolved, j.Work = nil, nil, nil // there may be very many
	w.row = j
	if j.Wish != "" {
		x.wishes[j.ID] = true
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
	}
}

// record records something about a program that runs on. Its job stays in monitor. It reports
// whether that was written.
func (x *watch) record(ctx context.Context, w *watched, n progress, message string) (bool, error) {
	return x.move(ctx, w, n, job.Entry{State: w.row.State, Message: message})
}

// move is record with a state, which may be another than before.
func (x *watch) move(ctx context.Context, w *watched, n progress, e job.Entry) (bool, error) {
	answers, err := x.held.Apply(ctx, []job.Change{{
		Job: w.row.ID, From: w.row.Guard(x.held.Fence()), Path: []job.Entry{e}, To: job.Monitor, Work: n.encode(),
	}})
	if err != nil {
		return false, x.unreachable(ctx, err)
	}
	if answers[0].Outcome != store.OK {
		return false, x.reread(ctx, w.row.ID) // it moved meanwhile
	}
	w.row.N, w.row.State, w.row.Message, w.progress = answers[0].Now.N, e.State, e.Message, n
	return true, nil
}

// all returns all programs in the order of their jobs, so that they are handled in the same order
// each time.
func (x *watch) all() []*watched {
	return slices.SortedFunc(maps.Values(x.jobs),
		func(a, b *watched) int { return a.handle.Key.Job.Compare(b.handle.Key.Job) })
}

// lookIn makes the watch look at a program after d at the latest.
func (x *watch) lookIn(d time.Duration, w *watched) {
	x.open[w] = true
	if at := time.Now().Add(d); x.next.IsZero() || at.Before(x.next) {
		x.next = at
		x.soon.Reset(d)
	}
}

// unsure returns the programs that are to be looked at.
func (x *watch) unsure() (list []*watched) {
	for w := range x.open {
		if x.jobs[w.row.ID] == w {
			list = append(list, w)
		}
	}
	clear(x.open)
	slices.SortFunc(list, func(a, b *watched) int { return a.handle.Key.Job.Compare(b.handle.Key.Job) })
	return list
}

// probe looks at programs, all in one call. A program is over when nothing of it is alive:
// processes that it left would go on writing.
func (x *watch) probe(ctx context.Context, list []*watched) error {
	if len(list) == 0 {
		return nil
	}
	handles := make([]runner.Handle, len(list))
	for i, w := range list {
		handles[i] = w.handle
		delete(x.open, w)
	}
	states, err := x.sys.Runner.Probe(ctx, handles)
	if err != nil {
		for _, w := range list {
			x.lookIn(time.Second, w)
		}
		return x.unreachable(ctx, err)
	}
	var over []ending
	for i, s := range states {
		w := list[i]
		switch {
		case w.killing:
		case s.State == runner.Queued, s.State == runner.Active && w.told == nil:
			if err := x.goesOn(ctx, w, s); err != nil {
				return err
			}
		case s.State == runner.Active, s.State == runner.Orphaned, len(s.Left) > 0:
			if w.told != nil || s.State == runner.Ended {
				w.behind = s.Left
			}
			x.kill(w)
		case w.told == nil && s.State == runner.Dropped:
			if err := x.drop(ctx, w); err != nil {
				return err
			}
		case w.told != nil && (!w.look || s.State != runner.Unknown), s.State == runner.Ended, s.State == runner.Lost:
			over = append(over, w.ending(s))
		case !w.missed:
			w.missed = true
			x.kind.cfg.Log.Warn("it cannot be told what has become of a program: its folder cannot be reached",
				"job", w.row.ID, "folder", x.sys.folder(&w.row))
		}
	}
	return x.finish(ctx, over)
}

// goesOn takes in how a program does that is not over: whether it is queued, and how much of its
// time is left.
func (x *watch) goesOn(ctx context.Context, w *watched, s runner.Status) error {
	e := job.Entry{State: job.Running, Message: s.Reason}
	if s.State == runner.Queued {
		e = job.Entry{State: job.Queued, Message: s.Reason}
		if !s.Expected.IsZero() {
			e.Message += "; expected to begin at " + s.Expected.Format(time.RFC3339)
		}
	}
	if s.State == runner.Queued && s.Vague {
		x.lookIn(reasonSoon, w)
	}
	later := s.Expected.Sub(w.expected).Abs() > expectedStep && !s.Expected.IsZero()
	if e.State != w.row.State { // a scheduler has begun it, or has put it back into its queue
		w.suspended, w.awake = false, true
	}
	news := !strings.HasPrefix(w.row.Message, s.Reason) && (e.State == job.Queued && !w.suspended || w.row.Wish == "")
	if e.State != w.row.State || news || later {
		if _, err := x.move(ctx, w, w.progress, e); err != nil {
			return err
		}
		w.expected = s.Expected
	}
	if w.wish == job.WishPause {
		if err := x.suspend(ctx, w); err != nil {
			return err
		}
	}
	return x.time(ctx, w, s.Started)
}

// reasonSoon is when a launch is looked at again whose scheduler has not said yet why it waits.
const reasonSoon = 5 * time.Second

// expectedStep is by how much the time is to change at which a job is expected to begin, before
// that is recorded: schedulers think of another one each minute.
const expectedStep = 10 * time.Minute

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

// leftovers removes what is left behind. The next one does what this one cannot do.
func (x *watch) leftovers(ctx context.Context) {
	tell := func(err error, what string) {
		if err != nil && ctx.Err() == nil {
			x.kind.cfg.Log.Warn(what, "watch", x.sys.Watch, "error", err)
		}
	}
	tell(x.kind.RemoveLeftovers(ctx, x.sys, x.store), "copies of results are left in archives")
	tell(x.kind.removeLate(ctx, x.sys), "files of jobs that were deleted are left")
	tell(x.kind.copies.Forget(ctx, x.sys.shared()), "copies of inputs that jobs share are kept for longer")
	tell(x.sys.Runner.Forget(ctx, x.kind.cfg.Remember), "marks of jobs that were cleaned are kept for longer")
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
