package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// A ledger is what jobs did, as they themselves wrote it.
type ledger struct {
	w *world

	mu       sync.Mutex
	runs     map[job.ID][]*taskRun // guarded by mu: of tasks
	launches map[job.ID][]*launch  // guarded by mu: of programs
	newest   map[string]job.ID     // guarded by mu: who began last, by order
}

// A taskRun is one call of a handler.
type taskRun struct {
	id    job.ID
	epoch int64
	p     *process
	last  time.Time // when it did something last
	ended time.Time // zero: it has not
}

// A launch is one start of a program.
type launch struct {
	runner.Key
	at, last time.Time
	ended    time.Time
}

func newLedger(w *world) *ledger {
	return &ledger{w: w, runs: map[job.ID][]*taskRun{}, launches: map[job.ID][]*launch{}, newest: map[string]job.ID{}}
}

func (l *ledger) jobs() int { return len(l.w.people.promised) }

func (l *ledger) begin(id job.ID, epoch int64, p *process) *taskRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.note(p.name, "begins with %s in epoch %d", id, epoch)
	for _, old := range l.runs[id] {
		if old.epoch == epoch {
			l.w.breaks(id, "task %s is run twice in epoch %d", id, epoch)
		}
	}
	r := &taskRun{id: id, epoch: epoch, p: p, last: time.Now()}
	l.runs[id] = append(l.runs[id], r)
	l.turns(id)
	return r
}

// beat: who heeds its context does nothing once a later run has, and nothing when the job has
// ended.
func (l *ledger) beat(r *taskRun, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.last = time.Now()
	l.w.note(r.p.name, "does something for %s in epoch %d", r.id, r.epoch)
	if deaf || r.p.justBack() {
		return
	}
	for _, other := range l.runs[r.id] {
		if other.epoch > r.epoch {
			l.w.breaks(r.id, "task %s does something in epoch %d, beside epoch %d", r.id, r.epoch, other.epoch)
		}
	}
	if j, there := l.w.judge.rows(r.id)[r.id]; there && j.State.Terminal() && j.Code != job.Abandoned {
		l.w.breaks(r.id, "task %s does something although it is %s", r.id, j.State)
	}
}

func (l *ledger) end(r *taskRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended = time.Now()
	l.w.note(r.p.name, "is done with %s in epoch %d", r.id, r.epoch)
}

// launched: the database knows of a launch before there is one, and of an attempt there is one.
func (l *ledger) launched(k runner.Key, m *machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.note(m.id, "starts %s", k)
	j := l.w.judge.rows(k.Job)[k.Job]
	if (!j.Live || j.Launch < k.Launch || j.Attempt != k.Attempt) && j.Code != job.Abandoned {
		l.w.breaks(k.Job, "%s is started, and the database knows of launch %d of attempt %d (live %t)", k, j.Launch,
			j.Attempt, j.Live)
	}
	for _, old := range l.launches[k.Job] {
		if old.Attempt == k.Attempt {
			l.w.breaks(k.Job, "%s is started, and so was launch %d", k, old.Launch)
		}
	}
	l.launches[k.Job] = append(l.launches[k.Job], &launch{Key: k, at: time.Now(), last: time.Now()})
	l.turns(k.Job)
}

func (l *ledger) ran(k runner.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.launches[k.Job]
	n[len(n)-1].last = time.Now()
	if j := l.w.judge.rows(k.Job)[k.Job]; (j.State == job.Canceled || j.State == job.Finished) &&
		j.Code != job.Abandoned {
		l.w.breaks(k.Job, "%s does something although the job is %s", k, j.State)
	}
}

func (l *ledger) over(k runner.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.launches[k.Job] {
		if n.Key == k {
			n.ended = time.Now()
		}
	}
	if j := l.w.judge.rows(k.Job)[k.Job]; j.State.Terminal() && j.State != job.Failed && j.Code != job.Abandoned {
		l.w.breaks(k.Job, "%s was alive although the job is %s", k, j.State)
	}
}

