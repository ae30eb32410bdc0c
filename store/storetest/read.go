package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var readTests = []test{
	{"cursors that nobody gave", readBadCursor},
	{"held, watched and found", readHeld},
	{"events page by page", readEvents},
	{"cursors stand in the order of their events", readOrder},
	{"tenants cannot see each other", readTenants},
	{"behind whom a ready job stands", readBehind},
	{"a job that is not there", readUnknown},
	{"a closed store", readClosed},
}

var readLong = []test{
	{"a follower misses nothing beside writers", readFollower},
}

func readBadCursor(w *world) {
	w.addMany(3)
	for _, cursor := range []string{"x", "-1", "9999999999999999999999", "'", "AAAA"} {
		if _, err := w.s.List(w.ctx, store.Query{Tenant: acme, Cursor: cursor}); err != nil {
			w.kind(err, job.Invalid)
		}
		if _, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Cursor: cursor}); err != nil {
			w.kind(err, job.Invalid)
		}
	}
}

// behind checks behind how many others a job stands, up to each limit.
func (w *world) behind(id job.ID, want int) {
	w.Helper()
	j := w.job(id)
	for _, limit := range []int{0, 1, 3, 100} {
		if n, err := w.s.Behind(w.ctx, &j, limit); n != min(want, limit) || err != nil {
			w.Errorf("a job, %s, is behind %d, want %d up to %d, %v", j.Place, n, want, limit, err)
		}
	}
}

func readBehind(w *world) {
	last := w.add(newTask(withPriority(7)))
	ids := w.addMany(3)
	first := w.add(newTask(withPriority(0), owned("bob")))
	night, program := w.add(newTask(inQueue("night"))), w.add(newProgram(on(machine)))
	later := w.add(newTask(delayed(time.Hour)))
	sub := submission(newTask(withPriority(0)))
	sub.Tenant = "other"
	if _, _, err := w.s.Submit(w.ctx, sub); err != nil {
		w.Fatalf("submit: %v", err)
	}
	w.behind(first, 0)
	for i, id := range ids {
		w.behind(id, 1+i)
	}
	w.behind(last, 4)
	w.behind(night, 0)
	w.behind(program, 0)
	w.behind(later, 0)
	session := w.session()
	claim := wanted(session, 2)
	claim.Jobs = []job.ID{first, ids[1]}
	if jobs := w.claim(claim); len(jobs) != 2 {
		w.Fatalf("claimed %d jobs, want 2", len(jobs))
	}
	w.behind(ids[1], 0) // it is in somebody's hands
	w.behind(ids[2], 1)
	w.behind(last, 2)
}

func readHeld(w *world) {
	st := w.stand(job.Running, job.Monitor)
	watched, err := w.s.Find(w.ctx, store.FindQuery{Watch: machine})
	if err != nil || len(watched) != 1 {
		w.Fatalf("watched %d jobs, %v; want 1", len(watched), err)
	}
	want := st.Job
	want.Request, want.Resolved, want.Labels, want.Result = nil, nil, nil, nil
	if diff := cmp.Diff(want, watched[0], sameJob); diff != "" {
		w.Errorf("watched (-want +got):\n%s", diff)
	}
	if got, err := w.s.Find(w.ctx, store.FindQuery{Watch: "m2"}); err != nil || len(got) != 0 {
		w.Errorf("another watch has %d jobs, %v", len(got), err)
	}
	w.add(newTask())
	j := w.claimOne(st.session)
	held, err := w.s.Find(w.ctx, store.FindQuery{Session: st.session})
	if err != nil || len(held) != 1 {
		w.Fatalf("held %d jobs, %v; want 1", len(held), err)
	}
	if diff := cmp.Diff(j, held[0], sameJob); diff != "" {
		w.Errorf("held (-want +got):\n%s", diff)
	}
	other := submission(newTask())
	other.Tenant = "other"
	theirs, _, err := w.s.Submit(w.ctx, other)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	found, err := w.s.Find(w.ctx, store.FindQuery{IDs: []job.ID{j.ID, job.NewID(), theirs[0].ID, st.ID}})
	if err != nil {
		w.Fatalf("find: %v", err)
	}
	sameSet(w, "found", jobIDs(found), []job.ID{j.ID, theirs[0].ID, st.ID})
	mine, err := w.s.Find(w.ctx, store.FindQuery{Tenant: acme, IDs: []job.ID{j.ID, job.NewID(), theirs[0].ID, st.ID}})
	if err != nil {
		w.Fatalf("find: %v", err)
	}
	sameSet(w, "found of a tenant", jobIDs(mine), []job.ID{j.ID, st.ID})
	for _, f := range append(found, mine...) {
		if f.ID != j.ID {
			continue
		}
		if diff := cmp.Diff(j, f, sameJob); diff != "" {
			w.Errorf("found (-want +got):\n%s", diff)
		}
	}
	if none, err := w.s.Find(w.ctx, store.FindQuery{}); err != nil || len(none) != 0 {
		w.Errorf("found %d jobs by no id, %v", len(none), err)
	}
	if got, err := w.s.Find(w.ctx, store.FindQuery{Session: w.session()}); err != nil || len(got) != 0 {
		w.Errorf("another session holds %d jobs, %v", len(got), err)
	}
}

