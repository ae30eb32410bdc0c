package storetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var orderTests = []test{
	{"one is ready at a time, in the order of submission", orderCreated},
	{"by the time at which they are due", orderDue},
	{"by a field of their arguments", orderField},
	{"who is alone goes at once, and the second one waits", orderFree},
	{"who waits to be tried again goes on before those behind it", orderBlock},
	{"who waits to be tried again lets those behind it pass", orderPass},
	{"the order outlives crashes and drains", orderCrash},
	{"who is paused or blocked goes on before those behind it", orderStopped},
	{"who is paused or blocked lets those behind it pass", orderStoppedPass},
	{"who is canceled makes room", orderCanceled},
	{"who waits for another job holds up nobody", orderNeeds},
	{"first the order, and then the limits", orderLimited},
	{"of one call the first goes, though the second is under no limit", orderLimitedFirst},
	{"who lets others pass takes its turns anew", orderLimitedPass},
	{"limits that are set later", orderAdopted},
	{"orders of other keys and tenants are left alone", orderApart},
	{"what is in use and who is before whom", orderTurns},
	{"a program keeps its place until it has ended", orderProgram},
	{"a program that lets others pass waits before its launch", orderProgramPass},
	{"a program that lets others pass keeps no place that they need", orderProgramApart},
	{"a long line in small steps", orderBounded},
	{"by many at once", orderAtOnce},
}

// inOrder puts a job in order, as a submission does.
func inOrder(o job.Order, args string) option {
	return func(n *store.New) {
		spec := job.Spec{Kind: n.Job.Kind, Order: &o, Args: json.RawMessage(args)}
		rank, err := spec.Rank()
		if err != nil {
			panic(err)
		}
		if n.Job.Order, err = spec.OrderKey(); err != nil {
			panic(err)
		}
		n.Job.Rank = rank
		if n.Job.Ties |= job.TieLimited; o.Failing == job.OrderPass {
			n.Job.Ties |= job.TiePass
		}
	}
}

func ordered(key string) option    { return inOrder(job.Order{Key: key}, "") }
func passing(key string) option    { return inOrder(job.Order{Key: key, Failing: job.OrderPass}, "") }
func byDue(key string) option      { return inOrder(job.Order{Key: key, By: "due"}, "") }
func dueAt(at time.Time) option    { return func(n *store.New) { n.Job.Due = at } }
func byVersion(args string) option { return inOrder(job.Order{Key: "k", By: "args.version"}, args) }

// goAs runs tasks that are in one order: they go one after the other, as they are named.
func (w *world) goAs(session job.ID, ids ...job.ID) {
	w.Helper()
	for i, id := range ids {
		w.pay()
		w.at(job.Pending, job.Ready, id)
		w.at(job.Waiting, job.Gate, ids[i+1:]...)
		if j := w.claimOne(session); j.ID == id {
			w.must(finish(j, by(session)))
		}
	}
	w.pay()
}

// inLine fails the test unless jobs wait in the line of a key.
func (w *world) inLine(key string, ids ...job.ID) {
	w.Helper()
	for _, j := range w.jobs(ids...) {
		if j.Custody != job.Gate || j.Line != key {
			w.Errorf("job %s is at %s, in the line of %q; want %q", j.ID, j.Place, j.Line, key)
		}
	}
}

