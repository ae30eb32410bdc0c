package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

var limitTests = []test{
	{"no more run than the limit says, and who waits goes by priority and age", limitHolds},
	{"who finds all turns free goes at once", limitFree},
	{"a key without a limit holds nobody", limitNone},
	{"jobs that are equal while they run", limitImplied},
	{"a limit that is changed holds at once, and nobody is thrown out", limitChanged},
	{"a family of keys", limitFamily},
	{"limits of a partition, and of a user there", limitPartition},
	{"keys for which no limit is set are left out", limitOptional},
	{"a job has all its turns or none", limitSeveral},
	{"who keeps turns goes first, whoever else is there", limitKeeps},
	{"nobody keeps turns while he waits for what is closed", limitClosed},
	{"an owner who comes late has no claim to what others got", limitLate},
	{"who must wait for a time or for others is in no line", limitLater},
	{"who comes into a line waits for its turn since then", limitSince},
	{"a turn outlives crashes and drains", limitCrash},
	{"a turn is given back by whoever does not use it", limitReturns},
	{"programs are made ready ahead of their turn", limitAhead},
	{"a program keeps its turn until its end is known", limitLive},
	{"turns are handed on in bounded steps", limitBounded},
	{"who cannot go hides nobody, however many they are", limitBehind},
}

var limitLong = []test{
	{"a job that needs several keys gets them some day", limitStarved},
	{"owners share a line by weight", limitFair},
	{"of many owners each has a turn after the other", limitRound},
	{"owners who come and go pass nobody over", limitFlicker},
	{"by many at once", limitAtOnce},
}

func limitHolds(w *world) {
	w.limit(most("gpu", 2))
	late := w.addMany(3, under("gpu"))
	first := w.add(newTask(under("gpu"), withPriority(0)))
	free := w.add(newTask())
	w.at(job.Pending, job.Ready, free)
	w.at(job.Waiting, job.Gate, append(late, first)...)
	_, effects, err := w.s.Pay(w.ctx, 1000)
	if err != nil {
		w.Fatalf("pay: %v", err)
	}
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
	w.at(job.Pending, job.Ready, first, late[0])
	w.at(job.Waiting, job.Gate, late[1], late[2])
	w.uses("gpu", 2, 2)
	for i, id := range late[1:] {
		j := w.job(id)
		if n, err := w.s.Behind(w.ctx, &j, 10); n != i || err != nil {
			w.Errorf("a job is behind %d, want %d, %v", n, i, err)
		}
	}
	last := w.job(late[2])
	if n, err := w.s.Behind(w.ctx, &last, 0); n != 0 || err != nil {
		w.Errorf("a job is behind %d, want up to 0, %v", n, err)
	}
	for n, want := range [][]job.ID{{}, {late[0]}, {late[0], first}, {late[0], first}} {
		use, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme, Key: "gpu", Holders: n})
		if err != nil || len(use) != 1 || !slices.Equal(use[0].Holders, want) {
			w.Errorf("up to %d jobs that have a turn: %+v, want %v, %v", n, use, want, err)
		}
	}
	if e := w.event(first, 2); e.Cause != job.CauseTurn {
		w.Errorf("the event is %+v", e)
	}
	session := w.session()
	jobs := w.claim(wanted(session, 10))
	if len(jobs) != 3 {
		w.Errorf("claimed %d jobs, want 3", len(jobs))
	}
	i := slices.IndexFunc(jobs, func(j job.Job) bool { return j.ID == late[0] })
	_, _, effects, err = w.s.Apply(w.ctx, []job.Change{finish(jobs[i], by(session))}, nil)
	if err != nil || !effects.Owed && w.job(late[1]).State != job.Pending {
		w.Errorf("the end of a job with a turn: owed: %t, %v", effects.Owed, err)
	}
	w.pay()
	w.at(job.Pending, job.Ready, late[1])
	w.at(job.Waiting, job.Gate, late[2])
	checkTurns(w)
}

