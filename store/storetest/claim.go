package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var claimTests = []test{
	{"a claim is the change to the first working state", claimMoves},
	{"a claim of a program that comes to its launch is the intent to launch it", claimIntends},
	{"a claim intends no launch that is not to come next", claimIntendsNot},
	{"lanes have slots of their own", claimLanes},
	{"priority decides, then age", claimOrder},
	{"a retry keeps its age", claimAge},
	{"only what was asked for", claimOnlyAsked},
	{"only the jobs that were named", claimNamed},
	{"queues, kinds and jobs that are named twice", claimNamedTwice},
	{"of jobs that are named priority decides, then age", claimNamedOrder},
	{"only jobs of some tenants", claimTenants},
	{"a claim whose answer was lost is answered again", claimLost},
	{"a session that is not alive claims nothing", claimDead},
	{"a claim along with changes takes what they made ready", claimAlong},
	{"a claim along with changes, whose answer was lost", claimAlongLost},
	{"a claim along with changes takes up to its slots", claimAlongSlots},
	{"a session that is not alive claims nothing along", claimAlongDead},
	{"a claim along with changes takes who has the turn next", claimAlongTurn},
	{"who gets a turn along is claimed as by itself", claimAlongAlike},
	{"who was ready before is claimed along before who gets a turn", claimAlongFew},
	{"only what was asked for is claimed along", claimAlongAsked},
	{"a suspect that gets a turn along", claimAlongSuspect},
	{"a session that was told to drain claims nothing along", claimAlongDrain},
	{"a repeat claims nobody along who gets a turn meanwhile", claimAlongAgain},
	{"a key that is unique until start is free when its job is claimed along", claimAlongStart},
	{"a claim along of those alone who get a turn", claimAlongHanded},
	{"who is claimed along is no news", claimAlongNews},
}

var claimLong = []test{
	{"many at once", claimMany},
	{"a job is claimed once by 16 sessions at once", claimOnce},
	{"no job stays with a session that expires meanwhile", claimAgainstExpiry},
}

func claimMoves(w *world) {
	session := w.session()
	t, p := w.add(newTask()), w.add(newProgram())
	before := w.job(t)
	c := wanted(session, 10)
	for _, j := range w.claim(c) {
		if diff := cmp.Diff(w.job(j.ID), j, sameJob); diff != "" {
			w.Errorf("the claim answers another job than is stored (-stored +answered):\n%s", diff)
		}
	}
	w.at(job.Running, job.Worker, t)
	w.at(job.ProcessingInputs, job.Worker, p)
	if j := w.job(t); j.Epoch != before.Epoch+1 || j.N != before.N+1 {
		w.Errorf("epoch %d and n %d after epoch %d and n %d", j.Epoch, j.N, before.Epoch, before.N)
	}
	if e := w.event(t, 2); e.Cause != job.CauseClaim || e.Actor != session.String() {
		w.Errorf("the claim's event is %+v", e)
	}
	Check(w, w.s, acme)
}

// comesToLaunch makes a program ready to be launched.
func (w *world) comesToLaunch(session job.ID, options ...option) job.ID {
	w.Helper()
	id := w.add(newProgram(options...))
	c := wanted(session, 1)
	c.Jobs = []job.ID{id}
	w.must(staged(w.claim(c)[0], by(session)))
	return id
}

func claimIntends(w *world) {
	session := w.session()
	w.limit(rate("starts/system/local", 8, time.Second)) // of something else
	if _, err := store.SetLimit(w.ctx, w.s, "other", rate(launches, 8, time.Second)); err != nil {
		w.Fatalf("%v", err)
	}
	id := w.comesToLaunch(session)
	c := wanted(session, 10)
	j := w.claim(c)[0]
	if !j.Intended() || j.Launch != 1 || j.State != job.SubmittingJob {
		w.Fatalf("claimed at %s with launch %d, live %t: %q", j.State, j.Launch, j.Live, j.Message)
	}
	if diff := cmp.Diff(w.job(id), j, sameJob); diff != "" {
		w.Errorf("the claim answers another job than is stored (-stored +answered):\n%s", diff)
	}
	if e := w.event(id, j.N); e.Cause != job.CauseClaim || e.Message != job.Launching {
		w.Errorf("the claim's event is %+v", e)
	}
	if again := w.claim(c); len(again) != 1 || again[0].ID != id || !again[0].Intended() || again[0].Launch != 1 {
		w.Errorf("repeated: %v", again)
	}
	// Given back, it is launched under the next number.
	w.must(move(j, by(session), job.Ready, job.SubmittingJob))
	if j = w.claimOne(session); !j.Intended() || j.Launch != 2 {
		w.Errorf("claimed again: launch %d, live %t: %q", j.Launch, j.Live, j.Message)
	}
	Check(w, w.s, acme)
}

