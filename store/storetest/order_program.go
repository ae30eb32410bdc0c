package storetest

import (
	"github.com/pawl-jobs/pawl/job"
)

func orderProgram(w *world) {
	w.limit(most("system/lab", 1))
	session := w.session()
	duty := w.duty(session, watch)
	ids := make([]job.ID, 3)
	for i := range ids {
		ids[i] = w.add(newProgram(ordered("k"), under("system/lab"), on(machine)))
	}
	w.pay()
	holds := func(s job.State, c job.Custody) {
		w.Helper()
		w.pay()
		w.at(s, c, ids[0])
		w.inLine("order/k", ids[1:]...)
		w.uses("order/k", 1, 2)
		checkTurns(w)
	}
	holds(job.Pending, job.Ready)
	w.uses("ahead/system/lab", 1, 0)
	w.must(staged(w.claimOne(session), by(session)))
	holds(job.SubmittingJob, job.Ready)
	w.uses("system/lab", 1, 0)
	j := w.must(setting(move(w.claimOne(session), by(session), job.Worker, job.SubmittingJob), job.Patch{Intent: true}))
	holds(job.SubmittingJob, job.Worker)
	j = w.must(move(j, by(session), job.Monitor, job.Running))
	holds(job.Running, job.Monitor)
	w.must(setting(move(j, duty, job.Ready, job.Archiving), job.Patch{Over: true}))
	holds(job.Archiving, job.Ready)
	w.uses("system/lab", 0, 0)
	w.must(finish(w.claimOne(session), by(session)))
	w.pay()
	w.at(job.Pending, job.Ready, ids[1])
	w.inLine("order/k", ids[2])
	checkTurns(w)
}

// orderProgramPass: one that is blocked while it is made ready waits for its turn of the order
// before its launch.
func orderProgramPass(w *world) {
	w.limit(job.Limit{Key: "system/lab", Most: 1, Ahead: 3})
	session := w.session()
	duty := w.duty(session, watch)
	w.add(newProgram(under("system/lab"), on(machine)))
	w.must(staged(w.claimOne(session), by(session)))
	w.pay()
	other := w.claimOne(session)
	first := w.add(newProgram(passing("k"), under("system/lab"), on(machine)))
	w.pay()
	w.must(move(w.claimOne(session), by(session), job.Recovery, job.Blocked))
	second := w.add(newProgram(passing("k"), under("system/lab"), on(machine)))
	w.pay()
	w.at(job.Pending, job.Ready, second)
	w.uses("ahead/system/lab", 1, 0)
	checkTurns(w)
	made := w.claimOne(session)
	blocked := w.job(first)
	w.must(move(blocked, duty, job.Ready, blocked.Resume))
	w.pay()
	w.at(job.Waiting, job.Gate, first) // not beside the one that goes
	w.inLine("order/k", first)
	w.uses("ahead/system/lab", 1, 0)
	checkTurns(w)
	w.must(move(made, by(session), job.None, job.Failed))
	w.pay()
	w.at(job.Pending, job.Ready, first)
	w.must(staged(w.claimOne(session), by(session)))
	w.pay()
	w.inLine("system/lab", first)
	w.uses("ahead/system/lab", 1, 0)
	checkTurns(w)
	w.must(move(other, by(session), job.None, job.Failed))
	w.pay()
	w.at(job.SubmittingJob, job.Ready, first)
	w.uses("system/lab", 1, 0)
	w.uses("ahead/system/lab", 0, 0)
	checkTurns(w)
}

// orderProgramApart: the place among those made ready that who is blocked had is the one that the
// next one needs.
func orderProgramApart(w *world) {
	w.limit(job.Limit{Key: "system/lab", Most: 1, Ahead: 1})
	session := w.session()
	duty := w.duty(session, watch)
	first := w.add(newProgram(passing("k"), under("system/lab"), on(machine)))
	w.pay()
	w.must(move(w.claimOne(session), by(session), job.Recovery, job.Blocked))
	second := w.add(newProgram(passing("k"), under("system/lab"), on(machine)))
	w.pay()
	w.at(job.Pending, job.Ready, second)
	blocked := w.job(first)
	w.must(move(blocked, duty, job.Ready, blocked.Resume))
	w.pay()
	w.inLine("order/k", first)
	checkTurns(w)
	for _, id := range []job.ID{second, first} {
		j := w.claimOne(session)
		if j.ID != id {
			w.Errorf("job %s goes, want %s", j.ID, id)
		}
		w.must(staged(j, by(session)))
		w.pay()
		w.must(move(w.claimOne(session), by(session), job.None, job.Failed))
		w.pay()
		checkTurns(w)
	}
}
