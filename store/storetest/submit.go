package storetest

import (
	"encoding/json"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var submitTests = []test{
	{"a job is kept as it was given", submitKeeps},
	{"a job is ready, or behind its gate", submitPlaces},
	{"effects name the lines and the due time", submitEffects},
	{"the same job id is the same job", submitRepeated},
	{"the job id of another tenant is taken", submitTaken},
	{"a tenant has a name", submitTenant},
	{"an idempotency key gives the same answer again", submitKey},
	{"an idempotency key is free when it is kept no longer", submitKeyExpired},
	{"a repeat under an idempotency key takes no unique key", submitKeyUnique},
	{"a repeat with the id of a job that gave up its unique key is that job", submitRepeatedID},
	{"an idempotency key with another request is a conflict", submitKeyConflict},
	{"64 at once with one idempotency key make one job", submitKeyAtOnce},
	{"64 at once with one external id make one job", submitExternalAtOnce},
	{"an external id gives the same job again", submitExternal},
	{"the same job twice in a call is answered with where it is", submitTwiceWithin},
	{"all jobs of a call or none", submitAllOrNone},
	{"64 at once with one unique key make one job", submitUniqueAtOnce},
	{"a key that is unique until start is free after the claim", submitUntilStart},
	{"a key that is unique until start is free after an end without a start", submitUntilStartCanceled},
	{"a key that is unique until done is free after the end", submitUntilDone},
	{"a unique key is never taken back", submitNeverTakenBack},
	{"a unique key that is given twice is one", submitUniqueTwice},
	{"unique keys are of a tenant, a kind and a mode", submitUniqueScope},
	{"several unique keys", submitUniqueSeveral},
	{"a job that ends at once gives its unique key to the next of the call", submitUniqueBroken},
	{"the same job twice in a call keeps its unique key", submitUniqueRepeated},
	{"bulk submits with crossing unique keys do not lock each other out", submitUniqueCrossing},
}

func submitTenant(w *world) {
	for _, name := range []string{"", ".", "..", "*", "../../x", ".staging", "a/b", "a\x00"} {
		s := submission(newTask())
		s.Tenant = name
		for _, s.Key = range []string{"", "k"} {
			if _, _, err := w.s.Submit(w.ctx, s); job.KindOf(err) != job.Invalid {
				w.Errorf("tenant %q: error of kind %s (%v), want Invalid", name, job.KindOf(err), err)
			}
		}
	}
}

func submitKeeps(w *world) {
	n := newProgram(inQueue("gpu"), on(machine), withPriority(2), externally("run-7"), labeled("site", "a"),
		labeled("x/y", "ü"))
	n.Job.MaxAttempts = 3
	n.Job.Owner = "bob"
	n.Job.Request = json.RawMessage(`{"kind": "app", "command": ["wc", "-w"], "notes": {"π": 3.14159, "n": null}}`)
	answer := w.submit(n)[0]
	equal(w, "answer", answer, store.Submitted{ID: n.Job.ID, Place: job.Place{State: job.Pending, Custody: job.Ready}})

	got := w.job(n.Job.ID)
	want := n.Job
	want.Tenant = acme
	want.Place = answer.Place
	want.N, want.Attempt, want.Lane = 1, 1, job.LanePrepare
	want.Epoch, want.Created, want.Since = got.Epoch, got.Created, got.Since // the store's affair
	if diff := cmp.Diff(want, got, sameJob); diff != "" {
		w.Errorf("the job (-want +got):\n%s", diff)
	}
	events := w.history(n.Job.ID)
	if len(events) != 1 || events[0].Cause != job.CauseSubmit || events[0].Actor != ann {
		w.Errorf("history %+v, want one event by %s", events, ann)
	}
	Check(w, w.s, acme)
}

func submitPlaces(w *world) {
	past, future := newTask(), newTask()
	now := w.renew(w.session()).Now
	past.Job.Due, future.Job.Due = now.Add(-time.Hour), now.Add(time.Hour)
	first := newTask()
	got := w.submit(newTask(), newTask(delayed(time.Minute)), past, future, first,
		newTask(after(job.NeedEnded, first.Job.ID)))
	ready := job.Place{State: job.Pending, Custody: job.Ready}
	gate := job.Place{State: job.Waiting, Custody: job.Gate}
	for i, want := range []job.Place{ready, gate, ready, gate, ready, gate} {
		if got[i].Place != want {
			w.Errorf("job %d: answered %s, want %s", i, got[i].Place, want)
		}
		w.at(want.State, want.Custody, got[i].ID)
	}
	if due := w.job(future.Job.ID).Due; !near(due, future.Job.Due) {
		w.Errorf("due at %v, want %v", due, future.Job.Due)
	}
	if due := w.job(got[1].ID).Due; due.Before(now.Add(time.Minute - time.Millisecond)) {
		w.Errorf("due at %v, want a minute after %v", due, now)
	}
	Check(w, w.s, acme)
}

func submitEffects(w *world) {
	late, early := newTask(inQueue("x"), delayed(time.Hour)), newTask(inQueue("x"), delayed(time.Minute))
	_, effects, err := w.s.Submit(w.ctx, submission(newTask(), newTask(), newProgram(inQueue("gpu")), late, early))
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task},
		job.QueueKind{Queue: "gpu", Kind: job.KindApp})
	if due := w.job(early.Job.ID).Due; !near(effects.Due, due) {
		w.Errorf("effects are due at %v, want %v", effects.Due, due)
	}
	if effects.Owed {
		w.Errorf("plain jobs owe something")
	}
}

