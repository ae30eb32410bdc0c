package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is an engine on a real database, in a bubble: time passes only while nobody has anything
// to do, so that nothing is late because the machine is slow. The bubble also ends only once every
// goroutine in it has.
type world struct {
	*testing.T
	store  *faulty
	broker *local.Broker
	cfg    service.Config
	svc    *service.Service

	repairs int64    // that are expected
	unpaid  bool     // renewals may tell of follow-ups that somebody left unpaid
	look    []job.ID // the jobs whose history is checked in the end; all by default
	quit    context.CancelCauseFunc
	ended   chan error
}

// bubble runs a test in a world of its own. What every test expects in the end is checked here: Run
// returned nil, no session is open, no wake-up was lost, and the jobs are sound.
func bubble(t *testing.T, cfg service.Config, test func(w *world)) {
	t.Helper()
	bubbleAhead(t, cfg, 0, test)
}

// bubbleAhead is bubble with a database whose clock is ahead.
func bubbleAhead(t *testing.T, cfg service.Config, ahead time.Duration, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(context.Background(), dir,
			sqlite.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, store: &faulty{Store: st, calls: map[string]int{}}, broker: &local.Broker{}, cfg: cfg}
		w.cfg.Store, w.cfg.Broker = w.store, w.broker
		if w.cfg.Log == nil {
			w.cfg.Log = slog.New(slog.DiscardHandler)
		}
		w.svc = service.New(w.cfg)
		defer func() {
			w.stop()
			w.store.fail(nil, nil)
			if n := w.svc.Repaired(); n != w.repairs {
				t.Errorf("%d things were found that no wake-up told of, want %d", n, w.repairs)
			}
			if w.store.unpaid && !w.unpaid {
				t.Error("a renewal told of follow-ups that were not paid at once")
			}
			storetest.Check(t, st, "default", w.look...)
			if err := st.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		test(w)
	})
}

// beside returns another process on the same store. What it says reaches no other process, and it
// is stopped by the test.
func (w *world) beside() *world {
	other := &world{
		T: w.T, store: &faulty{Store: w.store.Store, calls: map[string]int{}}, broker: &local.Broker{},
		cfg: w.cfg,
	}
	other.cfg.Store, other.cfg.Broker = other.store, other.broker
	other.svc = service.New(other.cfg)
	return other
}

// dead begins a session of a process that never comes back, with the duties that are free, and
// returns it.
func (w *world) dead(lease time.Duration, duties ...string) store.Session {
	w.Helper()
	s := store.Session{ID: job.NewID(), Process: store.Process{Host: "dead"}, Lease: lease}
	if err := w.store.Store.Begin(context.Background(), s); err != nil {
		w.Fatal(err)
	}
	if _, err := w.store.Store.Renew(context.Background(),
		store.Renew{Session: s.ID, Lease: lease, Duties: duties}); err != nil {
		w.Fatal(err)
	}
	return s
}

// take claims every ready task of a kind for a session.
func (w *world) take(s store.Session, kind string) []job.Job {
	w.Helper()
	jobs, err := w.store.Store.Claim(context.Background(), store.Claim{
		ID: job.NewID(), Session: s.ID, Queues: []string{job.DefaultQueue}, Kinds: []string{kind},
		Slots: map[job.Lane]int{job.LaneTask: 1000, job.LaneAlone: 1000},
	})
	if err != nil {
		w.Fatal(err)
	}
	return jobs
}

// start runs the service until stop.
func (w *world) start() {
	ctx, quit := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	w.quit, w.ended = quit, ended
	go func() { ended <- w.svc.Run(ctx) }()
}

// stop ends Run and checks that it ended well.
func (w *world) stop() {
	w.Helper()
	if w.quit == nil {
		return
	}
	w.quit(errors.New("the test has ended"))
	if err := w.end(); err != nil {
		w.Errorf("Run: %v", err)
	}
	w.noSession()
}

