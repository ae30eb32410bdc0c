package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

var groupTests = []test{
	{"a change that blocks a job joins its group", groupJoins},
	{"trouble that changes its condition stays one group, and shows the newest", groupAnyCode},
	{"a group is tested when its policy says so", groupTested},
	{"a group goes through the stages of its policy, also in a store that is opened anew", groupStages},
	{"who tests must hold the duty", groupFenced},
	{"groups of all tenants to which one answer is enough are tested together", groupProbe},
	{"what is clear lets jobs go at a rate, the oldest first and owner by owner", groupGoes},
	{"the rate of releases is a limit like others", groupRate},
	{"a rate of releases is shared by all processes", groupRateShared},
	{"a rate of releases that is changed holds at once", groupRerated},
	{"jobs go on in the state and the queue that they left", groupPlaces},
	{"who joins after a test began waits for the next", groupLate},
	{"a tester says how many may go", groupMay},
	{"who blocks again makes the group go slower", groupAgain},
	{"a job fails when it has waited for too long, and it alone", groupLapses},
	{"while a test is due that was due in time nobody fails", groupPatient},
	{"of whom something may run nobody fails by a deadline", groupLapsesNotLive},
	{"or is given up", groupGivesUpNotLive},
	{"who joined late holds up nobody", groupLateOwners},
	{"or fails for it was interrupted too often", groupLimitNotLive},
	{"who is canceled or paused leaves the group", groupWished},
	{"a filter tells groups of one code apart", groupFiltered},
	{"people try, release and give up", groupSteered},
	{"of jobs by themselves, too", groupSteeredJobs},
	{"behind whom a blocked job stands", groupBehind},
	{"an empty group is no more", groupEmpty},
	{"a group closes a line, which opens by and by", groupLine},
	{"a line on which no limit decides is closed as well", groupLineUnlimited},
	{"nobody goes through a line that is about to be closed", groupLineClosing},
	{"who is closed out by two groups waits for both", groupLineTwice},
	{"a group that has a line and no jobs is tested when somebody asks for it", groupLineAlone},
	{"what is launched keeps its turn, and what is not gives it back", groupTurns},
	{"in bounded steps", groupBounded},
}

var groupLong = []test{
	{"by many at once", groupAtOnce},
}

// disabled is a block by a system that is disabled, whose line is closed meanwhile.
func disabled() *job.Block {
	return &job.Block{
		Code: job.SystemDisabled, Message: "system lab is disabled", Tester: "enabled",
		Params: map[string]string{"system": "lab"}, Line: "system/lab",
	}
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
	before := w.told[store.IsBlocked]
	for i, a := range w.applyAll(changes...) {
		if a.Outcome != store.OK || a.Now.Place != (job.Place{State: job.Blocked, Custody: job.Recovery}) {
			w.Fatalf("blocking job %d is answered %+v", i, a)
		}
	}
	if told := w.told[store.IsBlocked] - before; told != n {
		w.Fatalf("%d jobs are told of that are blocked, want %d", told, n)
	}
	w.end(session)
	return ids
}

// groups returns the groups of the tenant.
func (w *world) groups() []groups.Group {
	w.Helper()
	all, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme})
	if err != nil {
		w.Fatalf("groups: %v", err)
	}
	return all
}

// group returns the one group that there is.
func (w *world) group() groups.Group {
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
	session job.ID
	fence   job.Fence
}

func (w *world) tester() tester {
	w.Helper()
	session := w.sessionFor(24 * time.Hour)
	r := renewal(session, groups.RecoveryDuty)
	r.Lease = 24 * time.Hour
	a, err := w.s.Renew(w.ctx, r)
	if err != nil || len(a.Duties) != 1 {
		w.Fatalf("renewal of who tests: %+v, %v", a, err)
	}
	return tester{w, session, job.Fence{Duty: groups.RecoveryDuty, Term: a.Duties[0].Term}}
}

// again is who tests after the store was opened anew.
func (t tester) again() tester {
	t.Helper()
	t.end(t.session)
	t.world.again()
	return t.tester()
}