func submitRepeated(w *world) {
	a, b := newTask(), newTask(delayed(time.Hour))
	first := w.submit(a, b)
	again := w.submit(a, b)
	for i := range first {
		first[i].Existed = true
	}
	equal(w, "the second answer", again, first)

	w.claimOne(w.session())
	if got := w.submit(a)[0]; got.ID != a.Job.ID || !got.Existed || got.Place.Custody != job.Worker {
		w.Errorf("answer after the claim: %+v", got)
	}
	Check(w, w.s, acme)
}

// Whose job it is may be hidden from the other tenant by the database itself.
func submitTaken(w *world) {
	mine := newTask()
	w.add(mine)
	before := w.job(mine.Job.ID)
	theirs := func(jobs ...store.New) store.Submission {
		s := submission(jobs...)
		s.Tenant = "other"
		return s
	}
	first, last := newTask(), newTask()
	keyed := theirs(mine)
	keyed.Key = "k"
	for name, s := range map[string]store.Submission{
		"alone":                 theirs(newTask(withID(mine.Job.ID))),
		"among others":          theirs(first, newTask(withID(mine.Job.ID)), last),
		"with an external id":   theirs(newTask(withID(mine.Job.ID), externally("x"))),
		"with a unique key":     theirs(newTask(withID(mine.Job.ID), unique(job.UntilDone, "u"))),
		"under idempotency key": keyed,
	} {
		_, _, err := w.s.Submit(w.ctx, s)
		if want := "job id " + mine.Job.ID.String() + " is taken"; job.KindOf(err) != job.Conflict ||
			err.Error() != want {
			w.Errorf("%s: error of kind %s (%v), want %s", name, job.KindOf(err), err, want)
		}
	}
	w.untouched(before)
	if jobs := listAll(w, w.s, store.Query{Tenant: "other"}); len(jobs) != 0 {
		w.Errorf("the other tenant has %d jobs", len(jobs))
	}
	// Nothing is left behind, and with an id of its own each is made.
	again := theirs(first, newTask(externally("x"), unique(job.UntilDone, "u")), last)
	again.Key = "k"
	got, _, err := w.s.Submit(w.ctx, again)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	for i, a := range got {
		if a.Existed || a.ID != again.Jobs[i].Job.ID {
			w.Errorf("answer %+v, want job %s, new", a, again.Jobs[i].Job.ID)
		}
	}
}

