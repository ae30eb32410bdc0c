package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var groupTests = []test{
	{"a change that blocks a job joins its group", groupJoins},
	{"a group is tested when its policy says so", groupTested},
	{"who tests must hold the duty", groupFenced},
	{"groups of all tenants to which one answer is enough are tested together", groupProbe},
	{"what is clear lets jobs go at a rate, the oldest first and owner by owner", groupGoes},
	{"the rate of releases is a limit like others", groupRate},
	{"who joins after a test began waits for the next", groupLate},
	{"a tester says how many may go", groupMay},
	{"who blocks again makes the group go slower", groupAgain},
	{"a job fails when it has waited for too long, and it alone", groupLapses},
	{"while a test is due that was due in time nobody fails", groupPatient},
	{"who is canceled or paused leaves the group", groupWished},
	{"people try, release and give up", groupSteered},
	{"of jobs by themselves, too", groupSteeredJobs},
	{"an empty group is no more", groupEmpty},
	{"a group closes a line, which opens by and by", groupLine},
	{"a line on which no limit decides is closed as well", groupLineUnlimited},
	{"who is closed out by two groups waits for both", groupLineTwice},
	{"a group that has a line and no jobs is tested when somebody asks for it", groupLineAlone},
	{"what is launched keeps its turn, and what is not gives it back", groupTurns},
	{"in bounded steps", groupBounded},
	{"by many at once", groupAtOnce},
}

// disabled is a block by a system that is disabled, whose line is closed meanwhile.
func disabled() *job.Block {
	return &job.Block{Code: job.SystemDisabled, Message: "system lab is disabled", Tester: "enabled", Params: map[string]string{"system": "lab"}, Line: "system/lab"}
}

// away is a block by what is tested every 10 s, 3 times.
func away() *job.Block {
	return &job.Block{
		Code: job.TaskBlocked, Message: "it is away", Tester: "http", Params: map[string]string{"url": "http://x"},
		Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(10 * time.Second), Times: 3}}},
	}
}

// owned is a job of an owner.
func owned(owner string) option { return func(n *store.New) { n.Job.Owner = owner } }

// blocking is the change by which b blocks j, which stands in the hands of a session.
func blocking(j job.Job, session job.ID, b *job.Block) job.Change {
	c := move(j, by(session), job.Recovery, job.Blocked)
	c.Set.Block, c.Last().Code, c.Last().Message = b, b.Code, b.Message
	return c
}

// blocked submits n tasks and has each of them blocked.
func (w *world) blocked(n int, b *job.Block, options ...option) []job.ID {
	w.Helper()
	ids := w.addMany(n, options...)
	session := w.session()
	claim := wanted(session, n)
	claim.Jobs = ids
	jobs := w.claim(claim)
	if len(jobs) != n {
		w.Fatalf("claimed %d jobs, want %d", len(jobs), n)
	}
	changes := make([]job.Change, n)
	for i, j := range jobs {
		changes[i] = blocking(j, session, b)
	}
	for i, a := range w.applyAll(changes...) {
		if a.Outcome != store.OK || a.Now.Place != (job.Place{State: job.Blocked, Custody: job.Recovery}) {
			w.Fatalf("blocking job %d is answered %+v", i, a)
		}
	}
	w.end(session)
	return ids
}

// groups returns the groups of the tenant.
func (w *world) groups() []store.Group {
	w.Helper()
	all, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme})
	if err != nil {
		w.Fatalf("groups: %v", err)
	}
	return all
}

// group returns the one group that there is.
func (w *world) group() store.Group {
	w.Helper()
	all := w.groups()
	if len(all) != 1 {
		w.Fatalf("%d groups, want one: %+v", len(all), all)
	}
	return all[0]
}

// tests returns the groups whose test is due.
func (w *world) tests(duty string) store.Tests {
	w.Helper()
	t, err := w.s.Tests(w.ctx, duty, 100)
	if err != nil {
		w.Fatalf("tests: %v", err)
	}
	return t
}

// tester is somebody who tests.
type tester struct {
	*world
	fence job.Fence
}