func claimIntendsNot(w *world) {
	session := w.session()
	not := func(why string, id job.ID, launch int, live bool) {
		w.Helper()
		c := wanted(session, 1)
		c.Jobs = []job.ID{id}
		got := w.claim(c)
		if len(got) != 1 || got[0].Intended() || got[0].Launch != launch || got[0].Live != live ||
			got[0].Message != "" {
			w.Errorf("%s: %+v", why, got)
		}
	}
	launched := w.comesToLaunch(session)
	w.claimOne(session)
	w.crash()
	suspect := w.suspected(job.AloneAt, newProgram()).ID
	session = w.session()
	not("the launch before may run", launched, 1, true)
	c := wanted(session, 1)
	c.Jobs = []job.ID{suspect}
	w.must(staged(w.claim(c)[0], by(session)))
	not("it may be what kills its processes", suspect, 0, false)
	w.limit(rate(launches, 8, time.Second))
	not("launches have moments", w.comesToLaunch(session), 0, false)
}

func claimLanes(w *world) {
	st := w.stand(job.Archiving, job.Ready)
	sub := w.stand(job.SubmittingJob, job.Ready)
	staging := w.stand(job.StagingInputs, job.Ready)
	fresh := idsOf(w.submit(newProgram(), newProgram()))
	tasks := w.addMany(3)
	session := w.session()
	claim := func(slots map[job.Lane]int) []job.ID {
		w.Helper()
		c := wanted(session, 0)
		c.Slots = slots
		return jobIDs(w.claim(c))
	}
	sameSet(w, "no slot", claim(map[job.Lane]int{}), nil)
	sameSet(w, "a slot to finish", claim(map[job.Lane]int{job.LaneFinish: 1}), []job.ID{st.ID})
	sameSet(w, "a slot too many to finish", claim(map[job.Lane]int{job.LaneFinish: 3}), nil)
	sameSet(w, "a slot to launch and two for tasks", claim(map[job.Lane]int{job.LaneLaunch: 1, job.LaneTask: 2}),
		[]job.ID{sub.ID, tasks[0], tasks[1]})
	sameSet(w, "slots for all", claim(map[job.Lane]int{
		job.LaneFinish: 5, job.LaneLaunch: 5, job.LanePrepare: 5,
		job.LaneTask: 5,
	}),
		[]job.ID{staging.ID, fresh[0], fresh[1], tasks[2]})
	w.at(job.Archiving, job.Worker, st.ID)
	w.at(job.SubmittingJob, job.Worker, sub.ID)
	w.at(job.StagingInputs, job.Worker, staging.ID)
	Check(w, w.s, acme)
}

func claimOrder(w *world) {
	type key struct{ priority, age int }
	var want []job.ID
	ids := map[key]job.ID{}
	for age := range 4 {
		for _, priority := range []int{5, 0, 9, 3} {
			ids[key{priority, age}] = w.add(newTask(withPriority(priority),
				inQueue([]string{"default", "second"}[age%2])))
		}
		w.clock.Advance(time.Second)
	}
	for _, priority := range []int{0, 3, 5, 9} {
		for age := range 4 {
			want = append(want, ids[key{priority, age}])
		}
	}
	session := w.session()
	var got []job.ID
	for _, n := range []int{1, 1, 1, 5, 3, 1, 10} {
		c := wanted(session, n)
		c.Queues = []string{"second", "default"}
		jobs := jobIDs(w.claim(c))
		// Within one answer the order is open.
		slices.SortFunc(jobs, func(a, b job.ID) int { return slices.Index(want, a) - slices.Index(want, b) })
		got = append(got, jobs...)
	}
	equal(w, "order", fmtIDs(got), fmtIDs(want))
}

func claimAge(w *world) {
	session := w.session()
	old := w.add(newTask())
	w.clock.Advance(time.Second)
	young := w.add(newTask())
	j := w.claim(wanted(session, 1))[0]
	w.clock.Advance(time.Second)
	w.must(setting(move(j, by(session), job.Ready, job.Pending), job.Patch{Retry: true}))
	sameSet(w, "the first claim after the retry", jobIDs(w.claim(wanted(session, 1))), []job.ID{old})
	sameSet(w, "the next one", jobIDs(w.claim(wanted(session, 1))), []job.ID{young})
}

