package fake_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// TestAlike makes the same random calls of the fake and of store/sqlite, and compares every answer,
// to the words of errors: what a simulation finds on the fake is true of a database, too.
func TestAlike(t *testing.T) {
	walks(t, 3, func(t *testing.T, seed uint64) {
		besideSQLite(t, seed).steps(300)
	})
}

// TestAlikeInLine makes calls of which most jobs are under limits and on the move: it comes to
// lines of jobs that need several keys, and to launches under limits.
func TestAlikeInLine(t *testing.T) {
	walks(t, 2, func(t *testing.T, seed uint64) {
		p := besideSQLite(t, seed)
		p.inLine = true
		for _, key := range []string{"disk", "gpu"} { // hardly ever both are free
			of(p, "set limit", func(s store.Store) (store.Effects, error) {
				return alone(store.SetLimit(p.Context(), s, "acme", job.Limit{Key: key, Most: 1}))
			})
		}
		p.steps(120)
	})
}

// TestAlikeTakenIn makes calls of which many set limits first, for keys under which jobs stand that
// are there and on the move.
func TestAlikeTakenIn(t *testing.T) {
	walks(t, 2, func(t *testing.T, seed uint64) {
		p := besideSQLite(t, seed)
		p.takenIn = true
		p.begin()
		p.steps(200)
	})
}

// TestAlikeInOrder makes calls of which most jobs are in an order and on the move, some of them
// under limits.
func TestAlikeInOrder(t *testing.T) {
	walks(t, 2, func(t *testing.T, seed uint64) {
		p := besideSQLite(t, seed)
		p.inOrder = true
		p.begin()
		p.steps(250)
	})
}

// TestAlikeBlocked makes calls of which most have to do with jobs that are blocked, and with lines
// that are closed meanwhile.
func TestAlikeBlocked(t *testing.T) {
	walks(t, 2, func(t *testing.T, seed uint64) {
		p := besideSQLite(t, seed)
		p.blocking = true
		p.begin()
		p.steps(200)
	})
}

// TestDeterministic compares two fakes, to the order of each list.
func TestDeterministic(t *testing.T) {
	walks(t, 6, func(t *testing.T, seed uint64) {
		p := newPair(t, seed)
		p.other, p.strict = fake.New(p.clock.Now), true
		p.steps(300)
	})
}

// walks makes a walk from the first seed, or from each of the first ones where tests are long.
func walks(t *testing.T, seeds uint64, walk func(*testing.T, uint64)) {
	if !testenv.Long() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			walk(t, seed)
		})
	}
}

