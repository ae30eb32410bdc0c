package storetest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var annotateTests = []test{
	{"labels and notes are merged", annotateMerge},
	{"labels and notes take the place of others", annotateReplace},
	{"notes come with a job, and not with a list", annotateNotes},
	{"lists find a job by the labels that it has now", annotateFinds},
	{"each job is answered, and those that refuse stay as they are", annotateRefuses},
	{"only what has ended is hidden", annotateHidden},
	{"a worker and a watcher go on beside it", annotateBeside},
	{"what a job is told of app and trace stays", annotateSubmitted},
}

// annotation is a change of one job's labels and notes. Labels with the value "-" are removed.
func annotation(id job.ID, labels map[string]string, notes string) store.Annotation {
	a := store.Annotation{Tenant: acme, Jobs: []job.ID{id}}
	for k, v := range labels {
		if a.Labels == nil {
			a.Labels = map[string]*string{}
		}
		if a.Labels[k] = &v; v == "-" {
			a.Labels[k] = nil
		}
	}
	if notes != "" {
		a.Notes = json.RawMessage(notes)
	}
	return a
}

// annotate makes an annotation that no job refuses.
func (w *world) annotate(a store.Annotation) {
	w.Helper()
	errs, err := w.s.Annotate(w.ctx, a)
	if err != nil || len(errs) != len(a.Jobs) {
		w.Fatalf("annotate: %d answers for %d jobs, %v", len(errs), len(a.Jobs), err)
	}
	for i, err := range errs {
		if err != nil {
			w.Fatalf("annotate job %s: %v", a.Jobs[i], err)
		}
	}
}

func noted(notes string) option {
	return func(n *store.New) { n.Job.Notes = json.RawMessage(notes) }
}

// has fails the test unless the job has the labels and notes, and is as it was otherwise.
func (w *world) has(before job.Job, labels map[string]string, notes string) {
	w.Helper()
	before.Labels, before.Notes = labels, json.RawMessage(notes)
	if diff := cmp.Diff(before, w.job(before.ID), sameJob); diff != "" {
		w.Errorf("the job (-want +got):\n%s", diff)
	}
}

func annotateMerge(w *world) {
	j := w.job(w.add(newTask(labeled("a", "1"), labeled("b", "2"), noted(`{"x":{"y":1,"z":2}}`))))
	w.annotate(annotation(j.ID, map[string]string{"b": "3", "c": "4", "d": "-"}, `{"x":{"y":null},"w":[1]}`))
	w.has(j, map[string]string{"a": "1", "b": "3", "c": "4"}, `{"x":{"z":2},"w":[1]}`)
	w.annotate(annotation(j.ID, map[string]string{"a": "-"}, ""))
	w.has(j, map[string]string{"b": "3", "c": "4"}, `{"x":{"z":2},"w":[1]}`)
	w.annotate(annotation(j.ID, nil, `{"x":null,"w":null}`))
	w.has(j, map[string]string{"b": "3", "c": "4"}, `{}`)
	w.annotate(annotation(j.ID, map[string]string{"b": "-", "c": "-"}, `null`))
	w.has(j, nil, "")
	Check(w, w.s, acme)
}

func annotateReplace(w *world) {
	j := w.job(w.add(newTask(labeled("a", "1"), labeled("b", "2"), noted(`{"x":1}`))))
	a := annotation(j.ID, map[string]string{"b": "3"}, "")
	a.Replace = true
	w.annotate(a)
	w.has(j, map[string]string{"b": "3"}, `{"x":1}`)
	a = annotation(j.ID, nil, `{"y":null}`)
	a.Replace = true
	w.annotate(a)
	w.has(j, map[string]string{"b": "3"}, `{"y":null}`)
}

func annotateNotes(w *world) {
	session := w.session()
	id := w.add(newTask(noted(`{"x":1}`)))
	w.annotate(annotation(id, nil, `{"y":2}`))
	const want = `{"x":1,"y":2}`
	claimed := w.claimOne(session)
	held, err := w.s.Find(w.ctx, store.FindQuery{Session: session})
	if err != nil || len(held) != 1 {
		w.Fatalf("held %d jobs, %v", len(held), err)
	}
	found, err := w.s.Find(w.ctx, store.FindQuery{IDs: []job.ID{id}})
	if err != nil || len(found) != 1 {
		w.Fatalf("found %d jobs, %v", len(found), err)
	}
	for _, j := range []job.Job{w.job(id), claimed, held[0], found[0]} {
		if !sameJSON(j.Notes, json.RawMessage(want)) {
			w.Errorf("notes are %s, want %s", j.Notes, want)
		}
	}
	if got := listAll(w, w.s, store.Query{Tenant: acme}); got[0].Notes != nil {
		w.Errorf("a list has notes: %s", got[0].Notes)
	}
}