func limitFree(w *world) {
	w.limit(most("gpu", 2), most("disk", 1), most("system/lab", 1))
	both := w.add(newTask(under("gpu", "disk")))
	program := w.add(newProgram(under("system/lab")))
	w.at(job.Pending, job.Ready, both, program)
	if e := w.event(both, 1); e.State != job.Pending || e.Custody != job.Ready {
		w.Errorf("the event is %+v", e)
	}
	w.uses("gpu", 1, 0)
	w.uses("disk", 1, 0)
	w.uses("ahead/system/lab", 1, 0)
	// One is free, and two want it: who goes is decided by priority and age, not by their place in
	// the call.
	late := w.addMany(2, under("gpu"))
	w.at(job.Waiting, job.Gate, late...)
	urgent := w.add(newTask(under("gpu"), withPriority(0)))
	w.at(job.Waiting, job.Gate, urgent)
	w.pay()
	w.at(job.Pending, job.Ready, urgent)
	w.at(job.Waiting, job.Gate, late...)
	w.uses("gpu", 2, 2)
	waits := w.add(newTask(under("disk"), delayed(time.Hour)))
	w.at(job.Waiting, job.Gate, waits)
	w.uses("disk", 1, 0)
	checkTurns(w)
}

func limitNone(w *world) {
	ids := w.addMany(5, under("disk", "gpu"))
	w.pay()
	w.at(job.Pending, job.Ready, ids...)
	w.uses("gpu", 5, 0)
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, "gpu"); job.KindOf(err) != job.NotFound {
		w.Errorf("a limit that is not there is removed: %v", err)
	}
	session := w.session()
	c := wanted(session, 2)
	c.Slots = map[job.Lane]int{job.LaneTask: 2}
	running := w.claim(c)
	w.limit(most("gpu", 3)) // five have a turn, of whom two run
	late := w.add(newTask(under("gpu")))
	w.pay()
	w.at(job.Running, job.Worker, running[0].ID, running[1].ID)
	w.at(job.Pending, job.Ready, ids[2])
	w.at(job.Waiting, job.Gate, ids[3], ids[4], late)
	w.uses("gpu", 3, 3)
	w.uses("disk", 3, 0) // who waits has none of its turns
	checkTurns(w)
}

func limitImplied(w *world) {
	w.addMany(3, under("unique/send/x", "gpu"))
	w.addMany(2, under("unique/send/y"))
	w.pay()
	w.uses("unique/send/x", 1, 2)
	w.uses("unique/send/y", 1, 1)
	w.uses("gpu", 1, 0)
	all, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme, Key: "unique/send/x"})
	if err != nil || len(all) != 1 || all[0].Limit == nil || all[0].Limit.Most != 1 {
		w.Errorf("turns: %+v, %v", all, err)
	}
	checkTurns(w)
}

func limitSeveral(w *world) {
	w.limit(most("a", 1), most("b", 1))
	a := w.add(newTask(under("a")))
	w.pay()
	both := w.add(newTask(under("b", "a")))
	w.pay()
	b := w.add(newTask(under("b")))
	w.pay()
	w.at(job.Pending, job.Ready, a, b)
	w.at(job.Waiting, job.Gate, both)
	w.uses("a", 1, 1)
	session := w.session()
	jobs := w.claim(wanted(session, 10))
	w.must(finish(jobs[0], by(session)))
	w.pay() // a is free, and b is not
	w.uses("a", 0, 0)
	w.uses("b", 1, 1)
	next := w.add(newTask(under("a")))
	w.pay()
	w.at(job.Pending, job.Ready, next)
	w.wish(job.WishCancel, next)
	w.must(finish(jobs[1], by(session)))
	w.pay()
	w.at(job.Pending, job.Ready, both)
	w.uses("a", 1, 0)
	w.uses("b", 1, 0)
	checkTurns(w)
}