func (w *world) tester() tester {
	w.Helper()
	r := renewal(w.sessionFor(24*time.Hour), store.RecoveryDuty)
	r.Lease = 24 * time.Hour
	a, err := w.s.Renew(w.ctx, r)
	if err != nil || len(a.Duties) != 1 {
		w.Fatalf("renewal of who tests: %+v, %v", a, err)
	}
	return tester{w, job.Fence{Duty: store.RecoveryDuty, Term: a.Duties[0].Term}}
}

// find records what tests of all groups found that are due.
func (t tester) find(clear bool, may int) store.Effects {
	t.Helper()
	due := t.tests(store.RecoveryDuty)
	var found []store.Test
	for _, g := range due.Due {
		found = append(found, store.Test{Tenant: g.Tenant, Key: g.Key, Began: due.Now, Clear: clear, May: may, Result: fmt.Sprintf("clear: %t", clear)})
	}
	eff, err := t.s.Tested(t.ctx, t.fence, found)
	if err != nil {
		t.Fatalf("tested: %v", err)
	}
	return eff
}

// clears has a minute go by, and all groups be found clear.
func (t tester) clears() store.Effects {
	t.Helper()
	t.clock.Advance(time.Minute)
	return t.find(true, 0)
}

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

// dueOnce makes one call of Due.
func (w *world) dueOnce() (int, store.Effects) {
	w.Helper()
	n, eff, err := w.s.Due(w.ctx, 1000)
	if err != nil {
		w.Fatalf("due: %v", err)
	}
	return n, eff
}

// goesOn has time go by in steps, and returns how many jobs are not blocked any more.
func (w *world) goesOn(step time.Duration, steps int, ids ...job.ID) int {
	w.Helper()
	for range steps {
		w.dueOnce()
		w.clock.Advance(step)
	}
	w.dueOnce()
	return w.went(ids...)
}

// A pace is how jobs go of groups that were found clear, on the database's clock, which may go on between two looks at it: from the first
// moment, which is not before from and not after to, until then.
type pace struct {
	*world
	from, to       time.Time
	before, looked time.Time // the last time that jobs could go
	lost           time.Duration
}

// clearing has a minute go by, and all groups be found clear.
func (t tester) clearing() *pace {
	t.Helper()
	t.clock.Advance(time.Minute)
	p := &pace{world: t.world, from: t.now()}
	if eff := t.find(true, 0); eff.Due.IsZero() {
		t.Errorf("what is clear means %+v", eff)
	}
	p.to = t.now()
	p.before, p.looked = p.to, p.to
	return p
}

// now is the time of the database.
func (w *world) now() time.Time {
	w.Helper()
	return w.tests(store.RecoveryDuty).Now
}

// look has those go whose moment has come. What was missed since the last time is lost.
func (p *pace) look() {
	p.Helper()
	began := p.now()
	p.dueOnce()
	ended := p.now()
	p.lost += max(0, ended.Sub(p.before)-job.Lateness)
	p.before, p.looked = began, ended
}

// goesOn has time go by in steps.
func (p *pace) goesOn(step time.Duration, steps int) {
	p.Helper()
	for range steps {
		p.look()
		p.clock.Advance(step)
	}
	p.look()
}

// keeps fails the test unless as many of some jobs went as there were moments: n of all. These are gap apart, and after a second
// as far as the rate has them.
func (p *pace) keeps(what string, n, all int, gap, rate time.Duration) {
	p.Helper()
	moments := func(d time.Duration) int {
		return int(min(d, time.Second).Seconds()/gap.Seconds() + max(0, d-time.Second).Seconds()/rate.Seconds())
	}
	within(p.world, what, n, min(all, moments(p.before.Sub(p.to)-p.lost)), min(all, 1+moments(p.looked.Sub(p.from))))
}

// releaseGap is how far the moments are apart at which jobs go where no rate is set.
var releaseGap = store.Releases(nil).Every()

// went returns how many jobs are not blocked any more.
func (w *world) went(ids ...job.ID) (n int) {
	w.Helper()
	for _, id := range ids {
		if w.job(id).State != job.Blocked {
			n++
		}
	}
	return n
}

// within fails the test unless n is one of from to to.
func within(w *world, what string, n, from, to int) {
	w.Helper()
	if n < from || n > to {
		w.Errorf("%s: %d, want %d to %d", what, n, from, to)
	}
}

