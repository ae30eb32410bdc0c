package storetest

import (
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// staged is the change of a program that is made ready and asks for its launch.
func staged(j job.Job, f job.Fence) job.Change {
	return move(j, f, job.Ready, job.StagingInputs, job.StagingJob, job.SubmittingJob)
}

func limitAhead(w *world) {
	w.limit(most("system/lab", 2))
	session := w.session()
	jobs := make([]store.New, 10)
	for i := range jobs {
		jobs[i] = newProgram(under("system/lab"))
	}
	w.submit(jobs...)
	w.pay()
	made := w.claim(wanted(session, 100))
	if len(made) != 4 {
		w.Fatalf("%d are made ready, want twice as many as may run", len(made))
	}
	for _, j := range made {
		w.must(staged(j, by(session)))
	}
	w.pay()
	w.uses("system/lab", 2, 2)
	if held, waiting := w.turns("ahead/system/lab"); held != 4 || waiting != 4 {
		w.Errorf("ahead: %d, %d wait", held, waiting)
	}
	checkTurns(w)
	l := most("system/lab", 2)
	l.Ahead = 7
	w.limit(l)
	w.uses("ahead/system/lab", 7, 1)
	for _, j := range w.claim(wanted(session, 100)) {
		if j.State == job.SubmittingJob {
			w.must(move(j, by(session), job.Gate, job.Waiting)) // it is not launched
		}
	}
	w.pay()
	w.uses("system/lab", 2, 0)
	checkTurns(w)
}

func limitLive(w *world) {
	w.limit(most("system/lab", 1))
	session := w.session()
	id := w.add(newProgram(under("system/lab"), on(machine)))
	other := w.add(newProgram(under("system/lab"), on(machine)))
	w.pay()
	for _, j := range w.claim(wanted(session, 100)) {
		w.must(staged(j, by(session)))
	}
	w.pay()
	j := w.claimOne(session)
	if j.ID != id {
		w.Fatalf("%s comes first", j.ID)
	}
	j = w.must(setting(move(j, by(session), job.Worker, job.SubmittingJob), job.Patch{Intent: true}))
	// Its process dies: the launch may run.
	w.clock.Advance(lease + margin)
	w.expire()
	w.pay()
	w.at(job.SubmittingJob, job.Ready, id)
	w.at(job.SubmittingJob, job.Gate, other)
	session = w.session()
	duty := w.duty(session, watch)
	j = w.must(move(w.claimOne(session), by(session), job.Monitor, job.Running))
	w.uses("system/lab", 1, 1)
	j = w.must(setting(move(j, duty, job.Ready, job.Archiving), job.Patch{Over: true}))
	if j.Place != (job.Place{State: job.Archiving, Custody: job.Ready}) {
		w.Errorf("it stands at %s", j.Place)
	}
	w.pay()
	w.at(job.SubmittingJob, job.Ready, other)
	w.uses("system/lab", 1, 0)
	checkTurns(w)
}
