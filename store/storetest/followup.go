package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var followUpTests = []test{
	{"a plain task owes nothing", followNone},
	{"dependants go on, or end with what they waited for", followNeeds},
	{"several prerequisites", followSeveral},
	{"a chain of failures", followChain},
	{"every way to end owes", followWays},
	{"a payer that crashes is followed by another", followCrash},
	{"very many dependants are paid in bounded steps", followMany},
	{"a prerequisite that has ended", followEnded},
	{"a prerequisite that is not there", followUnknown},
	{"prerequisites within one call", followWithin},
	{"a dependant that is not waiting any more", followElsewhere},
}

var followUpLong = []test{
	{"a diamond whose last two prerequisites end at once", followDiamond},
	{"many payers at once pay once", followPayers},
	{"a prerequisite that ends while its dependant is submitted", followAgainstSubmit},
}

func followNone(w *world) {
	session := w.session()
	w.add(newTask())
	_, _, effects, err := w.s.Apply(w.ctx, []job.Change{finish(w.claimOne(session), by(session))}, nil)
	if err != nil || effects.Owed {
		w.Errorf("%v, owed %t", err, effects.Owed)
	}
	if n, effects, err := w.s.Pay(w.ctx, 100); n != 0 || effects.Owed || err != nil {
		w.Errorf("paid %d, owed %t, %v", n, effects.Owed, err)
	}
}

// endAll claims every ready job of the queue and ends it in the state.
func (w *world) endAll(queue string, state job.State) store.Effects {
	w.Helper()
	session := w.session()
	c := wanted(session, 10_000)
	c.Queues = []string{queue}
	var changes []job.Change
	for _, j := range w.claim(c) {
		changes = append(changes, move(j, by(session), job.None, state))
	}
	_, _, effects, err := w.s.Apply(w.ctx, changes, nil)
	if err != nil {
		w.Fatalf("apply: %v", err)
	}
	w.end(session)
	return effects
}

func followNeeds(w *world) {
	for _, c := range []struct {
		end  job.State
		need job.Need
		want job.Place
	}{
		{job.Finished, job.NeedFinished, job.Place{State: job.Pending, Custody: job.Ready}},
		{job.Finished, job.NeedEnded, job.Place{State: job.Pending, Custody: job.Ready}},
		{job.Failed, job.NeedEnded, job.Place{State: job.Pending, Custody: job.Ready}},
		{job.Failed, job.NeedFinished, job.Place{State: job.Canceled, Custody: job.None}},
	} {
		w.fresh(string(c.end)+", need "+string(c.need), func(w *world) {
			first := w.add(newTask(inQueue("first")))
			waits := w.add(newTask(after(c.need, first)))
			w.at(job.Waiting, job.Gate, waits)
			if n := w.job(waits).Needs; n != 1 {
				w.Errorf("needs %d, want 1", n)
			}
			if effects := w.endAll("first", c.end); !effects.Owed {
				w.Errorf("nothing is owed")
			}
			n, effects, err := w.s.Pay(w.ctx, 100)
			if err != nil || n == 0 {
				w.Errorf("paid %d, %v", n, err)
			}
			w.at(c.want.State, c.want.Custody, waits)
			j := w.job(waits)
			if c.want.Custody == job.Ready {
				sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
			} else if j.Code != job.PrerequisiteFailed {
				w.Errorf("code %s, want %s", j.Code, job.PrerequisiteFailed)
			}
			if e := w.event(waits, 2); e.Cause != job.CausePaid {
				w.Errorf("the event is %+v", e)
			}
			w.pay()
			Check(w, w.s, acme)
		})
	}
}