// end waits for the end of Run.
func (w *world) end() error {
	err := <-w.ended
	w.quit(nil)
	w.quit = nil
	return err
}

// noSession checks that no session is open, by what a new one hears.
func (w *world) noSession() {
	w.Helper()
	w.store.fail(nil, nil)
	ctx := context.Background()
	s := store.Session{ID: job.NewID(), Process: store.Process{Host: "test"}, Lease: time.Minute}
	if err := w.store.Begin(ctx, s); err != nil {
		w.Fatal(err)
	}
	a, err := w.store.Renew(ctx, store.Renew{Session: s.ID, Lease: s.Lease})
	if err != nil {
		w.Fatal(err)
	}
	if !a.NextExpiry.IsZero() {
		w.Error("a session was left open")
	}
	if _, err := w.store.End(ctx, s.ID); err != nil {
		w.Fatal(err)
	}
}

// quiet ends Run as stop does, and looks at nothing: other processes may have sessions.
func (w *world) quiet() {
	w.Helper()
	w.quit(nil)
	if err := w.end(); err != nil {
		w.Errorf("Run: %v", err)
	}
}

// submit submits tasks of a kind and returns their ids. edit may change their requests.
func (w *world) submit(kind string, n int, edit ...func(*service.Request)) []job.ID {
	w.Helper()
	reqs := make([]service.Request, n)
	for i := range reqs {
		reqs[i].Spec = service.NewTask(kind, i)
		for _, f := range edit {
			f(&reqs[i])
		}
	}
	return w.accept(reqs...)
}

func (w *world) accept(reqs ...service.Request) []job.ID {
	w.Helper()
	answers, err := w.svc.Submit(context.Background(), reqs...)
	if err != nil {
		w.Fatal(err)
	}
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
	}
	return ids
}

func retry(attempts int, base time.Duration) func(*service.Request) {
	return func(r *service.Request) {
		r.Spec.Retry = &job.RetryPolicy{MaxAttempts: attempts, Backoff: job.Backoff{Base: job.Duration(base)}}
	}
}

func delay(d time.Duration) func(*service.Request) {
	return func(r *service.Request) { r.Spec.Delay = job.Duration(d) }
}

// patience is how long a test waits for what should come: by the clock of its bubble.
const patience = 2 * time.Hour

// finish waits until every job has ended, and checks in which state.
func (w *world) finish(want job.State, ids ...job.ID) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, id := range ids {
		j, err := w.svc.Wait(ctx, id)
		if err != nil {
			w.Fatal(err)
		}
		if j.State != want {
			w.Errorf("job %s ended %s (%s: %s), want %s", id, j.State, j.Code, j.Message, want)
		}
	}
}

// count waits until n jobs are in a state, and spares the time to look at each in the end.
func (w *world) count(state job.State, n int) {
	w.Helper()
	for {
		c, err := w.svc.Count(context.Background(), nil)
		if err != nil {
			w.Fatal(err)
		}
		if c.States[state] == n {
			break
		}
		time.Sleep(time.Second)
	}
	p, err := w.svc.List(context.Background(), store.Query{Limit: 20})
	if err != nil {
		w.Fatal(err)
	}
	for _, j := range p.Jobs {
		w.look = append(w.look, j.ID)
	}
}

// at waits until everything has come to rest and checks where a job stands.
func (w *world) at(id job.ID, state job.State, custody job.Custody) job.Job {
	w.Helper()
	synctest.Wait()
	j := w.job(id)
	if want := (job.Place{State: state, Custody: custody}); j.Place != want {
		w.Errorf("job %s stands at %s, want %s", id, j.Place, want)
	}
	return j
}