func groupJoins(w *world) {
	ids := w.blocked(2, full())
	other := w.blocked(1, away())[0]
	all := w.groups()
	if len(all) != 2 || all[0].Key > all[1].Key {
		w.Fatalf("two groups in the order of their keys: %+v", all)
	}
	for _, g := range all {
		b, jobs, wait := full(), ids, 48*time.Hour
		if g.Block.Code == job.TaskBlocked {
			b, jobs, wait = away(), []job.ID{other}, 30*time.Second
		}
		if g.Jobs != len(jobs) || g.Tests != 0 || !g.Clear.IsZero() || g.Places >= 0 || g.Behind != 0 || g.Key != b.Group(acme) {
			w.Errorf("group %+v", g)
		}
		filled := b.Filled()
		equal(w, "what blocks them", g.Block, filled)
		for _, id := range jobs {
			j := w.job(id)
			if j.Group != g.Key || j.Code != b.Code || j.Message != b.Message || j.Resume != job.Pending || !near(j.Until, j.Since.Add(wait)) {
				w.Errorf("job %+v", j)
			}
			if !near(g.Oldest, j.Since) || !near(g.Opened, j.Since) || !near(g.Next, j.Since.Add(b.Filled().Policy.Every(0))) {
				w.Errorf("group %+v of a job that is blocked since %v", g, j.Since)
			}
		}
	}
	one, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme, Key: all[1].Key})
	if err != nil || len(one) != 1 || one[0].Key != all[1].Key {
		w.Errorf("one group: %+v, %v", one, err)
	}
	for after, want := range map[string]int{"": 1, all[0].Key: 1, all[1].Key: 0} {
		page, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme, Limit: 1, After: after})
		if err != nil || len(page) != want || want > 0 && page[0].Key <= after {
			w.Errorf("the page after %q: %+v, %v", after, page, err)
		}
	}
	if none, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: "other"}); err != nil || len(none) > 0 {
		w.Errorf("groups of another tenant: %+v, %v", none, err)
	}
	session := w.session()
	j := w.claimOf(session, w.add(newTask()))
	c := blocking(j, session, away())
	_, eff, err := w.s.Apply(w.ctx, []job.Change{c})
	if err != nil || !eff.Tests || !near(eff.Due, w.job(j.ID).Until) {
		w.Errorf("a block means %+v, %v", eff, err)
	}
	if a := w.apply(c); a.Outcome != store.OK || a.Now.Place.Custody != job.Recovery {
		w.Errorf("a block that is repeated is answered %+v", a)
	}
	if n := w.groups(); len(n) != 2 {
		w.Errorf("a block that is repeated joins again: %+v", n)
	}
	c = blocking(j, session, full())
	w.refused("another block under the same number", c, store.Fenced, store.Conflict)
	Check(w, w.s, acme)
}

// claimOf claims a job.
func (w *world) claimOf(session, id job.ID) job.Job {
	w.Helper()
	c := wanted(session, 1)
	c.Jobs = []job.ID{id}
	jobs := w.claim(c)
	if len(jobs) != 1 {
		w.Fatalf("claimed %d jobs, want one", len(jobs))
	}
	return jobs[0]
}

