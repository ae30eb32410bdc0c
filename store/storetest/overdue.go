package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var overdueTests = []test{
	{"each tenant and state has its time, hidden or not", overdueRules},
	{"a kind may have a time of its own", overdueKinds},
	{"jobs that an earlier look has seen are left out", overdueSince},
	{"the clock of the database decides", overdueClock},
	{"a job that owes something is not overdue", overdueOwes},
	{"pages have each job once, in the order of the ends", overduePages},
	{"a cursor passes over what stays, also under other rules", overdueStays},
	{"a cursor that is none is refused", overdueCursor},
}

// ended makes a task of a tenant that has ended in a state, and returns its id.
func (w *world) ended(tenant string, state job.State, options ...option) job.ID {
	w.Helper()
	sub := submission(newTask(options...))
	sub.Tenant = tenant
	got, _, err := w.s.Submit(w.ctx, sub)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	id := got[0].ID
	if state == job.Canceled {
		if _, _, err := w.s.Wish(w.ctx, store.Wish{
			Tenant: tenant, By: ann, Wish: job.WishCancel,
			Jobs: []job.ID{id},
		}); err != nil {
			w.Fatalf("wish: %v", err)
		}
		return id
	}
	session := w.session()
	c := wanted(session, 10)
	c.Jobs, c.Machine = []job.ID{id}, sub.Jobs[0].Job.Machine
	j := w.claim(c)[0]
	if got := w.apply(move(j, by(session), job.None, state)); got.Outcome != store.OK {
		w.Fatalf("end: %s", got.Outcome)
	}
	w.end(session)
	return id
}

// hide hides a job.
func (w *world) hide(tenant string, id job.ID) {
	w.Helper()
	hidden := true
	errs, err := w.s.Annotate(w.ctx, store.Annotation{Tenant: tenant, Jobs: []job.ID{id}, Hidden: &hidden})
	if err != nil || errs[0] != nil {
		w.Fatalf("hide: %v, %v", errs, err)
	}
}

// overdue reads the jobs that are kept no longer, page by page.
func (w *world) overdue(limit int, kept ...store.Kept) (all []store.Ended) {
	w.Helper()
	q := store.OverdueQuery{Kept: kept, Limit: limit}
	for pages := 0; ; pages++ {
		o, err := w.s.Overdue(w.ctx, q)
		if err != nil || len(o.Jobs) > limit {
			w.Fatalf("overdue: %d jobs, %v", len(o.Jobs), err)
		}
		all = append(all, o.Jobs...)
		if q.Cursor = o.Next; q.Cursor == "" {
			return all
		}
		if pages > 1000 {
			w.Fatalf("the pages never end")
		}
	}
}

func overdueIDs(all []store.Ended) []string {
	ids := make([]string, len(all))
	for i, j := range all {
		ids[i] = j.ID.String()
	}
	return ids
}

func overdueRules(w *world) {
	type of struct {
		tenant string
		state  job.State
	}
	made := map[of][]string{}
	for _, tenant := range []string{acme, "other"} {
		for _, state := range job.Ends {
			plain := w.ended(tenant, state, on("m7"))
			hidden := w.ended(tenant, state, on("m7"))
			w.hide(tenant, hidden)
			made[of{tenant, state}] = []string{plain.String(), hidden.String()}
		}
	}
	w.add(newTask()) // has not ended
	w.clock.Advance(24 * time.Hour)

	for rule, ids := range made {
		got := w.overdue(10, store.Kept{Tenant: rule.tenant, State: rule.state, For: time.Hour})
		equal(w, "the jobs of one rule", overdueIDs(got), ids)
		for _, j := range got {
			want := store.Ended{ID: j.ID, Tenant: rule.tenant, State: rule.state, Kind: task, Machine: "m7"}
			equal(w, "job", j, want)
		}
	}
	// Rules come in any order; the answers do not.
	all := w.overdue(10,
		store.Kept{Tenant: "other", State: job.Canceled, For: time.Hour},
		store.Kept{Tenant: acme, State: job.Finished, For: time.Hour},
		store.Kept{Tenant: "other", State: job.Failed, For: 48 * time.Hour},
		store.Kept{Tenant: acme, State: job.Canceled, For: time.Hour},
		store.Kept{Tenant: "none", State: job.Failed, For: time.Hour})
	equal(w, "the jobs of five rules", overdueIDs(all),
		slices.Concat(made[of{acme, job.Canceled}], made[of{acme, job.Finished}], made[of{"other", job.Canceled}]))
	equal(w, "the jobs of no rule", len(w.overdue(10)), 0)
}

