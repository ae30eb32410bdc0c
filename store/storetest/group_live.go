package storetest

import (
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// blockedLive blocks a job whose program may still run.
func (w *world) blockedLive(b *job.Block) job.Job {
	w.Helper()
	return w.blockLive(w.launched(), b)
}

// blockLive blocks one that a worker has launched.
func (w *world) blockLive(st standing, b *job.Block) job.Job {
	w.Helper()
	a, _, eff, err := w.s.Apply(w.ctx, []job.Change{blocking(st.Job, st.session, b)}, nil)
	if err != nil || a[0].Outcome != store.OK {
		w.Fatalf("blocking a launch is answered %+v, %v", a, err)
	}
	if !eff.Due.IsZero() {
		w.Errorf("a block of who has no deadline means that something is due at %v", eff.Due)
	}
	w.end(st.session)
	j := w.job(st.ID)
	if !j.Live || j.State != job.Blocked || j.Until.IsZero() || !j.Deadline().IsZero() {
		w.Fatalf("job %+v", j)
	}
	return j
}

func groupLapsesNotLive(w *world) {
	t := w.tester()
	live := []job.Job{w.blockedLive(away()), w.blockedLive(away())}
	lapses := func() {
		w.Helper()
		w.clock.Advance(time.Second)
		other := w.blocked(1, away())[0] // its time is over last
		w.clock.Advance(time.Hour)
		t.find(false, 0)
		if n, eff, err := w.s.Due(w.ctx, 1); n != 1 || err != nil || !eff.Due.IsZero() {
			w.Errorf("%d jobs fail, want one; the next is due at %v; %v", n, eff.Due, err)
		}
		w.at(job.Failed, job.None, other)
		if j := w.job(other); j.Code != job.RecoveryTimeout {
			w.Errorf("it ended %s (%s)", j.Code, j.Message)
		}
	}
	lapses()
	w.clock.Advance(2 * groups.LateTestGrace) // and the test that is due is not made
	if n, eff := w.dueOnce(); n != 0 || !eff.Due.IsZero() {
		w.Errorf("%d jobs fail of which something may run; the next is due at %v", n, eff.Due)
	}
	if eff := t.find(false, 0); !eff.Due.IsZero() {
		w.Errorf("a test means that something is due at %v", eff.Due)
	}
	lapses()
	for _, j := range live {
		w.untouched(j)
	}
	t.clears()
	w.goesOn(time.Second, 2)
	for _, j := range live {
		if j = w.job(j.ID); j.Place != (job.Place{State: job.SubmittingJob, Custody: job.Ready}) || !j.Live {
			w.Errorf("when it is clear the job is %+v", j)
		}
	}
	Check(w, w.s, acme)
}

func groupGivesUpNotLive(w *world) {
	live := []job.Job{w.blockedLive(full()), w.blockedLive(full())}
	others := w.blocked(3, full(), owned("zoe"))
	answers, _ := w.steer(store.Steer{Want: groups.GiveUp, Jobs: []job.ID{live[0].ID, others[0]}})
	if job.KindOf(answers[0]) != job.Conflict || answers[1] != nil {
		w.Fatalf("given up: %v", answers)
	}
	for _, part := range []string{
		live[0].ID.String(), "launch 1 of it may still run on machine " + machine,
		"cancel it", "pawl cancel --force",
	} {
		if !strings.Contains(answers[0].Error(), part) {
			w.Errorf("the answer is %q, want %q in it", answers[0], part)
		}
	}
	w.steer(store.Steer{Want: groups.GiveUp, Group: full().Group(acme)})
	for range 2 { // the others have an owner who comes after that of those
		if n, _, err := w.s.Due(w.ctx, 1); n != 1 || err != nil {
			w.Errorf("%d jobs are given up, want one; %v", n, err)
		}
	}
	if n, eff, err := w.s.Due(w.ctx, 1); n != 0 || err != nil || !eff.Due.IsZero() {
		w.Errorf("%d jobs are given up of which something may run; the next is due at %v; %v", n, eff.Due, err)
	}
	w.at(job.Failed, job.None, others...)
	for _, j := range live {
		w.untouched(j)
	}
	if g := w.group(); g.Jobs != len(live) || !g.GivenUp.IsZero() || g.Next.IsZero() {
		w.Errorf("what is left of the group: %+v", g)
	}
	// Who wants their end has it so.
	w.wish(job.WishCancel, live[0].ID)
	w.at(job.SubmittingJob, job.Ready, live[0].ID)
	w.force(live[1].ID)
	if j := w.job(live[1].ID); j.Code != job.Abandoned {
		w.Errorf("it ended %s (%s)", j.Code, j.Message)
	}
	Check(w, w.s, acme)
}

func groupLimitNotLive(w *world) {
	t := w.tester()
	all := []standing{w.launched(), w.launched(), w.stand(job.SubmittingJob, job.Worker)}
	begin := w.interrupted(all[0].Job, all[1].Job, all[2].Job)
	for i := range all {
		all[i].Recoveries = begin
	}
	for n := begin; n < job.MaxRecoveries; n++ {
		changes := make([]job.Change, len(all))
		for i, st := range all {
			changes[i] = setting(move(st.Job, st.fence, job.Worker, job.SubmittingJob), job.Patch{Recovery: true})
			if n%20 == 0 {
				w.renew(st.session) // all of them may take longer than a lease
			}
		}
		for i, a := range w.applyAll(changes...) {
			if a.Outcome != store.OK {
				w.Fatalf("apply: %+v", a)
			}
			all[i].Recoveries, all[i].N = all[i].Recoveries+1, a.Now.N
		}
	}
	for _, st := range all[:2] {
		w.blockLive(st, full())
	}
	w.must(blocking(all[2].Job, all[2].session, full()))
	if answers, _ := w.steer(store.Steer{Want: groups.Release, Jobs: []job.ID{all[0].ID}}); answers[0] != nil {
		w.Errorf("released: %v", answers)
	}
	t.clears()
	w.goesOn(time.Second, 2)
	for _, st := range all[:2] {
		if j := w.job(st.ID); j.Place != (job.Place{State: job.SubmittingJob, Custody: job.Ready}) || !j.Live ||
			j.Recoveries != job.MaxRecoveries+1 {
			w.Errorf("released for the last time: %+v", j)
		}
	}
	if j := w.job(all[2].ID); j.State != job.Failed || j.Code != job.RecoveryLimit {
		w.Errorf("one of which nothing runs: %+v", j)
	}
	Check(w, w.s, acme)
}

// Between the owners whose jobs may go stand others, whose jobs all joined too late.
func groupLateOwners(w *world) {
	t := w.tester()
	early := w.blocked(2, full())
	w.clock.Advance(time.Minute)
	due := w.tests(groups.RecoveryDuty)
	w.clock.Advance(time.Second)
	for _, owner := range []string{"bob", "cy", "dora"} {
		w.blocked(1, full(), owned(owner))
	}
	if _, err := w.s.Tested(w.ctx, t.fence,
		[]groups.Test{{Tenant: acme, Key: due.Due[0].Key, Began: due.Now, Clear: true}}); err != nil {
		w.Fatalf("tested: %v", err)
	}
	if n := w.goesOn(200*time.Millisecond, 20, early...); n != 2 {
		w.Errorf("%d of 2 go on who were there when the test began", n)
	}
}