func groupTested(w *world) {
	t := w.tester()
	w.blocked(1, away())
	begun := w.group().Next
	if due := w.tests(store.RecoveryDuty); len(due.Due) != 0 || !near(due.Next, begun) {
		w.Errorf("too early: %+v", due)
	}
	w.clock.Advance(10 * time.Second)
	due := w.tests(store.RecoveryDuty)
	if len(due.Due) != 1 || due.Due[0].Key != w.group().Key || due.Due[0].Block.Params["url"] != "http://x" || due.Now.Before(begun) || !due.Next.IsZero() {
		w.Fatalf("due: %+v", due)
	}
	test := store.Test{Tenant: acme, Key: due.Due[0].Key, Began: due.Now, Result: "connection refused"}
	w.clock.Advance(2 * time.Second) // so long it takes
	for range 2 {
		if _, err := w.s.Tested(w.ctx, t.fence, []store.Test{test}); err != nil {
			w.Fatalf("tested: %v", err)
		}
		if g := w.group(); g.Tests != 1 || g.Result != "connection refused" || !near(g.Tested, due.Now) || !near(g.Next, begun.Add(10*time.Second)) {
			w.Errorf("tested once: %+v", g)
		}
	}
	w.clock.Advance(25 * time.Second) // one is missed
	t.find(false, 0)
	if g := w.group(); g.Tests != 2 || g.Next.Before(g.Tested.Add(10*time.Second)) || g.Next.After(g.Tested.Add(11*time.Second)) {
		w.Errorf("tested late: %+v", g)
	}
	// A job that wants it tested earlier has that.
	hourly := away()
	hourly.Params, hourly.Policy.Stages = map[string]string{"url": "http://y"}, []job.Stage{{Every: job.Duration(time.Hour), Times: 5}}
	w.blocked(1, hourly)
	hourly.Policy.Stages[0].Every = job.Duration(time.Minute)
	w.blocked(1, hourly)
	now := w.tests(store.RecoveryDuty).Now
	if all, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme, Key: hourly.Group(acme)}); err != nil || len(all) != 1 || all[0].Next.After(now.Add(time.Minute)) || all[0].Jobs != 2 {
		w.Errorf("a group with a job that wants it tested earlier: %+v, %v", all, err)
	}
}

func groupFenced(w *world) {
	t := w.tester()
	there := away()
	there.Machine = machine
	w.blocked(1, there)
	mine := away()
	mine.Tester = "go/mine"
	w.blocked(1, mine)
	w.clock.Advance(10 * time.Second)
	if due := w.tests(store.RecoveryDuty); len(due.Due) != 0 || !due.Next.IsZero() {
		w.Errorf("due for who tests what all can: %+v", due)
	}
	for duty, key := range map[string]string{"recovery@" + machine: there.Group(acme), "recovery/go/mine": mine.Group(acme)} {
		due := w.tests(duty)
		if len(due.Due) != 1 || due.Due[0].Key != key {
			w.Fatalf("due for %s: %+v", duty, due)
		}
		test := []store.Test{{Tenant: acme, Key: key, Began: due.Now, Clear: true}}
		for what, f := range map[string]job.Fence{
			"another duty": t.fence, "an old term": {Duty: duty, Term: 0}, "a duty that nobody holds": {Duty: duty, Term: 7}, "nobody": {},
		} {
			if _, err := w.s.Tested(w.ctx, f, test); job.KindOf(err) != job.Fenced {
				w.Errorf("a test of %s by %s: %v", key, what, err)
			}
		}
		holder := w.duty(w.session(), duty)
		if eff, err := w.s.Tested(w.ctx, holder, test); err != nil || eff.Due.IsZero() {
			w.Errorf("a test by its holder: %+v, %v", eff, err)
		}
	}
	if _, err := w.s.Tested(w.ctx, t.fence, []store.Test{{Tenant: acme, Key: "none", Began: time.Now()}}); err != nil {
		w.Errorf("a test of a group that is not there: %v", err)
	}
}

func groupProbe(w *world) {
	w.blocked(1, away())
	w.clock.Advance(5 * time.Second)
	again, other := away(), away()
	again.Code = job.FilesUnavailable
	again.Policy = away().Policy
	other.Params = map[string]string{"url": "http://y"}
	w.blocked(1, again)
	w.blocked(1, other)
	w.clock.Advance(5 * time.Second)
	due := w.tests(store.RecoveryDuty)
	var keys []string
	for _, g := range due.Due {
		keys = append(keys, g.Key)
	}
	slices.Sort(keys)
	want := []string{away().Group(acme), again.Group(acme)}
	slices.Sort(want)
	equal(w, "tested together", keys, want)
	if due.Next.IsZero() {
		w.Errorf("nobody says when the other one is due")
	}
}