func submitKey(w *world) {
	request := func() store.Submission {
		s := submission(newTask(fingerprint(1)), newTask(fingerprint(2)))
		s.Key = "k"
		return s
	}
	first, _, err := w.s.Submit(w.ctx, request())
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	again, effects, err := w.s.Submit(w.ctx, request())
	if err != nil {
		w.Fatalf("submit again: %v", err)
	}
	equal(w, "ids", fmtIDs(idsOf(again)), fmtIDs(idsOf(first)))
	for _, a := range again {
		if !a.Existed {
			w.Errorf("job %s is said to be new", a.ID)
		}
	}
	if len(effects.Ready) != 0 {
		w.Logf("a repeated submit announces %v, which does no harm", effects.Ready)
	}
	if n := len(listAll(w, w.s, store.Query{Tenant: acme})); n != 2 {
		w.Errorf("%d jobs, want 2", n)
	}
	// The same key of another tenant is another key.
	other := request()
	other.Tenant = "other"
	got, _, err := w.s.Submit(w.ctx, other)
	if err != nil || got[0].Existed || got[0].ID != other.Jobs[0].Job.ID {
		w.Errorf("another tenant with the same key: %+v, %v", got, err)
	}
}

func submitKeyExpired(w *world) {
	request := func(b byte) store.Submission {
		s := submission(newTask(fingerprint(b)))
		s.Key = "k"
		return s
	}
	call := func(b byte) store.Submitted {
		w.Helper()
		got, _, err := w.s.Submit(w.ctx, request(b))
		if err != nil {
			w.Fatalf("submit: %v", err)
		}
		return got[0]
	}
	first := call(1)
	w.clock.Advance(store.KeepKey - time.Hour)
	if again := call(1); again.ID != first.ID || !again.Existed {
		w.Errorf("an hour before its end the key answers %+v, want job %s", again, first.ID)
	}
	_, _, err := w.s.Submit(w.ctx, request(2))
	w.kind(err, job.Conflict)

	w.clock.Advance(2 * time.Hour) // a repeat has not made it last longer
	second := call(2)
	if second.Existed || second.ID == first.ID {
		w.Errorf("an hour after its end the key answers %+v, want a new job", second)
	}
	w.clock.Advance(store.KeepKey - time.Hour)
	if again := call(2); again.ID != second.ID || !again.Existed {
		w.Errorf("the key that was taken anew answers %+v, want job %s", again, second.ID)
	}
	w.clock.Advance(2 * time.Hour)
	if third := call(2); third.Existed {
		w.Errorf("an hour after its end the same request under the key answers %+v, want a new job", third)
	}
	if n := len(listAll(w, w.s, store.Query{Tenant: acme})); n != 3 {
		w.Errorf("%d jobs, want 3", n)
	}
}

func submitKeyConflict(w *world) {
	for _, c := range []struct {
		name  string
		again []store.New
	}{
		{"another request", []store.New{newTask(fingerprint(2))}},
		{"one job more", []store.New{newTask(fingerprint(1)), newTask(fingerprint(1))}},
	} {
		first := submission(newTask(fingerprint(1)))
		first.Key = c.name
		if _, _, err := w.s.Submit(w.ctx, first); err != nil {
			w.Fatalf("submit: %v", err)
		}
		again := submission(c.again...)
		again.Key = c.name
		_, _, err := w.s.Submit(w.ctx, again)
		w.kind(err, job.Conflict)
	}
	if n := len(listAll(w, w.s, store.Query{Tenant: acme})); n != 2 {
		w.Errorf("%d jobs, want 2", n)
	}
}

func submitKeyAtOnce(w *world) {
	w.oneJob(func(int) store.Submission {
		s := submission(newTask(fingerprint(1)))
		s.Key = "once"
		return s
	})
}

func submitExternalAtOnce(w *world) {
	w.oneJob(func(int) store.Submission { return submission(newTask(externally("x"), fingerprint(1))) })
}

func submitUniqueAtOnce(w *world) {
	w.oneJob(func(i int) store.Submission {
		return submission(newTask(unique(job.UntilDone, "k"), fingerprint(byte(i))))
	})
}

