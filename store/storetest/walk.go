package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// walkTests set limits for keys under which jobs stand that are there already.
var walkTests = []test{
	{"who is ready goes back to the gate, and no more run than the limit says", walkReady},
	{"who runs goes on and counts", walkRunning},
	{"who waits for a time or for others is under it later", walkLater},
	{"who waits for another turn stays in its line", walkInLine},
	{"who is ready with another turn gives it back", walkTurn},
	{"who is paused or blocked is under it when it goes on", walkStopped},
	{"who is about to be told so by its claim runs", walkClaimed},
	{"programs are made ready and launched by workers who know nothing of it", walkProgram},
	{"a program with any text in its request", walkText},
	{"a program that waits for its moment", walkMoment},
	{"a program that has turns, and waits for its moment", walkMomentTurn},
	{"who keeps a turn while it waits for another one gives it back", walkKept},
	{"launches go on and count", walkLive},
	{"a family of keys", walkFamily},
	{"limits that are set one after the other", walkSeveral},
	{"a limit that is set again takes in who is not under it", walkAgain},
	{"a limit that is removed meanwhile takes in nobody", walkRemoved},
	{"an own limit that is set while its family takes in jobs", walkOwn},
	{"nobody goes before all are taken in", walkBounded},
	{"a backlog", walkBacklog},
	{"jobs that are submitted meanwhile", walkMeanwhile},
	{"what is owed is told to those who come later", walkOwed},
	{"other tenants and keys of specs are left alone", walkOthers},
	{"by many at once", walkAtOnce},
}

// asItIs puts a job under its own keys, as a submission does. It comes last.
func asItIs(n *store.New) { n.Optional = n.Job.OwnKeys() }

func spec(text string) option { return func(n *store.New) { n.Job.Request = []byte(text) } }

const ofTask = "kind/" + task

// set sets limits, and pays nothing.
func (w *world) set(limits ...job.Limit) {
	w.Helper()
	for _, l := range limits {
		if _, err := store.SetLimit(w.ctx, w.s, acme, l); err != nil {
			w.Fatalf("limit %+v: %v", l, err)
		}
	}
}

// isUnder fails the test unless jobs are under these keys and no others.
func (w *world) isUnder(id job.ID, keys ...string) {
	w.Helper()
	if j := w.job(id); !slices.Equal(j.Limits, keys) {
		w.Errorf("job %s is under %q, want %q", id, j.Limits, keys)
	}
}

// finishAll finishes tasks.
func (w *world) finishAll(session job.ID, jobs []job.Job) {
	w.Helper()
	changes := make([]job.Change, len(jobs))
	for i, j := range jobs {
		changes[i] = finish(j, by(session))
	}
	for i, a := range w.applyAll(changes...) {
		if a.Outcome != store.OK {
			w.Errorf("the end of %s: %+v", jobs[i].ID, a)
		}
	}
}

// drain runs all tasks to their ends, never more than most at once.
func (w *world) drain(session job.ID, most, want int) {
	w.Helper()
	for ran := 0; ran < want; {
		jobs := w.claim(wanted(session, 1000))
		if len(jobs) == 0 || len(jobs) > most {
			w.Fatalf("%d run after %d of %d, want no more than %d", len(jobs), ran, want, most)
		}
		ran += len(jobs)
		w.finishAll(session, jobs)
		w.pay()
	}
}

func walkReady(w *world) {
	ids := w.addMany(10, asItIs)
	w.at(job.Pending, job.Ready, ids...)
	effects, err := store.SetLimit(w.ctx, w.s, acme, most(ofTask, 3))
	if err != nil || !effects.Owed {
		w.Errorf("owed: %t, %v", effects.Owed, err)
	}
	w.pay()
	for _, id := range ids {
		w.isUnder(id, ofTask)
	}
	w.at(job.Pending, job.Ready, ids[:3]...)
	w.at(job.Waiting, job.Gate, ids[3:]...)
	w.uses(ofTask, 3, 7)
	if e := w.event(ids[9], 2); e.Cause != job.CauseTurn || e.State != job.Waiting || e.Custody != job.Gate ||
		e.Message == "" {
		w.Errorf("the event is %+v", e)
	}
	checkTurns(w)
	w.drain(w.session(), 3, 10)
	w.uses(ofTask, 0, 0)
}

