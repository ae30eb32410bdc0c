package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// limitSince looks at jobs that come to stand in a line without a change of custody: they wait for
// their turns since then.
func limitSince(w *world) {
	w.limit(most("gpu", 0), most("tpu", 1), most("a", 1), most("b", 1))
	session := w.sessionFor(time.Hour)
	claimed := func(id job.ID) job.Job {
		w.Helper()
		w.pay()
		j := w.claimOne(session)
		if j.ID != id {
			w.Fatalf("claimed %s, want %s", j.ID, id)
		}
		return j
	}
	first := claimed(w.add(newTask()))
	claimed(w.add(newTask(ordered("k"))))
	tried := claimed(w.add(newTask(under("tpu"))))
	w.must(setting(move(tried, by(session), job.Gate, job.Waiting), job.Patch{Retry: true, Delay: time.Minute}))
	claimed(w.add(newTask(under("tpu"))))
	a, b := claimed(w.add(newTask(under("a")))), claimed(w.add(newTask(under("b"))))
	moves := w.add(newTask(under("a", "b")))
	onward := w.add(newTask(ordered("l"), after(job.NeedEnded, first.ID), under("gpu")))

	due := []job.ID{
		tried.ID, w.add(newTask(under("gpu"), delayed(time.Minute))),
		w.add(newTask(ordered("k"), delayed(time.Minute))),
	}
	needs := []job.ID{
		w.add(newTask(under("gpu"), after(job.NeedEnded, first.ID))),
		w.add(newTask(ordered("k"), after(job.NeedEnded, first.ID))),
	}
	both := w.add(newTask(under("gpu"), delayed(time.Minute), after(job.NeedEnded, first.ID)))
	w.pay()
	for _, id := range append(due, needs...) {
		if j := w.job(id); j.Line != "" {
			w.Errorf("job %s stands in the line of %s", id, j.Line)
		}
	}
	came := func(at time.Time, ids ...job.ID) {
		w.Helper()
		for _, id := range ids {
			if j := w.job(id); j.Line == "" || j.Since.Before(at) {
				w.Errorf("job %s waits in the line of %q since %v, and came there at %v or later", id, j.Line,
					j.Since, at)
			}
		}
	}
	stayed := w.job(moves).Since
	w.clock.Advance(2 * time.Minute)
	w.due()
	w.pay()
	came(w.job(first.ID).Since.Add(time.Minute), due...)
	if j := w.job(both); j.Line != "" || !j.Since.Equal(j.Created) {
		w.Errorf("a job whose time has come, and which waits for another one, stands in the line of %q since %v",
			j.Line, j.Since)
	}

	w.clock.Advance(2 * time.Minute)
	ended := w.must(finish(first, by(session))).Ended
	w.pay()
	came(ended, append(needs, both, onward)...)
	w.inLine("gpu", onward) // it had the order for itself

	// From one line to the other it has waited since it came to the first one.
	w.must(finish(a, by(session)))
	w.pay()
	if j := w.job(moves); j.Line != "b" || !j.Since.Equal(stayed) {
		w.Errorf("in the line of %s it waits since %v, want b and %v", j.Line, j.Since, stayed)
	}
	w.must(finish(b, by(session)))
	w.pay()
	if j := w.job(moves); j.Custody != job.Ready || j.Since.Before(ended) {
		w.Errorf("it is at %s since %v", j.Place, j.Since)
	}
	checkTurns(w)
}