func claimOnlyAsked(w *world) {
	plain := w.add(newTask())
	gpu := w.add(newTask(inQueue("gpu")))
	other := w.add(newTask(ofKind("other")))
	here := w.add(newTask(on(machine)))
	there := w.add(newTask(on("m2")))
	w.add(newTask(delayed(time.Hour)))
	paused := w.add(newTask())
	w.wish(job.WishPause, paused)

	for _, c := range []struct {
		name  string
		claim store.Claim
		want  []job.ID
	}{
		{"a queue that is not there", store.Claim{
			Queues: []string{"none"}, Kinds: []string{task},
			Machine: machine,
		}, nil},
		{"a kind that is not there", store.Claim{
			Queues: []string{"default"}, Kinds: []string{"none"},
			Machine: machine,
		}, nil},
		{"no machine", store.Claim{Queues: []string{"default"}, Kinds: []string{task}}, []job.ID{plain}},
		{
			"a machine",
			store.Claim{Queues: []string{"default"}, Kinds: []string{task}, Machine: machine},
			[]job.ID{plain, here},
		},
		{"another machine and kind", store.Claim{
			Queues: []string{"default"}, Kinds: []string{"other", task},
			Machine: "m2",
		}, []job.ID{plain, other, there}},
		{"two queues", store.Claim{Queues: []string{"gpu", "default"}, Kinds: []string{task}}, []job.ID{plain, gpu}},
	} {
		session := w.session()
		c.claim.ID, c.claim.Session, c.claim.Slots = job.NewID(), session, wanted(session, 10).Slots
		sameSet(w, c.name, jobIDs(w.claim(c.claim)), c.want)
		w.end(session) // they are ready again
	}
	Check(w, w.s, acme)
}

func claimNamed(w *world) {
	session := w.session()
	held := w.add(newTask())
	w.claimOne(session)
	ids := w.addMany(3)
	w.add(newTask(on("m2")))
	apart, waits := w.add(newTask(inQueue("apart"))), w.add(newTask(delayed(time.Hour)))
	c := wanted(session, 1)
	c.Jobs = []job.ID{job.NewID(), held, apart, waits, ids[1], ids[2]}
	sameSet(w, "the first with one slot", jobIDs(w.claim(c)), ids[1:2])
	c.ID, c.Slots[job.LaneTask] = job.NewID(), 10
	sameSet(w, "the rest", jobIDs(w.claim(c)), ids[2:])
	c.ID = job.NewID()
	sameSet(w, "nothing more", jobIDs(w.claim(c)), nil)
	w.at(job.Pending, job.Ready, ids[0], apart)
	Check(w, w.s, acme)
}

func claimNamedTwice(w *world) {
	ids := w.addMany(4)
	c := wanted(w.session(), 3)
	c.Queues, c.Kinds = append(c.Queues, c.Queues...), append(c.Kinds, c.Kinds...)
	if n := len(w.claim(c)); n != 3 {
		w.Errorf("%d jobs claimed for 3 slots", n)
	}
	c = wanted(c.Session, 3)
	c.Jobs = append(slices.Clone(ids), ids...)
	if n := len(w.claim(c)); n != 1 {
		w.Errorf("%d jobs claimed where 1 is left", n)
	}
	Check(w, w.s, acme)
}

func claimNamedOrder(w *world) {
	var ids []job.ID
	for _, priority := range []int{5, 1, 9, 1} {
		ids = append(ids, w.add(newTask(withPriority(priority))))
		w.clock.Advance(time.Second)
	}
	session := w.session()
	for _, want := range []job.ID{ids[1], ids[3], ids[0], ids[2]} {
		c := wanted(session, 1)
		c.Jobs = ids
		if got := w.claim(c); len(got) != 1 || got[0].ID != want {
			w.Errorf("claimed %v, want %s", jobIDs(got), want)
		}
	}
}