func walkRunning(w *world) {
	session := w.session()
	ids := w.addMany(4, asItIs)
	running := w.claim(wanted(session, 3))
	w.limit(most(ofTask, 2))
	w.at(job.Running, job.Worker, ids[:3]...)
	w.at(job.Waiting, job.Gate, ids[3])
	w.uses(ofTask, 3, 1)
	checkTurns(w)
	// They are as their worker knows them: it finishes one, retries one and gives one back.
	w.must(finish(running[0], by(session)))
	w.pay()
	w.uses(ofTask, 2, 1)
	w.must(setting(move(running[1], by(session), job.Gate, job.Waiting), job.Patch{Retry: true, Delay: time.Hour}))
	w.pay()
	w.uses(ofTask, 2, 0)
	w.must(move(running[2], by(session), job.Ready, job.Pending))
	w.uses(ofTask, 2, 0)
	w.drain(session, 2, 2)
	w.clock.Advance(2 * time.Hour)
	w.uses(ofTask, 0, 0)
	checkTurns(w)
}

func walkLater(w *world) {
	session := w.session()
	first := w.add(newTask(asItIs))
	w.claimOne(session)
	timed := w.add(newTask(delayed(time.Minute), asItIs))
	waits := w.add(newTask(after(job.NeedEnded, first), asItIs))
	n := w.job(waits).N
	w.limit(most(ofTask, 1))
	for _, id := range []job.ID{timed, waits} {
		w.isUnder(id, ofTask)
		if j := w.job(id); j.N != n || j.Line != "" {
			w.Errorf("it has %d events and stands in the line %q", j.N, j.Line)
		}
	}
	w.uses(ofTask, 1, 0)
	w.clock.Advance(2 * time.Minute)
	if n, effects, err := w.s.Due(w.ctx, 100); n != 1 || err != nil || !effects.Owed {
		w.Errorf("%d were due, owed: %t, %v", n, effects.Owed, err)
	}
	w.pay()
	w.at(job.Waiting, job.Gate, timed, waits)
	w.uses(ofTask, 1, 1)
	session = w.session()
	w.expire()
	w.pay()
	w.at(job.Pending, job.Ready, first)
	w.drain(session, 1, 3)
	checkTurns(w)
}

func walkInLine(w *world) {
	w.limit(most("gpu", 1))
	session := w.session()
	ids := w.addMany(3, under("gpu"), asItIs)
	w.pay()
	w.claimOne(session)
	n := w.job(ids[1]).N
	w.limit(most(ofTask, 1))
	w.isUnder(ids[0], "gpu", ofTask)
	w.isUnder(ids[1], "gpu", ofTask)
	w.uses(ofTask, 1, 0)
	w.uses("gpu", 1, 2)
	if j := w.job(ids[1]); j.N != n {
		w.Errorf("it has %d events, want %d", j.N, n)
	}
	checkTurns(w)
	w.must(finish(w.job(ids[0]), by(session)))
	w.pay()
	w.uses(ofTask, 1, 0)
	w.drain(session, 1, 2)
	checkTurns(w)
}

func walkTurn(w *world) {
	w.limit(most("gpu", 5))
	ids := w.addMany(6, under("gpu"), asItIs)
	w.pay()
	w.uses("gpu", 5, 1)
	w.limit(most(ofTask, 2))
	w.at(job.Pending, job.Ready, ids[:2]...)
	w.at(job.Waiting, job.Gate, ids[2:]...)
	w.uses("gpu", 2, 0)
	w.uses(ofTask, 2, 4)
	checkTurns(w)
	w.drain(w.session(), 2, 6)
}

func walkStopped(w *world) {
	session := w.session()
	ids := w.addMany(3, asItIs)
	w.wish(job.WishPause, ids[0])
	for _, j := range w.claim(wanted(session, 2)) {
		w.must(move(j, by(session), job.Recovery, job.Blocked))
	}
	w.limit(most(ofTask, 1))
	w.uses(ofTask, 0, 0)
	for _, id := range ids {
		w.isUnder(id, ofTask)
	}
	w.wish(job.WishResume, ids[0])
	w.wish(job.WishPause, ids[1])
	w.wish(job.WishResume, ids[1])
	w.pay()
	w.uses(ofTask, 1, 1)
	w.wish(job.WishCancel, ids[2])
	w.drain(session, 1, 2)
	checkTurns(w)
}