// besideSQLite compares a fake with a database, which hands turns on as soon as it can.
func besideSQLite(t *testing.T, seed uint64) *pair {
	p := newPair(t, seed)
	db, err := sqlite.Open(t.Context(), testenv.Dir(t), sqlite.Options{Now: p.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	p.other, p.fake.PassOn = db, true
	return p
}

func newPair(t *testing.T, seed uint64) *pair {
	p := &pair{
		T: t, Rand: rand.New(rand.NewPCG(seed, 0)), clock: &clock{}, seen: map[string]int{},
		terms: map[string]int64{}, given: map[store.Store]map[string]store.Reserved{},
	}
	p.fake = fake.New(p.clock.Now)
	return p
}

func (p *pair) steps(n int) {
	for range n {
		p.step()
	}
	p.look()
	p.Log(p.seen)
}

// apply makes changes, now and then with a claim along.
func (p *pair) apply(changes []job.Change) []store.Applied {
	what := fmt.Sprintf("apply %+v", changes)
	if !p.one(3) {
		return of(p, what, func(s store.Store) (with[[]store.Applied], error) {
			a, _, eff, err := s.Apply(p.Context(), changes, nil)
			return both(a, eff, err)
		}).Answer
	}
	type answer struct {
		Applied []store.Applied
		Claimed []job.Job
	}
	c := p.claim()
	return of(p, what+" and claim", func(s store.Store) (with[answer], error) {
		a, jobs, eff, err := s.Apply(p.Context(), changes, &c)
		return both(answer{a, jobs}, eff, err)
	}).Answer.Applied
}

// A pair is a fake and another store that are told the same.
type pair struct {
	*testing.T
	*rand.Rand
	clock  *clock
	fake   *fake.Store
	other  store.Store
	strict bool                                      // lists have an order
	given  map[store.Store]map[string]store.Reserved // the last moments of a key

	inLine  bool // most jobs are under limits
	takenIn bool // limits are set where none was
	inOrder bool // most jobs are in an order

	blocking bool // most jobs are blocked now and then

	streaming job.ID // a session that lasts

	made     int // ids
	jobs     []job.ID
	sessions []job.ID
	claims   []store.Claim
	changes  []job.Change // that were made
	subs     []store.Submission
	terms    map[string]int64 // of duties
	seen     map[string]int
}

// see counts what only a walk that is long and mixed enough comes to.
func (p *pair) see(j *job.Job) {
	for what, is := range map[string]bool{
		"a turn": j.Ties&job.TieTurn != 0, "a place ahead": j.Ties&job.TieAhead != 0,
		"kept turns": j.Ties&job.TieKept != 0, "a line": j.Line != "",
		"sent back":            j.Custody == job.Gate && strings.HasPrefix(j.Message, "a limit was set"),
		"both":                 j.Ties&(job.TieAhead|job.TieTurn) == job.TieAhead|job.TieTurn,
		"a launch with a turn": j.Live && j.Ties&job.TieTurn != 0,
		"a launch in line":     j.State == job.SubmittingJob && j.Line != "", "passed": j.Passed > 0,
		"first of an order": j.Ties&job.TieOrder != 0, "ended in order": j.State == job.Finished && j.Order != "",
		"in an order": j.Line != "" && j.Line == j.Order, "first of an order in line": j.Ties&job.TieOrder != 0 &&
			j.Line != "",
		"lets others pass": j.Ties&job.TiePass != 0 && j.Ties&job.TieOrder == 0 &&
			(j.Attempt > 1 || j.Resume != "") && !j.State.Terminal(),
		"blocked": j.State == job.Blocked, "blocked live": j.State == job.Blocked && j.Live,
		"blocked once": j.Recoveries > 0 && !j.State.Terminal(), "waited in vain": j.Code == job.RecoveryTimeout,
		"too many recoveries":        j.Code == job.RecoveryLimit,
		"a launch in order":          j.State == job.SubmittingJob && j.Line != "" && j.Line == j.Order,
		"put off, first of an order": j.Ties&job.TieOrder != 0 && !j.Due.IsZero(),
	} {
		if is {
			p.seen[what]++
		}
	}
}

// seeGroup counts the same of groups.
func (p *pair) seeGroup(g *groups.Group) {
	for what, is := range map[string]bool{
		"a group": true, "tested again": g.Tests > 1, "a slow group": g.Pace < 0, "closes a line": g.Places == 0,
		"opens a line": g.Places > 0, "given up": !g.GivenUp.IsZero(),
	} {
		if is {
			p.seen[what]++
		}
	}
}

// of makes a call of both stores and compares the answers. One that fails leaves the fake as it
// was.
func of[T any](p *pair, what string, f func(s store.Store) (T, error)) T {
	p.Helper()
	before := p.fake.Snapshot()
	got, err := f(p.fake)
	want, errWant := f(p.other)
	if job.KindOf(err) != job.KindOf(errWant) || fmt.Sprint(err) != fmt.Sprint(errWant) {
		p.Fatalf("%s: error %v, the other store says %v", what, err, errWant)
	}
	if err != nil && !reflect.DeepEqual(before, p.fake.Snapshot()) {
		p.Fatalf("%s: something is left of a call that failed: %v", what, err)
	}
	if !reflect.DeepEqual(want, got) {
		if diff := gocmp.Diff(want, got, same); diff != "" || p.strict {
			p.Fatalf("%s (-other +fake):\n%s", what, diff)
		}
	}
	return got
}

// With are answers together with effects.
type with[T any] struct {
	Answer  T
	Effects store.Effects
}

func both[T any](answer T, eff store.Effects, err error) (with[T], error) {
	return with[T]{answer, eff}, err
}

func alone(eff store.Effects, err error) (store.Effects, error) { return eff, err }

func byNumber(a, b store.Event) int {
	return cmp.Or(bytes.Compare(a.Job[:], b.Job[:]), cmp.Compare(a.N, b.N), cmp.Compare(a.Sub, b.Sub))
}

var same = gocmp.Options{
	cmpopts.EquateEmpty(),
	gocmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) && job.KindOf(a) == job.KindOf(b) }),
	cmpopts.SortSlices(func(a, b store.Event) bool { return byNumber(a, b) < 0 }),
	cmpopts.SortSlices(func(a, b job.QueueKind) bool {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind)) < 0
	}),
	cmpopts.SortSlices(func(a, b job.Job) bool { return bytes.Compare(a.ID[:], b.ID[:]) < 0 }),
	cmpopts.SortSlices(func(a, b store.StandingWish) bool { return bytes.Compare(a.Job[:], b.Job[:]) < 0 }),
	cmpopts.SortSlices(func(a, b store.Duty) bool { return a.Name < b.Name }),
	cmpopts.SortSlices(func(a, b store.Serving) bool { return bytes.Compare(a.ID[:], b.ID[:]) < 0 }),
	cmpopts.IgnoreFields(store.Reserved{}, "Rate"),
	cmpopts.IgnoreFields(store.HeldJob{}, "Job", "Tenant"), // of those that it claimed at once it is any
	cmpopts.IgnoreFields(store.Event{}, "Cursor"), cmpopts.IgnoreFields(store.Events{}, "Cursor"),
	cmpopts.IgnoreFields(store.Page{}, "Next"), cmpopts.IgnoreFields(store.Overdue{}, "Next"),
}

// Things to draw from.

func pick[T any](p *pair, list ...T) T { return list[p.IntN(len(list))] }

func (p *pair) one(n int) bool { return p.IntN(n) == 0 }

func (p *pair) id() job.ID {
	p.made++
	return job.ID{1, byte(p.made >> 8), byte(p.made), 6: 0x70, 8: 0x80, 15: byte(p.made)}
}

func some[T any](p *pair, list []T, n int) (some []T) {
	for range p.IntN(n + 1) {
		if len(list) > 0 {
			some = append(some, pick(p, list[max(0, len(list)-12):]...))
		}
	}
	return some
}

func (p *pair) tenant() string  { return pick(p, "acme", "acme", "acme", "other") }
func (p *pair) queue() string   { return pick(p, "default", "default", "gpu") }
func (p *pair) kind() string    { return pick(p, "send", "send", job.KindApp, job.KindApp, "mail") }
func (p *pair) machine() string { return pick(p, "", "", "m1", "m2") }
func (p *pair) text() string    { return pick(p, "", "", "it did not work", "\xff\x00") }

func (p *pair) raw() json.RawMessage {
	return pick(p, nil, nil, json.RawMessage(`{"a":1}`), json.RawMessage(`[1, 2]`))
}

