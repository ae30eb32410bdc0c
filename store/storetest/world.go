package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// What tests use when they do not say otherwise.
const (
	acme    = "acme"          // the tenant
	ann     = "ann"           // the principal
	lease   = time.Minute     // no machine is so slow that one runs out by itself
	margin  = 5 * time.Second // by how much the clock of a test is before the end of a lease, or behind it
	machine = "m1"
	task    = "send"  // a kind that is a task
	watch   = "watch" // a duty
)

// A world is one store and its clock, in words that make a test read like sentences. Methods end
// the test when the store answers with an error; tests that want the error ask the store itself.
type world struct {
	TB
	t     *testing.T // nil inside a property
	open  func(t *testing.T) (store.Store, Clock)
	s     store.Store
	clock Clock
	ctx   context.Context
	told  map[store.Passing]int // of how many passages its calls of Due and Apply have told
}

func newWorld(t *testing.T, open func(t *testing.T) (store.Store, Clock)) *world {
	s, clock := open(t)
	return &world{TB: t, t: t, open: open, s: s, clock: clock, ctx: t.Context()}
}

// fresh runs a part of a test on a store of its own.
func (w *world) fresh(name string, run func(*world)) {
	w.t.Run(name, func(t *testing.T) {
		t.Parallel()
		run(newWorld(t, w.open))
	})
}

// again goes on with the store opened anew, where that can be done.
func (w *world) again() {
	w.Helper()
	if o, can := w.clock.(Opener); can {
		w.s = o.Open(w.t)
	}
}

// submit submits jobs in one call and returns its answers.
func (w *world) submit(jobs ...store.New) []store.Submitted {
	w.Helper()
	got, _, err := w.s.Submit(w.ctx, submission(jobs...))
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	if len(got) != len(jobs) {
		w.Fatalf("submit of %d jobs: %d answers", len(jobs), len(got))
	}
	return got
}

// add submits one job and returns its id.
func (w *world) add(n store.New) job.ID {
	w.Helper()
	return w.submit(n)[0].ID
}

// addMany submits n tasks in one call and returns their ids.
func (w *world) addMany(n int, options ...option) []job.ID {
	w.Helper()
	jobs := make([]store.New, n)
	for i := range jobs {
		jobs[i] = newTask(options...)
	}
	return idsOf(w.submit(jobs...))
}

func idsOf(answers []store.Submitted) []job.ID {
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
	}
	return ids
}

// session begins a session.
func (w *world) session() job.ID {
	w.Helper()
	return w.sessionFor(lease)
}

// sessionFor begins a session with a lease of its own: one that works for long must not depend on
// how fast the machine is.
func (w *world) sessionFor(lease time.Duration) job.ID {
	w.Helper()
	id := job.NewID()
	if err := w.s.Begin(w.ctx, store.Session{
		ID: id, Process: store.Process{Host: "host", PID: 1},
		Lease: lease,
	}); err != nil {
		w.Fatalf("begin: %v", err)
	}
	return id
}

// end ends a session in good order.
func (w *world) end(session job.ID) store.Effects {
	w.Helper()
	effects, err := w.s.End(w.ctx, session)
	if err != nil {
		w.Fatalf("end: %v", err)
	}
	return effects
}

// renew renews a session that serves everything and wants the duties.
func (w *world) renew(session job.ID, duties ...string) store.Renewal {
	w.Helper()
	r, err := w.s.Renew(w.ctx, renewal(session, duties...))
	if err != nil {
		w.Fatalf("renew: %v", err)
	}
	return r
}

func renewal(session job.ID, duties ...string) store.Renew {
	return store.Renew{
		Session: session, Lease: lease, Duties: duties,
		Queues: []string{job.DefaultQueue}, Kinds: []string{task, job.KindApp}, Machine: machine,
	}
}

// duty makes the session hold a duty and returns its fence.
func (w *world) duty(session job.ID, name string) job.Fence {
	w.Helper()
	for _, d := range w.renew(session, name).Duties {
		if d.Name == name {
			return job.Fence{Duty: name, Term: d.Term}
		}
	}
	w.Fatalf("session %s did not get duty %s", session, name)
	return job.Fence{}
}

