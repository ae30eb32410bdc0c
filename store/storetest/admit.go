package storetest

import (
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var admitTests = []test{
	{"a queue must have its document, where that is asked for", admitDocument},
	{"a queue takes as many jobs that wait as its bound says", admitBound},
	{"jobs that wait are counted by queue and tenant", admitCount},
	{"of 16 submissions at once a bounded queue takes what fits", admitAtOnce},
	{"what speaks against a job counts only if the job would be made", admitRefusal},
	{"a queue is not removed while a job of it has not ended", admitRemoved},
	{"a system is not removed while a job there has not ended", admitSystem},
}

// bounded is a submission to queue q, which takes so many jobs that wait.
func bounded(most int, jobs ...store.New) store.Submission {
	sub := submission(jobs...)
	for i := range sub.Jobs {
		sub.Jobs[i].Job.Queue = "q"
	}
	sub.Queues = map[string]store.QueueCheck{"q": {Most: most}}
	return sub
}

// refuses fails the test unless a submission is refused for a reason, with nothing made.
func (w *world) refuses(sub store.Submission, kind job.ErrorKind) {
	w.Helper()
	before := jobIDs(listAll(w, w.s, store.Query{Tenant: acme}))
	_, eff, err := w.s.Submit(w.ctx, sub)
	w.kind(err, kind)
	equal(w, "effects", eff, store.Effects{})
	equal(w, "jobs", fmtIDs(jobIDs(listAll(w, w.s, store.Query{Tenant: acme}))), fmtIDs(before))
}

// takes fails the test unless a submission is accepted.
func (w *world) takes(sub store.Submission) (ids []job.ID) {
	w.Helper()
	answers, _, err := w.s.Submit(w.ctx, sub)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	for _, a := range answers {
		ids = append(ids, a.ID)
	}
	return ids
}

func admitDocument(w *world) {
	sub := bounded(0, newTask(), newTask())
	sub.Queues["q"] = store.QueueCheck{Document: true}
	w.refuses(sub, job.Invalid)
	if _, err := w.s.Put(w.ctx, document("q", 0, `{}`)); err != nil {
		w.Fatalf("%v", err)
	}
	w.takes(sub)
	other := bounded(0, newTask())
	other.Tenant, other.Queues = "other", sub.Queues
	if _, _, err := w.s.Submit(w.ctx, other); job.KindOf(err) != job.Invalid {
		w.Errorf("the document of another tenant: %v", err)
	}
}

func admitBound(w *world) {
	session := w.session()
	w.takes(bounded(3, newTask(), newTask(delayed(time.Hour))))
	w.refuses(bounded(3, newTask(), newTask()), job.Exhausted)
	w.refuses(bounded(3, newTask(), newTask(), newTask(), newTask()), job.Invalid) // they never fit
	w.takes(bounded(3, newTask(externally("x"), fingerprint(1))))
	w.refuses(bounded(3, newTask()), job.Exhausted)
	w.takes(bounded(3, newTask(externally("x"), fingerprint(1)))) // nothing is made
	w.add(newTask())                                              // another queue
	elsewhere := bounded(3, newTask())
	elsewhere.Tenant = "other"
	w.takes(elsewhere)
	if n := w.waiting("q"); n != 3 {
		w.Errorf("%d jobs wait", n)
	}

	// A job that was started waits no more; one that comes back does.
	c := wanted(session, 1)
	c.Queues = []string{"q"}
	started := w.claim(c)
	if len(started) != 1 {
		w.Fatalf("claimed %d jobs", len(started))
	}
	w.takes(bounded(3, newTask()))
	w.refuses(bounded(3, newTask()), job.Exhausted)
	w.must(finish(started[0], by(session)))
	w.refuses(bounded(3, newTask()), job.Exhausted)
	again := w.claim(c)
	w.takes(bounded(3, newTask()))
	w.must(move(again[0], by(session), job.Ready, job.Pending))
	w.refuses(bounded(4, newTask()), job.Exhausted)
	w.wish(job.WishCancel, again[0].ID)
	w.takes(bounded(4, newTask()))
	w.refuses(bounded(2, newTask()), job.Exhausted) // a bound that was lowered takes nothing away
}

// admitCount finds how many jobs wait in a queue by the bound that takes no more.
func admitCount(w *world) {
	session := w.session()
	w.addMany(3)
	w.addMany(2, delayed(time.Hour))
	w.addMany(4, inQueue("other"))
	theirs := submission(newTask())
	theirs.Tenant = "other"
	if _, _, err := w.s.Submit(w.ctx, theirs); err != nil {
		w.Fatalf("submit: %v", err)
	}
	w.must(finish(w.claim(wanted(session, 1))[0], by(session)))
	for queue, n := range map[string]int{job.DefaultQueue: 4, "other": 4, "none": 0} {
		if got := w.waiting(queue); got != n {
			w.Errorf("%d jobs wait in %s, want %d", got, queue, n)
		}
		sub := submission(newTask(inQueue(queue)), newTask(inQueue(queue)))
		sub.Queues = map[string]store.QueueCheck{queue: {Most: n + 1}}
		if n == 0 {
			w.refuses(sub, job.Invalid)
		} else {
			w.refuses(sub, job.Exhausted)
		}
		sub.Jobs = sub.Jobs[:1]
		w.takes(sub)
	}
}

// waiting counts the jobs of a queue that wait, in custody gate or ready.
func (w *world) waiting(queue string) (n int) {
	w.Helper()
	for _, j := range listAll(w, w.s, store.Query{Tenant: acme, Filter: job.Where("queue", job.Is, queue)}) {
		if j.Custody == job.Gate || j.Custody == job.Ready {
			n++
		}
	}
	return n
}

func admitAtOnce(w *world) {
	const most = 5
	w.together(16, func(int) error {
		_, _, err := w.s.Submit(w.ctx, bounded(most, newTask()))
		if job.KindOf(err) == job.Exhausted {
			return nil
		}
		return err
	})
	if n := w.waiting("q"); n != most {
		w.Errorf("%d jobs wait, want %d", n, most)
	}
}

func admitRefusal(w *world) {
	sub := submission(newTask(), newTask(externally("x"), fingerprint(1)))
	sub.Jobs[1].Refusal = job.Errorf(job.Conflict, "no")
	w.refuses(sub, job.Conflict)
	sub.Jobs[1].Refusal = nil
	sub.Key = "key"
	first := w.takes(sub)
	for i := range sub.Jobs {
		sub.Jobs[i].Refusal = job.Errorf(job.Conflict, "no")
	}
	equal(w, "repeated by the key", fmtIDs(w.takes(sub)), fmtIDs(first))
	sub.Key, sub.Jobs = "", sub.Jobs[1:]
	equal(w, "repeated by the external id", fmtIDs(w.takes(sub)), fmtIDs(first[1:]))
}

// A system whose programs the service itself starts is named by their requests alone.
func admitSystem(w *world) {
	for _, watch := range []string{"lab/ada", machine} {
		runs := func(n *store.New) {
			n.Job.Watch, n.Job.Request = watch, json.RawMessage(`{"kind":"app","system":"lab"}`)
		}
		for _, place := range places {
			w.fresh(place.String()+" watched by "+watch, func(w *world) {
				for _, name := range []string{"lab", "lab2", "la", "L", job.SystemLocal} {
					doc := document(name, 0, `{}`)
					doc.Kind = job.KindSystem
					if _, err := w.s.Put(w.ctx, doc); err != nil {
						w.Fatalf("%v", err)
					}
				}
				st := w.stand(place.State, place.Custody, runs)
				w.add(newProgram(on(machine), func(n *store.New) {
					n.Job.Request = json.RawMessage(`{"kind":"app","system":"` + job.SystemLocal + `"}`)
				}))
				w.kind(w.s.Delete(w.ctx, acme, job.KindSystem, "lab", store.AnyVersion), job.Conflict)
				w.kind(w.s.Delete(w.ctx, "a tenant", job.KindSystem, "lab", store.AnyVersion), job.NotFound)
				if _, err := store.FindResource(w.ctx, w.s, acme, job.KindSystem, "lab"); err != nil {
					w.Errorf("the document that was to stay: %v", err)
				}
				for _, other := range []string{"lab2", "la", "L", job.SystemLocal} {
					if err := w.s.Delete(w.ctx, acme, job.KindSystem, other, store.AnyVersion); err != nil {
						w.Errorf("%s: %v", other, err)
					}
				}
				w.force(st.ID)
				if err := w.s.Delete(w.ctx, acme, job.KindSystem, "lab", store.AnyVersion); err != nil {
					w.Errorf("nothing runs there any more: %v", err)
				}
			})
		}
	}
}

func admitRemoved(w *world) {
	session := w.session()
	if _, err := w.s.Put(w.ctx, document("q", 0, `{}`)); err != nil {
		w.Fatalf("%v", err)
	}
	w.takes(bounded(0, newTask()))
	w.kind(w.s.Delete(w.ctx, acme, job.KindQueue, "q", store.AnyVersion), job.Conflict)
	c := wanted(session, 1)
	c.Queues = []string{"q"}
	j := w.claim(c)[0]
	w.kind(w.s.Delete(w.ctx, acme, job.KindQueue, "q", store.AnyVersion), job.Conflict)
	w.must(finish(j, by(session)))
	if err := w.s.Delete(w.ctx, acme, job.KindQueue, "q", store.AnyVersion); err != nil {
		w.Errorf("%v", err)
	}
}