// inspect looks at what should not take long.
func (w *world) inspect(ctx context.Context) {
	var waits time.Time // since when the store is there
	for ctx.Err() == nil {
		time.Sleep(time.Second + 137*time.Microsecond)
		w.turns.inspect()
		w.trouble.inspect()
		if w.is(&w.away) {
			waits = time.Now()
		}
		long := 8 * w.lease
		well := slices.ContainsFunc(w.slots, func(s *slot) bool { p := s.process(); return p != nil && p.well(long) })
		if !well || time.Since(waits) < long || w.wild < 100 {
			continue
		}
		for _, j := range w.left() {
			if j.Suspect > 0 {
				w.judge.suspicion(&j)
			}
		}
		w.ledger.mu.Lock()
		for id, runs := range w.ledger.runs {
			r := runs[len(runs)-1]
			if r.ended.IsZero() || time.Since(r.ended) < long {
				continue
			}
			if j := w.judge.rows(id)[id]; j.Custody == job.Worker && j.Epoch == r.epoch {
				w.breaks(id, "job %s was done %v ago in epoch %d, and stands at %s", id, time.Since(r.ended),
					r.epoch, j.Place)
			}
		}
		w.ledger.mu.Unlock()
	}
}

// patience is for how long jobs may be on their way when all is well.
const patience = 40 * time.Minute

// drain waits until all jobs have ended.
func (w *world) drain() {
	long := patience
	if w.turns != nil && w.turns.ordered {
		long *= 2 // one goes after the other
	}
	for deadline := time.Now().Add(long); ; time.Sleep(5 * time.Second) {
		left := w.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, j := range left {
				w.breaks(j.ID, "job %s does not move on: it has stood at %s for %v (attempt %d, suspect %d, wish "+
					"%q, due %v, needs %d)",
					j.ID, j.Place, w.now().Sub(j.Since), j.Attempt, j.Suspect, j.Wish, j.Due, j.Needs)
			}
			return
		}
	}
}

func (w *world) all() []job.Job {
	page, err := w.store.List(context.Background(), store.Query{Tenant: tenant, Limit: 1000})
	if err != nil {
		panic(err)
	}
	return page.Jobs
}

func (w *world) left() []job.Job {
	return slices.DeleteFunc(w.all(), func(j job.Job) bool { return j.State.Terminal() })
}

// check looks at everything when all has come to rest.
func (w *world) check() {
	ctx := context.Background()
	storetest.Check(report{w}, w.store, tenant)
	there := map[job.ID]job.Job{}
	for _, j := range w.all() {
		full, err := store.FindJob(ctx, w.store, tenant, j.ID)
		if err != nil {
			panic(err)
		}
		there[j.ID] = full
	}
	for _, p := range w.people.promised {
		j, known := there[p.id]
		switch {
		case known:
			w.checkJob(&j, p)
		case !w.judge.removed[p.id]:
			w.breaks(p.id, "job %s was accepted, and is not there", p.id)
		}
	}
	w.checkLeft(there)
	w.checkOrders(there)
	w.rates.check()
	w.trouble.check()
	for id := range there {
		if _, ordered := w.people.orders[id]; !ordered {
			w.breaks(id, "nobody has submitted job %s", id)
		}
	}
}

func (w *world) history(id job.ID) []store.Event {
	es, err := w.store.Events(context.Background(), store.EventQuery{Tenant: tenant, Job: id, Limit: 10_000})
	if err != nil {
		panic(err)
	}
	return es.Events
}

