package storetest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var noteTests = []test{
	{"they are numbered behind the change before them", noteNumbers},
	{"each event has a cursor, the same however it is read", noteCursors},
	{"no change is fenced by them", noteFences},
	{"a change that is repeated behind them is answered as it was", noteRepeats},
	{"an event with a key is written once", noteOnce},
	{"who may not write one", noteRefused},
}

func note(id job.ID, name string) store.NewEvent {
	return store.NewEvent{Tenant: acme, Job: id, By: ann, Cause: job.CauseUser, CustomEvent: job.CustomEvent{Name: name}}
}

// tell writes an event and returns it.
func (w *world) tell(n store.NewEvent) store.Event {
	w.Helper()
	e, _, err := w.s.AddEvent(w.ctx, n)
	if err != nil {
		w.Fatalf("event %s of job %s: %v", n.Name, n.Job, err)
	}
	return e
}

func noteNumbers(w *world) {
	session := w.session()
	id := w.add(newTask())
	full := note(id, "a.b-c")
	full.Message, full.Data = "two\nlines", json.RawMessage(`{"x":[1]}`)
	before := w.job(id)
	first := w.tell(full)
	want := job.Event{
		Job: id, N: 1, Sub: 1, Name: "a.b-c", Epoch: before.Epoch, State: job.Pending, Custody: job.Ready,
		At: first.At, Cause: job.CauseUser, Actor: ann,
		Message: "two\nlines", Data: json.RawMessage(`{"x":[1]}`),
	}
	if diff := cmp.Diff(want, first.Event, cmp.Comparer(sameJSON)); diff != "" {
		w.Errorf("the event (-want +got):\n%s", diff)
	}
	if first.At.Before(before.Created) || first.At.After(w.renew(session).Now) {
		w.Errorf("it is at %v, the job was made at %v", first.At, before.Created)
	}
	w.tell(note(id, "second"))
	j := w.claimOne(session)
	own := note(id, "own")
	own.Cause, own.Epoch = job.CauseJob, j.Epoch
	w.tell(own)
	w.must(finish(j, by(session)))
	var got []string
	for _, e := range w.events(store.EventQuery{Tenant: acme, Job: id, Limit: 1}, 6) {
		got = append(got, fmt.Sprintf("%d.%d %s %s %s", e.N, e.Sub, e.Cause, e.State, e.Name))
	}
	equal(w, "events", got, []string{
		"1.0 submit PENDING ", "1.1 user PENDING a.b-c", "1.2 user PENDING second", "2.0 claim RUNNING ",
		"2.1 job RUNNING own", "3.0 work FINISHED ",
	})
	Check(w, w.s, acme)
}

func noteCursors(w *world) {
	session := w.session()
	a, b := w.add(newTask()), w.add(newTask())
	var told []store.Event
	for _, id := range []job.ID{a, b, b, a, a} {
		told = append(told, w.tell(note(id, "x")))
	}
	for _, j := range w.claim(wanted(session, 2)) {
		w.must(finish(j, by(session)))
	}
	all, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme})
	if err != nil || len(all.Events) != 11 || all.Cursor != all.Events[10].Cursor {
		w.Fatalf("%d events, cursor %q, %v", len(all.Events), all.Cursor, err)
	}
	cursors := map[string]store.Event{}
	for i, e := range all.Events {
		cursors[e.Cursor] = e
		for _, limit := range []int{1, 100} {
			rest, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Cursor: e.Cursor, Limit: limit})
			if err != nil {
				w.Fatalf("events: %v", err)
			}
			equal(w, "events behind "+e.Cursor, rest.Events, all.Events[i+1:min(len(all.Events), i+1+limit)])
		}
	}
	if len(cursors) != len(all.Events) {
		w.Errorf("%d cursors of %d events", len(cursors), len(all.Events))
	}
	for _, e := range told {
		equal(w, "the event of the cursor", cursors[e.Cursor], e)
	}
	for _, id := range []job.ID{a, b} {
		var mine []store.Event
		for _, e := range all.Events {
			if e.Job == id {
				mine = append(mine, e)
			}
		}
		for i, e := range all.Events { // also from the cursor of another job's event
			for len(mine) > 0 && i > 0 && mine[0].Cursor == all.Events[i-1].Cursor {
				mine = mine[1:]
			}
			cursor := ""
			if i > 0 {
				cursor = all.Events[i-1].Cursor
			}
			got, err := w.s.Events(w.ctx, store.EventQuery{Tenant: acme, Job: id, Cursor: cursor})
			if err != nil {
				w.Fatalf("events: %v", err)
			}
			equal(w, fmt.Sprintf("events of one job before %d.%d", e.N, e.Sub), got.Events, mine)
		}
	}
}

func noteFences(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	for range 3 {
		w.tell(note(j.ID, "x"))
	}
	if now := w.job(j.ID); now.N != j.N || now.Epoch != j.Epoch || !now.Since.Equal(j.Since) {
		w.Errorf("the job was at %+v, is at %+v", j, now)
	}
	w.untouched(j)
	w.must(finish(j, by(session)))

	st := w.stand(job.Running, job.Monitor)
	w.tell(note(st.ID, "x"))
	own := note(st.ID, "y")
	own.Cause, own.Launch = job.CauseJob, st.Launch
	w.tell(own)
	w.must(setting(move(st.Job, st.fence, job.Ready, job.Archiving), job.Patch{Over: true}))
	Check(w, w.s, acme)
}

