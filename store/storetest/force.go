package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var forceTests = []test{
	{"a cancel with force ends a job in every custody", forceAnywhere},
	{"what may still run is abandoned, and the history says so", forceAbandons},
	{"who held an abandoned job is fenced", forceFences},
	{"it stays with what has ended", forceEnded},
	{"it goes with cancel only", forceOnly},
}

// force cancels a job with force.
func (w *world) force(id job.ID) store.Wished {
	w.Helper()
	answers, _, err := w.s.Wish(w.ctx, store.Wish{
		Tenant: acme, Wish: job.WishCancel, Jobs: []job.ID{id}, By: ann,
		Force: true,
	})
	if err != nil || len(answers) != 1 {
		w.Fatalf("cancel with force: %+v, %v", answers, err)
	}
	return answers[0]
}

func forceAnywhere(w *world) {
	for _, place := range places {
		w.fresh(place.String(), func(w *world) {
			st := w.stand(place.State, place.Custody)
			ended := job.Place{State: job.Canceled, Custody: job.None}
			equal(w, "answer", w.force(st.ID), store.Wished{Place: ended, Done: true})
			want := job.CanceledByUser
			if st.Live {
				want = job.Abandoned
			}
			if j := w.job(st.ID); j.Place != ended || j.Code != want || j.Live || j.Epoch != st.Epoch+1 {
				w.Errorf("the job is %+v", j)
			}
			w.pay()
			Check(w, w.s, acme)
		})
	}
}

func forceAbandons(w *world) {
	session := w.session()
	id := w.add(newTask())
	j := w.claimOne(session)
	w.force(id)
	if e := w.event(id, j.N+1); e.Code != job.Abandoned || e.Cause != job.CauseWish || e.Actor != ann ||
		e.Message == "" {
		w.Errorf("the event is %+v", e)
	}
	w.fresh("a launch in the hands of a worker", func(w *world) {
		st := w.launched()
		w.force(st.ID)
		if j := w.job(st.ID); j.Code != job.Abandoned || j.Live {
			w.Errorf("the job is %+v", j)
		}
	})
}

func forceFences(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	w.force(j.ID)
	after := w.job(j.ID)
	if got := w.apply(finish(j, by(session))); got.Outcome != store.Fenced && got.Outcome != store.Conflict {
		w.Errorf("the worker's end is %s", got.Outcome)
	}
	w.untouched(after)
	w.fresh("a watcher", func(w *world) {
		st := w.stand(job.Running, job.Monitor)
		w.force(st.ID)
		after := w.job(st.ID)
		if got := w.apply(setting(move(st.Job, st.fence, job.Ready, job.Archiving),
			job.Patch{Over: true})); got.Outcome != store.Fenced && got.Outcome != store.Conflict {
			w.Errorf("the watcher's end is %s", got.Outcome)
		}
		w.untouched(after)
	})
	w.fresh("a session that dies later", func(w *world) {
		session := w.session()
		w.add(newTask())
		j := w.claimOne(session)
		w.force(j.ID)
		after := w.job(j.ID)
		w.clock.Advance(time.Hour)
		w.expire()
		w.untouched(after)
	})
}

func forceEnded(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.must(finish(w.claimOne(session), by(session)))
	if got := w.force(j.ID); job.KindOf(got.Err) != job.Conflict {
		w.Errorf("answer %+v", got)
	}
	w.untouched(j)
}

func forceOnly(w *world) {
	j := w.job(w.add(newTask()))
	for _, wish := range []job.Wish{job.WishPause, job.WishResume} {
		_, _, err := w.s.Wish(w.ctx, store.Wish{Tenant: acme, Wish: wish, Jobs: []job.ID{j.ID}, By: ann, Force: true})
		w.kind(err, job.Invalid)
	}
	w.untouched(j)
}
