package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// blockPrograms claims all programs that can be claimed, has each of them blocked, and returns how
// many they were.
func (w *world) blockPrograms(session job.ID, b *job.Block) (n int) {
	w.Helper()
	for _, j := range w.claim(wanted(session, 100)) {
		w.must(blocking(j, session, b))
		n++
	}
	return n
}

func groupLine(w *world) {
	t := w.tester()
	w.limit(job.Limit{Key: "system/lab", Most: 12, Ahead: 3})
	var ids []job.ID
	for range 20 {
		ids = append(ids, w.add(newProgram(under("system/lab"))))
	}
	w.pay()
	session := w.sessionFor(24 * time.Hour)
	if n := w.blockPrograms(session, disabled()); n != 3 {
		w.Fatalf("%d programs are made ready ahead, want 3", n)
	}
	w.pay()
	g := w.group()
	if g.Jobs != 3 || g.Behind != 17 || g.Places != 0 {
		w.Errorf("a group that closes a line: %+v", g)
	}
	w.wish(job.WishCancel, ids[0]) // it gives its place back, and nobody gets it
	w.pay()
	if n := w.blockPrograms(session, disabled()); n != 0 {
		w.Errorf("%d jobs went through a closed line", n)
	}
	late := w.add(newProgram(under("system/lab")))
	w.pay()
	w.at(job.Waiting, job.Gate, late)
	used, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme, Key: "ahead/system/lab"})
	if err != nil || len(used) != 1 || !used[0].Shut || used[0].Limit == nil ||
		used[0].Limit.Places("ahead/system/lab") != 0 {
		w.Errorf("a line that is shut: %+v, %v", used, err)
	}
	if set, err := w.s.Limits(w.ctx, acme); err != nil || len(set) != 1 || set[0].Most != 12 || set[0].Ahead != 3 {
		w.Errorf("its limit is set to %+v, %v", set, err)
	}
	w.limit(job.Limit{Key: "system/lab", Most: 13, Ahead: 4}) // meanwhile
	w.pay()
	w.at(job.Waiting, job.Gate, late)

	t.clears()
	w.pay()
	ahead, _ := w.turns("ahead/system/lab")
	if ahead != 4 {
		w.Errorf("%d are made ready ahead, want 4", ahead)
	}
	for range 5 { // it opens as far as the limit goes, and then is no line that is closed
		w.goesOn(500*time.Millisecond, 2)
		w.pay()
	}
	used, err = w.s.Turns(w.ctx, store.TurnQuery{Tenant: acme, Key: "ahead/system/lab"})
	if err != nil || len(used) != 1 || used[0].Shut || used[0].Limit.Most != 13 {
		w.Errorf("a line that is open: %+v, %v", used, err)
	}
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	checkTurns(w)
	Check(w, w.s, acme)
}

// programOn is a program that stands under the key of its system, whenever a limit is set for that.
func programOn(system string) store.New {
	n := newProgram(func(n *store.New) {
		n.Job.Request = []byte(`{"kind":"app","command":["true"],"system":"` + system + `"}`)
	})
	n.Optional = n.Job.OwnKeys()
	return n
}

func groupLineUnlimited(w *world) {
	t := w.tester()
	jobs := make([]store.New, 30)
	for i := range jobs {
		jobs[i] = programOn("lab")
	}
	w.submit(jobs...)
	elsewhere := w.add(programOn("other"))
	session := w.sessionFor(24 * time.Hour)
	claim := wanted(session, 4)
	for _, j := range w.claim(claim) {
		if j.ID == elsewhere {
			w.Fatalf("%s was to be claimed later", j.ID)
		}
		w.must(blocking(j, session, disabled()))
	}
	w.pay()
	if g := w.group(); g.Jobs != 4 || g.Behind != 26 {
		w.Errorf("a group with a line on which no limit decides: %+v", g)
	}
	w.at(job.Pending, job.Ready, elsewhere)
	late := w.add(programOn("lab"))
	w.pay()
	w.at(job.Waiting, job.Gate, late)
	if set, err := w.s.Limits(w.ctx, acme); err != nil || len(set) != 0 {
		w.Errorf("limits that are set: %+v, %v", set, err)
	}
	t.clears()
	w.pay()
	held, waiting := w.turns("ahead/system/lab")
	within(w, "in the first second", held, 9, 22)
	within(w, "and wait", waiting, 5, 20)
	for range 8 {
		w.goesOn(500*time.Millisecond, 2)
		w.pay()
	}
	if _, waiting = w.turns("ahead/system/lab"); waiting != 0 {
		w.Errorf("%d jobs wait in a line that is open", waiting)
	}
	if got := len(w.claim(wanted(session, 100))); got != 32 {
		w.Errorf("%d jobs can be claimed, want 32", got)
	}
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	free := w.add(programOn("lab"))
	w.at(job.Pending, job.Ready, free)
	Check(w, w.s, acme)
}

