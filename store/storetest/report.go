package storetest

import (
	"encoding/json"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func applyReport(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	w.add(newTask())
	other := w.claimOne(session)
	first := job.Report(j.ID, j.Guard(by(session)), json.RawMessage(`{"page":1}`))
	second := job.Report(j.ID, j.Guard(by(session)), json.RawMessage(`{"page":2}`))
	got := w.applyAll(first, finish(other, by(session)))
	equal(w, "answers", got[0], store.Applied{Outcome: store.OK, Now: j.Guard(by(session))})
	for range 2 { // it may be repeated
		after := w.must(second)
		if !sameJSON(after.Work, second.Work) || after.N != j.N || after.Epoch != j.Epoch || len(w.history(j.ID)) != int(j.N) {
			w.Errorf("after a report: work %s, n %d, epoch %d", after.Work, after.N, after.Epoch)
		}
	}
	w.wish(job.WishCancel, j.ID)
	if got := w.apply(first); got.Outcome != store.OK || got.Wish != job.WishCancel {
		w.Errorf("a report meets a wish: %+v", got)
	}
	Check(w, w.s, acme)
}

func applyReportInPlace(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	report := func(work, was string) job.Change {
		c := job.Report(j.ID, j.Guard(by(session)), json.RawMessage(work))
		c.Was = []byte(was)
		return c
	}
	first, second := `{"b": 1.0, "a": [1]}`, `{"page": "\u00e9"}`
	for _, tt := range []struct {
		c    job.Change
		want store.Outcome
		work string
	}{
		{report(second, first), store.Conflict, ""},
		{report(first, ""), store.OK, first},
		{report(first, ""), store.Conflict, first},
		{report(second, first), store.OK, second},
		{report(first, `{}`), store.Conflict, second},
	} {
		if got := w.apply(tt.c); got.Outcome != tt.want || got.Now != j.Guard(by(session)) {
			w.Errorf("in place of %s: %+v, want %s", tt.c.Was, got, tt.want)
		}
		if after := w.job(j.ID); string(after.Work) != tt.work {
			w.Errorf("work is %s, want %s", after.Work, tt.work)
		}
	}
	Check(w, w.s, acme)
}

func applyReportFenced(w *world) {
	session, stranger := w.session(), w.session()
	w.add(newTask())
	j := w.claimOne(session)
	for name, change := range map[string]func(g *job.Guard){
		"another session": func(g *job.Guard) { g.Fence = by(stranger) },
		"another epoch":   func(g *job.Guard) { g.Epoch-- },
		"another number":  func(g *job.Guard) { g.N++ },
	} {
		g := j.Guard(by(session))
		change(&g)
		got := w.apply(job.Report(j.ID, g, json.RawMessage(`1`)))
		if want := j.Guard(g.Fence); got.Outcome != store.Fenced && name != "another number" ||
			got.Outcome == store.OK || got.Now != want {
			w.Errorf("%s: %+v", name, got)
		}
	}
	w.untouched(j)
	given := job.Expired(&j, false)
	given.Job, given.From = j.ID, j.Guard(by(session))
	back := w.must(given)
	if got := w.apply(job.Report(j.ID, j.Guard(by(session)), json.RawMessage(`1`))); got.Outcome != store.Fenced {
		w.Errorf("a report after the job was given back: %+v", got)
	}
	w.untouched(back)
	Check(w, w.s, acme)
}