func orderCreated(w *world) {
	for what, calls := range map[string][]int{
		"in one call": {10}, "one by one": {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		"in several calls": {1, 4, 2, 3},
	} {
		w.fresh(what, func(w *world) {
			rnd := rand.New(rand.NewPCG(4, 2))
			var ids []job.ID
			for _, n := range calls {
				jobs := make([]store.New, n)
				for i := range jobs {
					jobs[i] = newTask(ordered("k"), withPriority(rnd.IntN(10)),
						ownedBy([]string{"ann", "bob", "cid"}[rnd.IntN(3)]))
				}
				ids = append(ids, idsOf(w.submit(jobs...))...)
				if rnd.IntN(2) == 0 {
					w.pay()
				}
			}
			w.pay()
			w.at(job.Pending, job.Ready, ids[0])
			w.inLine("order/k", ids[1:]...)
			w.uses("order/k", 1, 9)
			checkTurns(w)
			w.goAs(w.session(), ids...)
			w.uses("order/k", 0, 0)
			checkTurns(w)
		})
	}
}

func orderDue(w *world) {
	ids := idsOf(w.submit(
		newTask(byDue("k")), // due when it is submitted
		newTask(byDue("k"), delayed(time.Hour)),
		newTask(byDue("k"), dueAt(time.Unix(3000, 0)), withPriority(9)),
		newTask(byDue("k"), dueAt(time.Unix(2000, 0)), withPriority(9)),
		newTask(byDue("k"), delayed(time.Minute)),
		newTask(byDue("k"), dueAt(time.Unix(3000, 0)), withPriority(1)),
		newTask(byDue("k"), dueAt(time.Unix(1000, 0)), ownedBy("bob")),
	))
	w.pay()
	w.uses("order/k", 1, 4)
	hour, minute := ids[1], ids[4]
	w.inLine("", hour, minute)
	session := w.session()
	w.goAs(session, ids[6], ids[3], ids[5], ids[2])
	running := w.claimOne(session) // the one that was due at its submission
	checkTurns(w)
	w.clock.Advance(2 * time.Hour)
	late := w.add(newTask(byDue("k"), withPriority(0)))
	w.inLine("order/k", late)
	w.due()
	w.pay()
	w.inLine("order/k", hour, minute)
	w.expire()
	session = w.session()
	w.goAs(session, running.ID, minute, hour, late)
	checkTurns(w)
	// Who waits for its time has no claim to the place of those that may go.
	soon := w.add(newTask(byDue("k"), delayed(time.Minute)))
	now := w.add(newTask(byDue("k")))
	w.at(job.Pending, job.Ready, now)
	w.inLine("", soon)
	w.clock.Advance(2 * time.Minute)
	w.due()
	w.pay()
	w.inLine("order/k", soon)
	w.goAs(w.session(), now, soon)
	checkTurns(w)
}

func orderField(w *world) {
	ids := idsOf(w.submit(
		newTask(byVersion(`{"version":10}`)),
		newTask(byVersion(`{"version":9}`), withPriority(9)),
		newTask(byVersion(`{"version":9}`), withPriority(1), ownedBy("bob")),
		newTask(byVersion(`{"version":"a"}`)),
		newTask(byVersion(`{}`), withPriority(9)),
		newTask(byVersion(`{"version":-1}`), withPriority(9)),
		newTask(byVersion(`{"version":1.5}`)),
		newTask(byVersion(`{"version":null}`), withPriority(1)),
		newTask(byVersion(`{"version":"B"}`)),
		newTask(byVersion(`{"version":9}`), withPriority(9)),
	))
	w.pay()
	checkTurns(w)
	session := w.session()
	w.goAs(session, ids[5], ids[6])
	running := w.claimOne(session)
	if running.ID != ids[2] {
		w.Errorf("%s runs, want %s", running.ID, ids[2])
	}
	first := w.add(newTask(byVersion(`{"version":-5}`))) // the one that runs is not thrown out
	w.pay()
	w.inLine("order/k", first)
	checkTurns(w)
	w.must(finish(running, by(session)))
	w.goAs(session, first, ids[1], ids[9], ids[0], ids[8], ids[3], ids[7], ids[4])
	checkTurns(w)
}

func orderFree(w *world) {
	ids := idsOf(w.submit(newTask(ordered("k")), newTask(ordered("other"))))
	w.at(job.Pending, job.Ready, ids...)
	second := w.add(newTask(ordered("k"), withPriority(0), ownedBy("bob")))
	for id, want := range map[job.ID]job.Place{
		ids[0]: {State: job.Pending, Custody: job.Ready},
		second: {State: job.Waiting, Custody: job.Gate},
	} {
		if e := w.event(id, 1); e.State != want.State || e.Custody != want.Custody {
			w.Errorf("the event is %+v, want %s", e, want)
		}
	}
	w.inLine("order/k", second)
	w.uses("order/k", 1, 1)
	w.pay()
	w.inLine("order/k", second)
	if j := w.job(second); j.Order != "order/k" {
		w.Errorf("its order is %q", j.Order)
	}
	checkTurns(w)
	session := w.session()
	jobs := w.claim(wanted(session, 10))
	if len(jobs) != 2 {
		w.Fatalf("claimed %d jobs, want 2", len(jobs))
	}
	for _, j := range jobs {
		_, _, effects, err := w.s.Apply(w.ctx, []job.Change{finish(j, by(session))}, nil)
		if err != nil || j.ID == ids[0] && !effects.Owed && w.job(second).State != job.Pending {
			w.Errorf("the end of a job in order: owed: %t, %v", effects.Owed, err)
		}
	}
	w.pay()
	w.at(job.Pending, job.Ready, second)
	if e := w.event(second, 2); e.Cause != job.CauseTurn {
		w.Errorf("the event is %+v", e)
	}
	if j := w.job(ids[0]); j.Order != "order/k" {
		w.Errorf("the order of a job that has ended is %q", j.Order)
	}
	checkTurns(w)
}

func orderLimited(w *world) {
	w.limit(most("gpu", 1), most("tape", 5))
	session := w.session()
	holder := w.add(newTask(under("gpu")))
	ids := w.addMany(3, ordered("k"), under("gpu", "tape"))
	w.pay()
	// The first of the order waits on, and jobs in the line of the limit go by age there.
	w.inLine("gpu", ids[0])
	w.inLine("order/k", ids[1:]...)
	w.uses("order/k", 1, 2)
	w.uses("gpu", 1, 1)
	w.uses("tape", 0, 0)
	checkTurns(w)
	urgent := w.add(newTask(under("gpu"), withPriority(0)))
	w.pay()
	w.uses("gpu", 1, 2)
	for _, id := range []job.ID{holder, urgent} {
		j := w.claimOne(session)
		if j.ID != id {
			w.Errorf("%s runs, want %s", j.ID, id)
		}
		w.must(finish(j, by(session)))
		w.pay()
		checkTurns(w)
	}
	for i, id := range ids {
		w.at(job.Pending, job.Ready, id)
		for _, key := range []string{"gpu", "tape"} {
			w.uses(key, 1, 0)
		}
		w.uses("order/k", 1, 2-i)
		w.must(finish(w.claimOne(session), by(session)))
		w.pay()
		checkTurns(w)
	}
	for _, key := range []string{"gpu", "tape", "order/k"} {
		w.uses(key, 0, 0)
	}
	// Two orders have one job each in the line of the limit.
	w.submit(newTask(ordered("a"), under("gpu")), newTask(ordered("a"), under("gpu")),
		newTask(ordered("b"), under("gpu")), newTask(ordered("b"), under("gpu")))
	w.pay()
	w.uses("gpu", 1, 1)
	w.uses("order/a", 1, 1)
	w.uses("order/b", 1, 1)
	checkTurns(w)
	w.drain(session, 1, 4)
	checkTurns(w)
}

// orderLimitedFirst: who is under no limit does not go before those that are and stand before it.
func orderLimitedFirst(w *world) {
	w.limit(most("gpu", 1))
	ids := idsOf(w.submit(newTask(ordered("k"), delayed(time.Hour)), newTask(ordered("k"), under("gpu")),
		newTask(ordered("k"))))
	w.pay()
	w.at(job.Pending, job.Ready, ids[1])
	w.inLine("order/k", ids[2])
	checkTurns(w)
}

func orderLimitedPass(w *world) {
	w.limit(most("gpu", 1))
	session := w.session()
	block, pass := w.addMany(2, ordered("k"), under("gpu")), w.addMany(2, passing("p"), under("gpu"))
	w.pay()
	retry := func(id job.ID) {
		w.Helper()
		j := w.claimOne(session)
		if j.ID != id {
			w.Errorf("%s runs, want %s", j.ID, id)
		}
		w.must(setting(move(j, by(session), job.Gate, job.Waiting), job.Patch{Retry: true, Delay: time.Minute}))
		w.pay()
		checkTurns(w)
	}
	retry(block[0]) // it gives its turn back, and keeps its place
	w.uses("order/k", 1, 1)
	w.inLine("order/k", block[1])
	retry(pass[0])
	w.uses("gpu", 1, 0)
	w.at(job.Pending, job.Ready, pass[1])
	w.clock.Advance(2 * time.Minute)
	if n := w.due(); n != 2 {
		w.Errorf("%d were due", n)
	}
	w.pay()
	w.inLine("gpu", block[0])
	w.inLine("order/p", pass[0])
	checkTurns(w)
	session = w.session()
	w.drain(session, 1, 4)
	checkTurns(w)
}

// orderAdopted sets a limit under which jobs in order stand that run, are ready, wait in their
// order, or for their time.
func orderAdopted(w *world) {
	session := w.session()
	runs := w.add(newTask(ordered("a"), asItIs))
	w.claimOne(session)
	ready := w.add(newTask(ordered("b"), asItIs))
	waits := w.add(newTask(ordered("a"), asItIs))
	timed := w.add(newTask(passing("c"), delayed(time.Minute), asItIs))
	paused := w.add(newTask(ordered("d"), asItIs))
	w.wish(job.WishPause, paused)
	w.set(most(ofTask, 1))
	w.payBy(2)
	for _, id := range []job.ID{runs, ready, waits, timed, paused} {
		w.isUnder(id, ofTask)
	}
	w.at(job.Running, job.Worker, runs)
	w.inLine(ofTask, ready) // it keeps its place in its order
	w.inLine("order/a", waits)
	w.inLine("", timed)
	w.uses(ofTask, 1, 1)
	for key, waiting := range map[string]int{"order/a": 1, "order/b": 0, "order/d": 0} {
		w.uses(key, 1, waiting)
	}
	w.uses("order/c", 0, 0)
	checkTurns(w)
	w.wish(job.WishResume, paused)
	w.clock.Advance(2 * time.Minute)
	w.due()
	w.expire()
	w.pay()
	w.uses(ofTask, 1, 3)
	checkTurns(w)
	w.drain(w.session(), 1, 5)
	checkTurns(w)
	// One that is ready, and goes back for another limit, has its place still.
	w.limit(most("gpu", 1))
	ids := w.addMany(2, ordered("a"), under("gpu"))
	w.pay()
	w.at(job.Pending, job.Ready, ids[0])
	w.limit(most("user/*", 0))
	w.uses("order/a", 1, 1)
	checkTurns(w)
}

func orderApart(w *world) {
	ids := idsOf(w.submit(newTask(ordered("a")), newTask(ordered("a")), newTask(ordered("b")),
		newTask(passing("b")), newTask(ordered("a/b")), newTask()))
	sub := submission(newTask(ordered("a")))
	sub.Tenant = "other"
	got, _, err := w.s.Submit(w.ctx, sub)
	if err != nil || got[0].Place != (job.Place{State: job.Pending, Custody: job.Ready}) {
		w.Errorf("another tenant's: %+v, %v", got, err)
	}
	w.pay()
	w.at(job.Pending, job.Ready, ids[0], ids[2], ids[4], ids[5])
	w.inLine("order/a", ids[1])
	w.inLine("order/b", ids[3])
	w.uses("order/a%2Fb", 1, 0)
	checkTurns(w)
	w.wish(job.WishCancel, ids[2])
	w.pay()
	w.at(job.Pending, job.Ready, ids[3])
	w.inLine("order/a", ids[1])
	checkTurns(w)
}

func orderTurns(w *world) {
	ids := idsOf(w.submit(
		newTask(byDue("k"), dueAt(time.Unix(1, 0))),
		newTask(byDue("k"), dueAt(time.Unix(4, 0)), ownedBy("bob"), withPriority(0)),
		newTask(byDue("k"), dueAt(time.Unix(3, 0)), withPriority(9)),
		newTask(byDue("k"), dueAt(time.Unix(2, 0)), ownedBy("cid")),
		newTask(byDue("k"), dueAt(time.Unix(3, 0)), ownedBy("bob"), withPriority(1)),
		newTask(byDue("k"), dueAt(time.Unix(3, 0)), ownedBy("bob"), withPriority(9)),
	))
	w.pay()
	for i, want := range map[int]int{1: 4, 2: 2, 3: 0, 4: 1, 5: 3} {
		j := w.job(ids[i])
		for _, limit := range []int{0, 1, 3, 100} {
			if n, err := w.s.Behind(w.ctx, &j, limit); n != min(want, limit) || err != nil {
				w.Errorf("job %d is behind %d, want %d up to %d, %v", i, n, want, limit, err)
			}
		}
	}
	all, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme})
	want := []store.Turns{{
		Key: "order/k", Limit: &job.Limit{Key: "order/k", Most: 1},
		Owners: []store.Share{
			{Owner: "ann", Held: 1, Waiting: 1},
			{Owner: "bob", Waiting: 3},
			{Owner: "cid", Waiting: 1},
		},
	}}
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		w.Errorf("turns (-want +got):\n%s%v", diff, err)
	}
	checkTurns(w)
}