// oneJob makes 64 submissions at once and fails unless one of them makes a job and all are answered
// with it.
func (w *world) oneJob(request func(i int) store.Submission) {
	w.Helper()
	const n = 64
	answers := make([]store.Submitted, n)
	w.together(n, func(i int) error {
		got, _, err := w.s.Submit(w.ctx, request(i))
		if err != nil {
			return err
		}
		answers[i] = got[0]
		return nil
	})
	made := 0
	for _, a := range answers {
		if a.ID != answers[0].ID {
			w.Errorf("answered with jobs %s and %s", answers[0].ID, a.ID)
		}
		if !a.Existed {
			made++
		}
	}
	if made != 1 {
		w.Errorf("%d calls say that they made the job, want 1", made)
	}
	if n := len(listAll(w, w.s, store.Query{Tenant: acme})); n != 1 {
		w.Errorf("%d jobs, want 1", n)
	}
	Check(w, w.s, acme)
}

func submitExternal(w *world) {
	first := w.add(newTask(externally("x"), fingerprint(1)))
	if got := w.submit(newTask(externally("x"), fingerprint(1)))[0]; got.ID != first || !got.Existed {
		w.Errorf("answer %+v, want job %s", got, first)
	}
	_, _, err := w.s.Submit(w.ctx, submission(newTask(externally("x"), fingerprint(2))))
	w.kind(err, job.Conflict)

	// It is unique for ever, not until the end.
	w.must(finish(w.claimOne(w.session()), by(w.job(first).Session)))
	if got := w.submit(newTask(externally("x"), fingerprint(1)))[0]; got.ID != first ||
		got.Place.State != job.Finished {
		w.Errorf("answer after the end %+v, want job %s", got, first)
	}
}

func submitTwiceWithin(w *world) {
	first := w.add(newTask())
	for name, gate := range map[string][]option{
		"ready": nil, "delayed": {delayed(time.Hour)}, "behind another": {after(job.NeedEnded, first)},
	} {
		for what, key := range map[string]option{
			"external id": externally(name),
			"unique key":  unique(job.UntilDone, name),
		} {
			one := newTask(append(gate, key)...)
			got := w.submit(one, newTask(key))
			if got[1].ID != one.Job.ID || !got[1].Existed || got[1].Place != got[0].Place ||
				got[1].Place != w.job(one.Job.ID).Place {
				w.Errorf("%s, the same %s: answers %+v, the job is %s", name, what, got, w.job(one.Job.ID).Place)
			}
		}
	}
}

func submitAllOrNone(w *world) {
	for _, c := range []struct {
		name  string
		bad   store.New
		kinds []job.ErrorKind
	}{
		{
			"an external id with another request", newTask(externally("taken"), fingerprint(2)),
			[]job.ErrorKind{job.Conflict},
		},
		{
			"an unknown prerequisite", newTask(after(job.NeedEnded, job.NewID())),
			[]job.ErrorKind{job.Invalid, job.NotFound},
		},
	} {
		w.fresh(c.name, func(w *world) {
			taken := w.add(newTask(externally("taken"), fingerprint(1)))
			first, last := newTask(unique(job.UntilDone, "k"), externally("new")), newTask()
			s := submission(first, c.bad, last)
			s.Key = "key"
			_, _, err := w.s.Submit(w.ctx, s)
			w.kind(err, c.kinds...)
			if jobs := listAll(w, w.s, store.Query{Tenant: acme}); len(jobs) != 1 || jobs[0].ID != taken {
				w.Errorf("%d jobs, want only the one that was there", len(jobs))
			}
			// No key is left behind either.
			s.Jobs = []store.New{first, last}
			got, _, err := w.s.Submit(w.ctx, s)
			if err != nil || got[0].Existed || got[1].Existed {
				w.Errorf("without the bad job: %+v, %v", got, err)
			}
		})
	}
}