// events reads events until n have come, and returns them.
func (w *world) events(q store.EventQuery, n int) []job.Event {
	w.Helper()
	var all []job.Event
	for deadline := time.Now().Add(patience); len(all) < n; runtime.Gosched() {
		got, err := w.s.Events(w.ctx, q)
		if err != nil {
			w.Fatalf("events: %v", err)
		}
		if got.Cursor == "" {
			w.Fatalf("the cursor is empty")
		}
		if q.Limit > 0 && len(got.Events) > q.Limit {
			w.Fatalf("%d events, the limit is %d", len(got.Events), q.Limit)
		}
		for _, e := range got.Events {
			all = append(all, e.Event)
		}
		q.Cursor = got.Cursor
		if time.Now().After(deadline) {
			w.Fatalf("%d events, want %d", len(all), n)
		}
	}
	return all
}

func readEvents(w *world) {
	session := w.session()
	w.addMany(4)
	for _, j := range w.claim(wanted(session, 3)) {
		w.must(finish(j, by(session)))
	}
	want := w.events(store.EventQuery{Tenant: acme}, 10)
	for _, limit := range []int{1, 3, 10, 10_000} {
		equal(w, "events", w.events(store.EventQuery{Tenant: acme, Limit: limit}, 10), want)
	}
	var ofOne []job.Event
	for _, e := range want {
		if e.Job == want[0].Job {
			ofOne = append(ofOne, e)
		}
	}
	equal(w, "events of one job", w.events(store.EventQuery{Tenant: acme, Job: want[0].Job, Limit: 1}, len(ofOne)),
		ofOne)

	// A cursor at the end waits for what comes.
	got, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme})
	if err != nil {
		w.Fatalf("events: %v", err)
	}
	cursor := got.Cursor
	got, err = w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Cursor: cursor})
	if err != nil || len(got.Events) != 0 || got.Cursor == "" {
		w.Errorf("at the end: %d events, cursor %q, %v", len(got.Events), got.Cursor, err)
	}
	id := w.add(newTask())
	if next := w.events(store.EventQuery{Tenant: acme, Cursor: got.Cursor}, 1); next[0].Job != id || next[0].N != 1 {
		w.Errorf("the next event is %+v", next[0])
	}

	// The end is a cursor, too.
	end, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, End: true})
	if err != nil || len(end.Events) != 0 {
		w.Errorf("the end: %d events, %v", len(end.Events), err)
	}
	if none, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Cursor: end.Cursor}); err != nil ||
		len(none.Events) != 0 {
		w.Errorf("after the end: %d events, %v", len(none.Events), err)
	}
	id = w.add(newTask())
	if later := w.events(store.EventQuery{Tenant: acme, Cursor: end.Cursor}, 1); later[0].Job != id {
		w.Errorf("the first event from the end on is %+v", later[0])
	}

	// A cursor into nothing works as well.
	empty, err := w.s.Events(w.ctx, store.EventQuery{Tenant: "new"})
	if err != nil || len(empty.Events) != 0 || empty.Cursor == "" {
		w.Errorf("nobody's events: %d, cursor %q, %v", len(empty.Events), empty.Cursor, err)
	}
}

