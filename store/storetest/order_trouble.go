package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// later are the changes by which a worker puts a task off.
var later = map[string]job.Patch{"a retry": {Retry: true, Delay: time.Hour}, "a snooze": {Delay: time.Hour}}

func orderBlock(w *world) {
	for what, set := range later {
		w.fresh(what, func(w *world) {
			ids := w.addMany(3, ordered("k"))
			w.pay()
			session := w.session()
			j := w.must(setting(move(w.claimOne(session), by(session), job.Gate, job.Waiting), set))
			w.pay()
			late := w.add(newTask(ordered("k")))
			w.pay()
			w.at(job.Waiting, job.Gate, append(ids, late)...)
			w.inLine("", j.ID)
			w.uses("order/k", 1, 3)
			checkTurns(w)
			w.clock.Advance(2 * time.Hour)
			if n := w.due(); n != 1 {
				w.Errorf("%d were due", n)
			}
			w.at(job.Pending, job.Ready, j.ID)
			w.goAs(w.session(), ids[0], ids[1], ids[2], late)
			checkTurns(w)
		})
	}
	w.fresh("a retry at once", func(w *world) {
		ids := w.addMany(2, passing("k"))
		w.pay()
		session := w.session()
		w.must(setting(move(w.claimOne(session), by(session), job.Ready, job.Pending), job.Patch{Retry: true}))
		w.uses("order/k", 1, 1)
		w.goAs(session, ids...)
		checkTurns(w)
	})
}

func orderPass(w *world) {
	for what, set := range later {
		w.fresh(what, func(w *world) {
			ids := w.addMany(4, passing("k"))
			w.pay()
			session := w.session()
			j := w.must(setting(move(w.claimOne(session), by(session), job.Gate, job.Waiting), set))
			w.inLine("", j.ID)
			w.pay()
			w.at(job.Pending, job.Ready, ids[1])
			w.uses("order/k", 1, 2)
			checkTurns(w)
			w.clock.Advance(2 * time.Hour)
			session = w.session()
			second := w.claimOne(session)
			if n := w.due(); n != 1 { // the other one has not ended
				w.Errorf("%d were due", n)
			}
			w.pay()
			w.inLine("order/k", ids[0], ids[2], ids[3])
			checkTurns(w)
			w.must(finish(second, by(session)))
			w.goAs(session, ids[0], ids[2], ids[3])
			checkTurns(w)
		})
	}
}

func orderCrash(w *world) {
	ids := w.addMany(2, passing("k"))
	w.pay()
	w.claimOne(w.session())
	w.clock.Advance(lease + margin)
	if n := w.expire(); n != 1 {
		w.Errorf("%d jobs expired", n)
	}
	w.pay()
	w.at(job.Pending, job.Ready, ids[0])
	w.inLine("order/k", ids[1])
	checkTurns(w)
	session := w.session()
	w.claimOne(session)
	w.end(session)
	w.pay()
	w.uses("order/k", 1, 1)
	w.goAs(w.session(), ids...)
	checkTurns(w)
}

func orderStopped(w *world) {
	ids := w.addMany(3, ordered("k"))
	w.pay()
	stays := func(at job.Place) {
		w.Helper()
		w.pay()
		w.at(at.State, at.Custody, ids[0])
		w.inLine("order/k", ids[1:]...)
		w.uses("order/k", 1, 2)
		checkTurns(w)
	}
	w.wish(job.WishPause, ids[0])
	stays(job.Place{State: job.Paused, Custody: job.User})
	w.wish(job.WishResume, ids[0])
	stays(job.Place{State: job.Pending, Custody: job.Ready})
	session := w.session()
	w.must(move(w.claimOne(session), by(session), job.Recovery, job.Blocked))
	stays(job.Place{State: job.Blocked, Custody: job.Recovery})
	w.wish(job.WishPause, ids[0])
	stays(job.Place{State: job.Paused, Custody: job.User})
	w.wish(job.WishResume, ids[0])
	stays(job.Place{State: job.Pending, Custody: job.Ready})
	w.must(move(w.claimOne(session), by(session), job.Recovery, job.Blocked))
	w.must(move(w.job(ids[0]), w.duty(session, watch), job.Ready, job.Pending))
	stays(job.Place{State: job.Pending, Custody: job.Ready})
	// In line one is paused, and stands at its place again when it goes on.
	w.wish(job.WishPause, ids[1])
	w.uses("order/k", 1, 1)
	checkTurns(w)
	w.wish(job.WishResume, ids[1])
	w.goAs(session, ids...)
	checkTurns(w)
}

