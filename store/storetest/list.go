package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var listTests = []test{
	{"it goes page by page, newest first", readPages},
	{"pages are stable under inserts", readStable},
	{"a page shows each job once, while jobs end", readWhileEnding},
	{"it leaves out what is large", readLean},
	{"filters", readFilters},
	{"each order goes on from page to page, also among equals", listOrders},
	{"a list by end has only jobs that have ended", listEnded},
	{"an order that nobody knows", listUnknownOrder},
	{"cursors of another order and cursors that nobody gave", listBadCursor},
	{"hidden jobs are left out unless they are asked for", listHidden},
	{"arguments that a database cannot read spoil no list", listUnreadable},
	{"a filter whose terms are not all indexed looks back for a week", listWindow},
	{"pages of one list look back equally far", listWindowStands},
	{"counts by state", readCount},
	{"counts of a filter", countFilter},
}

func readPages(w *world) {
	var want []job.ID
	for range 7 {
		want = append(want, w.addMany(5)...)
		w.clock.Advance(time.Millisecond)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 7, 35, 1000, 0} {
		got := listAll(w, w.s, store.Query{Tenant: acme, Limit: limit})
		equal(w, "list", fmtIDs(jobIDs(got)), fmtIDs(want))
	}
	page, err := w.s.List(w.ctx, store.Query{Tenant: acme, Limit: 4})
	if err != nil || len(page.Jobs) != 4 || page.Next == "" {
		w.Errorf("%d jobs, next %q, %v", len(page.Jobs), page.Next, err)
	}
}

func readStable(w *world) {
	before := w.addMany(20)
	var got []job.ID
	q := store.Query{Tenant: acme, Limit: 3}
	for {
		page, err := w.s.List(w.ctx, q)
		if err != nil {
			w.Fatalf("list: %v", err)
		}
		got = append(got, jobIDs(page.Jobs)...)
		if page.Next == "" {
			break
		}
		q.Cursor = page.Next
		w.addMany(2)
		w.wish(job.WishCancel, got[len(got)-1]) // changes move no job to another page
	}
	slices.Reverse(before)
	equal(w, "jobs", fmtIDs(got), fmtIDs(before))
}

func readWhileEnding(w *world) {
	ids := w.addMany(100)
	slices.Reverse(ids)
	want, over := fmtIDs(ids), make(chan struct{})
	w.together(2, func(i int) error {
		if i == 0 {
			defer close(over)
			for _, id := range ids {
				if _, _, err := w.s.Wish(w.ctx,
					store.Wish{Tenant: acme, By: "ann", Wish: job.WishCancel, Jobs: []job.ID{id}}); err != nil {
					return err
				}
			}
			return nil
		}
		for {
			page, err := w.s.List(w.ctx, store.Query{Tenant: acme})
			if err != nil {
				return err
			}
			if got := fmtIDs(jobIDs(page.Jobs)); !slices.Equal(got, want) {
				return fmt.Errorf("a page has %d jobs of %d, or some twice", len(got), len(want))
			}
			select {
			case <-over:
				return nil
			default:
			}
		}
	})
}

func readLean(w *world) {
	st := w.stand(job.StagingInputs, job.Worker)
	c := move(st.Job, st.fence, job.Worker, job.StagingInputs)
	c.Work = []byte(`{"n":1}`)
	c.Set.Resolved, c.Set.Result = []byte(`{"r":1}`), []byte(`{"r":2}`)
	want := w.must(c)
	want.Request, want.Resolved, want.Work = nil, nil, nil
	got := listAll(w, w.s, store.Query{Tenant: acme})
	if len(got) != 1 {
		w.Fatalf("%d jobs, want 1", len(got))
	}
	if diff := cmp.Diff(want, got[0], sameJob); diff != "" {
		w.Errorf("the job in the list (-want +got):\n%s", diff)
	}
}