// walkClaimed: between the limit and the walk a job is claimed.
func walkClaimed(w *world) {
	session := w.session()
	w.addMany(3, asItIs)
	w.set(most(ofTask, 1))
	jobs := w.claim(wanted(session, 2))
	w.must(finish(jobs[0], by(session)))
	w.pay()
	w.uses(ofTask, 1, 1)
	w.must(finish(jobs[1], by(session)))
	w.pay()
	w.uses(ofTask, 1, 0)
	w.drain(session, 1, 1)
	checkTurns(w)
}

func walkFamily(w *world) {
	w.limit(most("user/bob", 2))
	var ids []job.ID
	for _, owner := range []string{ann, "bob", "cid"} {
		ids = append(ids, w.addMany(4, ownedBy(owner), asItIs)...)
	}
	w.pay()
	w.uses("user/bob", 2, 2)
	w.limit(most("user/*", 1))
	for i, owner := range []string{ann, "bob", "cid"} {
		for _, id := range ids[4*i : 4*i+4] {
			w.isUnder(id, "user/"+owner)
		}
	}
	w.uses("user/"+ann, 1, 3)
	w.uses("user/bob", 2, 2)
	w.uses("user/cid", 1, 3)
	checkTurns(w)
	effects, err := store.SetLimit(w.ctx, w.s, acme, most("user/cid", 1)) // all of cid's are under the key
	if err != nil || !effects.Owed {                                      // to those who wait
		w.Errorf("owed: %t, %v", effects.Owed, err)
	}
	if n, effects, err := w.s.Pay(w.ctx, 1000); n != 1 || effects.Owed || err != nil {
		w.Errorf("paid %d, owed: %t, %v", n, effects.Owed, err)
	}
	w.drain(w.session(), 4, 12)
}

func walkSeveral(w *world) {
	session := w.session()
	ids := w.addMany(8, asItIs)
	w.claim(wanted(session, 1))
	for i, key := range []string{"tenant", ofTask, "user/" + ann} {
		w.set(most(key, 4-i))
		if i == 1 {
			w.payOnce(4)
		}
	}
	w.pay()
	for _, id := range ids {
		w.isUnder(id, ofTask, "tenant", "user/"+ann)
	}
	if held, _ := w.turns("tenant"); held != 2 {
		w.Errorf("%d have their turns", held)
	}
	checkTurns(w)
	w.must(finish(w.job(ids[0]), by(session)))
	w.pay()
	w.drain(session, 2, 7)
	checkTurns(w)
}

func (w *world) payOnce(limit int) store.Effects {
	w.Helper()
	_, effects, err := w.s.Pay(w.ctx, limit)
	if err != nil {
		w.Fatalf("pay: %v", err)
	}
	return effects
}

func walkAgain(w *world) {
	w.limit(most(ofTask, 1))
	old := w.addMany(2, asItIs)
	w.pay()
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, ofTask); err != nil {
		w.Fatalf("remove: %v", err)
	}
	w.pay()
	w.at(job.Pending, job.Ready, old...) // they are under the key, and nobody decides on it
	w.uses(ofTask, 2, 0)
	later := w.addMany(2, asItIs)
	w.isUnder(later[0])
	c := wanted(w.session(), 1)
	c.Slots = map[job.Lane]int{job.LaneTask: 1}
	w.claim(c)
	w.at(job.Running, job.Worker, old[0])
	w.limit(most(ofTask, 2))
	w.uses(ofTask, 2, 2) // who runs goes on, and all others wait as if it had never been away
	w.at(job.Pending, job.Ready, old[1])
	w.at(job.Waiting, job.Gate, later...)
	w.limit(most(ofTask, 1))
	w.at(job.Pending, job.Ready, old[1]) // it has its turn, and keeps it
	checkTurns(w)
}