// A caller that makes new ids when it repeats a call names jobs that are never made.
func submitKeyUnique(w *world) {
	request := func() store.Submission {
		s := submission(newTask(fingerprint(1), unique(job.UntilStart, "a")))
		s.Key = "k"
		return s
	}
	for range 2 {
		if _, _, err := w.s.Submit(w.ctx, request()); err != nil {
			w.Fatalf("submit: %v", err)
		}
		w.claim(wanted(w.session(), 10))
	}
	if got := w.submit(newTask(unique(job.UntilStart, "a")))[0]; got.Existed {
		w.Errorf("key a is held by %s", got.ID)
	}
}

func submitUntilStart(w *world) {
	first := w.add(newTask(unique(job.UntilStart, "k")))
	if got := w.submit(newTask(), newTask(unique(job.UntilStart, "k"))); got[1].ID != first || !got[1].Existed ||
		got[0].Existed {
		w.Errorf("answers %+v, want a new job and job %s", got, first)
	}
	w.claim(wanted(w.session(), 10))
	second := w.submit(newTask(unique(job.UntilStart, "k")))[0]
	if second.Existed {
		w.Errorf("the key is held after the claim by %s", second.ID)
	}
	if got := w.submit(newTask(unique(job.UntilStart, "k")))[0]; got.ID != second.ID {
		w.Errorf("answer %+v, want job %s", got, second.ID)
	}
}

func submitUntilStartCanceled(w *world) {
	first := w.add(newTask(unique(job.UntilStart, "k"), delayed(time.Hour)))
	if got := w.submit(newTask(unique(job.UntilStart, "k")))[0]; got.ID != first {
		w.Errorf("answer %+v, want job %s", got, first)
	}
	w.wish(job.WishCancel, first)
	if got := w.submit(newTask(unique(job.UntilStart, "k")))[0]; got.Existed {
		w.Errorf("the key is held after the end by %s", got.ID)
	}
}

func submitUntilDone(w *world) {
	for _, c := range []struct {
		name string
		end  func(w *world, j job.Job)
	}{
		{"finished", func(w *world, j job.Job) { w.must(finish(j, by(j.Session))) }},
		{"failed", func(w *world, j job.Job) { w.must(move(j, by(j.Session), job.None, job.Failed)) }},
		{"canceled", func(w *world, j job.Job) {
			w.wish(job.WishCancel, j.ID)
			w.apply(move(j, by(j.Session), job.Ready, job.Pending))
		}},
	} {
		w.fresh(c.name, func(w *world) {
			first := w.add(newTask(unique(job.UntilDone, "k")))
			j := w.claimOne(w.session())
			if got := w.submit(newTask(unique(job.UntilDone, "k")))[0]; got.ID != first || !got.Existed {
				w.Errorf("answer while it runs %+v, want job %s", got, first)
			}
			c.end(w, j)
			if got := w.submit(newTask(unique(job.UntilDone, "k")))[0]; got.Existed {
				w.Errorf("the key is held after the end by %s", got.ID)
			}
		})
	}
}

func submitNeverTakenBack(w *world) {
	session := w.session()
	first := w.add(newTask(unique(job.UntilStart, "k")))
	j := w.claimOne(session)
	second := w.add(newTask(unique(job.UntilStart, "k")))
	w.must(setting(move(j, by(session), job.Ready, job.Pending), job.Patch{Retry: true}))
	w.at(job.Pending, job.Ready, first, second)
	// The second one holds the key, and the end of the first does not free it.
	w.wish(job.WishCancel, first)
	if got := w.submit(newTask(unique(job.UntilStart, "k")))[0]; got.ID != second {
		w.Errorf("answer %+v, want job %s", got, second)
	}
	Check(w, w.s, acme)
}

func submitRepeatedID(w *world) {
	first := newTask(unique(job.UntilStart, "k"))
	id := w.submit(first)[0].ID
	w.claimOne(w.session())
	if other := w.submit(newTask(unique(job.UntilStart, "k")))[0]; other.Existed {
		w.Fatalf("the job that runs has its key still")
	}
	if again := w.submit(first)[0]; again.ID != id || !again.Existed {
		w.Errorf("answered with %+v, want job %s", again, id)
	}
}