func claimTenants(w *world) {
	ids := map[string][]job.ID{}
	for _, tenant := range []string{"first", "second", "third"} {
		s := submission(newTask(), newProgram(), newTask())
		s.Tenant = tenant
		got, _, err := w.s.Submit(w.ctx, s)
		if err != nil {
			w.Fatalf("submit: %v", err)
		}
		ids[tenant] = idsOf(got)
		w.clock.Advance(time.Second)
	}
	session := w.session()
	of := func(n int, tenants ...string) store.Claim {
		c := wanted(session, n)
		c.Tenants = tenants
		return c
	}
	ready := func(tenants ...string) int {
		w.Helper()
		r := renewal(session)
		r.Tenants = tenants
		got, err := w.s.Renew(w.ctx, r)
		if err != nil {
			w.Fatalf("renew: %v", err)
		}
		return len(got.Ready)
	}
	sameSet(w, "none of a tenant without jobs", jobIDs(w.claim(of(9, "fourth"))), nil)
	sameSet(w, "those behind the jobs of another", jobIDs(w.claim(of(1, "second"))), ids["second"][:2])
	named := of(9, "second")
	named.Jobs = append([]job.ID{ids["second"][2]}, ids["first"]...)
	sameSet(w, "of those that are named", jobIDs(w.claim(named)), ids["second"][2:])
	if n := ready("second", "fourth"); n != 0 {
		w.Errorf("told of %d lines with ready work where there is none of these tenants", n)
	}
	if n := ready("second", "third"); n != 2 {
		w.Errorf("told of %d lines with ready work, want 2", n)
	}
	sameSet(w, "of two", jobIDs(w.claim(of(9, "second", "third"))), ids["third"])
	sameSet(w, "of all", jobIDs(w.claim(of(9))), ids["first"])
}

func claimMany(w *world) {
	ids := w.addMany(500)
	session := w.session()
	sameSet(w, "claimed", jobIDs(w.claim(wanted(session, 400))), ids[:400])
	sameSet(w, "the rest", jobIDs(w.claim(wanted(session, 400))), ids[400:])
	held, err := w.s.Find(w.ctx, store.FindQuery{Session: session})
	if err != nil {
		w.Fatalf("held: %v", err)
	}
	sameSet(w, "held", jobIDs(held), ids)
	Check(w, w.s, acme)
}

func claimLost(w *world) {
	session := w.session()
	ids := w.addMany(5)
	c := wanted(session, 10)
	first := w.claim(c)
	w.addMany(3) // new work does not join an old answer
	again := w.claim(c)
	sameSet(w, "the second answer", jobIDs(again), ids)
	for _, j := range first {
		w.untouched(j)
	}

	w.must(finish(first[0], by(session)))
	w.must(move(first[1], by(session), job.Ready, job.Pending))
	sameSet(w, "after two have moved on", jobIDs(w.claim(c)), jobIDs(first[2:]))

	// Claimed again by another call, a job belongs to that one.
	w.claim(wanted(session, 10))
	sameSet(w, "after a later claim", jobIDs(w.claim(c)), jobIDs(first[2:]))
	Check(w, w.s, acme)
}

// along makes changes and a claim in one call.
func (w *world) along(c store.Claim, changes ...job.Change) ([]store.Outcome, []job.Job) {
	w.Helper()
	answers, jobs, _, err := w.s.Apply(w.ctx, changes, &c)
	if err != nil || len(answers) != len(changes) {
		w.Fatalf("%d changes and a claim: %d answers, %v", len(changes), len(answers), err)
	}
	var outcomes []store.Outcome
	for _, a := range answers {
		outcomes = append(outcomes, a.Outcome)
	}
	for _, j := range jobs {
		if diff := cmp.Diff(w.job(j.ID), j, sameJob); diff != "" || j.Session != c.Session || j.Claim != c.ID {
			w.Fatalf("claim %s by %s answered another job than is stored (-stored +answered):\n%s", c.ID, c.Session,
				diff)
		}
	}
	return outcomes, jobs
}

func claimAlong(w *world) {
	session := w.session()
	ended, back := w.add(newTask()), w.add(newTask())
	held := map[job.ID]job.Job{}
	for _, j := range w.claim(wanted(session, 10)) {
		held[j.ID] = j
	}
	waits := w.add(newTask())
	before := w.job(back)
	outcomes, jobs := w.along(wanted(session, 10), finish(held[ended], by(session)),
		move(held[back], by(session), job.Ready, job.Pending))
	equal(w, "answers", outcomes, []store.Outcome{store.OK, store.OK})
	sameSet(w, "claimed along", jobIDs(jobs), []job.ID{back, waits})
	w.at(job.Finished, job.None, ended)
	if j := w.job(back); j.Epoch != before.Epoch+2 || j.N != before.N+2 { // out of one hand and into the other
		w.Errorf("epoch %d and n %d after epoch %d and n %d", j.Epoch, j.N, before.Epoch, before.N)
	}
	outcomes, jobs = w.along(wanted(session, 10), finish(held[ended], by(session)), finish(w.job(back), by(session)))
	equal(w, "answers, one again", outcomes, []store.Outcome{store.OK, store.OK})
	sameSet(w, "claimed along where nothing is ready", jobIDs(jobs), nil)
	Check(w, w.s, acme)
}