func followSeveral(w *world) {
	a, b := w.add(newTask(inQueue("a"))), w.add(newTask(inQueue("b")))
	c := w.add(newTask(inQueue("c")))
	waits := w.add(newTask(after(job.NeedFinished, a, b), after(job.NeedEnded, c)))
	w.endAll("a", job.Finished)
	w.pay()
	w.endAll("c", job.Failed)
	w.pay()
	w.at(job.Waiting, job.Gate, waits)
	if n := w.job(waits).Needs; n != 1 {
		w.Errorf("needs %d, want 1", n)
	}
	w.endAll("b", job.Finished)
	w.pay()
	w.at(job.Pending, job.Ready, waits)

	// The first failure cancels; the ends that come later find it ended.
	d, e := w.add(newTask(inQueue("d"))), w.add(newTask(inQueue("e")))
	waits = w.add(newTask(after(job.NeedFinished, d, e)))
	w.endAll("d", job.Failed)
	w.pay()
	w.at(job.Canceled, job.None, waits)
	w.endAll("e", job.Finished)
	w.pay()
	w.at(job.Canceled, job.None, waits)

	if n, _, err := w.s.Recount(w.ctx, 100); n != (store.Recounted{}) || err != nil {
		w.Errorf("recount corrects %+v, %v", n, err)
	}

	// Named twice, the stronger need counts, whatever comes first; or it is refused.
	for _, needs := range [][]job.Need{{job.NeedEnded, job.NeedFinished}, {job.NeedFinished, job.NeedEnded}} {
		g := w.add(newTask(inQueue("g")))
		got, _, err := w.s.Submit(w.ctx, submission(newTask(after(needs[0], g), after(needs[1], g))))
		if err != nil {
			w.kind(err, job.Invalid)
			continue
		}
		w.endAll("g", job.Failed)
		w.pay()
		w.at(job.Canceled, job.None, got[0].ID)
	}

	// The same prerequisite named twice is one, or refused.
	f := w.add(newTask(inQueue("f")))
	if got, _, err := w.s.Submit(w.ctx, submission(newTask(after(job.NeedEnded, f, f)))); err == nil {
		w.endAll("f", job.Finished)
		w.pay()
		w.at(job.Pending, job.Ready, got[0].ID)
	} else {
		w.kind(err, job.Invalid)
	}
	Check(w, w.s, acme)
}

func followChain(w *world) {
	chain := []job.ID{w.add(newTask(inQueue("first")))}
	for range 8 {
		chain = append(chain, w.add(newTask(after(job.NeedFinished, chain[len(chain)-1]))))
	}
	last := w.add(newTask(after(job.NeedEnded, chain[len(chain)-1])))
	w.endAll("first", job.Failed)
	w.pay()
	for _, id := range chain[1:] {
		if j := w.job(id); j.State != job.Canceled || j.Code != job.PrerequisiteFailed {
			w.Errorf("job %s is at %s with code %s", id, j.Place, j.Code)
		}
	}
	w.at(job.Pending, job.Ready, last)
	Check(w, w.s, acme)
}

func followDiamond(w *world) {
	session := w.session()
	for range rounds(40, 10) {
		ids := w.addMany(4)
		waits := w.add(newTask(after(job.NeedFinished, ids...)))
		jobs := w.claim(wanted(session, 4))
		w.applyAll(finish(jobs[0], by(session)), finish(jobs[1], by(session)))
		w.together(2, func(i int) error {
			if _, _, _, err := w.s.Apply(w.ctx, []job.Change{finish(jobs[2+i], by(session))}, nil); err != nil {
				return err
			}
			_, _, err := w.s.Pay(w.ctx, 100)
			return err
		})
		w.pay()
		w.at(job.Pending, job.Ready, waits)
		w.wish(job.WishCancel, waits)
	}
	Check(w, w.s, acme)
}

func followWays(w *world) {
	for name, end := range map[string]func(w *world, id job.ID) store.Effects{
		"a cancel at once": func(w *world, id job.ID) store.Effects {
			_, effects := w.wishAll(job.WishCancel, id)
			return effects
		},
		"a diverted change": func(w *world, id job.ID) store.Effects {
			session := w.session()
			j := w.claimOne(session)
			w.wish(job.WishCancel, id)
			_, _, effects, err := w.s.Apply(w.ctx, []job.Change{move(j, by(session), job.Ready, job.Pending)}, nil)
			if err != nil {
				w.Fatalf("apply: %v", err)
			}
			return effects
		},
		"an expiry": func(w *world, id job.ID) store.Effects {
			w.claimOne(w.session())
			w.wish(job.WishCancel, id)
			w.clock.Advance(lease + margin)
			_, effects, err := w.s.Expire(w.ctx, 10)
			if err != nil {
				w.Fatalf("expire: %v", err)
			}
			return effects
		},
	} {
		w.fresh(name, func(w *world) {
			id := w.add(newTask())
			waits := w.add(newTask(after(job.NeedEnded, id)))
			fails := w.add(newTask(after(job.NeedFinished, id)))
			if effects := end(w, id); !effects.Owed {
				w.Errorf("nothing is owed")
			}
			w.pay()
			w.at(job.Canceled, job.None, id, fails)
			w.at(job.Pending, job.Ready, waits)
			Check(w, w.s, acme)
		})
	}
}