// limitStarved: beside a stream of jobs for each key, never both keys are free.
func limitStarved(w *world) {
	w.limit(most("a", 1), most("b", 1))
	session := w.session()
	w.addMany(2, under("a"))
	w.addMany(2, under("b"))
	w.pay()
	both := w.add(newTask(under("a", "b")))
	w.pay()
	running := w.claim(wanted(session, 10))
	for round := 0; round < 100; round++ {
		if round > 0 && w.job(both).Custody == job.Ready {
			checkTurns(w)
			return
		}
		j := running[0]
		w.submit(newTask(under(j.Limits...)))
		w.must(finish(j, by(session)))
		w.pay()
		c := wanted(session, 10)
		running = append(running[1:], w.claim(c)...)
		if slices.ContainsFunc(running, func(j job.Job) bool { return j.ID == both }) {
			checkTurns(w)
			return
		}
		if len(running) == 0 {
			w.Fatalf("nobody goes on")
		}
		checkTurns(w)
	}
	w.Errorf("it never gets both: %+v", w.job(both))
}

// keeping makes a job of low priority keep its turn of key a in the line of key b, whose turn a
// running job has. A third job waits for a.
func keeping(w *world) (keeps, waits, session job.ID, runs job.Job) {
	w.limit(most("a", 1), most("b", 1))
	session = w.session()
	runsA, runsB := w.add(newTask(under("a"))), w.add(newTask(under("b")))
	w.pay()
	running := map[job.ID]job.Job{}
	for _, j := range w.claim(wanted(session, 10)) {
		running[j.ID] = j
	}
	keeps = w.add(newTask(under("a", "b"), withPriority(9)))
	w.pay()
	for w.job(keeps).Ties&job.TieKept == 0 {
		if w.job(keeps).Passed > 2*turns.MaxPassed {
			w.Fatalf("it keeps nothing: %+v", w.job(keeps))
		}
		at, key := &runsA, "a"
		if w.job(keeps).Line == "b" {
			at, key = &runsB, "b"
		}
		w.must(finish(running[*at], by(session)))
		w.pay() // it is passed over, for the other key is full
		*at = w.add(newTask(under(key)))
		w.pay()
		for _, j := range w.claim(wanted(session, 10)) {
			running[j.ID] = j
		}
	}
	w.uses("a", 1, 1)
	w.uses("b", 1, 1)
	w.at(job.Waiting, job.Gate, keeps, runsA)
	checkTurns(w)
	return keeps, runsA, session, running[runsB]
}

// limitKeeps: of what a job keeps nobody has any use, so it waits for one end, and for nobody who
// comes.
func limitKeeps(w *world) {
	keeps, _, session, runs := keeping(w)
	w.addMany(20, under("b"))
	for range 20 {
		w.add(newTask(under("b"), withPriority(0)))
	}
	w.add(newTask(under("b"), ownedBy("zoe"), withPriority(0)))
	w.pay()
	w.must(finish(runs, by(session)))
	w.pay()
	w.at(job.Pending, job.Ready, keeps)
	checkTurns(w)
}

func limitClosed(w *world) {
	keeps, waits, session, runs := keeping(w)
	w.limit(most("b", 0))
	w.at(job.Pending, job.Ready, waits)
	bare := func() {
		w.Helper()
		if j := w.job(keeps); j.Ties&job.TieKept != 0 || j.Line != "b" ||
			j.Place != (job.Place{State: job.Waiting, Custody: job.Gate}) {
			w.Errorf("in the line of what is closed: %+v", j)
		}
		checkTurns(w)
	}
	bare()
	// Nor does it keep anything when it is sent there.
	w.must(finish(runs, by(session)))
	w.limit(most("b", 1))
	w.limit(most("b", 0))
	if line := w.job(keeps).Line; line != "a" {
		w.Errorf("it waits for %s, want a, whose turn another one has", line)
	}
	w.must(finish(w.claimOne(session), by(session)))
	w.pay()
	bare()
	w.uses("a", 0, 0)
}