func submitUniqueScope(w *world) {
	w.add(newTask(unique(job.UntilDone, "k")))
	for name, n := range map[string]store.New{
		"another kind": newTask(ofKind("other"), unique(job.UntilDone, "k")),
		"another mode": newTask(unique(job.UntilStart, "k")),
		"another key":  newTask(unique(job.UntilDone, "K")),
	} {
		if w.submit(n)[0].Existed {
			w.Errorf("%s has the same key", name)
		}
	}
	s := submission(newTask(unique(job.UntilDone, "k")))
	s.Tenant = "other"
	if got, _, err := w.s.Submit(w.ctx, s); err != nil || got[0].Existed {
		w.Errorf("another tenant: %+v, %v", got, err)
	}
}

func submitUniqueTwice(w *world) {
	first := w.add(newTask(unique(job.UntilDone, "a", "a")))
	if got := w.submit(newTask(unique(job.UntilDone, "a")))[0]; !got.Existed || got.ID != first {
		w.Errorf("%+v, want job %s", got, first)
	}
	Check(w, w.s, acme)
}

func submitUniqueSeveral(w *world) {
	a := w.add(newTask(unique(job.UntilDone, "a")))
	b := w.add(newTask(unique(job.UntilDone, "b")))
	if got := w.submit(newTask(unique(job.UntilDone, "b", "c", "a")))[0]; !got.Existed || got.ID != a && got.ID != b {
		w.Errorf("answer %+v, want job %s or %s", got, a, b)
	}
	// The job that was not made holds none of its keys.
	if got := w.submit(newTask(unique(job.UntilDone, "c")))[0]; got.Existed {
		w.Errorf("key c is held by %s", got.ID)
	}
}

// The jobs of a call are as if each had a call of its own, one after the other.
func submitUniqueBroken(w *world) {
	gone := w.add(newTask())
	w.wish(job.WishCancel, gone)
	for _, mode := range []job.UniqueMode{job.UntilStart, job.UntilDone} {
		key := unique(mode, "k")
		broken, next, third := newTask(key, after(job.NeedFinished, gone)), newTask(key), newTask(key)
		got := w.submit(broken, next, third)
		ended := job.Place{State: job.Canceled, Custody: job.None}
		ready := job.Place{State: job.Pending, Custody: job.Ready}
		equal(w, "answers "+string(mode), got, []store.Submitted{
			{ID: broken.Job.ID, Place: ended},
			{ID: next.Job.ID, Place: ready},
			{ID: next.Job.ID, Place: ready, Existed: true},
		})
		if again := w.submit(newTask(key))[0]; again.ID != next.Job.ID || !again.Existed {
			w.Errorf("%s: answer %+v, want job %s", mode, again, next.Job.ID)
		}
		// Nobody follows: the key is free.
		w.submit(newTask(unique(mode, "other"), after(job.NeedFinished, gone)))
		if got := w.submit(newTask(unique(mode, "other")))[0]; got.Existed {
			w.Errorf("%s: the key is held by %s", mode, got.ID)
		}
	}
	Check(w, w.s, acme)
}

func submitUniqueRepeated(w *world) {
	key := unique(job.UntilDone, "k")
	one := newTask(key)
	for i, a := range append(w.submit(one, one, newTask(key)), w.submit(newTask(key))...) {
		if a.ID != one.Job.ID || a.Existed != (i > 0) {
			w.Errorf("answer %d is %+v, want job %s", i, a, one.Job.ID)
		}
	}
	Check(w, w.s, acme)
}

func submitUniqueCrossing(w *world) {
	keys := []string{"a", "b", "c", "d", "e", "f"}
	w.together(8, func(i int) error {
		for round := range 10 {
			var jobs []store.New
			for k := range keys {
				jobs = append(jobs, newTask(unique(job.UntilDone, keys[(k*(1+4*(i%2))+i+round)%len(keys)])))
			}
			if _, _, err := w.s.Submit(w.ctx, submission(jobs...)); err != nil {
				return err
			}
		}
		return nil
	})
	if n := len(listAll(w, w.s, store.Query{Tenant: acme})); n != len(keys) {
		w.Errorf("%d jobs for %d keys", n, len(keys))
	}
	Check(w, w.s, acme)
}