func claimAlongLost(w *world) {
	session := w.session()
	w.add(newTask())
	end := finish(w.claimOne(session), by(session))
	ids := w.addMany(3)
	c := wanted(session, 10)
	w.along(c, end)
	w.addMany(2) // new work does not join an old answer
	outcomes, jobs := w.along(c, end)
	equal(w, "the second answer", outcomes, []store.Outcome{store.OK})
	sameSet(w, "the second answer", jobIDs(jobs), ids)
	Check(w, w.s, acme)
}

func claimOnce(w *world) {
	ids := w.addMany(rounds(300, 150))
	var mu sync.Mutex
	got := map[job.ID]int{}
	sessions := make([]job.ID, 16)
	for i := range sessions {
		sessions[i] = w.sessionFor(time.Hour)
	}
	w.together(len(sessions), func(i int) error {
		for range 10_000 {
			jobs, err := w.s.Claim(w.ctx, wanted(sessions[i], 7))
			if err != nil {
				return err
			}
			mu.Lock()
			for _, j := range jobs {
				got[j.ID]++
			}
			n := len(got)
			mu.Unlock()
			if len(jobs) == 0 && n == len(ids) {
				return nil
			}
			// A claim may pass by rows that another one has locked, so an empty answer is not the
			// end.
		}
		return fmt.Errorf("the jobs are never all claimed")
	})
	for id, n := range got {
		if n != 1 {
			w.Errorf("job %s was claimed %d times", id, n)
		}
	}
	Check(w, w.s, acme)
}

func claimDead(w *world) {
	w.add(newTask())
	ended, expired, alive := w.session(), w.session(), w.session()
	w.end(ended)
	w.clock.Advance(lease - margin)
	w.renew(alive)
	w.clock.Advance(2 * margin) // nobody has looked for dead sessions yet
	for name, session := range map[string]job.ID{"unknown": job.NewID(), "ended": ended, "expired": expired} {
		if _, err := w.s.Claim(w.ctx, wanted(session, 1)); job.KindOf(err) != job.Fenced {
			w.Errorf("a claim by a session that is %s: %v, want fenced", name, err)
		}
	}
	w.claimOne(alive)
}

func claimAgainstExpiry(w *world) {
	w.addMany(40)
	for round := range rounds(60, 12) {
		session := w.session()
		w.together(4, func(i int) error {
			var err error
			switch i {
			case 0, 1:
				for range 4 {
					if _, err = w.s.Claim(w.ctx, wanted(session, 5)); err != nil {
						if job.KindOf(err) != job.Fenced {
							return err
						}
						break
					}
				}
				return nil
			case 2:
				if round%2 == 0 {
					_, err = w.s.End(w.ctx, session)
				} else {
					w.clock.Advance(lease + margin)
				}
			case 3:
				_, _, err = w.s.Expire(w.ctx, 3)
			}
			return err
		})
		w.expire()
		held, err := w.s.Find(w.ctx, store.FindQuery{Session: session})
		if err != nil {
			w.Fatalf("held: %v", err)
		}
		if len(held) != 0 {
			w.Fatalf("round %d: %d jobs are left with a dead session", round, len(held))
		}
	}
	n, err := w.s.Count(w.ctx, acme, nil)
	if err != nil || n.States[job.Pending]+n.States[job.Failed] != 40 {
		w.Errorf("counted %v, %v; want 40 PENDING, but for those that were in too many crashes", n, err)
	}
	Check(w, w.s, acme)
}

func sameSet(w *world, what string, got, want []job.ID) {
	w.Helper()
	g, f := fmtIDs(got), fmtIDs(want)
	slices.Sort(g)
	slices.Sort(f)
	equal(w, what, g, f)
}

func sameLines(w *world, got []job.QueueKind, want ...job.QueueKind) {
	w.Helper()
	order := func(a, b job.QueueKind) int {
		return strings.Compare(a.Queue+"\x00"+a.Kind, b.Queue+"\x00"+b.Kind)
	}
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	equal(w, "ready lines", got, want)
}