func limitLater(w *world) {
	w.limit(most("gpu", 1))
	first := w.add(newTask(under("gpu")))
	delayed := w.add(newTask(under("gpu"), delayed(time.Minute)))
	waits := w.add(newTask(under("gpu"), after(job.NeedEnded, first)))
	w.pay()
	w.uses("gpu", 1, 0)
	w.clock.Advance(2 * time.Minute)
	if n, effects, err := w.s.Due(w.ctx, 100); n != 1 || err != nil || !effects.Owed {
		w.Errorf("%d were due, owed: %t, %v", n, effects.Owed, err)
	}
	w.pay()
	w.at(job.Waiting, job.Gate, delayed, waits)
	w.uses("gpu", 1, 1)
	if due := w.job(delayed).Due; !due.IsZero() {
		w.Errorf("it is due at %v", due)
	}
	session := w.session()
	w.must(finish(w.claimOne(session), by(session)))
	w.pay()
	w.at(job.Pending, job.Ready, delayed)
	w.at(job.Waiting, job.Gate, waits)
	w.uses("gpu", 1, 1)
	checkTurns(w)
}

func limitCrash(w *world) {
	w.limit(most("gpu", 1))
	session := w.session()
	id := w.add(newTask(under("gpu")))
	other := w.add(newTask(under("gpu")))
	w.pay()
	w.claimOne(session)
	w.clock.Advance(lease + margin)
	if n := w.expire(); n != 1 {
		w.Errorf("%d jobs expired", n)
	}
	w.pay()
	w.at(job.Pending, job.Ready, id)
	w.at(job.Waiting, job.Gate, other)
	session = w.session()
	w.claimOne(session)
	w.end(session)
	w.pay()
	w.at(job.Pending, job.Ready, id)
	w.uses("gpu", 1, 1)
	checkTurns(w)
}

func limitReturns(w *world) {
	w.limit(most("gpu", 1))
	session := w.session()
	next := func() job.Job {
		w.pay()
		return w.claimOne(session)
	}
	w.addMany(12, under("gpu"))
	for what, change := range map[string]func(j job.Job) job.Change{
		"a retry later": func(j job.Job) job.Change {
			return setting(move(j, by(session), job.Gate, job.Waiting), job.Patch{Retry: true, Delay: time.Hour})
		},
		"a snooze": func(j job.Job) job.Change {
			return setting(move(j, by(session), job.Gate, job.Waiting), job.Patch{Delay: time.Hour})
		},
		"a block":   func(j job.Job) job.Change { return move(j, by(session), job.Recovery, job.Blocked) },
		"a failure": func(j job.Job) job.Change { return move(j, by(session), job.None, job.Failed) },
	} {
		j := next()
		w.must(change(j))
		if after := w.job(j.ID); after.Ties&job.TieTurn != 0 || after.Line != "" {
			w.Errorf("%s: %+v", what, after)
		}
		if held, _ := w.turns("gpu"); held != len(w.inState(job.Pending)) { // it was handed on, or is owed
			w.Errorf("%s: %d turns", what, held)
		}
	}
	// A retry at once takes its place in line: it is the oldest.
	j := next()
	w.must(setting(move(j, by(session), job.Ready, job.Pending), job.Patch{Retry: true}))
	if again := next(); again.ID != j.ID || again.Attempt != 2 {
		w.Errorf("after the retry of %s comes %s, attempt %d", j.ID, again.ID, again.Attempt)
	}
	w.must(finish(w.job(j.ID), by(session)))
	// By wishes: while it is ready, while it waits in line, and while it runs.
	w.pay()
	ready := w.inState(job.Pending)[0]
	w.wish(job.WishPause, ready)
	w.uses("gpu", 0, 6)
	w.pay()
	w.wish(job.WishResume, ready)
	w.at(job.Waiting, job.Gate, ready)
	line := w.inState(job.Waiting)
	w.wish(job.WishCancel, line[0])
	j = w.claimOne(session)
	w.wish(job.WishCancel, j.ID)
	if got := w.apply(move(j, by(session), job.Ready, job.Pending)); got.Outcome != store.Diverted {
		w.Errorf("a canceled job that is given back: %+v", got)
	}
	blocked := w.job(w.inState(job.Blocked)[0])
	w.must(move(blocked, w.duty(session, watch), job.Ready, job.Pending)) // it takes its place in line, too
	w.pay()
	checkTurns(w)
}