func orderStoppedPass(w *world) {
	ids := w.addMany(4, passing("k"))
	w.pay()
	w.wish(job.WishPause, ids[0])
	w.pay()
	w.uses("order/k", 1, 2)
	w.at(job.Pending, job.Ready, ids[1])
	w.wish(job.WishResume, ids[0])
	w.pay()
	w.inLine("order/k", ids[0], ids[2], ids[3])
	checkTurns(w)
	session := w.session()
	j := w.must(move(w.claimOne(session), by(session), job.Recovery, job.Blocked))
	w.pay()
	w.at(job.Pending, job.Ready, ids[0])
	w.uses("order/k", 1, 2)
	checkTurns(w)
	w.must(move(w.job(j.ID), w.duty(session, watch), job.Ready, job.Pending))
	w.pay()
	w.inLine("order/k", ids[1:]...)
	checkTurns(w)
	w.goAs(session, ids...)
	checkTurns(w)
}

func orderCanceled(w *world) {
	ids := append(w.addMany(5, ordered("k")), w.add(newTask(ordered("k"), delayed(time.Hour))))
	w.pay()
	w.wish(job.WishCancel, ids[0]) // while it is ready
	w.wish(job.WishCancel, ids[2]) // in line
	w.wish(job.WishCancel, ids[5]) // before its time
	w.pay()
	w.at(job.Pending, job.Ready, ids[1])
	w.uses("order/k", 1, 2)
	checkTurns(w)
	session := w.session()
	j := w.claimOne(session)
	w.wish(job.WishCancel, j.ID) // while it runs
	w.uses("order/k", 1, 2)
	if got := w.apply(move(j, by(session), job.Ready, job.Pending)); got.Outcome != store.Diverted {
		w.Errorf("a canceled job that is given back: %+v", got)
	}
	w.goAs(session, ids[3], ids[4])
	w.uses("order/k", 0, 0)
	checkTurns(w)
}

func orderNeeds(w *world) {
	session := w.session()
	other := w.add(newTask())
	waits := w.add(newTask(byVersion(`{"version":1}`), after(job.NeedEnded, other)))
	last := w.add(newTask(byVersion(`{"version":4}`)))
	second := w.add(newTask(byVersion(`{"version":2}`), after(job.NeedEnded, last))) // which is to go later than itself
	third := w.add(newTask(byVersion(`{"version":3}`)))
	w.at(job.Pending, job.Ready, last)
	w.inLine("", waits, second)
	w.inLine("order/k", third)
	w.uses("order/k", 1, 1)
	checkTurns(w)
	jobs := w.claim(wanted(session, 10))
	if len(jobs) != 2 || jobs[0].ID != other {
		w.Fatalf("claimed %v", jobIDs(jobs))
	}
	w.must(finish(jobs[0], by(session)))
	w.pay()
	w.inLine("order/k", waits, third)
	w.inLine("", second)
	checkTurns(w)
	w.must(finish(jobs[1], by(session)))
	w.pay()
	w.at(job.Pending, job.Ready, waits)
	w.inLine("order/k", second, third)
	w.goAs(session, waits, second, third)
	checkTurns(w)
	// A prerequisite that ended otherwise than needed ends one that would be the first.
	failing := w.add(newTask())
	waits = w.add(newTask(ordered("k"), after(job.NeedFinished, failing)))
	w.must(move(w.claimOne(session), by(session), job.None, job.Failed))
	w.pay()
	w.at(job.Canceled, job.None, waits)
	w.uses("order/k", 0, 0)
	checkTurns(w)
}