func groupGoes(w *world) {
	t := w.tester()
	var anns, bobs []job.ID
	for range 15 {
		anns = append(anns, w.blocked(1, full())...)
		w.clock.Advance(time.Millisecond)
	}
	for range 5 {
		bobs = append(bobs, w.blocked(1, full(), owned("bob"))...)
		w.clock.Advance(time.Millisecond)
	}
	if n := w.goesOn(time.Second, 2, anns...); n != 0 {
		w.Errorf("%d jobs went before anything was clear", n)
	}
	all := append(slices.Clone(anns), bobs...)
	p := t.clearing()
	p.look()
	p.keeps("of 20 jobs at once", w.went(all...), 20, releaseGap, releaseGap)
	p.goesOn(50*time.Millisecond, 20)
	p.keeps("within a second", w.went(all...), 20, releaseGap, releaseGap)
	count := func(ids []job.ID) (n int) {
		for i, id := range ids {
			if w.job(id).State == job.Blocked {
				continue
			}
			if n++; n != i+1 {
				w.Errorf("job %d went before %d", i, n-1)
			}
		}
		return n
	}
	a, b := count(anns), count(bobs)
	if b < 4 {
		w.Errorf("ann has %d, and bob %d", a, b)
	}
	if b < len(bobs) {
		within(w, "one owner was served more than the other", a-b, -1, 1)
	}
	if n := w.goesOn(100*time.Millisecond, 30, all...); n != 20 {
		w.Errorf("%d jobs went in all", n)
	}
	j := w.job(anns[0])
	if j.Recoveries != 1 || j.Attempt != 1 || j.Group != "" || !j.Until.IsZero() || j.Resume != "" {
		w.Errorf("who went on: %+v", j)
	}
	w.at(job.Pending, job.Ready, all...)
	e := w.event(anns[0], j.N)
	if e.Cause != job.CauseClear || !strings.Contains(e.Message, "FILESYSTEM_FULL has cleared") {
		w.Errorf("its event is %+v", e)
	}
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	session := w.session()
	if jobs := w.claim(wanted(session, 50)); len(jobs) != 20 {
		w.Errorf("claimed %d", len(jobs))
	}
	Check(w, w.s, acme)
}

func groupRate(w *world) {
	t := w.tester()
	w.limit(job.Limit{Key: "releases/*", Most: 1_000_000, Per: job.Duration(time.Second)},
		job.Limit{Key: "releases/" + away().Group(acme), Most: 2, Per: job.Duration(time.Second)})
	many, few := w.blocked(50, full()), w.blocked(10, away())
	p := t.clearing()
	p.goesOn(time.Millisecond, 5)
	if n := w.went(many...); n != 50 {
		w.Errorf("without a rate %d went", n)
	}
	p.goesOn(100*time.Millisecond, 15)
	two := job.Limit{Most: 2, Per: job.Duration(time.Second)}
	p.keeps("two in a second", w.went(few...), 10, two.Every(), two.Every())
}

func groupLate(w *world) {
	t := w.tester()
	early := w.blocked(1, full())[0]
	w.clock.Advance(time.Minute)
	due := w.tests(store.RecoveryDuty)
	w.clock.Advance(time.Second)
	late := w.blocked(1, full())[0]
	if _, err := w.s.Tested(w.ctx, t.fence, []store.Test{{Tenant: acme, Key: due.Due[0].Key, Began: due.Now, Clear: true}}); err != nil {
		w.Fatalf("tested: %v", err)
	}
	w.goesOn(time.Second, 3)
	w.at(job.Pending, job.Ready, early)
	w.at(job.Blocked, job.Recovery, late)
	if g := w.group(); !g.Clear.IsZero() || g.Next.IsZero() || g.Jobs != 1 {
		w.Errorf("a group of whom somebody is left: %+v", g)
	}
	t.clears()
	w.goesOn(time.Second, 2)
	w.at(job.Pending, job.Ready, late)
}

func groupMay(w *world) {
	t := w.tester()
	ids := w.blocked(5, full())
	w.clock.Advance(time.Minute)
	t.find(true, 2)
	if n := w.goesOn(time.Second, 10, ids...); n != 2 {
		w.Errorf("%d jobs went, and two might", n)
	}
	if g := w.group(); !g.Clear.IsZero() || g.Jobs != 3 || g.Pace != 0 {
		w.Errorf("after that: %+v", g)
	}
	w.clock.Advance(time.Minute)
	t.find(true, 9)
	if n := w.goesOn(time.Second, 10, ids...); n != 5 {
		w.Errorf("%d jobs went in all", n)
	}
}

