package storetest

import (
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var unwatchedTests = []test{
	{"watches with programs that nobody looks after are named", unwatchedNamed},
	{"jobs that are not in custody monitor are not watched", unwatchedOthers},
}

// unwatched checks where nobody watches.
func (w *world) unwatched(want ...store.Unwatched) {
	w.Helper()
	got, err := w.s.Unattended(w.ctx)
	if err != nil {
		w.Fatalf("unattended: %v", err)
	}
	if !slices.Equal(got.Unwatched, want) {
		w.Errorf("nobody watches %+v, want %+v", got.Unwatched, want)
	}
}

func unwatchedNamed(w *world) {
	w.unwatched()
	w.stand(job.Running, job.Monitor)
	left := store.Unwatched{Watch: machine, Jobs: 1}
	w.unwatched(left)
	id := w.begin(process())
	w.renew(id, job.WatchDuty("m2"))
	w.unwatched(left)
	w.renew(id, job.WatchDuty(machine))
	w.unwatched()
	w.command(id, store.Drain)
	w.unwatched()
	w.end(id)
	w.unwatched(left)
	w.renew(w.begin(process()), job.WatchDuty(machine))
	w.unwatched()
	w.clock.Advance(lease + margin)
	w.unwatched(left)
}

func unwatchedOthers(w *world) {
	for _, state := range []job.State{job.Waiting, job.Pending, job.Paused} {
		w.stand(state, job.Gate)
	}
	w.unwatched()
}
