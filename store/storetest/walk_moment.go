package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// walkMomentTurn: a job that waits for the moment of its launch waits for its turn, too, if a limit
// was set meanwhile.
func walkMomentTurn(w *world) {
	w.limit(most("license", 5))
	session := w.session()
	ids := []job.ID{w.add(newProgram(on(machine), under("license"))), w.add(newProgram(on(machine), under("license")))}
	w.pay()
	for _, j := range w.claim(wanted(session, 10)) {
		w.must(staged(j, by(session)))
	}
	w.pay()
	for _, j := range w.claim(wanted(session, 10)) {
		w.must(setting(move(j, by(session), job.Gate, job.SubmittingJob), job.Patch{Delay: time.Minute}))
	}
	w.uses("license", 2, 0)
	w.limit(most("tenant", 1))
	w.at(job.SubmittingJob, job.Gate, ids...)
	w.uses("license", 0, 0)
	w.clock.Advance(2 * time.Minute)
	if n := w.due(); n != 2 {
		w.Errorf("%d were due", n)
	}
	w.pay()
	w.at(job.SubmittingJob, job.Ready, ids[0])
	w.inLine("tenant", ids[1])
	w.uses("license", 1, 0)
	checkTurns(w)
}

func walkMoment(w *world) {
	session := w.session()
	j := w.add(newProgram(on(machine), asItIs))
	w.must(staged(w.claimOne(session), by(session)))
	w.must(setting(move(w.claimOne(session), by(session), job.Gate, job.SubmittingJob), job.Patch{Delay: time.Minute}))
	w.limit(most("tenant", 0))
	w.at(job.SubmittingJob, job.Gate, j)
	w.clock.Advance(2 * time.Minute)
	if n := w.due(); n != 1 {
		w.Errorf("%d were due", n)
	}
	w.pay()
	w.inLine("tenant", j)
	checkTurns(w)
}