// wanted is a claim for up to n jobs in each lane of everything there is.
func wanted(session job.ID, n int) store.Claim {
	c := store.Claim{
		ID: job.NewID(), Session: session, Queues: []string{job.DefaultQueue},
		Kinds: []string{task, job.KindApp}, Machine: machine, Slots: map[job.Lane]int{},
	}
	for _, lane := range job.Lanes {
		c.Slots[lane] = n
	}
	return c
}

// claim makes a claim.
func (w *world) claim(c store.Claim) []job.Job {
	w.Helper()
	jobs, err := w.s.Claim(w.ctx, c)
	if err != nil {
		w.Fatalf("claim: %v", err)
	}
	for _, j := range jobs {
		if j.Custody != job.Worker || j.Session != c.Session || j.Claim != c.ID {
			w.Fatalf("claim %s by %s answered a job that it does not hold: %+v", c.ID, c.Session, j)
		}
	}
	return jobs
}

// claimOne claims the one job that there is to claim.
func (w *world) claimOne(session job.ID) job.Job {
	w.Helper()
	jobs := w.claim(wanted(session, 10))
	if len(jobs) != 1 {
		w.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

// by is the fence of a session.
func by(session job.ID) job.Fence { return job.Fence{Session: session} }

// move is the change of j along states into a custody. Ends get the code that goes with them, and
// BLOCKED and PAUSED resume where j stands or, when it has no such place, at the beginning. If a
// job was claimed with the intent to launch it, nothing is launched.
func move(j job.Job, f job.Fence, to job.Custody, states ...job.State) job.Change {
	c := job.Change{Job: j.ID, From: j.Guard(f), To: to, Set: job.Patch{Over: j.Intended()}}
	for _, s := range states {
		e := job.Entry{State: s}
		switch s {
		case job.Finished:
			e.Code = job.NormalCompletion
		case job.Failed:
			e.Code, e.Message = job.TaskFailed, "it did not work"
		case job.Canceled:
			e.Code = job.CanceledByUser
		case job.Blocked, job.Paused:
			if s == job.Blocked {
				c.Set.Block = full()
				e.Code, e.Message = c.Set.Block.Code, c.Set.Block.Message
			}
			c.Set.Resume = job.Pending
			if job.Resumable(j.State) && job.Edge(s, j.State) {
				c.Set.Resume = j.State
			}
		}
		c.Path = append(c.Path, e)
	}
	return c
}

// full is a block by a disk that is full.
func full() *job.Block {
	return &job.Block{
		Code: job.FilesystemFull, Message: "no space left on /data", Tester: "space",
		Params: map[string]string{"path": "/data"},
	}
}

// finish is the change that ends the task or the archiving program j well.
func finish(j job.Job, f job.Fence) job.Change { return move(j, f, job.None, job.Finished) }

// setting returns c with what it sets.
func setting(c job.Change, set job.Patch) job.Change {
	if set.Resume == "" {
		set.Resume = c.Set.Resume
	}
	set.Over = set.Over || c.Set.Over && !set.Intent
	c.Set = set
	return c
}

// apply makes one change and returns its answer.
func (w *world) apply(c job.Change) store.Applied {
	w.Helper()
	return w.applyAll(c)[0]
}

// applyAll makes changes in one call and returns the answers.
func (w *world) applyAll(changes ...job.Change) []store.Applied {
	w.Helper()
	got, _, eff, err := w.s.Apply(w.ctx, changes, nil)
	if err != nil {
		w.Fatalf("apply: %v", err)
	}
	w.tells(eff)
	if len(got) != len(changes) {
		w.Fatalf("apply of %d changes: %d answers", len(changes), len(got))
	}
	return got
}

// must makes one change that is to be applied as it is, and returns the job after it.
func (w *world) must(c job.Change) job.Job {
	w.Helper()
	if got := w.apply(c); got.Outcome != store.OK {
		w.Fatalf("change %+v: %s, now %+v", c, got.Outcome, got.Now)
	}
	return w.job(c.Job)
}

// job reads a job.
func (w *world) job(id job.ID) job.Job {
	w.Helper()
	j, err := store.FindJob(w.ctx, w.s, acme, id)
	if err != nil {
		w.Fatalf("job %s: %v", id, err)
	}
	return j
}

// jobs reads jobs as they are now.
func (w *world) jobs(ids ...job.ID) []job.Job {
	w.Helper()
	found := findAll(w, w.s, acme, ids)
	jobs := make([]job.Job, len(ids))
	for i, id := range ids {
		j, there := found[id]
		if !there {
			w.Fatalf("job %s is not there", id)
		}
		jobs[i] = j
	}
	return jobs
}

// history reads the events of a job that tell of a change.
func (w *world) history(id job.ID) []job.Event {
	w.Helper()
	j := w.job(id)
	return changesOf(readHistory(w, w.s, &j))
}

// event returns event n of a job.
func (w *world) event(id job.ID, n int64) job.Event {
	w.Helper()
	events := w.history(id)
	if n > int64(len(events)) {
		w.Fatalf("job %s has %d events, want %d at least", id, len(events), n)
	}
	return events[n-1]
}

// path returns the states that a job has passed.
func (w *world) path(id job.ID) []job.State {
	w.Helper()
	var states []job.State
	for _, e := range w.history(id) {
		states = append(states, e.State)
	}
	return states
}

// at fails the test unless each job stands at the place.
func (w *world) at(state job.State, custody job.Custody, ids ...job.ID) {
	w.Helper()
	for _, j := range w.jobs(ids...) {
		if j.State != state || j.Custody != custody {
			w.Errorf("job %s is at %s, want %s/%s", j.ID, j.Place, state, custody)
		}
	}
}

// wish wishes something of one job and returns the answer.
func (w *world) wish(wish job.Wish, id job.ID) store.Wished {
	w.Helper()
	got, _ := w.wishAll(wish, id)
	return got[0]
}

func (w *world) wishAll(wish job.Wish, ids ...job.ID) ([]store.Wished, store.Effects) {
	w.Helper()
	got, effects, err := w.s.Wish(w.ctx, store.Wish{Tenant: acme, By: ann, Wish: wish, Jobs: ids})
	if err != nil {
		w.Fatalf("wish: %v", err)
	}
	if len(got) != len(ids) {
		w.Fatalf("wish for %d jobs: %d answers", len(ids), len(got))
	}
	return got, effects
}

// pay pays everything that is owed.
func (w *world) pay() {
	w.Helper()
	w.payBy(1000)
}

// payBy pays everything that is owed in steps of limit and returns their number.
func (w *world) payBy(limit int) int {
	w.Helper()
	for steps := 1; steps <= 100_000; steps++ {
		n, effects, err := w.s.Pay(w.ctx, limit)
		if err != nil {
			w.Fatalf("pay: %v", err)
		}
		if n > limit {
			w.Fatalf("pay paid %d rows, the limit is %d", n, limit)
		}
		if !effects.Owed {
			return steps
		}
	}
	w.Fatalf("paying never ends")
	return 0
}

// expire takes the jobs of all sessions that are not alive and returns their number.
func (w *world) expire() int {
	w.Helper()
	const limit = 100
	for total := 0; ; {
		n, _, err := w.s.Expire(w.ctx, limit)
		if err != nil {
			w.Fatalf("expire: %v", err)
		}
		if total += n; n < limit {
			return total
		}
	}
}

// due moves the jobs that are due and returns their number.
func (w *world) due() int {
	w.Helper()
	n, _, err := w.s.Due(w.ctx, 1000)
	if err != nil {
		w.Fatalf("due: %v", err)
	}
	return n
}

// A standing job is at the place that a test wants, with the session and the fence that may change
// it.
type standing struct {
	job.Job
	session job.ID    // one that lives, and holds the job in custody worker
	fence   job.Fence // that may change the job now: of the session, or the duty watch
}

// places are one in each custody that jobs have until they end.
var places = []job.Place{
	{State: job.Waiting, Custody: job.Gate},
	{State: job.Pending, Custody: job.Ready},
	{State: job.StagingInputs, Custody: job.Worker},
	{State: job.Running, Custody: job.Monitor},
	{State: job.Blocked, Custody: job.Recovery},
	{State: job.Paused, Custody: job.User},
}

// stand makes a program that stands at the place. In custody monitor its launch is live.
func (w *world) stand(state job.State, custody job.Custody, options ...option) standing {
	w.Helper()
	st := standing{session: w.session()}
	n := newProgram(append([]option{on(machine)}, options...)...)
	if state == job.Waiting {
		n.Delay = time.Hour
	}
	st.Job = w.job(w.add(n))
	st.fence = by(st.session)
	switch {
	case state == job.Waiting, state == job.Pending:
		return st
	case state == job.Paused:
		w.wish(job.WishPause, st.ID)
		st.Job = w.job(st.ID)
		return st
	}
	claim := wanted(st.session, 0)
	claim.Slots[job.LanePrepare] = 1
	if jobs := w.claim(claim); len(jobs) != 1 || jobs[0].ID != st.ID {
		w.Fatalf("claimed %d jobs, want only the new one", len(jobs))
	} else {
		st.Job = jobs[0]
	}
	way := []job.State{job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.SubmittingJob}
	for _, s := range way[1:] {
		if st.State == state || state == job.Blocked {
			break
		}
		st.Job = w.must(move(st.Job, st.fence, job.Worker, s))
	}
	switch state {
	case job.Queued, job.Running:
		st.Job = w.must(setting(move(st.Job, st.fence, job.Worker, job.SubmittingJob), job.Patch{Intent: true}))
		st.Job = w.must(move(st.Job, st.fence, job.Monitor, state))
		st.fence = w.duty(st.session, watch)
	case job.Archiving:
		st.Job = w.must(move(st.Job, st.fence, custody, job.Archiving))
	case job.Blocked:
		st.Job = w.must(move(st.Job, st.fence, job.Recovery, job.Blocked))
		st.fence = w.duty(st.session, watch)
	default:
		if custody == job.Ready {
			st.Job = w.must(move(st.Job, st.fence, job.Ready, state))
		}
	}
	if st.State != state || st.Custody != custody {
		w.Fatalf("the job stands at %s, want %s/%s", st.Place, state, custody)
	}
	return st
}

// launched makes a program whose launch is live in the hands of a worker.
func (w *world) launched() standing {
	w.Helper()
	st := w.stand(job.SubmittingJob, job.Worker)
	st.Job = w.must(setting(move(st.Job, st.fence, job.Worker, job.SubmittingJob), job.Patch{Intent: true}))
	return st
}

// untouched fails the test unless the job and its history are as they were.
func (w *world) untouched(j job.Job) {
	w.Helper()
	if diff := cmp.Diff(j, w.job(j.ID), sameJob); diff != "" {
		w.Errorf("job %s was changed (-before +after):\n%s", j.ID, diff)
	}
	if n := len(w.history(j.ID)); int64(n) != j.N {
		w.Errorf("job %s has %d events, had %d", j.ID, n, j.N)
	}
}

// sameJob compares jobs: JSON by what it says, and no labels like empty ones.
var sameJob = cmp.Options{
	cmp.Comparer(sameJSON),
	cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".Labels" || p.Last().String() == ".Limits"
	}, cmpopts.EquateEmpty()),
}