func readFilters(w *world) {
	a := w.add(newTask(named("a"), labeled("site", "x"), labeled("run", "1")))
	b := w.add(newTask(named("b"), labeled("site", "x"), labeled("run", "2")))
	c := w.add(newProgram(named("a"), labeled("site", "y")))
	d := w.add(newTask(named("a"), delayed(time.Hour)))
	w.wish(job.WishCancel, b)
	for _, f := range []struct {
		filter string
		want   []job.ID
	}{
		{"", []job.ID{d, c, b, a}},
		{"state=PENDING", []job.ID{c, a}},
		{"state=WAITING,CANCELED", []job.ID{d, b}},
		{"state=PENDING state=CANCELED", nil},
		{"state!=PENDING,PAUSED", []job.ID{d, b}},
		{"custody=ready,none", []job.ID{c, b, a}},
		{"custody!=none", []job.ID{d, c, a}},
		{"state=PENDING custody=gate", nil},
		{"kind=app", []job.ID{c}},
		{"name=a", []job.ID{d, c, a}},
		{"name=a,b,a,a", []job.ID{d, c, b, a}},
		{"name~?", []job.ID{d, c, b, a}},
		{"name~A", nil},
		{"label.site=x", []job.ID{b, a}},
		{"label.site=x label.run=1", []job.ID{a}},
		{"label.site=z", nil},
		{"label.site!=x", []job.ID{d, c}},
		{"label.site~*", []job.ID{c, b, a}},
		{"state=PENDING kind=send name=a label.run=1", []job.ID{a}},
		{"id=" + c.String() + "," + a.String() + "," + job.NewID().String(), []job.ID{c, a}},
		{"id~" + a.String()[:18] + "*" + a.String()[19:], []job.ID{a}},
		{"external_id=x", nil},
		{`external_id=""`, []job.ID{d, c, b, a}},
		{`name="a%' OR 1=1 --" owner="' --"`, nil},
		{"hidden=false", []job.ID{d, c, b, a}},
		{"hidden=true", nil},
		{"hidden=true hidden=false", nil},
	} {
		q := store.Query{Tenant: acme, Filter: w.filter(f.filter)}
		for _, q.Limit = range []int{1, 100} {
			equal(w, f.filter, fmtIDs(jobIDs(listAll(w, w.s, q))), fmtIDs(f.want))
		}
	}
}

// filter reads a filter in which no durations stand.
func (w *world) filter(text string) job.Filter {
	w.Helper()
	f, err := job.ParseFilter(text, time.Time{})
	if err != nil {
		w.Fatalf("filter %q: %v", text, err)
	}
	return f
}

func listOrders(w *world) {
	session := w.session()
	names := []string{"b", "a", "c", "a", "a", "b"}
	var ids []job.ID
	for _, name := range names {
		ids = append(ids, w.add(newTask(named(name))))
	}
	// They end in pairs, the last ones first.
	jobs := w.claim(wanted(session, 6))
	for i := 4; i >= 0; i -= 2 {
		w.clock.Advance(time.Second)
		w.applyAll(finish(jobs[i], by(session)), finish(jobs[i+1], by(session)))
	}
	pick := func(order ...int) (picked []job.ID) {
		for _, i := range order {
			picked = append(picked, ids[i])
		}
		return picked
	}
	for sort, want := range map[store.Sort][]job.ID{
		"":              pick(5, 4, 3, 2, 1, 0),
		store.Newest:    pick(5, 4, 3, 2, 1, 0),
		store.Oldest:    pick(0, 1, 2, 3, 4, 5),
		store.FirstEnd:  pick(4, 5, 2, 3, 0, 1),
		store.LastEnded: pick(1, 0, 3, 2, 5, 4),
		store.ByName:    pick(1, 3, 4, 0, 5, 2),
		store.ByNameRev: pick(2, 5, 0, 4, 3, 1),
	} {
		for _, limit := range []int{1, 2, 5, 6, 7} {
			got := listAll(w, w.s, store.Query{Tenant: acme, Sort: sort, Limit: limit})
			equal(w, string(sort), fmtIDs(jobIDs(got)), fmtIDs(want))
		}
	}
	equal(w, "orders", len(store.Sorts), 6)
}

func listEnded(w *world) {
	session := w.session()
	w.addMany(3)
	jobs := w.claim(wanted(session, 2))
	w.must(finish(jobs[1], by(session)))
	for _, sort := range []store.Sort{store.FirstEnd, store.LastEnded} {
		got := listAll(w, w.s, store.Query{Tenant: acme, Sort: sort})
		equal(w, string(sort), fmtIDs(jobIDs(got)), fmtIDs([]job.ID{jobs[1].ID}))
		for _, f := range []string{"state=RUNNING", "custody!=none", "name=" + jobs[0].Name} {
			if got := listAll(w, w.s, store.Query{Tenant: acme, Sort: sort, Filter: w.filter(f)}); len(got) != 0 {
				w.Errorf("%s by %s: %d jobs", f, sort, len(got))
			}
		}
	}
}