// checkJob: a job ended as it should, and its history says how.
func (w *world) checkJob(j *job.Job, p promise) {
	q := w.people
	if _, err := store.FindJob(context.Background(), w.store, "another", j.ID); job.KindOf(err) != job.NotFound {
		w.breaks(j.ID, "job %s is shown to another tenant (%v)", j.ID, err)
	}
	if !j.State.Terminal() {
		return // drain has told of it
	}
	switch {
	case q.canceled[j.ID] && j.State != job.Canceled:
		w.breaks(j.ID, "the cancel of job %s was accepted, and it ended %s", j.ID, j.State)
	case j.State == job.Canceled && !q.asked[j.ID] && len(p.after) == 0:
		w.breaks(j.ID, "nobody has canceled job %s: %s %s", j.ID, j.Code, j.Message)
	case j.Code == job.InternalError && !p.order.Bad, j.Code == job.RecoveryLimit:
		w.breaks(j.ID, "job %s ended %s: %s", j.ID, j.Code, j.Message)
	case p.order.Bad && j.State == job.Finished:
		w.breaks(j.ID, "job %s is %s with a result that the store did not take", j.ID, j.State)
	case j.State == job.Finished && j.Attempt <= p.order.Fails:
		w.breaks(j.ID, "attempt %d of job %s was to fail, and it is FINISHED", j.Attempt, j.ID)
	case j.State == job.Failed && !p.order.Kills && !p.order.Bad && p.order.Fails == 0 && j.Code != job.TimeLimit &&
		w.calm && !w.trouble.ends(j.Code):
		w.breaks(j.ID, "job %s ended %s (%s): %s", j.ID, j.State, j.Code, j.Message)
	}
	var ready, began time.Time
	history := w.history(j.ID)
	for _, e := range history {
		if e.Sub > 0 {
			continue
		}
		switch {
		case e.Cause == job.CauseClaim:
			if began.IsZero() {
				began = e.At
			}
			// all are there by then
			if waited := e.At.Sub(ready); w.calm && waited > time.Second && ready.Sub(w.zero) > 10*time.Second {
				w.breaks(j.ID, "job %s was ready for %v although nothing was wrong", j.ID, waited)
			}
		}
		ready = e.At
	}
	if j.Code == job.Poison && !checks.Poisoned(history) {
		w.breaks(j.ID, "job %s is said to kill its processes, of which few have died", j.ID)
	}
	for _, a := range p.after {
		first, there := w.judge.rows(a.Job)[a.Job]
		if there && !began.IsZero() && (first.Ended.After(began) || !a.Need.Met(first.State)) {
			w.breaks(j.ID, "job %s began at %v, and its prerequisite ended %s at %v", j.ID, began, first.State,
				first.Ended)
		}
	}
	if !j.Program() && j.State == job.Finished {
		last := w.history(j.ID)
		var said string
		if json.Unmarshal(j.Result, &said) != nil || said != result(last[len(last)-1].Epoch) {
			w.breaks(j.ID, "the result of job %s is %s, and it was ended in epoch %d", j.ID, j.Result,
				last[len(last)-1].Epoch)
		}
	}
	if j.Program() && j.State == job.Finished &&
		!slices.ContainsFunc(w.ledger.launches[j.ID], func(n *launch) bool { return n.Attempt == j.Attempt }) {
		w.breaks(j.ID, "job %s is FINISHED, and attempt %d was never started", j.ID, j.Attempt)
	}
}

// checkEvents: who listens has heard of every event, in order, and of none that is not there.
func (w *world) checkEvents() {
	w.people.mu.Lock()
	defer w.people.mu.Unlock()
	for _, j := range w.all() {
		var missing []string
		last, got := heard{}, map[heard]bool{}
		for _, h := range w.people.heard[j.ID] {
			if h.n < last.n || h.n == last.n && h.sub < last.sub && !got[h] {
				w.breaks(j.ID, "event %d.%d of job %s was told after %d.%d", h.n, h.sub, j.ID, last.n, last.sub)
			}
			last = h
			got[h] = true
		}
		for _, e := range w.history(j.ID) {
			if h := (heard{e.N, e.Sub}); got[h] {
				delete(got, h)
			} else {
				missing = append(missing, fmt.Sprint(e.N, ".", e.Sub))
			}
		}
		if len(missing) > 0 || len(got) > 0 {
			w.breaks(j.ID, "of job %s the events %v were not told, and %v are not there", j.ID, missing, got)
		}
	}
}