func (p *pair) session() job.ID {
	if (p.takenIn || p.inOrder || p.blocking) && !p.one(8) {
		return p.streaming
	}
	if len(p.sessions) == 0 || p.one(30) {
		return p.id()
	}
	return pick(p, p.sessions[max(0, len(p.sessions)-3):]...)
}

func (p *pair) process() store.Process {
	q := store.Process{
		Host: "h", PID: p.IntN(9), Queues: []string{"default", "gpu"},
		Kinds: []string{"send", job.KindApp, "mail"}, Machine: p.machine(), Slots: map[job.Lane]int{},
	}
	if p.one(3) {
		q.Tenants = []string{p.tenant()}
	}
	if p.one(2) {
		q.Roles = []store.Role{store.RoleWatcher, store.RoleWorker}
	}
	for _, l := range job.Lanes {
		q.Slots[l] = p.IntN(4)
	}
	return q
}

func (p *pair) newJob() store.New {
	id := p.id()
	p.jobs = append(p.jobs, id)
	n := store.New{Job: job.Job{
		ID: id, Owner: pick(p, "ann", "ann", "bob", "cid"), Kind: p.kind(),
		Name: pick(p, "a", "b", "a-"+id.Short()), Queue: p.queue(), Machine: p.machine(), App: pick(p, "", "gmx"),
		Priority: p.IntN(3), MaxAttempts: 2, Request: json.RawMessage(`{}`), Notes: p.raw(), Trace: pick(p, "", "t"),
	}, Fingerprint: [32]byte{byte(p.IntN(2))}}
	if n.Job.Program() {
		n.Job.Request = pick(p, n.Job.Request, json.RawMessage(`{"system":"lab"}`),
			json.RawMessage(`{"resources":{"partition":"short"}}`))
	}
	if !p.one(4) { // as a service submits jobs
		n.Optional = n.Job.OwnKeys()
	}
	if p.one(3) {
		n.Job.Labels = map[string]string{"x": pick(p, "1", "2")}
	}
	if p.one(6) {
		n.Job.ExternalID = pick(p, "e1", "e2", "e3", "e4")
	}
	if p.inOrder && !p.one(4) || !p.blocking && p.one(6) {
		p.order(&n.Job)
	}
	if p.inLine && !p.one(8) {
		n.Job.Machine, n.Job.Kind = "m1", pick(p, "send", job.KindApp)
		n.Job.Limits = pick(p, []string{"disk"}, []string{"gpu"}, []string{"disk", "gpu"},
			[]string{"disk", "gpu", "user/" + n.Job.Owner})
		return n
	}
	if (p.takenIn || p.blocking) && !p.one(8) {
		n.Job.Machine, n.Job.Kind, n.Optional = "m1", pick(p, "send", job.KindApp), nil
		n.Job.Limits = pick(p, nil, nil, []string{"disk"}, []string{"tape"})
		n.Optional = n.Job.OwnKeys()
		return n
	}
	if p.one(4) {
		n.Delay = pick(p, time.Second, time.Minute)
	}
	if p.one(8) {
		n.Job.Due = p.clock.Now().Add(pick(p, -time.Hour, 30*time.Second))
	}
	if p.one(3) {
		for _, id := range some(p, p.jobs, 3) {
			n.After = append(n.After, store.After{Job: id, Need: pick(p, job.NeedEnded, job.NeedFinished)})
		}
	}
	if p.one(4) {
		n.Unique = append(n.Unique, store.Unique{
			Mode: pick(p, job.UntilStart, job.UntilDone),
			Key:  pick(p, "k1", "k2"),
		}, store.Unique{Mode: job.UntilDone, Key: pick(p, "k2", "k3", "k4")})
	}
	if p.one(2) {
		n.Job.Limits = p.keys()
	}
	if p.one(8) {
		n.Optional = p.keys()
	}
	if p.one(40) {
		n.Refusal = job.Errorf(job.Invalid, "refused")
	}
	return n
}

// order puts a job in order.
func (p *pair) order(j *job.Job) {
	j.Order, j.Rank = pick(p, "order/a", "order/a", "order/b"),
		pick(p, "", "", job.RankDue, job.RankDue, "n1", "n2", "tx", "z")
	if j.Ties = job.TieLimited; p.one(2) {
		j.Ties |= job.TiePass
	}
	if p.inOrder {
		j.Machine, j.Kind = "m1", pick(p, "send", "send", job.KindApp)
	}
}

// keys are those under which a job stands. They are few, so that lines are long.
func (p *pair) keys() (keys []string) {
	for range p.IntN(3) {
		keys = append(keys, pick(p, "gpu", "gpu", "disk", "user/ann", "user/bob"))
	}
	return keys
}

func (p *pair) limitKey() string {
	if p.inLine {
		return pick(p, "gpu", "gpu", "disk", "user/*", "user/*", "user/bob")
	}
	if p.blocking {
		return pick(p, "disk", "user/*", "system/lab", "system/*")
	}
	return pick(p, "gpu", "gpu", "disk", "user/*", "user/*", "user/bob", "kind/send", "kind/*", "tenant",
		"system/local", "system/*", "system/local/partition/*")
}

func (p *pair) rateKey(family bool) string {
	if family && p.one(2) {
		return "launches/system/*"
	}
	return pick(p, "launches/system/lab", "launches/system/den", "dials/lab")
}