func readOrder(w *world) {
	w.addMany(3)
	w.claim(wanted(w.session(), 3))
	cursors := []string{""}
	got, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme})
	if err != nil {
		w.Fatalf("events: %v", err)
	}
	for _, e := range got.Events {
		cursors = append(cursors, e.Cursor)
	}
	for i, a := range cursors {
		for j, b := range cursors {
			if after, err := store.CursorAfter(a, b); err != nil || after != (i > j) {
				w.Errorf("that of event %d comes after that of event %d: %t, %v", i, j, after, err)
			}
		}
	}
	end, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, End: true})
	if err != nil {
		w.Fatalf("the end: %v", err)
	}
	w.addMany(1)
	next, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Cursor: end.Cursor})
	if err != nil || len(next.Events) != 1 {
		w.Fatalf("behind the end: %d events, %v", len(next.Events), err)
	}
	if after, err := store.CursorAfter(next.Cursor, end.Cursor); err != nil || !after {
		w.Errorf("the next event comes after the end: %t, %v", after, err)
	}
	if after, err := store.CursorAfter(got.Cursor, end.Cursor); err != nil || after {
		w.Errorf("the last event comes after the end: %t, %v", after, err)
	}
	for _, pair := range [][2]string{{"x y", ""}, {"", "x y"}} {
		_, err := store.CursorAfter(pair[0], pair[1])
		w.kind(err, job.Invalid)
	}
}

func readFollower(w *world) {
	writers, rounds := 6, rounds(30, 8)
	perRound := 3 * 3 // submit, claim and end of three jobs
	total := writers * rounds * perRound
	var written atomic.Int64
	type key struct {
		id job.ID
		n  int64
	}
	var mu sync.Mutex
	seen := make([]map[key]int, 2) // one follower reads in small steps, one in large ones
	w.together(writers+len(seen), func(i int) error {
		if i < len(seen) {
			mine, last := map[key]int{}, map[job.ID]int64{}
			q := store.EventQuery{Tenant: acme, Limit: []int{7, 1000}[i]}
			for deadline := time.Now().Add(3 * patience); len(mine) < total; runtime.Gosched() {
				got, err := w.s.Events(w.ctx, q)
				if err != nil {
					return err
				}
				for _, e := range got.Events {
					mine[key{e.Job, e.N}]++
					if e.N != last[e.Job]+1 {
						return fmt.Errorf("job %s: event %d after %d", e.Job, e.N, last[e.Job])
					}
					last[e.Job] = e.N
				}
				q.Cursor = got.Cursor
				if time.Now().After(deadline) {
					return fmt.Errorf("saw %d of %d events; %d were written", len(mine), total, written.Load())
				}
			}
			mu.Lock()
			seen[i] = mine
			mu.Unlock()
			return nil
		}
		session := job.NewID()
		if err := w.s.Begin(w.ctx, store.Session{ID: session, Lease: time.Hour}); err != nil {
			return err
		}
		queue := session.String()
		for range rounds {
			if _, _, err := w.s.Submit(w.ctx,
				submission(newTask(inQueue(queue)), newTask(inQueue(queue)), newTask(inQueue(queue)))); err != nil {
				return err
			}
			c := wanted(session, 3)
			c.Queues = []string{queue}
			jobs, err := w.s.Claim(w.ctx, c)
			if err != nil {
				return err
			}
			var changes []job.Change
			for _, j := range jobs {
				changes = append(changes, finish(j, by(session)))
			}
			if _, _, _, err := w.s.Apply(w.ctx, changes, nil); err != nil {
				return err
			}
			written.Add(int64(3 + 2*len(jobs)))
		}
		return nil
	})
	for i, mine := range seen {
		for k, n := range mine {
			if n != 1 {
				w.Errorf("follower %d saw event %d of job %s %d times", i, k.n, k.id, n)
			}
		}
	}
	Check(w, w.s, acme)
}