func walkRemoved(w *world) {
	ids := w.addMany(30, asItIs)
	w.set(most(ofTask, 1))
	w.payOnce(20)
	w.isUnder(ids[0], ofTask)
	w.isUnder(ids[29])
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, ofTask); err != nil {
		w.Fatalf("remove: %v", err)
	}
	w.pay()
	w.isUnder(ids[29])
	w.at(job.Pending, job.Ready, ids...)
	checkTurns(w)
	w.set(most(ofTask, 1))
	w.payOnce(20)
	w.set(most(ofTask, 4))
	w.pay()
	for _, id := range ids {
		w.isUnder(id, ofTask)
	}
	// Those that got a turn while nobody decided have it.
	held, waiting := w.turns(ofTask)
	if held < 4 || held+waiting != 30 || held > 20 {
		w.Errorf("%d turns, %d wait", held, waiting)
	}
	checkTurns(w)
}

func walkOwn(w *world) {
	ids := w.addMany(30, asItIs)
	w.set(most("user/*", 1))
	w.payOnce(20)
	w.set(most("user/"+ann, 2))
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, "user/*"); err != nil {
		w.Fatalf("remove: %v", err)
	}
	w.pay()
	for _, id := range ids {
		w.isUnder(id, "user/"+ann)
	}
	w.uses("user/"+ann, 2, 28)
	checkTurns(w)
}

func walkBounded(w *world) {
	w.addMany(50, asItIs)
	w.set(most(ofTask, 5))
	session := w.session()
	for steps := 1; ; steps++ {
		n, effects, err := w.s.Pay(w.ctx, 14)
		if err != nil || n < 1 || n > 14 {
			w.Fatalf("paid %d, %v", n, err)
		}
		if held, _ := w.turns(ofTask); held > 0 {
			if steps < 8 {
				w.Errorf("%d have turns after %d steps", held, steps)
			}
			break
		}
		if !effects.Owed {
			w.Fatalf("nobody has a turn after %d steps", steps)
		}
	}
	w.pay()
	w.uses(ofTask, 5, 45)
	checkTurns(w)
	w.drain(session, 5, 50)
}

func walkBacklog(w *world) {
	jobs := rounds(2300, 1200)
	running := w.addMany(1, asItIs)
	session := w.session()
	w.claimOne(session)
	w.addMany(jobs, asItIs)
	w.set(most(ofTask, 20))
	w.pay()
	w.uses(ofTask, 20, jobs+1-20)
	w.at(job.Running, job.Worker, running...)
	if n, err := w.s.Count(w.ctx, acme, nil); err != nil || n.States[job.Waiting] != jobs+1-20 ||
		n.States[job.Pending] != 19 {
		w.Errorf("counted %v, %v", n.States, err)
	}
}

func walkMeanwhile(w *world) {
	old := w.addMany(20, asItIs)
	w.set(most(ofTask, 2))
	w.payOnce(6)
	first := job.ID{6: 0x70, 8: 0x80} // it comes before all others
	late := append(w.addMany(3, asItIs), w.add(newTask(withID(first), withPriority(0), asItIs)))
	w.at(job.Waiting, job.Gate, late...)
	w.payOnce(6)
	w.at(job.Waiting, job.Gate, late...)
	w.pay()
	for _, id := range append(slices.Clone(old), late...) {
		w.isUnder(id, ofTask)
	}
	w.at(job.Pending, job.Ready, first, old[0])
	w.uses(ofTask, 2, 22)
	checkTurns(w)
	w.drain(w.session(), 2, 24)
}

func walkOwed(w *world) {
	w.addMany(10, asItIs)
	dead, session := w.session(), w.session()
	w.set(most(ofTask, 2))
	w.payOnce(6)
	w.clock.Advance(lease * 2 / 3)
	if r := w.renew(session); !r.Unpaid {
		w.Errorf("what is owed for long is not told: %+v", r)
	}
	w.clock.Advance(lease * 2 / 3)
	w.renew(session)
	w.clock.Advance(lease)
	session = w.session()
	if _, effects, err := w.s.Expire(w.ctx, 100); err != nil || !effects.Owed {
		w.Errorf("after the end of %s: owed: %t, %v", dead, effects.Owed, err)
	}
	w.pay()
	if r := w.renew(session); r.Unpaid {
		w.Errorf("nothing is owed: %+v", r)
	}
	w.uses(ofTask, 2, 8)
	checkTurns(w)
}

