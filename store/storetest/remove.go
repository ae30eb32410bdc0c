package storetest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var removeTests = []test{
	{"nothing is left of a job", removeAll},
	{"a job that has not ended stays", removeUnended},
	{"of many who remove a job at once one has removed it", removeAtOnce},
	{"a job that owes something stays until it has paid", removeUnpaid},
	{"each of many is answered", removeMany},
	{"what a removed job waited for ends without it", removeWaited},
	{"a call with the idempotency key of a removed job is answered", removeKey},
	{"a submission that is repeated after its prerequisite is gone is answered", removePrerequisite},
	{"cursors go on behind what was the newest", removeCursors},
}

// remove removes jobs and returns the answers.
func (w *world) remove(ids ...job.ID) []error {
	w.Helper()
	errs, err := w.s.Remove(w.ctx, acme, ids)
	if err != nil || len(errs) != len(ids) {
		w.Fatalf("remove of %d jobs: %d answers, %v", len(ids), len(errs), err)
	}
	return errs
}

// gone removes jobs, none of which refuses.
func (w *world) gone(ids ...job.ID) {
	w.Helper()
	for i, err := range w.remove(ids...) {
		if err != nil {
			w.Fatalf("remove job %s: %v", ids[i], err)
		}
		_, err := store.FindJob(w.ctx, w.s, acme, ids[i])
		w.kind(err, job.NotFound)
	}
}

func removeAll(w *world) {
	session := w.session()
	full := func(mode job.UniqueMode) store.New {
		return newTask(externally("x"), fingerprint(1), labeled("a", "1"), noted(`1`), unique(mode, "k"), named("n"))
	}
	for _, mode := range []job.UniqueMode{job.UntilDone, job.UntilStart} {
		other := w.add(newTask(named("n")))
		id := w.add(full(mode))
		w.tell(note(id, "x"))
		for _, j := range w.claim(wanted(session, 2)) {
			w.must(finish(j, by(session)))
		}
		w.gone(id)
		equal(w, "list", fmtIDs(jobIDs(listAll(w, w.s, store.Query{Tenant: acme}))), fmtIDs([]job.ID{other}))
		for _, f := range []string{"label.a=1", "external_id=x", "id=" + id.String(), "label.a~*"} {
			if got := listAll(w, w.s, store.Query{Tenant: acme, Filter: w.filter(f)}); len(got) != 0 {
				w.Errorf("%s: %d jobs", f, len(got))
			}
		}
		if found, err := w.s.Find(w.ctx, store.FindQuery{IDs: []job.ID{id}}); err != nil || len(found) != 0 {
			w.Errorf("found %d jobs, %v", len(found), err)
		}
		for _, q := range []store.EventQuery{{Tenant: acme}, {Tenant: acme, Job: id}} {
			es, err := w.s.Events(w.ctx, q)
			if err != nil || slices.ContainsFunc(es.Events,
				func(e store.Event) bool { return e.Job == id || e.Job.IsZero() }) {
				w.Errorf("events %+v, %v", es.Events, err)
			}
		}
		counts, err := w.s.Count(w.ctx, acme, nil)
		if err != nil || counts.States[job.Finished] != 1 {
			w.Errorf("counted %v, %v", counts.States, err)
		}
		w.gone(other)
	}
	w.kind(w.remove(job.NewID())[0], job.NotFound)
	if n, _, err := w.s.Recount(w.ctx, 100); n != (store.Recounted{}) || err != nil {
		w.Errorf("recounted %+v, %v", n, err)
	}
	Check(w, w.s, acme)
}

func removeUnended(w *world) {
	for _, place := range places {
		w.fresh(place.String(), func(w *world) {
			st := w.stand(place.State, place.Custody)
			w.kind(w.remove(st.ID)[0], job.Conflict)
			w.untouched(st.Job)
		})
	}
}

func removeAtOnce(w *world) {
	ids := w.addMany(60)
	w.wishAll(job.WishCancel, ids...)
	var removed [60]atomic.Int64
	w.together(6, func(i int) error {
		mine := slices.Concat(ids[10*i:], ids[:10*i]) // each begins elsewhere
		errs, err := w.s.Remove(w.ctx, acme, mine)
		for k, err := range errs {
			switch {
			case err == nil:
				removed[(10*i+k)%60].Add(1)
			case job.KindOf(err) != job.NotFound:
				return err
			}
		}
		return err
	})
	for i := range removed {
		if n := removed[i].Load(); n != 1 {
			w.Errorf("job %d was removed by %d, want 1", i, n)
		}
	}
	Check(w, w.s, acme)
}

