package claims

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Renewal is the answer to [Desk.Renew].
type Renewal struct {
	Lease time.Duration
	Mode  store.Mode // other than Work: there are no more jobs for the worker
	// Jobs answers each job that the worker named, by its index. If it named none, Jobs has those that
	// it must stop.
	Jobs []Answer
}

// RenewWaiting is Renew that waits, if there is nothing to stop, until something is told the
// worker, until wait ends, or for a quarter of the lease: so the worker is heard of again in time.
func (d *Desk) RenewWaiting(ctx, wait context.Context, session job.ID, lease time.Duration, held []Held) (
	Renewal, error,
) {
	told, err := d.cfg.Engine.Told(ctx, session) // before it looks, so that nothing comes between
	if err != nil {
		return Renewal{}, err
	}
	defer told.Close()
	r, err := d.Renew(ctx, session, lease, held)
	if err != nil || r.Mode != store.Work || slices.ContainsFunc(r.Jobs, func(a Answer) bool { return a.Stop != "" }) {
		return r, err
	}
	wait, over := context.WithTimeout(wait, r.Lease/4)
	defer over()
	select {
	case <-told.Messages():
	case <-told.Lost():
	case <-wait.Done():
		return r, nil
	case <-ctx.Done():
		return Renewal{}, context.Cause(ctx)
	}
	return d.Renew(ctx, session, lease, held)
}

// Renew is the heartbeat of a worker. held are the jobs that it has in its hands. Jobs that its
// session holds and that it does not name were claimed by a call whose answer was lost: they go
// back. Nil says nothing of its jobs. lease is for how long the session lives from now on; 0: the
// lease of the desk.
func (d *Desk) Renew(ctx context.Context, session job.ID, lease time.Duration, held []Held) (Renewal, error) {
	if lease == 0 {
		lease = d.cfg.Lease
	}
	if lease < MinLease || lease > MaxLease {
		return Renewal{}, &job.SpecError{Problems: []job.Problem{{
			Path: "lease", Value: lease.String(), What: "is out of range", Remedy: "give 1s to 1h, or leave it out",
		}}}
	}
	reports := make([]Report, len(held))
	for i, h := range held {
		reports[i] = Report{Held: h, verb: "renew"}
	}
	if err := checkReports(reports); err != nil {
		return Renewal{}, err
	}
	got, err := d.renew(ctx, session, lease, nil)
	if err != nil {
		return Renewal{}, err
	}
	r := Renewal{Lease: lease, Mode: got.Mode, Jobs: make([]Answer, 0, len(held))}
	if held == nil {
		for _, w := range got.Wishes {
			r.Jobs = append(r.Jobs, Answer{ID: w.Job, Epoch: w.Epoch, OK: true, State: job.Running, Stop: stopOf(w.Wish)})
		}
		return r, nil
	}
	if len(held) == 0 && got.Held == 0 {
		return r, nil
	}
	rows, err := d.cfg.Store.Find(ctx, store.FindQuery{Session: session})
	if err != nil {
		return Renewal{}, err
	}
	of := make(map[job.ID]*job.Job, len(rows))
	for i := range rows {
		of[rows[i].ID] = &rows[i]
	}
	for i := range reports {
		h := &reports[i]
		a := Answer{ID: h.ID, Epoch: h.Epoch}
		if j := of[h.ID]; j != nil && j.Epoch == h.Epoch {
			a.OK, a.State, a.Stop = true, j.State, stopOf(j.Wish)
		} else if err := d.gone(ctx, session, h, &a); err != nil {
			return Renewal{}, err
		}
		delete(of, h.ID)
		r.Jobs = append(r.Jobs, a)
	}
	var changes []job.Change
	for _, j := range of {
		// The answer to their claim may still be on its way.
		if j.Since.Before(got.HeldBefore) && got.Now.Sub(j.Since) > lease/3 {
			d.cfg.Log.Warn("giving back a job that its worker does not know", "job", j.ID, "session", session)
			changes = append(changes, d.cfg.Engine.Change(engine.Back(), j, session))
		}
	}
	_, err = d.applyAll(ctx, changes)
	return r, err
}

// gone answers for a job that the session does not hold under the epoch that its worker named.
func (d *Desk) gone(ctx context.Context, session job.ID, h *Report, a *Answer) error {
	rows, err := d.cfg.Store.Find(ctx, store.FindQuery{Tenant: d.cfg.Tenant, IDs: []job.ID{h.ID}})
	if err != nil {
		return err
	}
	var j *job.Job
	if len(rows) > 0 {
		j = &rows[0]
	}
	return d.past(ctx, session, h, j, a)
}