func listUnknownOrder(w *world) {
	_, err := w.s.List(w.ctx, store.Query{Tenant: acme, Sort: "age"})
	w.kind(err, job.Invalid)
}

func listBadCursor(w *world) {
	session := w.session()
	w.addMany(3)
	for _, j := range w.claim(wanted(session, 3)) {
		w.must(finish(j, by(session)))
	}
	for _, from := range store.Sorts {
		page, err := w.s.List(w.ctx, store.Query{Tenant: acme, Sort: from, Limit: 1})
		if err != nil || page.Next == "" {
			w.Fatalf("list by %s: next %q, %v", from, page.Next, err)
		}
		for _, to := range store.Sorts {
			if from != to {
				_, err := w.s.List(w.ctx, store.Query{Tenant: acme, Sort: to, Cursor: page.Next})
				w.kind(err, job.Invalid)
			}
		}
		for _, bad := range []string{
			"x", "-1", "9999999999999999999999", "'", "AAAA", page.Next + "A",
			page.Next[1:], "\x00",
		} {
			_, err := w.s.List(w.ctx, store.Query{Tenant: acme, Sort: from, Cursor: bad})
			if bad == page.Next+"A" && err == nil {
				continue // a longer name may be one
			}
			w.kind(err, job.Invalid)
		}
	}
}

func listHidden(w *world) {
	session := w.session()
	ids := w.addMany(3, labeled("x", "1"))
	for _, j := range w.claim(wanted(session, 2)) {
		w.must(finish(j, by(session)))
	}
	yes, no := true, false
	hide := func(hidden *bool, want ...job.ErrorKind) {
		errs, err := w.s.Annotate(w.ctx, store.Annotation{Tenant: acme, Jobs: ids[1:], Hidden: hidden})
		if err != nil || len(errs) != 2 || errs[0] != nil {
			w.Fatalf("hide: %v, %v", errs, err)
		}
		if want != nil {
			w.kind(errs[1], want...)
		} else if errs[1] != nil {
			w.Errorf("unhide: %v", errs[1])
		}
	}
	lists := func(filter string, want ...job.ID) {
		w.Helper()
		f, want := w.filter(filter), slices.Clone(want)
		slices.Reverse(want)
		equal(w, filter, fmtIDs(jobIDs(listAll(w, w.s, store.Query{Tenant: acme, Filter: f, Limit: 1}))), fmtIDs(want))
		n := 0
		counts, err := w.s.Count(w.ctx, acme, f)
		for _, k := range counts.States {
			n += k
		}
		if err != nil || n != len(want) {
			w.Errorf("%s: counted %v, %v; want %d", filter, counts, err, len(want))
		}
	}
	hide(&yes, job.Conflict)
	if j := w.job(ids[1]); !j.Hidden {
		w.Errorf("it is not hidden: %+v", j)
	}
	for _, f := range []string{"", "label.x=1", "kind=send", "label.x~1"} {
		lists(f, ids[0], ids[2])
		lists(f+" hidden=true", ids[1])
		lists(f+" hidden=true,false", ids...)
		lists(f+" hidden!=true", ids[0], ids[2])
	}
	lists("name=" + w.job(ids[1]).Name)
	lists("id=" + ids[1].String())
	lists("id="+ids[1].String()+" hidden=true", ids[1])
	hide(&no)
	for _, f := range []string{"", "label.x=1", "kind=send", "label.x~1", "hidden=false"} {
		lists(f, ids...)
	}
	lists("hidden=true")
	Check(w, w.s, acme)
}

func listUnreadable(w *world) {
	var want []job.ID
	for _, args := range []string{`{"n":"\u0000"}`, `{"n":"\ud800"}`, `{"n":1e400000}`, `{"\u0000":2,"n":2}`, `{"n":1}`} {
		n := newTask()
		n.Job.Request = json.RawMessage(`{"kind":"` + task + `","args":` + args + `}`)
		want = []job.ID{w.add(n)}
	}
	f := job.Where("args.n", job.Is, "1")
	equal(w, "list", fmtIDs(jobIDs(listAll(w, w.s, store.Query{Tenant: acme, Filter: f}))), fmtIDs(want))
	if n, err := w.s.Count(w.ctx, acme, f); err != nil || n.States[job.Pending] != 1 {
		w.Errorf("count: %v, %v", n, err)
	}
}

