package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// steer does what a person wants.
func (w *world) steer(s store.Steer) ([]error, store.Effects) {
	w.Helper()
	s.Tenant, s.By = acme, "root"
	answers, eff, err := w.s.Steer(w.ctx, s)
	if err != nil {
		w.Fatalf("%s: %v", s.Want, err)
	}
	return answers, eff
}

func groupWished(w *world) {
	ids := w.blocked(4, full())
	w.wish(job.WishCancel, ids[0])
	w.wish(job.WishPause, ids[1])
	w.at(job.Canceled, job.None, ids[0])
	w.at(job.Paused, job.User, ids[1])
	for _, id := range ids[:2] {
		if j := w.job(id); j.Group != "" || !j.Until.IsZero() {
			w.Errorf("job %+v", j)
		}
	}
	if g := w.group(); g.Jobs != 2 {
		w.Errorf("%d jobs are left", g.Jobs)
	}
	w.wish(job.WishResume, ids[1])
	w.at(job.Pending, job.Ready, ids[1])
	if _, eff := w.wishAll(job.WishCancel, ids...); len(eff.Ready) > 0 {
		w.Errorf("a cancel means %+v", eff)
	}
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	t := w.tester()
	t.clears()
	w.goesOn(time.Second, 2)
	w.at(job.Canceled, job.None, ids...)
	Check(w, w.s, acme)
}

func groupFiltered(w *world) {
	other := full()
	other.Params = map[string]string{"path": "/scratch"}
	mine, theirs := w.blocked(3, full()), w.blocked(2, other, owned("bob"))
	free := w.add(newTask())
	key, otherKey := full().Group(acme), other.Group(acme)
	w.clock.Advance(job.FilterWindow + time.Hour) // who waits for long is found as well
	all := append(slices.Concat(mine, theirs), free)
	lists := func(filter string, want ...job.ID) {
		w.Helper()
		f := w.filter(filter)
		for _, limit := range []int{1, 100} {
			for by, want := range map[store.Sort][]job.ID{store.Oldest: want, store.Newest: reversed(want)} {
				got := listAll(w, w.s, store.Query{Tenant: acme, Filter: f, Sort: by, Limit: limit})
				equal(w, filter+" by "+string(by), fmtIDs(jobIDs(got)), fmtIDs(want))
			}
		}
		counts, err := w.s.Count(w.ctx, acme, f)
		n := 0
		for _, k := range counts.States {
			n += k
		}
		if err != nil || n != len(want) {
			w.Errorf("%s: counted %+v, %v", filter, counts, err)
		}
	}
	lists("group="+key, mine...)
	lists("group="+strings.ToUpper(otherKey), theirs...)
	lists("group="+key+","+otherKey+","+key, all[:5]...)
	lists("group=" + full().Group("other"))
	lists("group="+key+" owner="+ann+" code=FILESYSTEM_FULL created>0001-01-01", mine...)
	lists("group=" + key + " owner=bob")
	lists("group="+key+" group!="+otherKey+" created>0001-01-01", mine...)
	lists("group!="+otherKey+" created>0001-01-01", append(slices.Clone(mine), free)...)
	lists("group=" + key + " state=PENDING")
	lists("group=" + key + " hidden=true")
	page, err := w.s.List(w.ctx, store.Query{Tenant: "other", Filter: w.filter("group=" + key)})
	if err != nil || len(page.Jobs) > 0 {
		w.Errorf("another tenant finds %+v, %v", page.Jobs, err)
	}
	for _, by := range []store.Sort{store.ByName, store.ByNameRev, store.FirstEnd, store.LastEnded} {
		got := listAll(w, w.s, store.Query{Tenant: acme, Filter: w.filter("group=" + key), Sort: by, Limit: 2})
		if want := map[string]int{"stem": len(mine), "ended": 0}[by.Field()]; len(got) != want {
			w.Errorf("by %s: %d jobs, want %d", by, len(got), want)
		}
	}

	// Who cancels those that it chooses cancels these and no others, and the group is no more.
	w.wishAll(job.WishCancel, jobIDs(listAll(w, w.s, store.Query{Tenant: acme, Filter: w.filter("group=" + key)}))...)
	w.at(job.Canceled, job.None, mine...)
	w.at(job.Blocked, job.Recovery, theirs...)
	w.at(job.Pending, job.Ready, free)
	if g := w.group(); g.Key != otherKey || g.Jobs != len(theirs) {
		w.Errorf("the group that is left: %+v", g)
	}
	lists("group=" + key)
	lists("group="+otherKey, theirs...)
	w.wishAll(job.WishPause, jobIDs(listAll(w, w.s,
		store.Query{Tenant: acme, Filter: w.filter("group=" + otherKey)}))...)
	w.at(job.Paused, job.User, theirs...)
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	lists("group=" + otherKey)
	Check(w, w.s, acme)
}