func annotateFinds(w *world) {
	a, b := w.add(newTask(labeled("x", "1"))), w.add(newTask(labeled("x", "1"), labeled("y", "1")))
	finds := func(filter string, want ...job.ID) {
		w.Helper()
		equal(w, filter, fmtIDs(jobIDs(listAll(w, w.s,
			store.Query{Tenant: acme, Filter: w.filter(filter), Sort: store.Oldest}))), fmtIDs(want))
	}
	finds("label.x=1", a, b)
	w.annotate(annotation(a, map[string]string{"x": "2", "z": "1"}, ""))
	w.annotate(annotation(b, map[string]string{"x": "1", "y": "-"}, ""))
	finds("label.x=1", b)
	finds("label.x=2", a)
	finds("label.x=1,2", a, b)
	finds("label.y=1")
	finds("label.z=1", a)
	replaced := annotation(b, map[string]string{"z": "1"}, "")
	replaced.Replace = true
	w.annotate(replaced)
	finds("label.x=1")
	finds("label.z=1", a, b)
}

func annotateRefuses(w *world) {
	ids := w.addMany(2, labeled("a", "1"))
	other := submission(newTask())
	other.Tenant = "other"
	theirs, _, err := w.s.Submit(w.ctx, other)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	full := w.add(newTask())
	labels := map[string]string{}
	for i := range job.MaxLabels {
		labels["k"+strings.Repeat("x", i%60)+string(rune('a'+i/60))] = ""
	}
	w.annotate(annotation(full, labels, ""))
	a := annotation(ids[0], map[string]string{"b": "2"}, `{"x":1}`)
	a.Jobs = []job.ID{ids[0], theirs[0].ID, job.NewID(), full, ids[1]}
	errs, err := w.s.Annotate(w.ctx, a)
	if err != nil || len(errs) != 5 || errs[0] != nil || errs[4] != nil {
		w.Fatalf("annotate: %v, %v", errs, err)
	}
	w.kind(errs[1], job.NotFound)
	w.kind(errs[2], job.NotFound)
	w.kind(errs[3], job.Invalid)
	for _, id := range ids {
		if j := w.job(id); j.Labels["b"] != "2" || j.Notes == nil {
			w.Errorf("the job has labels %v and notes %s", j.Labels, j.Notes)
		}
	}
	if j := w.job(full); j.Labels["b"] != "" || j.Notes != nil || len(j.Labels) != job.MaxLabels {
		w.Errorf("the job that refused has %d labels and notes %s", len(j.Labels), j.Notes)
	}
	for _, bad := range []store.Annotation{
		annotation(ids[0], map[string]string{"no label": "1"}, ""),
		annotation(ids[0], map[string]string{"a": "\n"}, ""), annotation(ids[0], nil, `{`),
	} {
		errs, err := w.s.Annotate(w.ctx, bad)
		if err != nil {
			w.Fatalf("annotate: %v", err)
		}
		w.kind(errs[0], job.Invalid)
	}
}

func annotateHidden(w *world) {
	yes, no := true, false
	for _, place := range places {
		st := w.stand(place.State, place.Custody)
		a := annotation(st.ID, map[string]string{"a": "1"}, "")
		a.Hidden = &yes
		errs, err := w.s.Annotate(w.ctx, a)
		if err != nil {
			w.Fatalf("annotate: %v", err)
		}
		w.kind(errs[0], job.Conflict)
		w.untouched(st.Job)
		w.wish(job.WishCancel, st.ID)
		w.end(st.session)
	}
	id := w.add(newTask())
	w.wish(job.WishCancel, id)
	before := w.job(id)
	for _, hidden := range []*bool{&yes, &yes, &no, &no} {
		w.annotate(store.Annotation{Tenant: acme, Jobs: []job.ID{id, id}, Hidden: hidden})
		before.Hidden = *hidden
		w.untouched(before)
	}
}

func annotateBeside(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	w.annotate(annotation(j.ID, map[string]string{"a": "1"}, `1`))
	w.must(move(j, by(session), job.Worker, job.Running))
	w.annotate(annotation(j.ID, map[string]string{"b": "1"}, `2`))
	j = w.must(finish(w.job(j.ID), by(session)))
	w.has(j, map[string]string{"a": "1", "b": "1"}, `2`)

	st := w.stand(job.Running, job.Monitor)
	w.annotate(annotation(st.ID, map[string]string{"a": "1"}, `1`))
	w.must(setting(move(st.Job, st.fence, job.Ready, job.Archiving), job.Patch{Over: true}))
	Check(w, w.s, acme)
}

func annotateSubmitted(w *world) {
	n := newTask()
	n.Job.App, n.Job.Trace = "blast", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	j := w.job(w.add(n))
	w.clock.Advance(time.Second)
	w.must(finish(w.claimOne(w.session()), by(w.job(j.ID).Session)))
	if got := w.job(j.ID); got.App != n.Job.App || got.Trace != n.Job.Trace || got.Hidden {
		w.Errorf("app %q, trace %q, hidden %t", got.App, got.Trace, got.Hidden)
	}
	if got := listAll(w, w.s, store.Query{Tenant: acme, Filter: w.filter("app=blast")}); len(got) != 1 ||
		got[0].App != "blast" {
		w.Errorf("listed %+v", got)
	}
}