// reserve asks for moments, and for one again that was given before: a rate has another id in each
// store.
func (p *pair) reserve() {
	tenant := p.tenant()
	asks := make([]store.Ask, p.IntN(4))
	for i := range asks {
		asks[i] = store.Ask{Key: p.rateKey(false), N: pick(p, 0, 1, 1, 2, 2, 7, 7, 40, 40, 1001)}
		if p.one(3) {
			asks[i].N, asks[i].Late = pick(p, 1, 1, 1, 1, 2),
				pick(p, time.Microsecond, 100*time.Millisecond, time.Minute, time.Hour, 2*time.Hour)
		}
	}
	key, i, late := p.rateKey(false), p.IntN(9), pick(p, 0, 0, time.Second, time.Hour)
	of(p, "reserve", func(s store.Store) ([]store.Reserved, error) {
		last, asks := p.given[s][key], slices.Clone(asks)
		if !last.Rate.IsZero() {
			asks = append(asks, store.Ask{
				Key: key, N: 1,
				Held: job.Moment{Key: key, At: last.Moment(i), Rate: last.Rate, Late: job.Duration(late)}, Late: late,
			})
		}
		all, err := s.Reserve(p.Context(), tenant, asks)
		for i, r := range all {
			if p.given[s] == nil {
				p.given[s] = map[string]store.Reserved{}
			}
			p.given[s][asks[i].Key] = r
		}
		return all, err
	})
	q := store.TurnQuery{
		Tenant: tenant, Key: pick(p, "", "", "dials/lab"), Limit: p.IntN(3),
		After: pick(p, "", "dials/lab"),
	}
	of(p, fmt.Sprintf("moments %+v", q),
		func(s store.Store) ([]store.Moments, error) { return s.Moments(p.Context(), q) })
}

func (p *pair) limit() job.Limit {
	l := job.Limit{Key: p.limitKey(), Most: pick(p, 0, 1, 1, 1, 2, 2, 3, 5)}
	if p.blocking {
		l.Most += 2
	}
	if p.one(3) {
		l.Ahead = 1 + p.IntN(3)
	}
	if p.one(3) {
		l.Weights = map[string]int{pick(p, "ann", "bob"): p.IntN(4)}
	}
	return l
}

func (p *pair) submission() store.Submission {
	if len(p.subs) > 0 && p.one(8) {
		return pick(p, p.subs...) // again
	}
	s := store.Submission{Tenant: p.tenant(), By: pick(p, "", "ann"), Queues: map[string]store.QueueCheck{}}
	for range 1 + p.IntN(4) {
		s.Jobs = append(s.Jobs, p.newJob())
	}
	if p.one(6) {
		s.Key = pick(p, "i1", "i2", "i3")
	}
	if p.one(10) {
		s.Queues["gpu"] = store.QueueCheck{Document: p.one(2), Most: p.IntN(6)}
	}
	p.subs = append(p.subs, s)
	return s
}

