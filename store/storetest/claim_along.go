package storetest

import (
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// turning returns tasks that a session holds, n of them, which have all turns of a key; those that
// are added later wait for them. The store has seen by then that tasks give turns back: it need not
// hand any on in the same call before.
func (w *world) turning(session job.ID, n int) (held []job.Job) {
	w.Helper()
	w.limit(most("gpu", n))
	claim := func(ids ...job.ID) {
		w.Helper()
		w.pay()
		c := wanted(session, n)
		c.Jobs = ids
		held = append(held, w.claim(c)...)
	}
	claim(w.addMany(n, under("gpu"))...)
	w.must(finish(held[0], by(session)))
	held = held[1:]
	if claim(w.add(newTask(under("gpu")))); len(held) != n {
		w.Fatalf("%d tasks have turns, want %d", len(held), n)
	}
	return held
}

// ends are the changes by which a session finishes what it holds.
func ends(held []job.Job, session job.ID) (changes []job.Change) {
	for _, j := range held {
		changes = append(changes, finish(j, by(session)))
	}
	return changes
}

// handsOn makes changes and a claim in one call. Where a store leaves turns owed, they are paid,
// and the rest of the claim is one of its own. What is told of is told once all that is done.
func (w *world) handsOn(c store.Claim, changes ...job.Change) (claimed []job.ID, told []job.QueueKind) {
	w.Helper()
	w.pay()
	answers, jobs, eff, err := w.s.Apply(w.ctx, changes, &c)
	if err != nil {
		w.Fatalf("%d changes and a claim: %v", len(changes), err)
	}
	for i, a := range answers {
		if a.Outcome != store.OK {
			w.Errorf("change of job %s: %s", changes[i].Job, a.Outcome)
		}
	}
	claimed, told = jobIDs(jobs), eff.Ready
	for eff.Owed {
		if _, eff, err = w.s.Pay(w.ctx, 1000); err != nil {
			w.Fatalf("pay: %v", err)
		}
		if told = append(told, eff.Ready...); !eff.Owed {
			c.ID, c.Slots = job.NewID(), maps.Clone(c.Slots)
			for _, j := range jobs {
				c.Slots[j.Lane]--
			}
			claimed = append(claimed, jobIDs(w.claim(c))...)
		}
	}
	return claimed, told
}

// left fails the test unless jobs are ready that a call has told of.
func (w *world) left(told []job.QueueKind, ids ...job.ID) {
	w.Helper()
	w.at(job.Pending, job.Ready, ids...)
	for _, id := range ids {
		if j := w.job(id); !slices.Contains(told, job.QueueKind{Queue: j.Queue, Kind: j.Kind}) {
			w.Errorf("nobody is told of job %s: %+v", id, told)
		}
	}
}

// One task gets its turn along and is claimed along; another one gets it, is paid for and claimed
// by calls of their own.
func claimAlongAlike(w *world) {
	session := w.session()
	held := w.turning(session, 1)
	ids := w.addMany(2, under("gpu"))
	w.pay()
	claimed, _ := w.handsOn(wanted(session, 10), finish(held[0], by(session)))
	sameSet(w, "claimed along", claimed, ids[:1])
	w.uses("gpu", 1, 1)
	w.must(finish(w.job(ids[0]), by(session)))
	w.pay()
	w.claimOne(session)
	w.uses("gpu", 1, 0)

	type event struct {
		N, Epoch int64
		Place    job.Place
		Cause    job.Cause
		Actor    string
	}
	var histories [2][]event
	for i, id := range ids {
		for _, e := range w.history(id)[:3] {
			histories[i] = append(histories[i],
				event{e.N, e.Epoch, job.Place{State: e.State, Custody: e.Custody}, e.Cause, e.Actor})
		}
	}
	equal(w, "history", histories[0], histories[1])
	w.must(finish(w.job(ids[1]), by(session)))
	var ended [2]job.Job
	for i, id := range ids {
		j := w.job(id)
		ended[i] = job.Job{
			Place: j.Place, Epoch: j.Epoch, N: j.N, Lane: j.Lane, Attempt: j.Attempt, Ties: j.Ties,
			Code: j.Code, Message: j.Message,
		}
	}
	equal(w, "rows", ended[0], ended[1])
	w.pay()
	checkTurns(w)
	Check(w, w.s, acme)
}

func claimAlongFew(w *world) {
	session := w.session()
	plain := w.add(newTask())
	held := w.turning(session, 3)
	ids := w.addMany(5, under("gpu"))
	slots := func(n int) store.Claim {
		c := wanted(session, 0)
		c.Slots[job.LaneTask] = n
		return c
	}
	claimed, told := w.handsOn(slots(2), ends(held, session)...)
	sameSet(w, "who was ready, and who is next", claimed, []job.ID{plain, ids[0]})
	w.left(told, ids[1:3]...)
	w.at(job.Waiting, job.Gate, ids[3:]...)
	w.uses("gpu", 3, 2)
	sameSet(w, "the rest", jobIDs(w.claim(slots(5))), ids[1:3])

	claimed, told = w.handsOn(slots(0), finish(w.job(ids[0]), by(session)))
	sameSet(w, "no slot", claimed, nil)
	w.left(told, ids[3])
	claimed, told = w.handsOn(slots(1), finish(w.job(ids[1]), by(session)))
	sameSet(w, "who was ready before", claimed, ids[3:4])
	w.left(told, ids[4])
	checkTurns(w)
	Check(w, w.s, acme)
}

func claimAlongAsked(w *world) {
	session := w.session()
	held := w.turning(session, 4)
	elsewhere := w.add(newTask(under("gpu"), inQueue("elsewhere")))
	other := w.add(newTask(under("gpu"), ofKind("other")))
	there := w.add(newTask(under("gpu"), on("m2")))
	here := w.add(newTask(under("gpu"), on(machine)))
	claimed, told := w.handsOn(wanted(session, 10), ends(held, session)...)
	sameSet(w, "claimed", claimed, []job.ID{here})
	w.left(told, elsewhere, other, there)

	next := w.addMany(3, under("gpu"))
	c := wanted(session, 10)
	c.Tenants = []string{"globex"}
	claimed, told = w.handsOn(c, finish(w.job(here), by(session)))
	sameSet(w, "of another tenant", claimed, nil)
	w.left(told, next[0])

	c = wanted(session, 10)
	c.Jobs = next[:1]
	sameSet(w, "by its name", jobIDs(w.claim(c)), next[:1])
	c = wanted(session, 10)
	c.Jobs = next[2:]
	claimed, told = w.handsOn(c, finish(w.job(next[0]), by(session)))
	sameSet(w, "by the name of another one", claimed, nil)
	w.left(told, next[1])

	c = wanted(session, 10)
	c.Jobs = next[1:]
	held = w.claim(c)
	c = wanted(session, 10)
	c.Jobs = next[2:]
	claimed, _ = w.handsOn(c, ends(held, session)...)
	sameSet(w, "by its name, along", claimed, next[2:])
	checkTurns(w)
	Check(w, w.s, acme)
}

// A suspect has slots of its own.
func claimAlongSuspect(w *world) {
	w.limit(most("gpu", 1))
	j := w.suspected(2, newTask(under("gpu")))
	for name, c := range map[string]func(session job.ID, n int) store.Claim{
		"a slot for suspects":  aloneOnly,
		"slots for all others": noneAlone,
	} {
		w.wish(job.WishPause, j.ID)
		session := w.session()
		held := w.turning(session, 1)
		w.wish(job.WishResume, j.ID)
		w.pay()
		w.at(job.Waiting, job.Gate, j.ID)
		claimed, told := w.handsOn(c(session, 1), finish(held[0], by(session)))
		if len(claimed) == 0 {
			w.left(told, j.ID)
			claimed = jobIDs(w.claim(aloneOnly(session, 1)))
		} else if name != "a slot for suspects" {
			w.Errorf("%s: claimed %s", name, fmtIDs(claimed))
		}
		sameSet(w, "the suspect", claimed, []job.ID{j.ID})
		j = w.must(move(w.job(j.ID), by(session), job.Ready, job.Pending))
	}
	w.wish(job.WishPause, j.ID)
	session := w.session()
	held := w.turning(session, 2)
	w.wish(job.WishResume, j.ID)
	other := w.add(newTask(under("gpu")))
	claimed, _ := w.handsOn(wanted(session, 1), ends(held, session)...)
	sameSet(w, "a slot of each lane", claimed, []job.ID{j.ID, other})
	checkTurns(w)
	Check(w, w.s, acme)
}

func claimAlongDrain(w *world) {
	session := w.session()
	held := w.turning(session, 2)
	ids := w.addMany(3, under("gpu"))
	w.command(session, store.Drain)
	claimed, told := w.handsOn(wanted(session, 10), ends(held, session)...)
	sameSet(w, "claimed along", claimed, nil)
	w.left(told, ids[:2]...)
	w.at(job.Waiting, job.Gate, ids[2])
	w.uses("gpu", 2, 1)
	Check(w, w.s, acme)
}

func claimAlongAgain(w *world) {
	session := w.session()
	plain := w.add(newTask())
	held := w.turning(session, 3)
	ids := w.addMany(4, under("gpu"))
	w.pay()
	c := wanted(session, 10)
	_, first := w.along(c, ends(held[:2], session)...)
	if want := []job.ID{plain, ids[0], ids[1]}; len(first) > 1 { // else the turns are owed
		sameSet(w, "the first answer", jobIDs(first), want)
	}
	// with an end more, and without
	for _, changes := range [][]job.Change{ends(held, session), ends(held[:2], session)} {
		outcomes, jobs := w.along(c, changes...)
		equal(w, "answers", outcomes, slices.Repeat([]store.Outcome{store.OK}, len(changes)))
		sameSet(w, "claimed, by a repeat", jobIDs(jobs), jobIDs(first))
		for _, j := range first {
			w.untouched(j)
		}
	}
	w.pay()
	w.at(job.Pending, job.Ready, ids[2])
	w.uses("gpu", 3, 1)
	checkTurns(w)
	Check(w, w.s, acme)
}

func claimAlongStart(w *world) {
	session := w.session()
	held := w.turning(session, 1)
	again := func() store.Submitted {
		w.Helper()
		return w.submit(newTask(unique(job.UntilStart, "k"), fingerprint(1), under("gpu")))[0]
	}
	first := again()
	if got := again(); got.ID != first.ID || !got.Existed {
		w.Errorf("%+v, want job %s", got, first.ID)
	}
	claimed, _ := w.handsOn(wanted(session, 10), finish(held[0], by(session)))
	sameSet(w, "claimed along", claimed, []job.ID{first.ID})
	if got := again(); got.ID == first.ID || got.Existed {
		w.Errorf("%+v, and job %s has started", got, first.ID)
	}
	Check(w, w.s, acme)
}

// Whether others are claimed as well is for the store: nobody is lost, or claimed twice.
func claimAlongHanded(w *world) {
	session := w.session()
	plain := w.add(newTask())
	held := w.turning(session, 2)
	ids := w.addMany(4, under("gpu"))
	w.pay()
	c := wanted(session, 10)
	c.Handed = true
	_, first := w.along(c, finish(held[0], by(session)))
	for _, j := range first {
		if j.ID != plain && j.ID != ids[0] {
			w.Errorf("job %s is claimed", j.ID)
		}
	}
	if len(first) > 0 {
		c.Handed = false // as who was not answered repeats it
		_, again := w.along(c, finish(held[0], by(session)))
		sameSet(w, "claimed, by a repeat", jobIDs(again), jobIDs(first))
	}
	w.pay()
	sameSet(w, "claimed along, and after that", append(jobIDs(first), jobIDs(w.claim(wanted(session, 10)))...),
		[]job.ID{plain, ids[0]})

	w.command(session, store.Drain)
	c = wanted(session, 10)
	c.Handed = true
	claimed, told := w.handsOn(c, finish(held[1], by(session)))
	sameSet(w, "claimed by a session that drains", claimed, nil)
	w.left(told, ids[1])

	session = w.session()
	w.claim(wanted(session, 10))
	j := w.job(ids[1])
	w.clock.Advance(lease + margin)
	c = wanted(session, 10)
	c.Handed = true
	outcomes, jobs := w.along(c, finish(j, by(session)))
	if outcomes[0] != store.Fenced || len(jobs) > 0 {
		w.Errorf("a session that is not alive is answered %s, and claims %d jobs", outcomes[0], len(jobs))
	}
	checkTurns(w)
	Check(w, w.s, acme)
}

// A call announces the jobs that its changes make ready, unless it has claimed them itself: a job
// that gets a turn, and a job that is tried again.
func claimAlongNews(w *world) {
	session := w.session()
	held := w.turning(session, 3)
	w.addMany(3, under("gpu"))
	plain := w.add(newTask())
	held = append(held, w.claimOne(session))
	w.pay()
	retry := setting(move(held[3], by(session), job.Ready, job.Pending), job.Patch{Retry: true})
	for i, handed := range []bool{false, true, false} {
		c := wanted(session, 10)
		if c.Handed = handed; i == 2 {
			c.Slots = map[job.Lane]int{}
		}
		changes := ends(held[i:i+1], session)
		if i == 1 {
			changes = append(changes, retry)
		}
		_, jobs, eff, err := w.s.Apply(w.ctx, changes, &c)
		if err != nil {
			w.Fatalf("call %d: %v", i, err)
		}
		ready := i == 1 && !slices.Contains(jobIDs(jobs), plain) || i == 2 && !eff.Owed
		if told := len(eff.Ready) > 0; told != ready {
			w.Errorf("call %d: told of %+v, with %d jobs claimed along", i, eff.Ready, len(jobs))
		}
		w.pay()
		w.claim(wanted(session, 10))
	}
	Check(w, w.s, acme)
}

func claimAlongSlots(w *world) {
	session := w.session()
	w.add(newTask())
	end := finish(w.claimOne(session), by(session))
	ids := w.addMany(3)
	c := wanted(session, 0)
	c.Slots[job.LaneTask] = 2
	_, jobs := w.along(c, end)
	sameSet(w, "two slots", jobIDs(jobs), ids[:2])
	_, jobs = w.along(wanted(session, 0), finish(jobs[0], by(session)))
	sameSet(w, "no slot", jobIDs(jobs), nil)
	Check(w, w.s, acme)
}

func claimAlongDead(w *world) {
	session := w.session()
	id := w.add(newTask())
	j := w.claimOne(session)
	w.end(session)
	outcomes, jobs := w.along(wanted(session, 10), finish(j, by(session)))
	equal(w, "answers", outcomes, []store.Outcome{store.Fenced})
	sameSet(w, "claimed along", jobIDs(jobs), nil)
	w.at(job.Pending, job.Ready, id)
	Check(w, w.s, acme)
}

// Who hands turns on in the call that gives them back has the next job in the same call; else it
// comes with a later claim.
func claimAlongTurn(w *world) {
	w.limit(most("gpu", 1))
	session := w.session()
	ids := w.addMany(3, under("gpu"))
	w.pay()
	j := w.claimOne(session)
	for _, next := range ids[1:] {
		_, jobs := w.along(wanted(session, 10), finish(j, by(session)))
		if len(jobs) == 0 {
			w.pay()
			jobs = []job.Job{w.claimOne(session)}
		}
		sameSet(w, "who is next", jobIDs(jobs), []job.ID{next})
		w.uses("gpu", 1, len(ids)-1-slices.Index(ids, next))
		j = jobs[0]
	}
	w.must(finish(j, by(session)))
	w.pay()
	checkTurns(w)
	Check(w, w.s, acme)
}