func walkOthers(w *world) {
	sub := submission(newTask(asItIs), newTask(asItIs))
	sub.Tenant = "other"
	got, _, err := w.s.Submit(w.ctx, sub)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	mine := w.addMany(2, asItIs)
	w.limit(most("gpu", 1), most("kind/other", 1), most("user/bob", 1), most("system/local", 1))
	w.isUnder(mine[0])
	w.limit(most(ofTask, 1))
	w.isUnder(mine[0], ofTask)
	for _, a := range got {
		if j, err := store.FindJob(w.ctx, w.s, "other", a.ID); err != nil || len(j.Limits) > 0 || j.Custody != job.Ready {
			w.Errorf("the job of another tenant: %+v, %v", j, err)
		}
	}
	if effects, err := store.SetLimit(w.ctx, w.s, "other", most("gpu", 1)); err != nil || effects.Owed {
		w.Errorf("a key that only specs name: owed: %t, %v", effects.Owed, err)
	}
	checkTurns(w)
}

// walkAtOnce sets and removes limits while others submit and run jobs. Who runs when a limit is
// there and has taken in all is never more than it says.
func walkAtOnce(w *world) {
	const workers, places = 4, 3
	jobs := rounds(80, 40)
	sessions := make([]job.ID, workers)
	for i := range sessions {
		sessions[i] = w.sessionFor(time.Hour)
	}
	w.addMany(jobs/2, asItIs)
	var submitted, done atomic.Int64
	submitted.Store(int64(jobs / 2))
	w.together(workers+2, func(i int) error {
		switch i {
		case workers: // submits
			for range jobs / 2 {
				sub, err := submission(newTask(asItIs)), error(nil)
				for again := true; again; again = job.KindOf(err) == job.Unavailable { // limits have changed too often
					_, _, err = w.s.Submit(w.ctx, sub)
				}
				if err != nil {
					return err
				}
				submitted.Add(1)
			}
			return nil
		case workers + 1: // sets limits
			for round := range 4 {
				for _, l := range []job.Limit{
					most(ofTask, places), most("user/*", places+1),
					most("tenant", 1+places),
				} {
					if _, err := store.SetLimit(w.ctx, w.s, acme, l); err != nil {
						return err
					}
				}
				if round == 3 {
					return nil
				}
				for _, key := range []string{"user/*", ofTask} {
					if _, err := store.RemoveLimit(w.ctx, w.s, acme, key); err != nil {
						return err
					}
				}
			}
			return nil
		}
		for idle := 0; idle < 200 && int(done.Load()) < jobs; {
			if _, _, err := w.s.Pay(w.ctx, 6); err != nil {
				return err
			}
			got, err := w.s.Claim(w.ctx, wanted(sessions[i], 2))
			if err != nil {
				return err
			}
			if len(got) == 0 {
				idle++
			}
			for _, j := range got {
				idle = 0
				as, _, _, err := w.s.Apply(w.ctx, []job.Change{finish(j, by(sessions[i]))}, nil)
				if err != nil {
					return err
				}
				if as[0].Outcome != store.OK {
					return fmt.Errorf("the end of %s: %+v", j.ID, as[0])
				}
				done.Add(1)
			}
		}
		return nil
	})
	w.pay()
	checkTurns(w)
	for _, id := range w.inState(job.Waiting) {
		w.isUnder(id, ofTask, "tenant", "user/"+ann)
	}
	w.drain(sessions[0], 2*places, jobs-int(done.Load()))
	w.uses(ofTask, 0, 0)
	w.uses("tenant", 0, 0)
	checkTurns(w)
}

func walkKept(w *world) {
	keeps, waits, session, runs := keeping(w)
	w.limit(most("tenant", 1))
	if j := w.job(keeps); j.Ties&job.TieKept != 0 {
		w.Errorf("it keeps its turn: %+v", j)
	}
	w.at(job.Waiting, job.Gate, keeps, waits)
	w.uses("tenant", 1, 1) // who runs
	w.must(finish(runs, by(session)))
	w.pay()
	w.uses("tenant", 1, 1)
	w.claimOne(session)
	checkTurns(w)
}