func groupAgain(w *world) {
	t := w.tester()
	ids := w.blocked(30, full())
	p := t.clearing()
	p.goesOn(50*time.Millisecond, 20)
	p.keeps("within a second", w.went(ids...), 30, releaseGap, releaseGap)
	more := w.blocked(2, full())
	g := w.group()
	if !g.Clear.IsZero() || g.Pace != -1 || g.Next.IsZero() {
		w.Fatalf("when somebody blocks again: %+v", g)
	}
	before := w.goesOn(0, 0, ids...)
	if n := w.goesOn(time.Second, 5, ids...); n != before {
		w.Errorf("%d go on, and nothing is clear", n-before)
	}
	left, all := len(ids)+len(more)-before, append(ids, more...)
	p = t.clearing()
	p.goesOn(50*time.Millisecond, 18)
	p.keeps("in the first second", w.went(all...)-before, left, 2*releaseGap, releaseGap)
	p.goesOn(50*time.Millisecond, 40)
	p.keeps("with two more seconds", w.went(all...)-before, left, 2*releaseGap, releaseGap)
}

func groupLapses(w *world) {
	t := w.tester()
	first := w.blocked(1, away())[0]
	since := w.job(first).Since
	w.clock.Advance(15 * time.Second)
	t.find(false, 0)
	late := w.blocked(1, away())[0]
	w.clock.Advance(10 * time.Second)
	t.find(false, 0)
	w.goesOn(0, 0)
	w.at(job.Blocked, job.Recovery, first, late)
	w.clock.Advance(10 * time.Second)
	if n, _ := w.dueOnce(); n != 0 {
		w.Errorf("a job fails although its last test is due")
	}
	eff := t.find(false, 0)
	if eff.Due.IsZero() {
		w.Errorf("the last test of a job means %+v", eff)
	}
	n, eff := w.dueOnce()
	if n != 1 || eff.Due.IsZero() {
		w.Errorf("%d jobs fail, want one; the next is due: %v", n, eff.Due)
	}
	w.at(job.Failed, job.None, first)
	w.at(job.Blocked, job.Recovery, late)
	j := w.job(first)
	if j.Code != job.RecoveryTimeout || j.Group != "" {
		w.Errorf("it ended %s (%s)", j.Code, j.Message)
	}
	for _, part := range []string{"TASK_BLOCKED has not cleared within " + j.Ended.Sub(since).Round(time.Millisecond).String(), "it is away", "tested 3 times", "clear: false"} {
		if !strings.Contains(j.Message, part) {
			w.Errorf("its message is %q, want %q in it", j.Message, part)
		}
	}
	w.clock.Advance(11 * time.Second)
	t.find(false, 0)
	w.dueOnce()
	w.at(job.Failed, job.None, late)
	Check(w, w.s, acme)
}