func followCrash(w *world) {
	firsts := idsOf(w.submit(newTask(inQueue("first")), newTask(inQueue("first"))))
	var waits []job.ID
	for i := range 30 {
		waits = append(waits, w.add(newTask(after(job.NeedFinished, firsts[i%2]))))
	}
	next := w.add(newTask(after(job.NeedEnded, waits[0])))
	w.endAll("first", job.Finished)
	// Each step is all that one payer does; the next one goes on.
	before := 0
	for steps := 0; ; steps++ {
		if steps > 200 {
			w.Fatalf("paying never ends")
		}
		_, effects, err := w.s.Pay(w.ctx, 1)
		if err != nil {
			w.Fatalf("pay: %v", err)
		}
		n, err := w.s.Count(w.ctx, acme, nil)
		if err != nil {
			w.Fatalf("count: %v", err)
		}
		if n.States[job.Pending] > before+1 {
			w.Errorf("one step released %d jobs", n.States[job.Pending]-before)
		}
		before = n.States[job.Pending]
		if !effects.Owed {
			break
		}
	}
	w.at(job.Pending, job.Ready, waits...)
	w.at(job.Waiting, job.Gate, next)
	Check(w, w.s, acme)
}

func followMany(w *world) {
	n := rounds(2500, 1000)
	first := w.add(newTask(inQueue("first")))
	for batch := range slices.Chunk(make([]store.New, n), 500) {
		for i := range batch {
			batch[i] = newTask(after(job.NeedFinished, first))
		}
		w.submit(batch...)
	}
	w.endAll("first", job.Finished)
	for total, steps := 0, 0; ; steps++ {
		paid, effects, err := w.s.Pay(w.ctx, 400)
		if err != nil {
			w.Fatalf("pay: %v", err)
		}
		count, _ := w.s.Count(w.ctx, acme, nil)
		if paid > 400 || count.States[job.Pending] > total+400 {
			w.Errorf("one step of 400 paid %d rows and released %d jobs", paid, count.States[job.Pending]-total)
		}
		total = count.States[job.Pending]
		if !effects.Owed {
			if total != n {
				w.Errorf("%d jobs released, want %d", total, n)
			}
			break
		}
		if steps > 50 {
			w.Fatalf("paying never ends")
		}
	}
	ids := jobIDs(listAll(w, w.s, store.Query{Tenant: acme, Limit: 1000}))
	Check(w, w.s, acme, ids[0], ids[n/2], ids[n-1], first)
}

func followPayers(w *world) {
	firsts := w.addMany(5, inQueue("first"))
	var jobs []store.New
	for i := range rounds(400, 150) {
		jobs = append(jobs, newTask(after(job.NeedFinished, firsts[i%5], firsts[(i+1)%5])))
	}
	waits := idsOf(w.submit(jobs...))
	w.endAll("first", job.Finished)
	w.together(8, func(int) error {
		// callers that find all taken by others come back
		for late := time.Now().Add(time.Minute); time.Now().Before(late); {
			_, effects, err := w.s.Pay(w.ctx, 13)
			if err != nil {
				return err
			}
			if !effects.Owed {
				return nil
			}
		}
		return fmt.Errorf("paying never ends")
	})
	w.pay()
	w.at(job.Pending, job.Ready, waits...)
	for _, id := range waits {
		if n := len(w.history(id)); n != 2 {
			w.Errorf("job %s has %d events, want 2", id, n)
		}
	}
	Check(w, w.s, acme)
}

func followEnded(w *world) {
	good := w.add(newTask(inQueue("good")))
	w.endAll("good", job.Finished)
	bad := w.add(newTask(inQueue("bad")))
	w.endAll("bad", job.Failed)
	open := w.add(newTask(inQueue("open")))
	got := w.submit(
		newTask(after(job.NeedFinished, good)), newTask(after(job.NeedEnded, bad)),
		newTask(after(job.NeedFinished, bad)),
		newTask(after(job.NeedFinished, good, open)), newTask(after(job.NeedFinished, bad, open)),
	)
	for i, want := range []job.State{job.Pending, job.Pending, job.Canceled, job.Waiting, job.Canceled} {
		if state := w.job(got[i].ID).State; got[i].Place.State != state {
			w.Errorf("job %d: answered %s, is %s", i, got[i].Place, state)
		}
		w.pay() // a store may cancel by a follow-up
		if state := w.job(got[i].ID).State; state != want {
			w.Errorf("job %d: %s, want %s", i, state, want)
		}
	}
	if code := w.job(got[2].ID).Code; code != job.PrerequisiteFailed {
		w.Errorf("code %s, want %s", code, job.PrerequisiteFailed)
	}
	w.endAll("open", job.Finished)
	w.pay()
	w.at(job.Pending, job.Ready, got[3].ID)
	Check(w, w.s, acme)
}

