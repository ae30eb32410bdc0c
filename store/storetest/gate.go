package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
)

var gateTests = []test{
	{"exactly those that are due", gateDue},
	{"in bounded steps", gateBounded},
	{"a retry waits for its time", gateRetry},
	{"the schedule opens before the prerequisites", gateOrder},
	{"jobs that wait for others do not hold up those that are due", gateStarved},
	{"due at once by many", gateAtOnce},
}

func gateDue(w *world) {
	soon, later := w.add(newTask(delayed(time.Minute))), w.add(newTask(delayed(time.Hour)))
	paused, canceled := w.add(newTask(delayed(time.Minute))), w.add(newTask(delayed(time.Minute)))
	w.wish(job.WishPause, paused)
	w.wish(job.WishCancel, canceled)
	n, effects, err := w.s.Due(w.ctx, 100)
	if err != nil || n != 0 || !near(effects.Due, w.job(soon).Due) {
		w.Errorf("before its time: %d moved, %v, next due at %v, want %v", n, err, effects.Due, w.job(soon).Due)
	}
	w.clock.Advance(time.Minute + time.Second)
	n, effects, err = w.s.Due(w.ctx, 100)
	if err != nil || n != 1 || !near(effects.Due, w.job(later).Due) {
		w.Errorf("at its time: %d moved, %v, next due at %v, want %v", n, err, effects.Due, w.job(later).Due)
	}
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
	w.at(job.Pending, job.Ready, soon)
	w.at(job.Waiting, job.Gate, later)
	w.at(job.Paused, job.User, paused)
	if e := w.event(soon, 2); e.Cause != job.CauseDue {
		w.Errorf("the event is %+v", e)
	}
	w.clock.Advance(time.Hour)
	n, effects, err = w.s.Due(w.ctx, 100)
	if err != nil || n != 1 || !effects.Due.IsZero() {
		w.Errorf("the last one: %d moved, %v, next due at %v", n, err, effects.Due)
	}
	Check(w, w.s, acme)
}

func gateBounded(w *world) {
	w.addMany(25, delayed(time.Minute))
	w.add(newTask(delayed(time.Hour)))
	w.clock.Advance(2 * time.Minute)
	for _, want := range []int{10, 10, 5, 0} {
		n, effects, err := w.s.Due(w.ctx, 10)
		if err != nil || n != want {
			w.Errorf("%d moved, %v; want %d", n, err, want)
		}
		if effects.Due.IsZero() {
			w.Errorf("nothing is due after %d were moved", n)
		}
	}
	if n, _ := w.s.Count(w.ctx, acme, nil); n.States[job.Pending] != 25 || n.States[job.Waiting] != 1 {
		w.Errorf("counted %v", n)
	}
	Check(w, w.s, acme)
}

func gateRetry(w *world) {
	session := w.session()
	id := w.add(newTask())
	j := w.claimOne(session)
	_, _, effects, err := w.s.Apply(w.ctx, []job.Change{setting(move(j, by(session), job.Gate, job.Waiting),
		job.Patch{Retry: true, Delay: time.Minute})}, nil)
	if err != nil || !near(effects.Due, w.job(id).Due) {
		w.Errorf("apply: %v, due at %v, want %v", err, effects.Due, w.job(id).Due)
	}
	w.at(job.Waiting, job.Gate, id)
	w.clock.Advance(30 * time.Second)
	if n := w.due(); n != 0 {
		w.Errorf("%d moved before the time", n)
	}
	w.clock.Advance(31 * time.Second)
	if n := w.due(); n != 1 {
		w.Errorf("%d moved, want 1", n)
	}
	if j := w.claimOne(w.session()); j.Attempt != 2 || !j.Due.IsZero() {
		w.Errorf("attempt %d, due %v", j.Attempt, j.Due)
	}
	Check(w, w.s, acme)
}

func gateOrder(w *world) {
	first := w.add(newTask())
	waits := w.add(newTask(after(job.NeedEnded, first), delayed(time.Minute)))
	both := w.add(newTask(after(job.NeedEnded, first), delayed(time.Hour)))

	w.clock.Advance(2 * time.Minute)
	w.due()
	w.at(job.Waiting, job.Gate, waits, both)
	session := w.session()
	w.must(finish(w.claimOne(session), by(session)))
	w.pay()
	w.at(job.Pending, job.Ready, waits)
	w.at(job.Waiting, job.Gate, both)
	if _, effects, err := w.s.Due(w.ctx, 10); err != nil || !near(effects.Due, w.job(both).Due) {
		w.Errorf("%v, next due at %v, want %v", err, effects.Due, w.job(both).Due)
	}
	w.clock.Advance(time.Hour)
	w.due()
	w.at(job.Pending, job.Ready, both)
	Check(w, w.s, acme)
}

func gateStarved(w *world) {
	first := w.add(newTask(inQueue("first")))
	waits := w.addMany(20, after(job.NeedEnded, first), delayed(time.Minute))
	due := w.add(newTask(delayed(2 * time.Minute)))
	w.clock.Advance(time.Hour)
	for range 30 {
		if _, _, err := w.s.Due(w.ctx, 1); err != nil {
			w.Fatalf("due: %v", err)
		}
	}
	w.at(job.Pending, job.Ready, due)
	w.at(job.Waiting, job.Gate, waits...)
	if _, effects, err := w.s.Due(w.ctx, 10); err != nil || !effects.Due.IsZero() {
		w.Errorf("%v, next due at %v; those that wait for others need no clock", err, effects.Due)
	}
	w.wish(job.WishCancel, first)
	w.pay()
	w.at(job.Pending, job.Ready, waits...)
	Check(w, w.s, acme)
}

func gateAtOnce(w *world) {
	ids := w.addMany(200, delayed(time.Minute))
	w.clock.Advance(time.Hour)
	moved := make([]int, 8)
	w.together(len(moved), func(i int) error {
		for range 25 {
			n, _, err := w.s.Due(w.ctx, 9)
			if err != nil {
				return err
			}
			moved[i] += n
		}
		return nil
	})
	total := w.due()
	for _, n := range moved {
		total += n
	}
	if total != len(ids) {
		w.Errorf("%d moved, want %d", total, len(ids))
	}
	w.at(job.Pending, job.Ready, ids...)
	Check(w, w.s, acme)
}