func orderBounded(w *world) {
	const keys, each = 5, 20
	lines := make([][]job.ID, keys)
	for range each {
		var jobs []store.New
		for k := range keys {
			jobs = append(jobs, newTask(ordered(fmt.Sprint(k)), ownedBy([]string{"ann", "bob"}[k%2])))
		}
		for k, id := range idsOf(w.submit(jobs...)) {
			lines[k] = append(lines[k], id)
		}
	}
	session := w.session()
	for i := range each {
		w.payBy(2)
		jobs := w.claim(wanted(session, 100))
		if len(jobs) != keys {
			w.Fatalf("%d run, want %d", len(jobs), keys)
		}
		for k := range keys {
			w.at(job.Running, job.Worker, lines[k][i])
		}
		w.finishAll(session, jobs)
	}
	checkTurns(w)
}

// orderAtOnce: with any number of workers, the jobs of an order run one at a time, and end in the
// order of their submission.
func orderAtOnce(w *world) {
	const workers, keys = 6, 3
	jobs := rounds(90, 36)
	batch := make([]store.New, jobs)
	for i := range batch {
		batch[i] = newTask(ordered(fmt.Sprint(i%keys)), ownedBy([]string{"ann", "bob"}[i%2]), withPriority(i%4))
	}
	sessions := make([]job.ID, workers)
	for i := range sessions {
		sessions[i] = w.sessionFor(time.Hour)
	}
	ids := idsOf(w.submit(batch[:jobs/2]...))
	var done atomic.Int64
	w.together(workers, func(i int) error {
		if i == 0 {
			if _, _, err := w.s.Submit(w.ctx, submission(batch[jobs/2:]...)); err != nil {
				return err
			}
		}
		for idle := 0; idle < 100 && int(done.Load()) < jobs; {
			if _, _, err := w.s.Pay(w.ctx, 5); err != nil {
				return err
			}
			got, err := w.s.Claim(w.ctx, wanted(sessions[i], 2))
			if err != nil {
				return err
			}
			idle++
			for _, j := range got {
				idle = 0
				if _, _, _, err := w.s.Apply(w.ctx, []job.Change{finish(j, by(sessions[i]))}, nil); err != nil {
					return err
				}
				done.Add(1)
			}
		}
		return nil
	})
	for range jobs - int(done.Load()) {
		w.pay()
		w.finishAll(sessions[0], w.claim(wanted(sessions[0], 100)))
	}
	w.pay()
	for i := jobs / 2; i < jobs; i++ {
		ids = append(ids, batch[i].Job.ID)
	}
	w.at(job.Finished, job.None, ids...)
	for i, id := range ids[keys:] {
		before := w.history(ids[i])
		if next := w.event(id, 1); len(before) == 0 || next.Job != id {
			w.Fatalf("histories of %s and %s", ids[i], id)
		}
		ended := before[len(before)-1]
		for _, e := range w.history(id) {
			if e.Cause == job.CauseClaim && e.At.Before(ended.At) {
				w.Errorf("job %s was claimed at %s, and %s, which stands before it, ended at %s", id, e.At, ids[i],
					ended.At)
			}
		}
	}
	checkTurns(w)
}