func (w *world) job(id job.ID) job.Job {
	w.Helper()
	j, err := w.svc.Job(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// path returns the places of a job's history.
func (w *world) path(id job.ID) []string {
	w.Helper()
	var path []string
	for _, e := range w.history(id) {
		path = append(path, job.Place{State: e.State, Custody: e.Custody}.String())
	}
	return path
}

func (w *world) history(id job.ID) []job.Event {
	w.Helper()
	es, err := w.svc.History(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	return es
}

// wish makes a wish that must be granted.
func (w *world) wish(f func(context.Context, ...job.ID) ([]store.Wished, error), ids ...job.ID) {
	w.Helper()
	answers, err := f(context.Background(), ids...)
	if err != nil {
		w.Fatal(err)
	}
	for i, a := range answers {
		if a.Err != nil {
			w.Errorf("job %s: %v", ids[i], a.Err)
		}
	}
}

// A tally counts how often each job's handler was called, and how many at once.
type tally struct {
	mu       sync.Mutex
	calls    map[job.ID]int
	now, max int
}

func (y *tally) enter(id job.ID) (leave func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.calls == nil {
		y.calls = map[job.ID]int{}
	}
	y.calls[id]++
	y.now++
	y.max = max(y.max, y.now)
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.now--
	}
}

// count returns how many jobs were run.
func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.calls)
}

// each checks that the handler of each job was called n times.
func (y *tally) each(t testing.TB, n int, ids ...job.ID) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, id := range ids {
		if y.calls[id] != n {
			t.Errorf("job %s was run %d times, want %d", id, y.calls[id], n)
		}
	}
}

// A faulty is a store that misbehaves on command.
type faulty struct {
	store.Store

	mu            sync.Mutex
	calls         map[string]int // of the loops, by name
	before, after fault
	claimed       func([]job.Job) []job.Job // changes the answer of a claim
	renewed       func(*store.Renewal)      // changes the answer of a renewal
	busy          func() bool               // another process is paying what is owed, and keeps it from this one
	locked        func() bool               // another process keeps the ready jobs locked: claims pass over them
	unpaid        bool                      // a renewal told of follow-ups
	later         bool                      // what changes owe may wait
}

// A fault makes a call fail: before it reaches the store, or after it was committed. arg is the
// store's argument.
type fault func(ctx context.Context, call string, arg any) error

func (f *faulty) fail(before, after fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// count returns how often the calls were made since the last count.
func (f *faulty) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.calls
	f.calls = map[string]int{}
	return n
}

func (f *faulty) call(ctx context.Context, name string, arg any, call func() error) error {
	f.mu.Lock()
	f.calls[name]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, name, arg); err != nil {
			return err
		}
	}
	if err := call(); err != nil || after == nil {
		return err
	}
	return after(ctx, name, arg)
}

func (f *faulty) Claim(ctx context.Context, c store.Claim) (jobs []job.Job, err error) {
	err = f.call(ctx, "claim", c, func() (err error) {
		if f.locked != nil && f.locked() {
			return nil
		}
		jobs, err = f.Store.Claim(ctx, c)
		return err
	})
	f.mu.Lock()
	change := f.claimed
	f.mu.Unlock()
	if err == nil && change != nil {
		jobs = change(jobs)
	}
	return jobs, err
}

func (f *faulty) Demand(ctx context.Context, c store.Claim) (d map[job.Lane]store.Demand, err error) {
	err = f.call(ctx, "demand", c, func() (err error) { d, err = f.Store.Demand(ctx, c); return err })
	return d, err
}

func (f *faulty) Apply(ctx context.Context, changes []job.Change, along *store.Claim) (a []store.Applied,
	jobs []job.Job, eff store.Effects, err error,
) {
	what := "apply"
	if along != nil {
		what = "apply and claim"
	}
	err = f.call(ctx, what, changes, func() (err error) {
		a, jobs, eff,
			err = f.Store.Apply(ctx, changes, along)
		return err
	})
	if along != nil {
		f.mu.Lock()
		f.calls["claimed along"] += len(jobs)
		f.mu.Unlock()
	} else if f.later {
		eff.Owed, eff.Later = false, eff.Owed
	}
	return a, jobs, eff, err
}