// checkLeft: nothing is left behind.
func (w *world) checkLeft(there map[job.ID]job.Job) {
	ctx := context.Background()
	sessions, _ := w.store.Sessions(ctx)
	for i := range sessions {
		if sessions[i].Ended.IsZero() && sessions[i].Live || sessions[i].Held > 0 {
			w.breaks(sessions[i].Oldest.Job, "session %s is left, with %d jobs", sessions[i].ID, sessions[i].Held)
		}
	}
	if all, err := w.store.Turns(ctx, store.TurnQuery{Tenant: tenant}); err != nil || len(all) > 0 {
		w.breaks(job.ID{}, "turns are left: %+v, %v", all, err)
	}
	if all, err := w.store.Groups(ctx, store.GroupQuery{Tenant: tenant}); err != nil || len(all) > 0 {
		w.breaks(job.ID{}, "groups are left: %+v, %v", all, err)
	}
	if n, _, _ := w.store.Pay(ctx, 1000); n > 0 {
		w.breaks(job.ID{}, "%d follow-ups were not paid", n)
	}
	if n, _, _ := w.store.Recount(ctx, 1000); n != (store.Recounted{}) {
		w.breaks(job.ID{}, "what is counted is wrong: %+v", n)
	}
	for _, m := range w.machines {
		for _, p := range m.procs {
			if !w.people.abandoned[p.job] {
				w.breaks(p.job, "a program of job %s runs on machine %s", p.job, m.id)
			}
		}
		for _, dir := range []string{spool, "/work/.archiving", "/archive/.staging"} {
			for _, name := range m.list(dir) {
				if dir == spool && strings.HasPrefix(name, ".") { // rooms, and what watches note
					continue
				}
				plain := strings.TrimPrefix(name, ".pawl-")
				id, _ := job.ParseID(plain[:min(len(plain), 36)])
				w.breaks(id, "%s/%s is left on machine %s", dir, name, m.id)
			}
		}
		for _, name := range m.list(rooms) {
			k, _, err := runner.ParseEndName(name)
			j := there[k.Job]
			if err != nil || j.ID.IsZero() || j.State == job.Finished &&
				!strings.Contains(j.Message, "its folder is left") {
				w.breaks(k.Job, "%s/%s is left on machine %s", rooms, name, m.id)
			}
		}
		for _, name := range m.list("/work/" + tenant) {
			id, err := job.ParseID(name)
			if err != nil {
				w.breaks(job.ID{}, "/work/%s/%s is left", tenant, name)
			} else if j, known := there[id]; !known || j.State == job.Finished &&
				!strings.Contains(j.Message, "its folder is left") {
				w.breaks(id, "the folder of job %s is left, which is %q", id, j.State)
			}
		}
		for id, j := range there {
			if j.Program() && j.Machine == m.id && j.State == job.Finished {
				text, err := files.ReadFile(ctx, m.fs, path.Join("/archive", tenant, id.String(), "stdout"), 1<<20)
				if want := fmt.Sprintln(runner.Key{Job: id, Attempt: j.Attempt, Launch: j.Launch}); err != nil ||
					string(text) != want {
					w.breaks(id, "the results of job %s hold %q (%v), want %q", id, text, err, want)
				}
			}
		}
	}
}

func (m *machine) list(dir string) (names []string) {
	list, err := m.fs.List(context.Background(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

// report takes in what the check of a store says.
type report struct{ w *world }

func (report) Helper()             {}
func (report) Logf(string, ...any) {}
func (r report) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	_, rest, _ := strings.Cut(text, "job ")
	id, _, _ := strings.Cut(rest, ":")
	about, _ := job.ParseID(id)
	r.w.breaks(about, "%s", text)
}
func (r report) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

// story tells all that is known of the job that was broken first.
func (w *world) story() string {
	var b strings.Builder
	id := w.about
	if !id.IsZero() {
		fmt.Fprintf(&b, "order: %+v\nhistory:\n", w.order(id))
		for _, e := range w.history(id) {
			fmt.Fprintf(&b, "%12.6f n %d.%d epoch %d  %s/%s  %s by %q %s %s\n", e.At.Sub(w.zero).Seconds(), e.N,
				e.Sub, e.Epoch, e.State, e.Custody, e.Cause, e.Actor, e.Code, e.Message)
		}
	}
	b.WriteString("what happened:\n")
	for _, l := range w.trace.about(id) {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
