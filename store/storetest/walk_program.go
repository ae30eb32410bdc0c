package storetest

import (
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// anyText is JSON that PostgreSQL keeps, and cannot take apart.
const anyText = `"\u0000 \ud800 \\u0000"`

func walkText(w *world) {
	const key = "system/lab/partition/short"
	id := w.add(newProgram(spec(`{"system":"lab","resources":{"partition":"short"},"notes":`+anyText+`}`), on(machine), asItIs))
	w.limit(most(key, 1))
	w.isUnder(id, key)
	w.uses(key, 0, 0)
	checkTurns(w)
}

func walkProgram(w *world) {
	const key = "system/lab/partition/short"
	session := w.session()
	lab := spec(`{"system":"lab","resources":{"partition":"short"}}`)
	batch := make([]store.New, 6)
	for i := range batch {
		batch[i] = newProgram(lab, on(machine), asItIs)
	}
	elsewhere := newProgram(spec(`{"system":"lab","resources":{"partition":"long"}}`), on(machine), asItIs)
	ids := idsOf(w.submit(append(batch, elsewhere)...))
	jobs := w.claim(wanted(session, 3))
	staged := w.must(move(jobs[1], by(session), job.Worker, job.StagingInputs))
	given := w.must(move(jobs[2], by(session), job.Ready, job.StagingInputs))
	w.limit(job.Limit{Key: key, Most: 1, Ahead: 3})
	w.isUnder(ids[6])
	w.at(job.Pending, job.Ready, ids[6])
	w.wish(job.WishCancel, ids[6])
	for _, id := range ids[:6] {
		w.isUnder(id, key)
	}
	w.uses(key, 2, 0)
	w.uses(job.AheadOf(key), 3, 2)
	checkTurns(w)
	// Their worker goes on to the launch, as it would have done.
	launched := w.must(setting(move(jobs[0], by(session), job.Worker, job.StagingInputs, job.StagingJob,
		job.SubmittingJob), job.Patch{Intent: true}))
	w.uses(key, 2, 0)
	w.pay()
	w.uses(job.AheadOf(key), 3, 1)
	launched = w.must(move(launched, by(session), job.Monitor, job.Running))
	staged = w.must(move(staged, by(session), job.Worker, job.StagingJob))
	// Who is given back needs its turn for the launch.
	w.must(move(staged, by(session), job.Ready, job.StagingJob))
	w.uses(key, 1, 0)
	w.pay()
	for _, j := range w.claim(wanted(session, 10)) {
		path := []job.State{job.StagingInputs, job.StagingJob, job.SubmittingJob}
		if j.ID == given.ID {
			path = path[1:]
		} else if j.ID == staged.ID {
			path = path[2:]
		}
		w.must(move(j, by(session), job.Ready, path...))
		w.at(job.SubmittingJob, job.Gate, j.ID)
	}
	w.pay()
	if held, waiting := w.turns(key); held != 1 || waiting != 4 {
		w.Errorf("%d turns, %d wait", held, waiting)
	}
	checkTurns(w)
	duty := w.duty(session, watch)
	j := w.must(setting(move(launched, duty, job.Ready, job.Archiving), job.Patch{Over: true}))
	w.at(job.Archiving, job.Ready, j.ID)
	w.pay()
	w.uses(key, 1, 3)
	checkTurns(w)
}

func walkLive(w *world) {
	const key = "system/local"
	session := w.session()
	duty := w.duty(session, watch)
	ids := make([]job.ID, 5)
	for i := range ids {
		ids[i] = w.add(newProgram(on(machine), asItIs))
	}
	jobs := w.claim(wanted(session, 10))
	launch := func(j job.Job) job.Job {
		w.Helper()
		return w.must(setting(move(j, by(session), job.Worker, job.StagingInputs, job.StagingJob,
			job.SubmittingJob), job.Patch{Intent: true}))
	}
	runs := w.must(move(launch(jobs[0]), by(session), job.Monitor, job.Running))
	blocked := w.must(move(launch(jobs[1]), by(session), job.Recovery, job.Blocked))
	w.must(move(launch(jobs[2]), by(session), job.Ready, job.SubmittingJob)) // nobody knows whether it was launched
	archives := w.must(setting(move(launch(jobs[3]), by(session), job.Worker, job.Archiving), job.Patch{Over: true}))
	ready := w.must(move(jobs[4], by(session), job.Ready, job.StagingInputs, job.StagingJob, job.SubmittingJob))
	w.limit(most(key, 1))
	w.uses(key, 3, 1)
	w.at(job.SubmittingJob, job.Gate, ready.ID)
	checkTurns(w)
	w.must(setting(move(runs, duty, job.Ready, job.Archiving), job.Patch{Over: true}))
	w.must(finish(archives, by(session)))
	w.wish(job.WishCancel, blocked.ID)
	w.pay()
	w.uses(key, 2, 1)
	checkTurns(w)
	for _, j := range w.claim(wanted(session, 10)) {
		if j.State == job.Archiving {
			w.must(finish(j, by(session)))
			continue
		}
		if got := w.apply(setting(move(j, by(session), job.Ready, job.Archiving),
			job.Patch{Over: true})); got.Outcome != store.OK && j.ID != blocked.ID {
			w.Errorf("the end of the launch of %s: %+v", j.ID, got)
		}
	}
	w.pay()
	w.at(job.SubmittingJob, job.Ready, ready.ID)
	w.uses(key, 1, 0)
	checkTurns(w)
}