func (p *pair) claim() store.Claim {
	if len(p.claims) > 0 && p.one(8) {
		return pick(p, p.claims...) // again
	}
	c := store.Claim{
		ID: p.id(), Session: p.session(), Queues: []string{"gpu", "default"},
		Kinds: []string{job.KindApp, "send", "mail"}[:1+p.IntN(3)], Machine: p.machine(), Slots: map[job.Lane]int{},
	}
	for _, l := range job.Lanes {
		c.Slots[l] = p.IntN(4)
	}
	if p.takenIn || p.inOrder || p.blocking {
		c.Machine = "m1"
	}
	if p.one(4) {
		c.Tenants = []string{p.tenant()}
	}
	if p.one(5) {
		c.Jobs = some(p, p.jobs, 5)
		slices.SortFunc(c.Jobs, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
		c.Jobs = slices.Compact(c.Jobs)
		for _, l := range job.Lanes {
			c.Slots[l] = 9 // for all of them
		}
	}
	p.claims = append(p.claims, c)
	return c
}

// change is one that may be made of a job, or was made before, or may not be made.
func (p *pair) change(j *job.Job) job.Change {
	if len(p.changes) > 0 && p.one(8) {
		return pick(p, p.changes...)
	}
	f := job.Fence{Session: j.Session}
	if j.Custody != job.Worker {
		f = job.Fence{Duty: "watch", Term: p.terms["watch"] - p.Int64N(8)/7}
	}
	c := job.Change{Job: j.ID, From: j.Guard(f), Work: p.raw()}
	if p.one(12) {
		c.From.Epoch--
	}
	at := j.State
	for range 1 + p.IntN(6) {
		next := job.Edges(at)
		if !p.one(4) { // most go on
			next = slices.DeleteFunc(next, func(s job.State) bool { return s.Terminal() || !s.Working() })
		}
		if len(next) == 0 {
			break
		}
		at = pick(p, next...)
		c.Path = append(c.Path, job.Entry{
			State: at, Code: pick(p, job.NormalCompletion, job.TaskFailed),
			Message: p.text(), Data: p.raw(),
		})
	}
	if len(c.Path) == 0 {
		c.Path = []job.Entry{{State: at}}
	}
	c.To = pick(p, job.Places(at)...)
	for _, likely := range []job.Custody{j.Custody, job.Monitor} {
		if p.one(2) && slices.Contains(job.Places(at), likely) {
			c.To = likely
		}
	}
	c.Set = job.Patch{
		Intent: p.one(6), Over: p.one(2), Retry: p.one(4), Recovery: p.one(8), Crash: p.one(8), Clear: p.one(6),
		Resume: pick(p, job.Pending, job.Archiving, job.StagingJob), Resolved: p.raw(), Result: p.raw(),
	}
	if c.To == job.Recovery {
		c.Set.Block = p.block()
	}
	if c.To == job.Worker {
		c.Set.Session, c.Set.Claim = j.Session, j.Claim
	}
	if p.one(3) {
		c.Set.Delay = pick(p, time.Second, time.Minute)
	}
	if c.Check() == nil && (c.To != job.Worker || j.Custody == job.Worker) || p.one(60) {
		return c
	}
	return p.change(j)
}

// forward is what a worker or a watcher does when all goes well.
func (p *pair) forward(j *job.Job) (c job.Change, moves bool) {
	c = job.Change{Job: j.ID, From: j.Guard(job.Fence{Session: j.Session})}
	to := func(custody job.Custody, path ...job.State) (job.Change, bool) {
		for _, s := range path {
			c.Path = append(c.Path, job.Entry{State: s})
		}
		c.Path[len(c.Path)-1].Code = map[bool]job.Code{true: job.NormalCompletion}[custody == job.None]
		if c.To = custody; custody == job.Worker {
			c.Set.Session, c.Set.Claim = j.Session, j.Claim
		}
		return c, true
	}
	switch {
	case j.Custody == job.Monitor:
		c.From.Fence, c.Set.Over = job.Fence{Duty: "watch", Term: p.terms["watch"]}, true
		return to(job.Ready, job.Archiving)
	case j.Custody == job.Recovery && p.inOrder:
		c.From.Fence = job.Fence{Duty: "watch", Term: p.terms["watch"]}
		return to(job.Ready, j.Resume)
	case j.Custody != job.Worker:
		return c, false
	case p.inOrder && !j.Live && p.one(6): // it is put off
		c.Set.Delay, c.Set.Retry = pick(p, time.Second, 10*time.Second), p.one(2)
		return to(job.Gate, job.Waiting)
	case p.inOrder && !j.Live && p.one(6), p.blocking && p.one(2):
		c.Set.Block, c.Set.Resume = p.block(), j.State
		if c.Set.Over = p.one(2); !job.Resumable(j.State) {
			c.Set.Resume = job.Pending
		}
		return to(job.Recovery, job.Blocked)
	case !j.Program(), j.State == job.Archiving:
		return to(job.None, job.Finished)
	case j.State != job.SubmittingJob && p.takenIn: // by a worker who does not look at limits
		next := map[job.State]job.State{
			job.ProcessingInputs: job.StagingInputs, job.StagingInputs: job.StagingJob,
			job.StagingJob: job.SubmittingJob,
		}
		return to(job.Worker, next[j.State])
	case j.State != job.SubmittingJob:
		return to(job.Ready, job.StagingInputs, job.StagingJob, job.SubmittingJob)
	case j.Live:
		return to(job.Monitor, job.Running)
	}
	c.Set.Intent = true
	return to(job.Worker, job.SubmittingJob)
}

// block is one of a few that block jobs: some of them close a line.
func (p *pair) block() *job.Block {
	b := &job.Block{
		Code: pick(p, job.TaskBlocked, job.SystemDisabled), Message: p.text(),
		Tester: pick(p, "http", "http", "http", "go/x"), Params: map[string]string{"url": pick(p, "x", "y")},
	}
	b.Line = map[string]string{
		"x": pick(p, "", "system/lab"),
		"y": pick(p, "", "disk", "user/ann", "system/local"),
	}[b.Params["url"]]
	if p.one(6) {
		b.Machine = "m1"
	}
	if !p.one(6) {
		b.Policy.Stages = []job.Stage{
			{Every: job.Duration(10 * time.Second), Times: 1 + p.IntN(2)},
			{Every: job.Duration(20 * time.Second), Times: p.IntN(4)},
		}
	}
	if p.one(6) {
		b.Policy.MaxWait = job.Duration(pick(p, time.Second, time.Minute))
	}
	return b
}

// test asks for tests, and records what comes of them.
func (p *pair) test() {
	duty, limit := pick(p, groups.RecoveryDuty, groups.RecoveryDuty, groups.RecoveryDuty, "recovery@m1",
		"recovery/go/x"), pick(p, 1, 2, 100)
	due := of(p, "tests of "+duty, func(s store.Store) (store.Tests,
		error,
	) {
		return s.Tests(p.Context(), duty, limit)
	})
	p.clock.Advance(pick(p, 0, 0, time.Millisecond, time.Second))
	found := []groups.Test{{Tenant: "acme", Key: "none", Began: due.Now, Clear: true}}[:p.IntN(2)]
	for _, g := range due.Due {
		if p.seeGroup(&g); !p.one(8) {
			found = append(found, groups.Test{
				Tenant: g.Tenant, Key: g.Key, Began: due.Now, Clear: p.one(2),
				May: pick(p, 0, 0, 0, 1, 2), Result: p.text(),
			})
		}
	}
	f := job.Fence{Duty: duty, Term: p.terms[duty] - p.Int64N(16)/15}
	of(p, fmt.Sprintf("tested %+v", found),
		func(s store.Store) (store.Effects, error) { return alone(s.Tested(p.Context(), f, found)) })
}

// steer wants something of a group, or of jobs.
func (p *pair) steer() {
	s := store.Steer{
		Tenant: p.tenant(), By: pick(p, "", "root"),
		Want: pick(p, groups.TryNow, groups.Release, groups.Release, groups.GiveUp),
	}
	groups := of(p, "groups", func(s store.Store) ([]groups.Group, error) {
		return s.Groups(p.Context(), store.GroupQuery{Tenant: "acme"})
	})
	switch {
	case p.one(10):
		s.Group = "none"
	case p.one(2) && len(groups) > 0:
		s.Group = pick(p, groups...).Key
	default:
		s.Jobs = some(p, p.jobs, 3)
	}
	of(p, fmt.Sprintf("steer %+v", s), func(st store.Store) (with[[]error],
		error,
	) {
		return both(st.Steer(p.Context(), s))
	})
}

// begin begins a session that lasts.
func (p *pair) begin() {
	p.streaming = p.id()
	session := store.Session{ID: p.streaming, Process: p.process(), Lease: 10_000 * time.Hour}
	of(p, "begin", func(s store.Store) (bool, error) { return true, s.Begin(p.Context(), session) })
	if p.blocking {
		p.renew(store.Renew{Session: p.streaming, Lease: session.Lease, Duties: blockedDuties})
	}
}

var blockedDuties = []string{"watch", groups.RecoveryDuty, "recovery@m1", "recovery/go/x"}

func (p *pair) renew(r store.Renew) {
	for _, d := range of(p, "renew", func(s store.Store) (store.Renewal,
		error,
	) {
		return s.Renew(p.Context(), r)
	}).Duties {
		p.terms[d.Name] = d.Term
	}
}

// round is a stream of tasks that want one key, beside those that want both: hardly ever both are
// free.
func (p *pair) round() {
	ctx := p.Context()
	if p.streaming.IsZero() {
		p.begin()
		for _, key := range []string{"tape", "robot"} {
			of(p, "set limit", func(s store.Store) (store.Effects, error) {
				return alone(store.SetLimit(ctx, s, "acme", job.Limit{Key: key, Most: 1}))
			})
		}
	}
	sub := store.Submission{Tenant: "acme"}
	for range 1 + p.IntN(2) {
		n := store.New{Job: job.Job{
			ID: p.id(), Owner: pick(p, "ann", "bob"), Kind: "stream", Name: "s",
			Queue: "stream", MaxAttempts: 2, Request: json.RawMessage(`{}`),
		}}
		n.Job.Limits = pick(p, []string{"tape"}, []string{"robot"}, []string{"tape"}, []string{"robot"},
			[]string{"tape", "robot"})
		sub.Jobs = append(sub.Jobs, n)
		p.jobs = append(p.jobs, n.Job.ID)
	}
	of(p, "submit", func(s store.Store) (with[[]store.Submitted], error) { return both(s.Submit(ctx, sub)) })
	limit := pick(p, 1, 1000)
	of(p, "pay", func(s store.Store) (with[int], error) { return both(s.Pay(ctx, limit)) })
	c := store.Claim{
		ID: p.id(), Session: p.streaming, Queues: []string{"stream"}, Kinds: []string{"stream"},
		Slots: map[job.Lane]int{job.LaneTask: 10, job.LaneAlone: 1},
	}
	of(p, "claim", func(s store.Store) ([]job.Job, error) { return s.Claim(ctx, c) })
	held := of(p, "held", func(s store.Store) ([]job.Job,
		error,
	) {
		return s.Find(ctx, store.FindQuery{Session: p.streaming})
	})
	if len(held) > 0 {
		j := &held[p.IntN(len(held))]
		end, _ := p.forward(j)
		of(p, "apply", func(s store.Store) (with[[]store.Applied], error) {
			a, _, eff, err := s.Apply(ctx, []job.Change{end}, nil)
			return both(a, eff, err)
		})
		of(p, "pay", func(s store.Store) (with[int], error) { return both(s.Pay(ctx, 1000)) })
	}
}

// step makes one call.
func (p *pair) step() {
	ctx := p.Context()
	pass := pick(p, 0, 0, 0, time.Millisecond, time.Second, 20*time.Second)
	if p.blocking {
		pass = min(pass, 3*time.Second)
	}
	if p.clock.Advance(pass); p.one(100) {
		p.clock.Advance(pick(p, time.Hour, 5*time.Hour, 50*time.Hour))
	}
	what := p.IntN(38)
	switch {
	case p.inLine && p.one(2):
		p.round()
		return
	case p.inLine && !p.one(5):
		what = pick(p, 0, 3, 3, 3, 7, 7, 7, 18, 18, 18)
	case p.takenIn && !p.one(5):
		what = pick(p, 0, 0, 3, 3, 7, 7, 7, 18, 31)
	case p.inOrder && p.one(15): // the one before may have ended
		p.begin()
		return
	case p.blocking && p.one(20):
		what = 21 // duties may change hands
	case p.blocking && !p.one(5):
		what = pick(p, 0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 17, 17, 17, 18, 18, 18, 18, pick(p, 31, 36), 35, 35, 35)
	case p.inOrder && !p.one(5):
		what = pick(p, 0, 3, 3, 3, 7, 7, 7, 7, 12, 17, 18, 18, 18)
	}
	switch what {
	case 0, 1, 2:
		sub := p.submission()
		of(p, "submit", func(s store.Store) (with[[]store.Submitted], error) { return both(s.Submit(ctx, sub)) })
	case 3, 4, 5, 6:
		c := p.claim()
		of(p, "demand", func(s store.Store) (map[job.Lane]store.Demand, error) { return s.Demand(ctx, c) })
		of(p, "claim", func(s store.Store) ([]job.Job, error) { return s.Claim(ctx, c) })
	case 7, 8, 9, 10, 11, 24, 25, 26, 27:
		var changes []job.Change
		for _, j := range of(p, "find", func(s store.Store) ([]job.Job,
			error,
		) {
			return s.Find(ctx, store.FindQuery{IDs: p.jobs})
		}) {
			p.see(&j)
			moves := j.Custody == job.Worker || j.Custody == job.Monitor || j.Custody == job.Recovery
			if c, ok := p.forward(&j); (p.inLine || p.takenIn || p.inOrder || p.blocking) && ok && p.one(2) {
				changes = append(changes, c)
			} else if moves && p.one(2) && (!p.takenIn && !p.inOrder && !p.blocking || p.one(8)) || p.one(30) {
				changes = append(changes, p.change(&j))
			}
		}
		for i, a := range p.apply(changes) {
			if a.Outcome == store.OK || a.Outcome == store.Diverted {
				p.changes = append(p.changes, changes[i])
			}
		}
	case 12, 13:
		w := store.Wish{
			Tenant: p.tenant(), By: pick(p, "", "ann"),
			Wish: pick(p, job.WishCancel, job.WishPause, job.WishResume, job.WishResume), Jobs: some(p, p.jobs, 4),
			Force: p.one(8),
		}
		of(p, "wish", func(s store.Store) (with[[]store.Wished], error) { return both(s.Wish(ctx, w)) })
	case 14:
		a := store.Annotation{Tenant: p.tenant(), Jobs: some(p, p.jobs, 3), Replace: p.one(3)}
		v := pick(p, "1", "2")
		a.Labels, a.Notes = map[string]*string{"x": &v, pick(p, "y", "not a key"): nil}, p.raw()
		if p.one(2) {
			hidden := p.one(2)
			a.Hidden = &hidden
		}
		of(p, "annotate", func(s store.Store) ([]error, error) { return s.Annotate(ctx, a) })
	case 15:
		if ids := some(p, p.jobs, 1); len(ids) > 0 {
			n := store.NewEvent{
				Tenant: p.tenant(), Job: ids[0], By: "ann",
				Cause: pick(p, job.CauseUser, job.CauseJob), Launch: p.IntN(2), Epoch: int64(p.IntN(4)),
				CustomEvent: job.CustomEvent{Name: "x", Message: "m", Data: p.raw(), Key: pick(p, "", "", "a", "b")},
			}
			of(p, "add event", func(s store.Store) (with[store.Event], error) { return both(s.AddEvent(ctx, n)) })
		}
	case 16:
		tenant, ids := p.tenant(), some(p, p.jobs, 3)
		of(p, "remove", func(s store.Store) ([]error, error) { return s.Remove(ctx, tenant, ids) })
	case 17:
		limit := pick(p, 1, 2, 100)
		of(p, "due", func(s store.Store) (with[int], error) { return both(s.Due(ctx, limit)) })
	case 18, 28, 29, 30:
		limit := pick(p, 1, 3, 10, 1000)
		of(p, "pay", func(s store.Store) (with[int], error) { return both(s.Pay(ctx, limit)) })
	case 31, 33:
		if p.inLine && !p.one(4) {
			return
		}
		tenant, l, key := p.tenant(), p.limit(), p.limitKey()
		if p.blocking && p.one(2) {
			key = "releases/*"
			l = job.Limit{
				Key: key, Most: pick(p, 1, 20, 1_000_000),
				Per: job.Duration(pick(p, time.Second, time.Minute)),
			}
		} else if p.one(3) {
			key = p.rateKey(true)
			l = job.Limit{Key: key, Most: 1 + p.IntN(9), Per: job.Duration(pick(p, time.Second, time.Minute))}
		}
		if p.one(4) {
			of(p, "remove limit "+key, func(s store.Store) (store.Effects,
				error,
			) {
				return alone(store.RemoveLimit(ctx, s, tenant, key))
			})
		} else {
			of(p, fmt.Sprintf("set limit %+v", l),
				func(s store.Store) (store.Effects, error) { return alone(store.SetLimit(ctx, s, tenant, l)) })
			if p.takenIn && p.one(2) {
				of(p, "pay", func(s store.Store) (with[int], error) { return both(s.Pay(ctx, 1000)) })
			}
		}
	case 32:
		q := store.TurnQuery{
			Tenant: p.tenant(), Key: pick(p, "", "", "gpu", "ahead/gpu", "tape", "order/a"),
			Limit: p.IntN(4), After: pick(p, "", "", "disk", "gpu"),
		}
		of(p, fmt.Sprintf("turns %+v", q), func(s store.Store) ([]store.Turns, error) { return s.Turns(ctx, q) })
	case 34:
		p.reserve()
	case 35:
		p.test()
	case 36:
		p.steer()
	case 37:
		q := store.GroupQuery{Tenant: p.tenant(), Limit: p.IntN(3), After: pick(p, "", "", "4", "8")}
		of(p, fmt.Sprintf("groups %+v", q), func(s store.Store) ([]groups.Group, error) { return s.Groups(ctx, q) })
	case 19:
		of(p, "expire", func(s store.Store) (with[int], error) { return both(s.Expire(ctx, 100)) })
	case 20:
		n := store.Session{
			ID: p.id(), Process: p.process(),
			Lease: pick(p, 0, time.Minute, time.Hour, time.Hour, time.Hour, time.Hour),
			Mode:  pick(p, store.Work, store.Work, store.Drain),
		}
		p.sessions = append(p.sessions, n.ID)
		if p.one(8) {
			n.ID = p.session()
		}
		of(p, "begin", func(s store.Store) (bool, error) { return true, s.Begin(ctx, n) })
	case 21, 22:
		r := store.Renew{
			Session: p.session(), Lease: pick(p, 30*time.Second, time.Hour),
			Queues: []string{"default", "gpu"}, Kinds: []string{"send", job.KindApp}, Machine: p.machine(),
		}
		switch {
		case p.blocking && !p.one(8):
			r.Duties = blockedDuties
		case p.one(2):
			r.Duties = []string{
				"watch", groups.RecoveryDuty,
				pick(p, "clock", "sweep", "watch", "", "recovery@m1", "recovery/go/x"),
			}
		}
		if p.one(3) {
			process := p.process()
			r.Process, r.Used = &process, map[job.Lane]int{job.LaneTask: p.IntN(3)}
		}
		if p.one(4) {
			r.Tenants = []string{p.tenant()}
		}
		p.renew(r)
	case 23:
		id := p.session()
		switch p.IntN(5) {
		case 0:
			of(p, "end", func(s store.Store) (store.Effects, error) { return alone(s.End(ctx, id)) })
		case 1:
			c := pick(p, store.Drain, store.Work, store.Stop, "dance")
			of(p, "tell", func(s store.Store) (store.Effects, error) { return alone(s.SetMode(ctx, id, c)) })
		case 2:
			lost := []store.Lost{{Job: pick(p, append(p.jobs, p.id())...), Epoch: int64(p.IntN(5))}}
			of(p, "clear", func(s store.Store) (store.Effects, error) { return alone(s.Clear(ctx, lost)) })
		case 3:
			d := store.Resource{
				Tenant: p.tenant(), Kind: pick(p, "queue", "system"), Name: pick(p, "gpu", "x"),
				Version: int64(p.IntN(3)), Doc: json.RawMessage(`{}`),
			}
			of(p, "put", func(s store.Store) (store.Resource, error) { return s.Put(ctx, d) })
		case 4:
			tenant, kind, name := p.tenant(), pick(p, "queue", "system"), pick(p, "gpu", "x")
			version := int64(p.IntN(4) - 1) // any is one of them
			of(p, "delete", func(s store.Store) (bool, error) { return true, s.Delete(ctx, tenant, kind, name, version) })
		}
	}
	if p.one(10) {
		p.look()
	}
}

// look compares all that there is to read.
func (p *pair) look() {
	ctx := p.Context()
	for _, j := range of(p, "jobs", func(s store.Store) ([]job.Job,
		error,
	) {
		return s.Find(ctx, store.FindQuery{IDs: p.jobs})
	}) {
		if j.Line != "" || j.Custody == job.Ready || j.Custody == job.Recovery {
			of(p, "behind", func(s store.Store) (int, error) { return s.Behind(ctx, &j, 3) })
		}
	}
	of(p, "sessions", func(s store.Store) ([]store.SessionInfo, error) { return s.Sessions(ctx) })
	of(p, "unattended", func(s store.Store) (store.Unattended, error) { return s.Unattended(ctx) })
	of(p, "recount", func(s store.Store) (with[store.Recounted], error) { return both(s.Recount(ctx, 10)) })
	of(p, "queues", func(s store.Store) ([]store.Resource, error) {
		return s.Resources(ctx, store.ResourceQuery{Kind: "queue"})
	})
	for _, id := range p.sessions {
		of(p, "held", func(s store.Store) ([]job.Job, error) { return s.Find(ctx, store.FindQuery{Session: id}) })
	}
	since := p.clock.Now().Add(-10 * time.Second)
	of(p, "watched", func(s store.Store) ([]job.Job, error) {
		return s.Find(ctx, store.FindQuery{Watch: "m1", Since: since})
	})
	kept := []store.Kept{
		{Tenant: "other", State: job.Canceled, For: time.Minute},
		{Tenant: "acme", State: job.Canceled, For: time.Minute},
		{Tenant: "acme", State: job.Failed},
	}
	of(p, "overdue", func(s store.Store) (all []store.Ended, err error) {
		for q := (store.OverdueQuery{Kept: kept, Limit: 3}); ; {
			o, err := s.Overdue(ctx, q)
			if all = append(all, o.Jobs...); err != nil || o.Next == "" {
				return all, err
			}
			q.Cursor = o.Next
		}
	})
	for _, tenant := range []string{"acme", "other"} {
		of(p, "events", func(s store.Store) (store.Events, error) {
			got, err := s.Events(ctx, store.EventQuery{Tenant: tenant, Limit: 10_000})
			if !p.strict { // they are very many, and to compare them as lists that have no order takes long
				got.Cursor = ""
				for i := range got.Events {
					got.Events[i].Cursor = ""
				}
				slices.SortFunc(got.Events, byNumber)
			}
			return got, err
		})
		of(p, "limits", func(s store.Store) ([]job.Limit, error) { return s.Limits(ctx, tenant) })
		for _, g := range of(p, "groups",
			func(s store.Store) ([]groups.Group, error) { return s.Groups(ctx, store.GroupQuery{Tenant: tenant}) }) {
			p.seeGroup(&g)
		}
		of(p, "turns", func(s store.Store) ([]store.Turns,
			error,
		) {
			return s.Turns(ctx, store.TurnQuery{Tenant: tenant})
		})
		of(p, "count", func(s store.Store) (store.Counts,
			error,
		) {
			return s.Count(ctx, tenant, job.Where("name", job.Is, "a"))
		})
		for _, sort := range store.Sorts {
			of(p, "list", func(s store.Store) (pages [][]job.ID, err error) {
				for q := (store.Query{Tenant: tenant, Sort: sort, Limit: 7}); ; {
					page, err := s.List(ctx, q)
					var ids []job.ID
					for _, j := range page.Jobs {
						ids = append(ids, j.ID)
					}
					if pages = append(pages, ids); err != nil || page.Next == "" {
						return pages, err
					}
					q.Cursor = page.Next
				}
			})
		}
	}
}
