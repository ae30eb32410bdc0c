package storetest

import (
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var bigTests = []test{
	{"very many jobs", bigDrain},
	{"a job takes no more notes than its bound", noteBound},
}

// bigDrain submits many jobs, and then claims and finishes all of them, in batches as large as a
// busy process makes.
func bigDrain(w *world) {
	total, batch := rounds(100_000, 2500), rounds(2000, 500)
	var ids []job.ID
	for len(ids) < total {
		ids = append(ids, w.addMany(batch)...)
	}
	session := job.NewID()
	if err := w.s.Begin(w.ctx, store.Session{
		ID: session, Process: store.Process{Host: "host", PID: 1},
		Lease: lease,
	}); err != nil {
		w.Fatalf("begin: %v", err)
	}
	ended := map[job.ID]bool{}
	for len(ended) < total {
		jobs := w.claim(wanted(session, batch))
		if len(jobs) == 0 {
			w.Fatalf("nothing left to claim after %d of %d jobs", len(ended), total)
		}
		changes := make([]job.Change, len(jobs))
		for i, j := range jobs {
			changes[i] = finish(j, by(session))
			if ended[j.ID] {
				w.Fatalf("job %s was claimed again after its end", j.ID)
			}
			ended[j.ID] = true
		}
		for i, a := range w.applyAll(changes...) {
			if a.Outcome != store.OK || a.Now.N != 3 {
				w.Fatalf("job %s: %+v", changes[i].Job, a)
			}
		}
		w.renew(session)
	}
	n, err := w.s.Count(w.ctx, acme, nil)
	if err != nil || n.States[job.Finished] != total {
		w.Errorf("counted %v, %v; want %d FINISHED", n, err, total)
	}
	if jobs := listAll(w, w.s, store.Query{Tenant: acme, Limit: 1000}); len(jobs) != total {
		w.Errorf("the list has %d jobs, want %d", len(jobs), total)
	}
	var sample []job.ID
	for i := 0; i < total; i += total / 200 {
		sample = append(sample, ids[i])
	}
	Check(w, w.s, acme, sample...)
}