func (f *faulty) Reserve(ctx context.Context, tenant string, asks []store.Ask) (a []store.Reserved, err error) {
	err = f.call(ctx, "reserve", asks, func() (err error) { a, err = f.Store.Reserve(ctx, tenant, asks); return err })
	return a, err
}

func (f *faulty) Begin(ctx context.Context, s store.Session) error {
	return f.call(ctx, "begin", s, func() error { return f.Store.Begin(ctx, s) })
}

func (f *faulty) Renew(ctx context.Context, r store.Renew) (a store.Renewal, err error) {
	err = f.call(ctx, "renew", r, func() (err error) { a, err = f.Store.Renew(ctx, r); return err })
	f.mu.Lock()
	change := f.renewed
	f.unpaid = f.unpaid || a.Unpaid
	f.mu.Unlock()
	if err == nil && change != nil {
		change(&a)
	}
	return a, err
}

func (f *faulty) Clear(ctx context.Context, lost []store.Lost) (eff store.Effects, err error) {
	err = f.call(ctx, "clear", lost, func() (err error) { eff, err = f.Store.Clear(ctx, lost); return err })
	return eff, err
}

func (f *faulty) End(ctx context.Context, session job.ID) (eff store.Effects, err error) {
	err = f.call(ctx, "end", session, func() (err error) { eff, err = f.Store.End(ctx, session); return err })
	return eff, err
}

func (f *faulty) Due(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	err = f.call(ctx, "due", limit, func() (err error) { n, eff, err = f.Store.Due(ctx, limit); return err })
	return n, eff, err
}

func (f *faulty) Pay(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	err = f.call(ctx, "pay", limit, func() (err error) {
		if f.busy != nil && f.busy() {
			eff.Owed = true
			return nil
		}
		n, eff, err = f.Store.Pay(ctx, limit)
		return err
	})
	return n, eff, err
}

func (f *faulty) Expire(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	err = f.call(ctx, "expire", limit, func() (err error) { n, eff, err = f.Store.Expire(ctx, limit); return err })
	return n, eff, err
}

func (f *faulty) Recount(ctx context.Context, limit int) (n store.Recounted, eff store.Effects, err error) {
	err = f.call(ctx, "recount", limit, func() (err error) { n, eff, err = f.Store.Recount(ctx, limit); return err })
	return n, eff, err
}

func (f *faulty) Find(ctx context.Context, q store.FindQuery) (jobs []job.Job, err error) {
	if q.Session.IsZero() {
		return f.Store.Find(ctx, q)
	}
	err = f.call(ctx, "held", q.Session, func() (err error) { jobs, err = f.Store.Find(ctx, q); return err })
	return jobs, err
}

func (f *faulty) Overdue(ctx context.Context, q store.OverdueQuery) (o store.Overdue, err error) {
	err = f.call(ctx, "overdue", q, func() (err error) { o, err = f.Store.Overdue(ctx, q); return err })
	return o, err
}

func (f *faulty) Resources(ctx context.Context, q store.ResourceQuery) (rs []store.Resource, err error) {
	if q.Tenant != "" {
		return f.Store.Resources(ctx, q)
	}
	err = f.call(ctx, "all resources", q, func() (err error) { rs, err = f.Store.Resources(ctx, q); return err })
	return rs, err
}

func (f *faulty) Remove(ctx context.Context, tenant string, ids []job.ID) (errs []error, err error) {
	err = f.call(ctx, "remove", ids, func() (err error) { errs, err = f.Store.Remove(ctx, tenant, ids); return err })
	return errs, err
}

// errDown is what a database says that cannot be reached.
var errDown = job.Errorf(job.Unavailable, "the test pulled the plug")

// lossy returns a fault that fails the first n of the calls.
func lossy(n int, calls ...string) fault {
	var mu sync.Mutex
	left := map[string]int{}
	for _, c := range calls {
		left[c] = n
	}
	return func(_ context.Context, call string, _ any) error {
		mu.Lock()
		defer mu.Unlock()
		if left[call] == 0 {
			return nil
		}
		left[call]--
		return errDown
	}
}