// groupLineClosing gives turns back, in each way there is, after a block has owed it to close their
// line and before that is paid.
func groupLineClosing(w *world) {
	t := w.tester()
	w.limit(most("system/lab", 4), most("gpu", 4))
	session := w.sessionFor(24 * time.Hour)
	w.addMany(4, under("system/lab"))
	waits := w.addMany(3, under("system/lab"))
	w.pay()
	held := w.claim(wanted(session, 4))
	if len(held) != 4 {
		w.Fatalf("%d tasks run, want 4", len(held))
	}
	w.must(blocking(held[0], session, disabled()))
	w.must(finish(held[1], by(session)))
	w.must(move(held[2], by(session), job.None, job.Failed))
	c := wanted(session, 4)
	if _, jobs, _, err := w.s.Apply(w.ctx, []job.Change{finish(held[3], by(session))}, &c); err != nil || len(jobs) > 0 {
		w.Errorf("a claim along with an end: %d jobs, %v", len(jobs), err)
	}
	gpu := disabled()
	gpu.Line, gpu.Params = "gpu", map[string]string{"system": "gpu"}
	w.must(blocking(w.claimOf(session, w.add(newTask(under("gpu")))), session, gpu))
	waits = append(waits, w.add(newTask(under("gpu"))))
	w.at(job.Waiting, job.Gate, waits...)
	w.pay()
	w.at(job.Waiting, job.Gate, waits...)
	w.uses("system/lab", 0, 3)
	w.uses("gpu", 0, 1)
	t.clears()
	for range 5 {
		w.goesOn(500*time.Millisecond, 2)
		w.pay()
	}
	w.at(job.Pending, job.Ready, waits...)
	checkTurns(w)
	Check(w, w.s, acme)
}

func groupLineTwice(w *world) {
	t := w.tester()
	w.limit(most("system/lab", 5))
	other := full()
	other.Line = "system/lab"
	session := w.sessionFor(24 * time.Hour)
	ids := []job.ID{w.add(newProgram(under("system/lab"))), w.add(newProgram(under("system/lab")))}
	for i, b := range []*job.Block{disabled(), other} {
		w.must(blocking(w.claimOf(session, ids[i]), session, b))
		w.pay()
	}
	waits := w.add(newProgram(under("system/lab")))
	w.pay()
	w.at(job.Waiting, job.Gate, waits)
	w.blocked(1, away())
	for line, want := range map[string]int{"": 3, "system/lab": 2, "system/other": 0} {
		if all, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme, Line: line}); err != nil || len(all) != want {
			w.Errorf("%d groups that close line %q, want %d: %v", len(all), line, want, err)
		}
	}
	w.steer(store.Steer{Want: groups.Release, Group: disabled().Group(acme)})
	w.goesOn(time.Second, 10)
	w.pay()
	w.at(job.Waiting, job.Gate, waits)
	t.clears()
	for range 5 {
		w.goesOn(time.Second, 1)
		w.pay()
	}
	w.at(job.Pending, job.Ready, waits)
}

func groupLineAlone(w *world) {
	t := w.tester()
	w.limit(most("system/lab", 5))
	session := w.sessionFor(24 * time.Hour)
	id := w.add(newProgram(under("system/lab")))
	w.must(blocking(w.claimOf(session, id), session, disabled()))
	w.pay()
	w.wish(job.WishCancel, id)
	w.pay()
	w.at(job.Canceled, job.None, id)
	if all := w.groups(); len(all) != 0 {
		w.Errorf("nobody waits for %+v", all)
	}
	w.steer(store.Steer{Want: groups.TryNow, Group: disabled().Group(acme)})
	w.clock.Advance(time.Second)
	t.find(true, 0)
	w.pay()
	late := w.add(newProgram(under("system/lab")))
	w.pay()
	w.at(job.Pending, job.Ready, late)
}

func groupTurns(w *world) {
	w.limit(most("system/lab", 3), most("gpu", 1))
	session := w.sessionFor(24 * time.Hour)
	held := w.add(newTask(under("gpu")))
	waits := w.add(newTask(under("gpu")))
	w.must(blocking(w.claimOf(session, held), session, full()))
	w.pay()
	w.at(job.Pending, job.Ready, waits) // the turn of who is blocked went on
	w.uses("gpu", 1, 0)
	w.steer(store.Steer{Want: groups.Release, Jobs: []job.ID{held}})
	w.pay()
	w.at(job.Waiting, job.Gate, held)
	w.uses("gpu", 1, 1)

	id := w.comesToLaunch(session, under("system/lab"))
	w.pay()
	live := w.claimOf(session, id)
	c := blocking(live, session, full())
	c.Set.Over = false // it may run
	w.must(c)
	w.pay()
	w.uses("system/lab", 1, 0)
	w.steer(store.Steer{Want: groups.Release, Jobs: []job.ID{live.ID}})
	w.at(job.SubmittingJob, job.Ready, live.ID)
	checkTurns(w)
}