func overdueKinds(w *world) {
	want := map[string][]string{}
	for range 2 {
		for _, kind := range []string{"a", "b", "c"} {
			id := w.ended(acme, job.Canceled, ofKind(kind))
			hidden := w.ended(acme, job.Canceled, ofKind(kind))
			w.hide(acme, hidden)
			want[kind] = append(want[kind], id.String(), hidden.String())
			w.clock.Advance(time.Second)
		}
	}
	w.clock.Advance(24 * time.Hour)
	rule := func(kind string, kept time.Duration) store.Kept {
		return store.Kept{Tenant: acme, State: job.Canceled, Kind: kind, For: kept}
	}
	for _, limit := range []int{1, 3, 100} {
		equal(w, "one kind is kept for longer", overdueIDs(w.overdue(limit, rule("", time.Hour), rule("b", 48*time.Hour))),
			[]string{
				want["a"][0], want["a"][1], want["c"][0], want["c"][1], want["a"][2], want["a"][3], want["c"][2], want["c"][3],
			})
		equal(w, "two kinds are kept for a shorter time",
			overdueIDs(w.overdue(limit, rule("c", time.Hour), rule("a", time.Hour), rule("", 48*time.Hour))),
			slices.Concat(want["a"], want["c"]))
		equal(w, "one kind alone", overdueIDs(w.overdue(limit, rule("b", time.Hour))), want["b"])
		equal(w, "all have rules", overdueIDs(w.overdue(limit, rule("b", time.Hour), rule("", time.Hour))),
			slices.Concat([]string{
				want["a"][0], want["a"][1], want["c"][0], want["c"][1], want["a"][2], want["a"][3], want["c"][2], want["c"][3],
			}, want["b"]))
	}
}

func overdueSince(w *world) {
	first := w.ended(acme, job.Finished)
	w.clock.Advance(time.Minute)
	second := w.ended(acme, job.Finished)
	w.clock.Advance(24 * time.Hour)
	kept := store.Kept{Tenant: acme, State: job.Finished, For: time.Hour, Since: w.job(first).Ended.Add(time.Second)}
	for _, limit := range []int{1, 10} {
		equal(w, "jobs", overdueIDs(w.overdue(limit, kept)), fmtIDs([]job.ID{second}))
	}
}

func overdueClock(w *world) {
	id := w.ended(acme, job.Finished)
	kept := store.Kept{Tenant: acme, State: job.Finished, For: time.Hour}
	for _, step := range []struct {
		passes time.Duration
		want   []string
	}{{0, nil}, {59 * time.Minute, nil}, {2 * time.Minute, []string{id.String()}}} {
		w.clock.Advance(step.passes)
		equal(w, "jobs", overdueIDs(w.overdue(10, kept)), step.want)
	}
	kept.For = 2 * time.Hour
	equal(w, "jobs that are kept for longer", overdueIDs(w.overdue(10, kept)), nil)
	w.gone(id)
	kept.For = time.Hour
	equal(w, "jobs that are gone", overdueIDs(w.overdue(10, kept)), nil)
}

