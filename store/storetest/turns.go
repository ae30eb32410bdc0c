package storetest

import (
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func under(keys ...string) option      { return func(n *store.New) { n.Job.Limits = keys } }
func perhaps(keys ...string) option    { return func(n *store.New) { n.Optional = keys } }
func ownedBy(owner string) option      { return func(n *store.New) { n.Job.Owner = owner } }
func most(key string, n int) job.Limit { return job.Limit{Key: key, Most: n} }

// limit sets limits and pays what that owes.
func (w *world) limit(limits ...job.Limit) {
	w.Helper()
	for _, l := range limits {
		if _, err := store.SetLimit(w.ctx, w.s, acme, l); err != nil {
			w.Fatalf("limit %+v: %v", l, err)
		}
	}
	w.pay()
}

// turns returns the use of a key: turns, and jobs that wait.
func (w *world) turns(key string) (held, waiting int) {
	w.Helper()
	all, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme, Key: key})
	if err != nil || len(all) > 1 {
		w.Fatalf("turns of %s: %+v, %v", key, all, err)
	}
	for _, t := range all {
		for _, s := range t.Owners {
			held, waiting = held+s.Held, waiting+s.Waiting
		}
	}
	return held, waiting
}

// uses fails the test unless a key is used so.
func (w *world) uses(key string, held, waiting int) {
	w.Helper()
	if h, n := w.turns(key); h != held || n != waiting {
		w.Errorf("%s: %d turns, %d wait; want %d and %d", key, h, n, held, waiting)
	}
}

// checkTurns verifies, where nothing is owed, that turns are those of the jobs that have them, and
// that nobody waits beside free places.
func checkTurns(w *world) {
	w.Helper()
	held, waiting := map[string]int{}, map[string][]job.Job{}
	var open []job.ID
	for _, listed := range listAll(w, w.s, store.Query{Tenant: acme, Limit: 1000}) {
		if !listed.State.Terminal() {
			open = append(open, listed.ID)
		}
	}
	for _, j := range w.jobs(open...) {
		for _, key := range j.Turns() {
			held[key]++
		}
		if j.Line != "" {
			waiting[j.Line] = append(waiting[j.Line], j)
		}
	}
	all, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme, Limit: 1000})
	if err != nil {
		w.Fatalf("turns: %v", err)
	}
	full := map[string]bool{}
	for _, t := range all {
		h, n := 0, 0
		for _, s := range t.Owners {
			h, n = h+s.Held, n+s.Waiting
		}
		if h != held[t.Key] || n != len(waiting[t.Key]) {
			w.Errorf("%s: %d turns, %d wait; of the jobs %d have one and %d wait", t.Key, h, n, held[t.Key],
				len(waiting[t.Key]))
		}
		if job.Ordered(t.Key) && h > 1 {
			w.Errorf("%s: %d go at once", t.Key, h)
		}
		delete(held, t.Key)
		full[t.Key] = t.Limit != nil && h >= t.Limit.Places(t.Key)
	}
	if len(held) > 0 {
		w.Errorf("nobody knows of the turns %v", held)
	}
	for key, jobs := range waiting {
		if !full[key] {
			w.Errorf("%s has a free place, and %d jobs wait for it, the first is %s", key, len(jobs), jobs[0].ID)
		}
	}
	if n, _, err := w.s.Recount(w.ctx, 100); n != (store.Recounted{}) || err != nil {
		w.Errorf("recounted %+v, %v", n, err)
	}
	Check(w, w.s, acme)
}