func groupPatient(w *world) {
	ids := w.blocked(2, away())
	w.clock.Advance(31 * time.Second)
	n, eff := w.dueOnce()
	if n != 0 || eff.Due.IsZero() || eff.Due.After(w.job(ids[0]).Until.Add(store.Patience+time.Second)) {
		w.Errorf("%d jobs fail before they were tested; due %v", n, eff.Due)
	}
	w.clock.Advance(store.Patience)
	if n, eff := w.dueOnce(); n != 2 || !eff.Due.IsZero() {
		w.Errorf("%d jobs fail when nobody tests, want 2; due %v", n, eff.Due)
	}
	if j := w.job(ids[0]); !strings.Contains(j.Message, "it was not tested") {
		w.Errorf("its message is %q", j.Message)
	}
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

func groupSteered(w *world) {
	t := w.tester()
	ids := w.blocked(3, full())
	key := w.group().Key
	if _, eff := w.steer(store.Steer{Want: store.TryNow, Group: key}); !eff.Tests {
		w.Errorf("a try means %+v", eff)
	}
	t.find(false, 0)
	if g := w.group(); g.Tests != 1 {
		w.Errorf("after a try: %+v", g)
	}
	if _, eff := w.steer(store.Steer{Want: store.Release, Group: key}); eff.Due.IsZero() {
		w.Errorf("a release means %+v", eff)
	}
	if n := w.goesOn(200*time.Millisecond, 5, ids...); n != 3 {
		w.Errorf("%d of 3 are released", n)
	}
	if e := w.event(ids[0], w.job(ids[0]).N); !strings.Contains(e.Message, "released by root") {
		w.Errorf("its event is %+v", e)
	}
	for _, want := range []store.Turning{store.TryNow, store.Release, store.GiveUp} {
		if _, _, err := w.s.Steer(w.ctx, store.Steer{Tenant: acme, By: "root", Want: want, Group: key}); job.KindOf(err) != job.NotFound {
			w.Errorf("%s of an empty group: %v", want, err)
		}
	}
	w.clock.Advance(2 * store.GroupKept)
	ids = w.blocked(3, full())
	if _, _, err := w.s.Steer(w.ctx, store.Steer{Tenant: "other", By: "root", Want: store.GiveUp, Group: key}); job.KindOf(err) != job.NotFound {
		w.Errorf("of another tenant: %v", err)
	}
	if _, eff := w.steer(store.Steer{Want: store.GiveUp, Group: key}); eff.Due.IsZero() {
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
	answers, eff := w.steer(store.Steer{Want: store.Release, Jobs: []job.ID{ids[0], free, strange}})
	if len(answers) != 3 || answers[0] != nil || job.KindOf(answers[1]) != job.Conflict || job.KindOf(answers[2]) != job.NotFound {
		w.Errorf("released: %v", answers)
	}
	sameLines(w, eff.Ready, job.Line{Queue: job.DefaultQueue, Kind: task})
	w.at(job.Pending, job.Ready, ids[0])
	if answers, _ = w.steer(store.Steer{Want: store.GiveUp, Jobs: ids}); job.KindOf(answers[0]) != job.Conflict || answers[1] != nil || answers[2] != nil {
		w.Errorf("given up: %v", answers)
	}
	w.at(job.Failed, job.None, ids[1], ids[2])
	last := w.blocked(1, full())[0]
	if answers, eff = w.steer(store.Steer{Want: store.TryNow, Jobs: []job.ID{last}}); answers[0] != nil || !eff.Tests || len(w.tests(store.RecoveryDuty).Due) != 1 {
		w.Errorf("tried: %v, %+v", answers, eff)
	}
	foreign, _, err := w.s.Steer(w.ctx, store.Steer{Tenant: "other", By: "eve", Want: store.Release, Jobs: []job.ID{last}})
	if err != nil || job.KindOf(foreign[0]) != job.NotFound {
		w.Errorf("by another tenant: %v, %v", foreign, err)
	}
	Check(w, w.s, acme)
}

func groupEmpty(w *world) {
	t := w.tester()
	ids := w.blocked(1, full())
	t.find(false, 0)
	w.clock.Advance(time.Minute)
	t.find(false, 0)
	w.wish(job.WishCancel, ids[0])
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	if due := w.tests(store.RecoveryDuty); len(due.Due) != 0 || !due.Next.IsZero() {
		w.Errorf("it is still tested: %+v", due)
	}
	w.clock.Advance(2 * store.GroupKept)
	if _, _, err := w.s.Recount(w.ctx, 100); err != nil {
		w.Fatalf("recount: %v", err)
	}
	w.blocked(1, full())
	if g := w.group(); g.Tests != 0 || g.Opened.Before(w.job(ids[0]).Ended) {
		w.Errorf("a group that was opened anew knows of the one before: %+v", g)
	}
}

// blockPrograms claims all programs that can be claimed, has each of them blocked, and returns how many they were.
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
	if err != nil || len(used) != 1 || !used[0].Shut || used[0].Limit == nil || used[0].Limit.Places("ahead/system/lab") != 0 {
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
	if n := len(w.groups()); n != 2 {
		w.Errorf("%d groups with a line, want 2", n)
	}
	w.steer(store.Steer{Want: store.Release, Group: disabled().Group(acme)})
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
	w.steer(store.Steer{Want: store.TryNow, Group: disabled().Group(acme)})
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
	w.steer(store.Steer{Want: store.Release, Jobs: []job.ID{held}})
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
	w.steer(store.Steer{Want: store.Release, Jobs: []job.ID{live.ID}})
	w.at(job.SubmittingJob, job.Ready, live.ID)
	checkTurns(w)
}

func groupBounded(w *world) {
	t := w.tester()
	w.limit(job.Limit{Key: "releases/*", Most: 1_000_000, Per: job.Duration(time.Second)})
	ids := w.blocked(25, full())
	t.clears()
	w.clock.Advance(10 * time.Millisecond)
	for left := 25; left > 0; {
		n, eff, err := w.s.Due(w.ctx, 10)
		if err != nil || n > 10 || n == 0 {
			w.Fatalf("due: %d, %v", n, err)
		}
		if left -= n; left > 0 && eff.Due.IsZero() {
			w.Fatalf("%d are left, and nobody says when they are due", left)
		}
		w.clock.Advance(time.Millisecond)
	}
	w.at(job.Pending, job.Ready, ids...)
	ids = w.blocked(25, away())
	w.clock.Advance(2 * time.Minute)
	for left := 25; left > 0; {
		n, _, err := w.s.Due(w.ctx, 10)
		if err != nil || n == 0 || n > 10 {
			w.Fatalf("due: %d, %v", n, err)
		}
		left -= n
	}
	w.at(job.Failed, job.None, ids...)
	ids = w.blocked(25, full())
	w.steer(store.Steer{Want: store.GiveUp, Group: full().Group(acme)})
	for left := 25; left > 0; {
		n, _, err := w.s.Due(w.ctx, 10)
		if err != nil || n == 0 || n > 10 {
			w.Fatalf("due: %d, %v", n, err)
		}
		left -= n
	}
	w.at(job.Failed, job.None, ids...)
}

func groupAtOnce(w *world) {
	const each, workers = 20, 8
	t := w.tester()
	w.limit(job.Limit{Key: "releases/*", Most: 1_000_000, Per: job.Duration(time.Second)})
	ids := w.addMany(each*workers, owned("bob"))
	sessions := make([]job.ID, workers)
	for i := range sessions {
		sessions[i] = w.sessionFor(24 * time.Hour)
	}
	w.clock.Advance(time.Minute)
	w.together(workers+3, func(i int) error {
		switch {
		case i < workers:
			c := wanted(sessions[i], each)
			jobs, err := w.s.Claim(w.ctx, c)
			if err != nil {
				return err
			}
			for _, j := range jobs {
				if _, _, err := w.s.Apply(w.ctx, []job.Change{blocking(j, sessions[i], []*job.Block{full(), away()}[i%2])}); err != nil {
					return err
				}
			}
			return nil
		case i == workers:
			for range 20 {
				for _, b := range []*job.Block{full(), away()} {
					_, _, err := w.s.Steer(w.ctx, store.Steer{Tenant: acme, By: "root", Want: store.Release, Group: b.Group(acme)})
					if err != nil && job.KindOf(err) != job.NotFound {
						return err
					}
				}
			}
			return nil
		case i == workers+1:
			for _, id := range ids[:each] {
				if _, _, err := w.s.Wish(w.ctx, store.Wish{Tenant: acme, By: "root", Wish: job.WishCancel, Jobs: []job.ID{id}}); err != nil {
					return err
				}
			}
			return nil
		}
		for range 20 {
			if _, _, err := w.s.Due(w.ctx, 7); err != nil {
				return err
			}
		}
		return nil
	})
	for range 5 { // what a race left to others
		for _, s := range sessions {
			for _, j := range w.claim(wanted(s, each*workers)) {
				w.apply(finish(j, by(s)))
			}
			w.end(s)
		}
		for _, g := range w.groups() {
			w.steer(store.Steer{Want: store.Release, Group: g.Key})
		}
		w.goesOn(time.Second, 3)
		sessions = []job.ID{w.session()}
	}
	_ = t
	for _, id := range ids {
		if j := w.job(id); !j.State.Terminal() {
			w.Errorf("job %s is left %s", id, j.Place)
		}
	}
	Check(w, w.s, acme)
}