func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return cmp.Equal(x, y)
}

// rounds is how often a test does the same: more often where tests are long.
func rounds(long, short int) int {
	if testenv.Long() {
		return long
	}
	return short
}

// together runs n goroutines that begin at the same moment, and fails with their errors.
func (w *world) together(n int, run func(i int) error) {
	w.Helper()
	start, errs := make(chan struct{}), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = run(i)
		})
	}
	close(start)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			w.Errorf("goroutine %d: %v", i, err)
		}
	}
}

// kind fails the test unless err is of one of the kinds.
func (w *world) kind(err error, kinds ...job.ErrorKind) {
	w.Helper()
	if err == nil {
		w.Errorf("no error, want one of kind %v", kinds)
		return
	}
	for _, k := range kinds {
		if job.KindOf(err) == k {
			return
		}
	}
	w.Errorf("error of kind %s (%v), want %v", job.KindOf(err), err, kinds)
}

// near reports whether two times are the same but for what a database rounds.
func near(a, b time.Time) bool { return a.Sub(b).Abs() <= time.Millisecond }

func equal[T any](w *world, what string, got, want T) {
	w.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func fmtIDs(ids []job.ID) []string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = id.String()
	}
	return s
}

func jobIDs(jobs []job.Job) []job.ID {
	ids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}