func readTenants(w *world) {
	const theirs = "other"
	mine := w.add(newTask(externally("x"), fingerprint(1)))
	if _, err := w.s.Put(w.ctx, store.Resource{
		Tenant: acme, Kind: "queue", Name: "q",
		Doc: []byte(`{"a":1}`),
	}); err != nil {
		w.Fatalf("put: %v", err)
	}
	before := w.job(mine)

	_, err := store.FindJob(w.ctx, w.s, theirs, mine)
	w.kind(err, job.NotFound)
	if jobs := listAll(w, w.s, store.Query{Tenant: theirs}); len(jobs) != 0 {
		w.Errorf("they list %d jobs", len(jobs))
	}
	if n, err := w.s.Count(w.ctx, theirs, nil); err != nil || n.States[job.Pending] != 0 {
		w.Errorf("they count %v, %v", n, err)
	}
	if got, err := w.s.Events(w.ctx, store.EventQuery{Tenant: theirs}); err != nil || len(got.Events) != 0 {
		w.Errorf("they see %d events, %v", len(got.Events), err)
	}
	if got, err := w.s.Events(w.ctx, store.EventQuery{Tenant: theirs, Job: mine}); err == nil && len(got.Events) != 0 {
		w.Errorf("they see %d events of the job", len(got.Events))
	} else if err != nil {
		w.kind(err, job.NotFound)
	}
	wished, _, err := w.s.Wish(w.ctx, store.Wish{Tenant: theirs, By: "eve", Wish: job.WishCancel, Jobs: []job.ID{mine}})
	if err != nil || job.KindOf(wished[0].Err) != job.NotFound || wished[0].Err == nil ||
		wished[0].Place != (job.Place{}) {
		w.Errorf("their wish: %+v, %v; want not found", wished, err)
	}
	// Their external id is another one, and neither an id nor a resource of ours is theirs to take.
	s := submission(newTask(externally("x"), fingerprint(2)))
	s.Tenant = theirs
	if got, _, err := w.s.Submit(w.ctx, s); err != nil || got[0].Existed {
		w.Errorf("their submission with our external id: %+v, %v", got, err)
	}
	s = submission(newTask(withID(mine)))
	s.Tenant = theirs
	if got, _, err := w.s.Submit(w.ctx, s); err == nil {
		w.Errorf("their submission with our job's id is answered %+v", got)
	}
	_, err = store.FindResource(w.ctx, w.s, theirs, "queue", "q")
	w.kind(err, job.NotFound)
	if got, err := w.s.Resources(w.ctx, store.ResourceQuery{Tenant: theirs, Kind: "queue"}); err != nil || len(got) != 0 {
		w.Errorf("they list %d resources, %v", len(got), err)
	}
	w.kind(w.s.Delete(w.ctx, theirs, "queue", "q", store.AnyVersion), job.NotFound)
	if _, err := w.s.Put(w.ctx, store.Resource{
		Tenant: theirs, Kind: "queue", Name: "q",
		Doc: []byte(`{}`),
	}); err != nil {
		w.Errorf("their resource of the same name: %v", err)
	}
	if r, err := store.FindResource(w.ctx, w.s, acme, "queue", "q"); err != nil || !sameJSON(r.Doc, []byte(`{"a":1}`)) {
		w.Errorf("our resource is %s, %v", r.Doc, err)
	}
	// A cursor of ours shows them nothing of ours.
	w.addMany(3)
	page, err := w.s.List(w.ctx, store.Query{Tenant: acme, Limit: 1})
	if err != nil {
		w.Fatalf("list: %v", err)
	}
	if got, err := w.s.List(w.ctx, store.Query{Tenant: theirs, Cursor: page.Next}); err == nil {
		for _, j := range got.Jobs {
			if j.Tenant != theirs {
				w.Errorf("they see job %s", j.ID)
			}
		}
	}
	w.untouched(before)
	Check(w, w.s, acme)
	Check(w, w.s, theirs)
}

func readUnknown(w *world) {
	_, err := store.FindJob(w.ctx, w.s, acme, job.NewID())
	w.kind(err, job.NotFound)
	if got, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Job: job.NewID()}); err == nil &&
		len(got.Events) != 0 {
		w.Errorf("%d events", len(got.Events))
	} else if err != nil {
		w.kind(err, job.NotFound)
	}
}

func readClosed(w *world) {
	session := w.session()
	w.addMany(50)
	// Close waits for the calls under way: each is answered, or refused as closed.
	w.together(9, func(i int) error {
		if i == 8 {
			return w.s.Close()
		}
		for range 5 {
			if _, _, err := w.s.Submit(w.ctx, submission(newTask())); err != nil && job.KindOf(err) != job.Closed {
				return err
			}
			if _, err := store.FindJob(w.ctx, w.s, acme, session); err != nil && job.KindOf(err) != job.Closed &&
				job.KindOf(err) != job.NotFound {
				return err
			}
		}
		return nil
	})
	if err := w.s.Close(); err != nil {
		w.Errorf("close again: %v", err)
	}
	_, _, err := w.s.Submit(w.ctx, submission(newTask()))
	w.kind(err, job.Closed)
	_, err = w.s.Claim(w.ctx, wanted(session, 1))
	w.kind(err, job.Closed)
	_, err = w.s.List(w.ctx, store.Query{Tenant: acme})
	w.kind(err, job.Closed)
}
