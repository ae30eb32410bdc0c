package storetest

import (
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// refused fails unless c is answered with one of the outcomes and nothing was written.
func (w *world) refused(name string, c job.Change, outcomes ...store.Outcome) {
	w.Helper()
	before := w.job(c.Job)
	got, _, _, err := w.s.Apply(w.ctx, []job.Change{c}, nil)
	if err != nil {
		w.Errorf("%s: %v, want %v", name, err, outcomes)
		return
	}
	known := false
	for _, o := range outcomes {
		known = known || got[0].Outcome == o
	}
	if !known {
		w.Errorf("%s: %s, want %v", name, got[0].Outcome, outcomes)
	}
	want := before.Guard(c.From.Fence)
	if got[0].Outcome != store.OK && got[0].Now != want {
		w.Errorf("%s: now %+v, want %+v", name, got[0].Now, want)
	}
	w.untouched(before)
}

func applyGuardsWorker(w *world) {
	w.add(newTask())
	session, foreign, expired, ended := w.session(), w.session(), w.session(), w.session()
	w.end(ended)
	w.clock.Advance(lease - margin)
	held := w.duty(foreign, watch)
	w.renew(session)
	w.clock.Advance(2 * margin)
	j := w.claimOne(session)
	j = w.must(move(j, by(session), job.Worker, job.Running))
	good := finish(j, by(session))
	for _, c := range []struct {
		name string
		bad  func(*job.Guard)
		want []store.Outcome
	}{
		{"an older epoch", func(g *job.Guard) { g.Epoch-- }, []store.Outcome{store.Fenced}},
		{"an older epoch and n", func(g *job.Guard) { g.Epoch--; g.N -= 2 }, []store.Outcome{store.Fenced}},
		{"an epoch to come", func(g *job.Guard) { g.Epoch++ }, []store.Outcome{store.Fenced, store.Conflict}},
		{"an n to come", func(g *job.Guard) { g.N++ }, []store.Outcome{store.Conflict}},
		{"another state", func(g *job.Guard) { g.Place.State = job.Archiving }, []store.Outcome{store.Conflict}},
		{
			"another custody", func(g *job.Guard) { g.Place.Custody = job.Monitor },
			[]store.Outcome{store.Fenced, store.Conflict},
		},
		{"another session", func(g *job.Guard) { g.Fence = by(foreign) }, []store.Outcome{store.Fenced}},
		{"an unknown session", func(g *job.Guard) { g.Fence = by(job.NewID()) }, []store.Outcome{store.Fenced}},
		{"an ended session", func(g *job.Guard) { g.Fence = by(ended) }, []store.Outcome{store.Fenced}},
		{"an expired session", func(g *job.Guard) { g.Fence = by(expired) }, []store.Outcome{store.Fenced}},
		{"a duty", func(g *job.Guard) { g.Fence = held }, []store.Outcome{store.Fenced, store.Conflict}},
	} {
		bad := good
		c.bad(&bad.From)
		w.refused(c.name, bad, c.want...)
	}
	// Nobody decides on a worker's job without a fence; it may also be refused as a defect of the
	// caller.
	bad := good
	bad.From.Fence = job.Fence{}
	if got, _, _, err := w.s.Apply(w.ctx, []job.Change{bad}, nil); err == nil && got[0].Outcome != store.Fenced &&
		got[0].Outcome != store.Conflict {
		w.Errorf("without a fence: %s", got[0].Outcome)
	}
	w.untouched(j)

	// The session's own lease ends, and nobody has noticed yet.
	w.clock.Advance(lease + margin)
	w.refused("its own session after the lease", good, store.Fenced)
	w.expire()
	w.refused("its own session after the expiry", good, store.Fenced)
	Check(w, w.s, acme)
}

func applyGuardsMonitor(w *world) {
	st := w.stand(job.Running, job.Monitor)
	good := setting(move(st.Job, st.fence, job.Ready, job.Archiving), job.Patch{Over: true})
	for _, c := range []struct {
		name string
		bad  func(*job.Guard)
		want []store.Outcome
	}{
		{"an older term", func(g *job.Guard) { g.Fence.Term-- }, []store.Outcome{store.Fenced}},
		{"a term to come", func(g *job.Guard) { g.Fence.Term++ }, []store.Outcome{store.Fenced}},
		{"an unknown duty", func(g *job.Guard) { g.Fence.Duty = "none" }, []store.Outcome{store.Fenced}},
		{"a session", func(g *job.Guard) { g.Fence = by(st.session) }, []store.Outcome{store.Fenced}},
		{"an older epoch", func(g *job.Guard) { g.Epoch-- }, []store.Outcome{store.Fenced}},
		{"an n to come", func(g *job.Guard) { g.N++ }, []store.Outcome{store.Conflict}},
		{"another state", func(g *job.Guard) { g.Place.State = job.Queued }, []store.Outcome{store.Conflict}},
	} {
		bad := good
		c.bad(&bad.From)
		w.refused(c.name, bad, c.want...)
	}
	// Another session takes the duty over.
	w.clock.Advance(lease + margin)
	other := w.session()
	w.expire()
	now := w.duty(other, watch)
	w.refused("the term before", good, store.Fenced)
	good.From.Fence = now
	w.must(good)
	Check(w, w.s, acme)
}

func applyGuardsUnheld(w *world) {
	for _, place := range []job.Place{
		{State: job.Waiting, Custody: job.Gate},
		{State: job.Pending, Custody: job.Ready},
		{State: job.Paused, Custody: job.User},
	} {
		st := w.stand(place.State, place.Custody)
		c := move(st.Job, by(st.session), job.None, job.Failed)
		w.refused("a session that does not hold the job, at "+place.String(), c, store.Fenced, store.Conflict)
		w.wish(job.WishCancel, st.ID)
	}
	// After the end nothing is applied.
	w.add(newTask())
	session := w.session()
	j := w.claimOne(session)
	w.must(finish(j, by(session)))
	late := move(j, by(session), job.Ready, job.Pending)
	late.From.N += 5
	w.refused("after the end", late, store.Fenced, store.Conflict)
	Check(w, w.s, acme)
}