func listWindow(w *world) {
	old := w.add(newTask(named("old"), labeled("x", "1")))
	begin := w.job(old).Created
	w.clock.Advance(job.FilterWindow + time.Hour)
	young := w.add(newTask(named("young"), labeled("x", "2")))
	for _, f := range []struct {
		filter string
		since  bool
		want   []job.ID
	}{
		{"", false, []job.ID{young, old}},
		{"name=old", false, []job.ID{old}},
		{"name=old hidden=false", false, []job.ID{old}},
		{"name~*", true, []job.ID{young}},
		{"name=old priority=5", true, nil},
		{"label.x!=3", true, []job.ID{young}},
		{"label.x=1 state=PENDING", false, []job.ID{old}},
		{"name~* id=" + old.String(), false, []job.ID{old}},
		{"name~* created>=" + begin.Format(time.RFC3339Nano), true, []job.ID{young, old}},
		{"name~* created>" + begin.Format(time.RFC3339Nano), true, []job.ID{young}},
		{"created<=" + begin.Format(time.RFC3339Nano), false, []job.ID{old}},
		{"created<" + begin.Format(time.RFC3339Nano), false, nil},
		{"created>" + begin.Format(time.RFC3339Nano), true, []job.ID{young}},
	} {
		q := store.Query{Tenant: acme, Filter: w.filter(f.filter)}
		for _, q.Sort = range []store.Sort{store.Newest, store.ByNameRev} {
			page, err := w.s.List(w.ctx, q)
			if err != nil || page.Since.IsZero() == f.since {
				w.Errorf("%s: since %v, %v", f.filter, page.Since, err)
			}
			equal(w, f.filter, fmtIDs(jobIDs(page.Jobs)), fmtIDs(f.want))
		}
		counts, err := w.s.Count(w.ctx, acme, q.Filter)
		if err != nil || counts.Since.IsZero() == f.since || counts.States[job.Pending] != len(f.want) {
			w.Errorf("%s: counted %+v, %v", f.filter, counts, err)
		}
	}
}

func listWindowStands(w *world) {
	ids := w.addMany(3)
	w.clock.Advance(job.FilterWindow - time.Second)
	q := store.Query{Tenant: acme, Filter: w.filter("priority=5"), Limit: 1}
	var got []job.ID
	var since time.Time
	for range ids {
		page, err := w.s.List(w.ctx, q)
		if err != nil || len(page.Jobs) != 1 {
			w.Fatalf("%d jobs, %v", len(page.Jobs), err)
		}
		if q.Cursor != "" && !page.Since.Equal(since) {
			w.Errorf("a page looks back to %v, the one before to %v", page.Since, since)
		}
		got = append(got, page.Jobs[0].ID)
		q.Cursor, since = page.Next, page.Since
		w.clock.Advance(time.Minute)
	}
	slices.Reverse(ids)
	equal(w, "jobs", fmtIDs(got), fmtIDs(ids))
}

func readCount(w *world) {
	session := w.session()
	w.addMany(3)
	w.addMany(2, delayed(time.Hour))
	jobs := w.claim(wanted(session, 2))
	w.must(finish(jobs[0], by(session)))
	got, err := w.s.Count(w.ctx, acme, nil)
	if err != nil || !got.Since.IsZero() {
		w.Fatalf("count: since %v, %v", got.Since, err)
	}
	equal(w, "count", got.States, map[job.State]int{job.Waiting: 2, job.Pending: 1, job.Running: 1, job.Finished: 1})
	none, err := w.s.Count(w.ctx, "nobody", nil)
	if err != nil || len(none.States) != 0 {
		w.Errorf("nobody has %v, %v", none, err)
	}
}

func countFilter(w *world) {
	w.addMany(3, labeled("x", "1"))
	w.addMany(2, labeled("x", "2"), delayed(time.Hour))
	w.add(newTask(labeled("x", "1"), delayed(time.Hour)))
	w.add(newProgram())
	for filter, want := range map[string]map[job.State]int{
		"label.x=1":                 {job.Pending: 3, job.Waiting: 1},
		"label.x=1,2":               {job.Pending: 3, job.Waiting: 3},
		"label.x=1 state=WAITING":   {job.Waiting: 1},
		"kind=app":                  {job.Pending: 1},
		"state=FINISHED":            {},
		"state=PENDING,WAITING":     {job.Pending: 4, job.Waiting: 3},
		"custody=gate label.x~[12]": {},
		"custody=gate label.x~?":    {job.Waiting: 3},
	} {
		got, err := w.s.Count(w.ctx, acme, w.filter(filter))
		if err != nil {
			w.Errorf("%s: %v", filter, err)
		}
		equal(w, filter, got.States, want)
	}
}