func followUnknown(w *world) {
	other := submission(newTask())
	other.Tenant = "other"
	theirs, _, err := w.s.Submit(w.ctx, other)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	self := newTask()
	self.After = []store.After{{Job: self.Job.ID, Need: job.NeedEnded}}
	for name, n := range map[string]store.New{
		"unknown": newTask(after(job.NeedEnded, job.NewID())),
		"theirs":  newTask(after(job.NeedEnded, theirs[0].ID)),
		"itself":  self,
	} {
		if _, _, err := w.s.Submit(w.ctx, submission(newTask(), n)); err == nil {
			w.Errorf("%s: no error", name)
		} else {
			w.kind(err, job.Invalid, job.NotFound)
		}
	}
	a, b := newTask(), newTask()
	a.After = []store.After{{Job: b.Job.ID, Need: job.NeedEnded}}
	b.After = []store.After{{Job: a.Job.ID, Need: job.NeedEnded}}
	if _, _, err := w.s.Submit(w.ctx, submission(a, b)); err == nil {
		w.Errorf("two jobs that wait for each other: no error")
	}
	if n := len(listAll(w, w.s, store.Query{Tenant: acme})); n != 0 {
		w.Errorf("%d jobs, want none", n)
	}
}

func followWithin(w *world) {
	a := newTask(inQueue("a"))
	b := newTask(inQueue("b"), after(job.NeedFinished, a.Job.ID))
	c := newTask(inQueue("c"), after(job.NeedFinished, a.Job.ID, b.Job.ID))
	got := w.submit(a, b, c)
	for i, want := range []job.State{job.Pending, job.Waiting, job.Waiting} {
		if got[i].Place.State != want {
			w.Errorf("job %d: %s, want %s", i, got[i].Place, want)
		}
	}
	w.endAll("a", job.Finished)
	w.pay()
	w.at(job.Pending, job.Ready, b.Job.ID)
	w.at(job.Waiting, job.Gate, c.Job.ID)
	w.endAll("b", job.Finished)
	w.pay()
	w.at(job.Pending, job.Ready, c.Job.ID)
	Check(w, w.s, acme)
}

func followAgainstSubmit(w *world) {
	session := w.session()
	for range rounds(60, 15) {
		w.add(newTask())
		first := w.claimOne(session)
		waits := newTask(after(job.NeedFinished, first.ID))
		w.together(2, func(i int) error {
			var err error
			if i == 0 {
				_, _, err = w.s.Submit(w.ctx, submission(waits))
			} else {
				_, _, _, err = w.s.Apply(w.ctx, []job.Change{finish(first, by(session))}, nil)
			}
			return err
		})
		w.pay()
		w.at(job.Finished, job.None, first.ID)
		w.at(job.Pending, job.Ready, waits.Job.ID)
		w.wish(job.WishCancel, waits.Job.ID)
	}
	Check(w, w.s, acme)
}

func followElsewhere(w *world) {
	first := w.add(newTask(inQueue("first")))
	paused, failing, canceled := w.add(newTask(after(job.NeedEnded, first))),
		w.add(newTask(after(job.NeedFinished, first))), w.add(newTask(after(job.NeedEnded, first)))
	w.wishAll(job.WishPause, paused, failing)
	w.wish(job.WishCancel, canceled)
	w.endAll("first", job.Failed)
	w.pay()
	w.at(job.Paused, job.User, paused)
	w.at(job.Canceled, job.None, canceled, failing)
	if j := w.job(paused); j.Needs != 0 {
		w.Errorf("the paused job needs %d, want 0", j.Needs)
	}
	w.wish(job.WishResume, paused)
	w.at(job.Pending, job.Ready, paused)
	Check(w, w.s, acme)
}