func reversed(ids []job.ID) []job.ID {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

func groupSteered(w *world) {
	t := w.tester()
	ids := w.blocked(3, full())
	key := w.group().Key
	if _, eff := w.steer(store.Steer{Want: groups.TryNow, Group: key}); !eff.Tests {
		w.Errorf("a try means %+v", eff)
	}
	t.find(false, 0)
	if g := w.group(); g.Tests != 1 {
		w.Errorf("after a try: %+v", g)
	}
	if _, eff := w.steer(store.Steer{Want: groups.Release, Group: key}); eff.Due.IsZero() {
		w.Errorf("a release means %+v", eff)
	}
	if n := w.goesOn(200*time.Millisecond, 5, ids...); n != 3 {
		w.Errorf("%d of 3 are released", n)
	}
	if e := w.event(ids[0], w.job(ids[0]).N); !strings.Contains(e.Message, "released by root") {
		w.Errorf("its event is %+v", e)
	}
	for _, want := range []groups.Action{groups.TryNow, groups.Release, groups.GiveUp} {
		if _, _, err := w.s.Steer(w.ctx,
			store.Steer{Tenant: acme, By: "root", Want: want, Group: key}); job.KindOf(err) != job.NotFound {
			w.Errorf("%s of an empty group: %v", want, err)
		}
	}
	w.clock.Advance(2 * groups.Kept)
	ids = w.blocked(3, full())
	if _, _, err := w.s.Steer(w.ctx, store.Steer{
		Tenant: "other", By: "root", Want: groups.GiveUp,
		Group: key,
	}); job.KindOf(err) != job.NotFound {
		w.Errorf("of another tenant: %v", err)
	}
	if _, eff := w.steer(store.Steer{Want: groups.GiveUp, Group: key}); eff.Due.IsZero() {
		w.Errorf("giving up means %+v", eff)
	}
	w.clock.Advance(time.Second)
	later := w.blocked(1, full())[0]
	w.goesOn(time.Second, 1)
	w.at(job.Failed, job.None, ids...)
	w.at(job.Blocked, job.Recovery, later)
	if j := w.job(ids[0]); j.Code != job.RecoveryGivenUp || !strings.Contains(j.Message, "root") {
		w.Errorf("it ended %s (%s)", j.Code, j.Message)
	}
	Check(w, w.s, acme)
}

func groupSteeredJobs(w *world) {
	ids := w.blocked(3, full())
	free, strange := w.add(newTask()), job.NewID()
	answers, eff := w.steer(store.Steer{Want: groups.Release, Jobs: []job.ID{ids[0], free, strange}})
	if len(answers) != 3 || answers[0] != nil || job.KindOf(answers[1]) != job.Conflict ||
		job.KindOf(answers[2]) != job.NotFound {
		w.Errorf("released: %v", answers)
	}
	sameLines(w, eff.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
	w.at(job.Pending, job.Ready, ids[0])
	if answers, _ = w.steer(store.Steer{Want: groups.GiveUp, Jobs: ids}); job.KindOf(answers[0]) != job.Conflict ||
		answers[1] != nil || answers[2] != nil {
		w.Errorf("given up: %v", answers)
	}
	w.at(job.Failed, job.None, ids[1], ids[2])
	last := w.blocked(1, full())[0]
	if answers, eff = w.steer(store.Steer{Want: groups.TryNow, Jobs: []job.ID{last}}); answers[0] != nil ||
		!eff.Tests || len(w.tests(groups.RecoveryDuty).Due) != 1 {
		w.Errorf("tried: %v, %+v", answers, eff)
	}
	foreign, _, err := w.s.Steer(w.ctx, store.Steer{
		Tenant: "other", By: "eve", Want: groups.Release,
		Jobs: []job.ID{last},
	})
	if err != nil || job.KindOf(foreign[0]) != job.NotFound {
		w.Errorf("by another tenant: %v, %v", foreign, err)
	}
	Check(w, w.s, acme)
}