func overdueOwes(w *world) {
	for _, hidden := range []bool{false, true} {
		first := w.add(newTask())
		w.add(newTask(after(job.NeedEnded, first)))
		w.wish(job.WishCancel, first)
		if hidden {
			w.hide(acme, first)
		}
		free := w.ended(acme, job.Canceled)
		w.clock.Advance(24 * time.Hour)
		kept := store.Kept{Tenant: acme, State: job.Canceled, For: time.Hour}
		equal(w, "jobs", overdueIDs(w.overdue(10, kept)), fmtIDs([]job.ID{free}))
		w.pay()
		equal(w, "jobs that have paid", overdueIDs(w.overdue(10, kept)), fmtIDs([]job.ID{first, free}))
		w.gone(first, free)
	}
}

// overdueAll makes jobs of two tenants; many of them end in one call and so at one time. It returns
// the retention rules that they have outlived, and the ids that these find.
func overdueAll(w *world) (kept []store.Kept, want []string) {
	w.Helper()
	found := map[string][]string{}
	for _, tenant := range []string{"b", "a"} {
		for range 4 {
			var sub store.Submission
			for range 5 {
				sub.Jobs = append(sub.Jobs, newTask())
			}
			sub.Tenant, sub.By = tenant, ann
			got, _, err := w.s.Submit(w.ctx, sub)
			if err != nil {
				w.Fatalf("submit: %v", err)
			}
			if _, _, err := w.s.Wish(w.ctx,
				store.Wish{Tenant: tenant, By: ann, Wish: job.WishCancel, Jobs: idsOf(got)}); err != nil {
				w.Fatalf("wish: %v", err)
			}
			w.hide(tenant, got[1].ID)
			w.hide(tenant, got[3].ID)
			w.clock.Advance(time.Second)
			found[tenant] = append(found[tenant], fmtIDs(idsOf(got))...)
		}
		kept = append(kept, store.Kept{Tenant: tenant, State: job.Canceled, For: time.Hour})
	}
	w.clock.Advance(24 * time.Hour)
	for _, tenant := range slices.Sorted(maps.Keys(found)) {
		want = append(want, found[tenant]...)
	}
	return kept, want
}

func overduePages(w *world) {
	kept, want := overdueAll(w)
	for _, limit := range []int{1, 2, 3, 20, 39, 40, 41, 1000} {
		got := overdueIDs(w.overdue(limit, kept...))
		// Jobs that ended at one time stand in the order of their submission, and a call has one
		// order.
		for part := range slices.Chunk(got, 5) {
			slices.Sort(part)
		}
		equal(w, "jobs", got, want)
	}
}

func overdueStays(w *world) {
	kept, want := overdueAll(w)
	page, err := w.s.Overdue(w.ctx, store.OverdueQuery{Kept: kept, Limit: 7})
	if err != nil {
		w.Fatalf("overdue: %v", err)
	}
	for _, i := range []int{0, 6} { // the others stay; the last of the page is the one that its cursor points to
		if _, err := w.s.Remove(w.ctx, page.Jobs[i].Tenant, []job.ID{page.Jobs[i].ID}); err != nil {
			w.Fatalf("remove: %v", err)
		}
	}
	seen := overdueIDs(page.Jobs)
	kept = append(kept, store.Kept{Tenant: "0", State: job.Canceled, For: time.Hour}) // stands before the cursor
	for cursor := page.Next; cursor != "" && len(seen) <= len(want); cursor = page.Next {
		if page, err = w.s.Overdue(w.ctx, store.OverdueQuery{Kept: kept, Limit: 7, Cursor: cursor}); err != nil {
			w.Fatalf("overdue: %v", err)
		}
		seen = append(seen, overdueIDs(page.Jobs)...)
	}
	slices.Sort(seen)
	slices.Sort(want)
	equal(w, "jobs", seen, want)
}

func overdueCursor(w *world) {
	for _, cursor := range []string{"x", "!", "eA"} {
		_, err := w.s.Overdue(w.ctx, store.OverdueQuery{Kept: []store.Kept{{
			Tenant: acme, State: job.Finished,
			For: time.Hour,
		}}, Cursor: cursor})
		w.kind(err, job.Invalid)
	}
}