func removeUnpaid(w *world) {
	first := w.add(newTask())
	waits := w.add(newTask(after(job.NeedEnded, first)))
	w.wish(job.WishCancel, first)
	w.kind(w.remove(first)[0], job.Conflict)
	w.at(job.Waiting, job.Gate, waits)
	w.pay()
	w.gone(first)
	w.at(job.Pending, job.Ready, waits)
	Check(w, w.s, acme)
}

func removeMany(w *world) {
	n := rounds(1500, 700)
	ids := w.addMany(n, labeled("a", "1"))
	w.wishAll(job.WishCancel, ids[1:]...)
	other := submission(newTask())
	other.Tenant = "other"
	theirs, _, err := w.s.Submit(w.ctx, other)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	all := slices.Concat([]job.ID{theirs[0].ID}, ids, []job.ID{ids[7], job.NewID()})
	for i, err := range w.remove(all...) {
		switch {
		case i == 0 || i > n:
			w.kind(err, job.NotFound)
		case i == 1:
			w.kind(err, job.Conflict)
		case err != nil:
			w.Fatalf("job %d: %v", i, err)
		}
	}
	equal(w, "list", fmtIDs(jobIDs(listAll(w, w.s, store.Query{Tenant: acme}))), fmtIDs(ids[:1]))
	if j, err := store.FindJob(w.ctx, w.s, "other", theirs[0].ID); err != nil || j.State != job.Pending {
		w.Errorf("their job is at %s, %v", j.Place, err)
	}
	Check(w, w.s, acme)
}

func removeWaited(w *world) {
	first := w.add(newTask())
	waits, more := w.add(newTask(after(job.NeedEnded, first))), w.add(newTask(after(job.NeedEnded, first)))
	w.wish(job.WishCancel, waits)
	w.gone(waits)
	w.must(finish(w.claimOne(w.session()), by(w.job(first).Session)))
	w.pay()
	w.at(job.Pending, job.Ready, more)
	Check(w, w.s, acme)
}

func removeKey(w *world) {
	s := submission(newTask(fingerprint(1)), newTask(fingerprint(2)))
	s.Key = "key"
	first, _, err := w.s.Submit(w.ctx, s)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	w.wish(job.WishCancel, first[0].ID)
	w.gone(first[0].ID)
	again, _, err := w.s.Submit(w.ctx, s)
	if err != nil {
		w.Fatalf("submit again: %v", err)
	}
	equal(w, "ids", fmtIDs(idsOf(again)), fmtIDs(idsOf(first)))
	if len(listAll(w, w.s, store.Query{Tenant: acme})) != 1 {
		w.Errorf("the call made jobs again")
	}
}

func removePrerequisite(w *world) {
	first := w.add(newTask())
	n := newTask(after(job.NeedEnded, first))
	w.add(n)
	w.wish(job.WishCancel, first)
	w.pay()
	w.gone(first)
	if got := w.submit(n)[0]; got.ID != n.Job.ID || !got.Existed || got.Place.State != job.Pending {
		w.Errorf("answer %+v", got)
	}
	_, _, err := w.s.Submit(w.ctx, submission(newTask(after(job.NeedEnded, first))))
	w.kind(err, job.Invalid)
}

func removeCursors(w *world) {
	old := w.add(newTask())
	w.clock.Advance(time.Second)
	for range 3 { // again and again the newest job with the newest events
		id := w.add(newTask())
		w.wish(job.WishCancel, id)
		last := w.add(newTask())
		w.wish(job.WishCancel, last)
		end, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, End: true})
		if err != nil {
			w.Fatalf("events: %v", err)
		}
		from, err := w.s.List(w.ctx, store.Query{Tenant: acme, Sort: store.Oldest, Limit: 2})
		if err != nil || from.Next == "" {
			w.Fatalf("list: %v", err)
		}
		w.gone(id, last)
		next := w.add(newTask())
		if got := w.events(store.EventQuery{Tenant: acme, Cursor: end.Cursor}, 1); got[0].Job != next || got[0].N != 1 {
			w.Errorf("behind the end comes %+v", got[0])
		}
		rest, err := w.s.List(w.ctx, store.Query{Tenant: acme, Sort: store.Oldest, Cursor: from.Next})
		if err != nil {
			w.Fatalf("list: %v", err)
		}
		equal(w, "jobs behind the cursor", fmtIDs(jobIDs(rest.Jobs)), fmtIDs([]job.ID{next}))
		w.wish(job.WishCancel, next)
		w.gone(next)
	}
	equal(w, "list", fmtIDs(jobIDs(listAll(w, w.s, store.Query{Tenant: acme}))), fmtIDs([]job.ID{old}))
	Check(w, w.s, acme)
}