// find records what tests of all groups found that are due.
func (t tester) find(clear bool, may int) store.Effects {
	t.Helper()
	due := t.tests(groups.RecoveryDuty)
	var found []groups.Test
	for _, g := range due.Due {
		found = append(found, groups.Test{
			Tenant: g.Tenant, Key: g.Key, Began: due.Now, Clear: clear, May: may,
			Result: fmt.Sprintf("clear: %t", clear),
		})
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

// dueOnce makes one call of Due.
func (w *world) dueOnce() (int, store.Effects) {
	w.Helper()
	n, eff, err := w.s.Due(w.ctx, 1000)
	if err != nil {
		w.Fatalf("due: %v", err)
	}
	w.tells(eff)
	return n, eff
}

// tells counts the passages of which a call tells.
func (w *world) tells(eff store.Effects) {
	if w.told == nil {
		w.told = map[store.Passing]int{}
	}
	for _, p := range eff.Past {
		w.told[p.What]++
	}
}

// releaseGap is how far the moments are apart at which jobs go where no rate is set.
var releaseGap = groups.Rate(nil).Every()

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
		if g.Jobs != len(jobs) || g.Tests != 0 || !g.Clear.IsZero() || g.Places >= 0 || g.Behind != 0 ||
			g.Key != b.Group(acme) {
			w.Errorf("group %+v", g)
		}
		filled := b.Filled()
		equal(w, "what blocks them", g.Block, filled)
		for _, id := range jobs {
			j := w.job(id)
			if j.Group != g.Key || j.Code != b.Code || j.Message != b.Message || j.Resume != job.Pending ||
				!near(j.Until, j.Since.Add(wait)) {
				w.Errorf("job %+v", j)
			}
			if !near(g.Oldest, j.Since) || !near(g.Opened, j.Since) ||
				!near(g.Next, j.Since.Add(b.Filled().Policy.Every(0))) {
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
	_, _, eff, err := w.s.Apply(w.ctx, []job.Change{c}, nil)
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

func groupAnyCode(w *world) {
	refused := job.Block{
		Code: job.HostRefused, AnyCode: true, Message: "lab refuses the connection", Tester: "ssh",
		Params: map[string]string{"system": "lab", "user": "ada"}, Line: "system/lab",
	}
	silent, denied := refused, refused
	silent.Code, silent.Message = job.ConnectionTimeout, "lab does not answer"
	denied.Code, denied.Message = job.AuthenticationFailed, "lab takes no key"
	for i, b := range []*job.Block{&refused, &silent, &denied, &silent} {
		id := w.blocked(1, b)[0]
		g := w.group()
		if g.Jobs != i+1 || g.Block.Code != b.Code || g.Block.Message != b.Message {
			w.Errorf("after %s: %d jobs with %s (%s)", b.Code, g.Jobs, g.Block.Code, g.Block.Message)
		}
		if j := w.job(id); j.Code != b.Code || j.Message != b.Message || j.Group != g.Key {
			w.Errorf("a job in group %s is blocked by %s (%s)", j.Group, j.Code, j.Message)
		}
		if want := job.PolicyOf(job.HostRefused).Every(0); g.Block.Policy.Every(0) != want {
			w.Errorf("it is tested every %v, want %v", g.Block.Policy.Every(0), want)
		}
	}
	other := refused
	other.Params = map[string]string{"system": "lab", "user": "eve"}
	w.blocked(1, &other)
	if n := w.groups(); len(n) != 2 {
		w.Errorf("another account is in the group: %+v", n)
	}
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
	if due := w.tests(groups.RecoveryDuty); len(due.Due) != 0 || !near(due.Next, begun) {
		w.Errorf("too early: %+v", due)
	}
	w.clock.Advance(10 * time.Second)
	due := w.tests(groups.RecoveryDuty)
	if len(due.Due) != 1 || due.Due[0].Key != w.group().Key || due.Due[0].Block.Params["url"] != "http://x" ||
		due.Now.Before(begun) || !due.Next.IsZero() {
		w.Fatalf("due: %+v", due)
	}
	test := groups.Test{Tenant: acme, Key: due.Due[0].Key, Began: due.Now, Result: "connection refused"}
	w.clock.Advance(2 * time.Second) // so long it takes
	for range 2 {
		if _, err := w.s.Tested(w.ctx, t.fence, []groups.Test{test}); err != nil {
			w.Fatalf("tested: %v", err)
		}
		if g := w.group(); g.Tests != 1 || g.Result != "connection refused" || !near(g.Tested, due.Now) ||
			!near(g.Next, begun.Add(10*time.Second)) {
			w.Errorf("tested once: %+v", g)
		}
	}
	w.clock.Advance(25 * time.Second) // one is missed
	t.find(false, 0)
	if g := w.group(); g.Tests != 2 || g.Next.Before(g.Tested.Add(10*time.Second)) ||
		g.Next.After(g.Tested.Add(11*time.Second)) {
		w.Errorf("tested late: %+v", g)
	}
	// A job that wants it tested earlier has that.
	hourly := away()
	hourly.Params, hourly.Policy.Stages = map[string]string{"url": "http://y"},
		[]job.Stage{{Every: job.Duration(time.Hour), Times: 5}}
	w.blocked(1, hourly)
	hourly.Policy.Stages[0].Every = job.Duration(time.Minute)
	w.blocked(1, hourly)
	now := w.tests(groups.RecoveryDuty).Now
	if all, err := w.s.Groups(w.ctx, store.GroupQuery{Tenant: acme, Key: hourly.Group(acme)}); err != nil ||
		len(all) != 1 || all[0].Next.After(now.Add(time.Minute)) || all[0].Jobs != 2 {
		w.Errorf("a group with a job that wants it tested earlier: %+v, %v", all, err)
	}
}

// inStages is a block by what is tested every 10 s, twice, then every 30 s, 3 times, and then every
// 5 min.
func inStages() *job.Block {
	b := away()
	b.Policy.Stages = []job.Stage{
		{Every: job.Duration(10 * time.Second), Times: 2},
		{Every: job.Duration(30 * time.Second), Times: 3},
		{Every: job.Duration(5 * time.Minute)},
	}
	return b
}

// testedAt has time go by until the one group is tested, which is to be then and not before, and
// not clear.
func (t tester) testedAt(at time.Time) {
	t.Helper()
	g := t.group()
	if !g.Next.Equal(at) {
		t.Fatalf("test %d is due at %v, want %v", g.Tests, g.Next, at)
	}
	t.clock.Advance(at.Sub(t.now()) - time.Second)
	if due := t.tests(groups.RecoveryDuty); len(due.Due) > 0 && due.Now.Before(at) {
		t.Errorf("test %d is due at %v, before %v", g.Tests, due.Now, at)
	}
	t.clock.Advance(time.Second)
	t.find(false, 0)
	if n := t.group().Tests; n != g.Tests+1 {
		t.Fatalf("%d tests at %v, want %d", n, at, g.Tests+1)
	}
}

func groupStages(w *world) {
	t := w.tester()
	w.blocked(1, inStages())
	at := w.group().Opened
	for n, every := range []time.Duration{
		10 * time.Second, 10 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 5 * time.Minute,
		5 * time.Minute,
	} {
		if n == 1 || n == 3 || n == 6 { // in the middle of a stage
			t = t.again()
		}
		at = at.Add(every)
		t.testedAt(at)
	}
	// Who joins late has it tested as soon as who came first had, and the group stays in its stage.
	w.clock.Advance(time.Minute)
	before := w.now()
	late := w.job(w.blocked(1, inStages())[0])
	if at = w.group().Next; at.Before(before.Add(10*time.Second)) || at.After(w.now().Add(10*time.Second)) {
		w.Errorf("who joined after %v has it tested at %v", before, at)
	}
	t.testedAt(at)
	t = t.again()
	for range 2 {
		at = at.Add(5 * time.Minute)
		t.testedAt(at)
	}
	if g := w.group(); g.Jobs != 2 || !late.Until.IsZero() {
		w.Errorf("a group that is tested for ever: %+v", g)
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
	if due := w.tests(groups.RecoveryDuty); len(due.Due) != 0 || !due.Next.IsZero() {
		w.Errorf("due for who tests what all can: %+v", due)
	}
	for duty, key := range map[string]string{
		"recovery@" + machine: there.Group(acme),
		"recovery/go/mine":    mine.Group(acme),
	} {
		due := w.tests(duty)
		if len(due.Due) != 1 || due.Due[0].Key != key {
			w.Fatalf("due for %s: %+v", duty, due)
		}
		test := []groups.Test{{Tenant: acme, Key: key, Began: due.Now, Clear: true}}
		for what, f := range map[string]job.Fence{
			"another duty": t.fence, "an old term": {Duty: duty, Term: 0},
			"a duty that nobody holds": {Duty: duty, Term: 7}, "nobody": {},
		} {
			if _, err := w.s.Tested(w.ctx, f, test); job.KindOf(err) != job.Fenced {
				w.Errorf("a test of %s by %s: %v", key, what, err)
			}
		}
		before := w.session()
		old := w.duty(before, duty)
		w.end(before)
		holder := w.duty(w.session(), duty)
		if _, err := w.s.Tested(w.ctx, old, test); job.KindOf(err) != job.Fenced {
			w.Errorf("a test of %s by who held the duty before: %v", key, err)
		}
		if eff, err := w.s.Tested(w.ctx, holder, test); err != nil || eff.Due.IsZero() {
			w.Errorf("a test by its holder: %+v, %v", eff, err)
		}
	}
	if _, err := w.s.Tested(w.ctx, t.fence, []groups.Test{{Tenant: acme, Key: "none", Began: time.Now()}}); err != nil {
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
	due := w.tests(groups.RecoveryDuty)
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
	for _, part := range []string{"TASK_BLOCKED has not cleared within " +
		j.Ended.Sub(since).Round(time.Millisecond).String(), "it is away", "tested 3 times", "clear: false"} {
		if !strings.Contains(j.Message, part) {
			w.Errorf("its message is %q, want %q in it", j.Message, part)
		}
	}
	w.clock.Advance(11 * time.Second)
	t.find(false, 0)
	w.dueOnce()
	w.at(job.Failed, job.None, late)
	if n := w.told[store.HasFailed]; n != 2 {
		w.Errorf("%d jobs are told of that failed, want 2", n)
	}
	Check(w, w.s, acme)
}

func groupPatient(w *world) {
	ids := w.blocked(2, away())
	w.clock.Advance(31 * time.Second)
	n, eff := w.dueOnce()
	if n != 0 || eff.Due.IsZero() || eff.Due.After(w.job(ids[0]).Until.Add(groups.LateTestGrace+time.Second)) {
		w.Errorf("%d jobs fail before they were tested; due %v", n, eff.Due)
	}
	w.clock.Advance(groups.LateTestGrace)
	if n, eff := w.dueOnce(); n != 2 || !eff.Due.IsZero() {
		w.Errorf("%d jobs fail when nobody tests, want 2; due %v", n, eff.Due)
	}
	if j := w.job(ids[0]); !strings.Contains(j.Message, "its group was not tested") {
		w.Errorf("its message is %q", j.Message)
	}
}

func groupBehind(w *world) {
	ids := w.blocked(2, full(), withPriority(9), owned("bob"))
	w.clock.Advance(time.Second)
	ids = append(ids, w.blocked(1, full(), withPriority(0))...)
	w.behind(w.blocked(1, away())[0], 0)
	for i, id := range ids {
		w.behind(id, i)
	}
	w.wish(job.WishCancel, ids[0])
	w.behind(ids[0], 0)
	w.behind(ids[2], 1)
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
	if due := w.tests(groups.RecoveryDuty); len(due.Due) != 0 || !due.Next.IsZero() {
		w.Errorf("it is still tested: %+v", due)
	}
	w.clock.Advance(2 * groups.Kept)
	if _, _, err := w.s.Recount(w.ctx, 100); err != nil {
		w.Fatalf("recount: %v", err)
	}
	w.blocked(1, full())
	if g := w.group(); g.Tests != 0 || g.Opened.Before(w.job(ids[0]).Ended) {
		w.Errorf("a group that was opened anew knows of the one before: %+v", g)
	}
}