func noteRepeats(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	w.tell(note(j.ID, "x"))
	c := move(j, by(session), job.Worker, job.Running, job.Running)
	first := w.apply(c)
	w.tell(note(j.ID, "x"))
	equal(w, "the answer again", w.apply(c), first)
	w.must(finish(w.job(j.ID), by(session)))
	equal(w, "the answer after the end", w.apply(c).Outcome, store.OK)
	Check(w, w.s, acme)
}

func noteOnce(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	n := note(j.ID, "page")
	n.Cause, n.Epoch, n.Message, n.Data, n.Key = job.CauseJob, j.Epoch, "seven", json.RawMessage(`{"x": [1]}`), "7"
	first := w.tell(n)
	w.tell(note(j.ID, "x"))
	again := n
	again.Data = json.RawMessage(`{"x":[1]}`)
	equal(w, "the answer again", w.tell(again), first)

	// Many say it at once.
	other := note(j.ID, "many")
	other.Key = "8"
	told := make([]store.Event, 6)
	w.together(len(told), func(i int) (err error) {
		told[i], _, err = w.s.AddEvent(w.ctx, other)
		return err
	})
	for i := range told {
		equal(w, "the answer to many", told[i], told[0])
	}
	for _, change := range []func(n *store.NewEvent){
		func(n *store.NewEvent) { n.Message = "eight" },
		func(n *store.NewEvent) { n.Data = nil },
		func(n *store.NewEvent) { n.Name = "line" },
		func(n *store.NewEvent) { n.By = "bob" },
	} {
		differs := n
		change(&differs)
		_, _, err := w.s.AddEvent(w.ctx, differs)
		w.kind(err, job.Conflict)
	}
	theirs := n
	theirs.Tenant = "other"
	_, _, err := w.s.AddEvent(w.ctx, theirs)
	w.kind(err, job.NotFound)

	same := note(w.add(newTask()), "page")
	same.Key = "7" // of another job: it is another event
	w.tell(same)

	w.must(finish(j, by(session)))
	equal(w, "the answer after the end", w.tell(n), first)
	var got []string
	for _, e := range w.events(store.EventQuery{Tenant: acme, Job: j.ID}, 6) {
		got = append(got, fmt.Sprintf("%d.%d %s", e.N, e.Sub, e.Name))
	}
	equal(w, "events", got, []string{"1.0 ", "2.0 ", "2.1 page", "2.2 x", "2.3 many", "3.0 "})
	Check(w, w.s, acme)
}

func noteRefused(w *world) {
	session := w.session()
	refused := func(what string, n store.NewEvent, kind job.ErrorKind) {
		w.Helper()
		before, _ := w.s.Events(w.ctx, store.EventQuery{Tenant: acme})
		_, _, err := w.s.AddEvent(w.ctx, n)
		if err == nil {
			w.Errorf("%s: no error", what)
			return
		}
		w.kind(err, kind)
		after, _ := w.s.Events(w.ctx, store.EventQuery{Tenant: acme})
		equal(w, what+": events", len(after.Events), len(before.Events))
	}
	own := func(id job.ID, launch int, epoch int64) store.NewEvent {
		n := note(id, "own")
		n.Cause, n.Launch, n.Epoch = job.CauseJob, launch, epoch
		return n
	}
	refused("unknown", note(job.NewID(), "x"), job.NotFound)
	id := w.add(newTask())
	theirs := note(id, "x")
	theirs.Tenant = "other"
	refused("of another tenant", theirs, job.NotFound)
	refused("a task that nobody holds", own(id, 0, w.job(id).Epoch), job.Conflict)
	j := w.claimOne(session)
	refused("a task in another epoch", own(id, 0, j.Epoch-1), job.Conflict)
	refused("a task without an epoch", own(id, 0, 0), job.Conflict)
	w.must(finish(j, by(session)))
	refused("ended", note(id, "x"), job.Conflict)

	st := w.stand(job.StagingJob, job.Worker)
	refused("a program that was not launched", own(st.ID, 0, 0), job.Conflict)
	w.wish(job.WishCancel, st.ID)
	w.end(st.session)
	st = w.stand(job.Running, job.Monitor)
	for _, launch := range []int{0, st.Launch - 1, st.Launch + 1} {
		refused(fmt.Sprintf("launch %d of %d", launch, st.Launch), own(st.ID, launch, 0), job.Conflict)
	}
	w.tell(own(st.ID, st.Launch, 0))
	w.must(setting(move(st.Job, st.fence, job.Ready, job.Archiving), job.Patch{Over: true}))
	refused("a launch that is over", own(st.ID, st.Launch, 0), job.Conflict)
	w.tell(note(st.ID, "a user"))
	held := w.claimOne(st.session)
	refused("a holder in another epoch", own(st.ID, 0, held.Epoch-1), job.Conflict)
	refused("a launch that is over, while its end is worked on", own(st.ID, st.Launch, 0), job.Conflict)
	w.tell(own(st.ID, 0, held.Epoch))
	Check(w, w.s, acme)
}

func noteBound(w *world) {
	id := w.add(newTask())
	writers, each := 8, job.MaxJobEvents/8
	if s, slow := w.s.(interface {
		HasEvents(ctx context.Context, id job.ID, n int) error
	}); slow && !testenv.Long() {
		each /= 40
		if err := s.HasEvents(w.ctx, id, job.MaxJobEvents-writers*each); err != nil {
			w.Fatalf("%v", err)
		}
	}
	w.together(writers, func(int) error {
		for range each {
			if _, _, err := w.s.AddEvent(w.ctx, note(id, "x")); err != nil {
				return err
			}
		}
		return nil
	})
	_, _, err := w.s.AddEvent(w.ctx, note(id, "x"))
	w.kind(err, job.Conflict)
	other := w.add(newTask())
	w.tell(note(other, "x"))
	Check(w, w.s, acme)
}