// inState returns the jobs in a state, oldest first.
func (w *world) inState(s job.State) []job.ID {
	w.Helper()
	var ids []job.ID
	for _, j := range listAll(w, w.s, store.Query{Tenant: acme, Limit: 1000, Sort: store.Oldest}) {
		if j.State == s {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

func limitBounded(w *world) {
	w.limit(most("gpu", 20))
	w.addMany(60, under("gpu"))
	if steps := w.payBy(7); steps < 3 {
		w.Errorf("20 turns in %d steps of 7", steps)
	}
	w.uses("gpu", 20, 40)
	w.limit(most("gpu", 50))
	w.uses("gpu", 50, 10)
	checkTurns(w)
}

// limitBehind: the first of a line are looked at, and where none of them can go it is owed once
// more.
func limitBehind(w *world) {
	w.limit(most("a", 1), most("b", 1))
	runs := w.add(newTask(under("b")))
	w.pay()
	w.at(job.Pending, job.Ready, runs)
	w.addMany(30, under("a", "b"))
	last := w.add(newTask(under("a"), withPriority(9)))
	w.pay()
	w.at(job.Pending, job.Ready, last)
	w.uses("a", 1, 0)
	w.uses("b", 1, 30)
	checkTurns(w)
}

func limitAtOnce(w *world) {
	const places, workers = 3, 6
	jobs := rounds(120, 48)
	w.limit(most("a", places), most("b/*", 2))
	batch := make([]store.New, jobs)
	for i := range batch {
		keys := []string{"a", fmt.Sprintf("b/%d", i%3)}
		batch[i] = newTask(under(keys[i%2:]...), ownedBy([]string{"ann", "bob"}[i%2]))
	}
	w.submit(batch...)
	sessions := make([]job.ID, workers)
	for i := range sessions {
		sessions[i] = w.sessionFor(time.Hour)
	}
	var done atomic.Int64
	w.together(workers, func(i int) error {
		for idle := 0; idle < 200 && int(done.Load()) < jobs; {
			if _, _, err := w.s.Pay(w.ctx, 5); err != nil {
				return err
			}
			got, err := w.s.Claim(w.ctx, wanted(sessions[i], 2))
			if err != nil {
				return err
			}
			if len(got) == 0 {
				idle++
				continue
			}
			idle = 0
			all, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme})
			if err != nil {
				return err
			}
			for _, t := range all {
				held := 0
				for _, s := range t.Owners {
					held += s.Held
				}
				if held > t.Limit.Most {
					return fmt.Errorf("%s: %d turns", t.Key, held)
				}
			}
			for _, j := range got {
				if _, _, _, err := w.s.Apply(w.ctx, []job.Change{finish(j, by(sessions[i]))}, nil); err != nil {
					return err
				}
				done.Add(1)
			}
		}
		return nil
	})
	w.pay()
	for range jobs - int(done.Load()) {
		for _, j := range w.claim(wanted(sessions[0], 100)) {
			w.must(finish(j, by(sessions[0])))
		}
		w.pay()
	}
	if n, err := w.s.Count(w.ctx, acme, nil); err != nil || n.States[job.Finished] != jobs {
		w.Errorf("counted %v, %v", n.States, err)
	}
	w.uses("a", 0, 0)
	checkTurns(w)
}
