package fake

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Submit implements [store.Jobs].
func (s *Store) Submit(ctx context.Context, sub store.Submission) ([]store.Submitted, store.Effects, error) {
	if err := job.CheckTenant(sub.Tenant); err != nil {
		return nil, store.Effects{}, err
	}
	return call(ctx, s, func(t *tx) ([]store.Submitted, error) {
		if err := t.advance(sub.Tenant, sub.Advance); err != nil {
			return nil, err
		}
		if sub.Key != "" {
			return t.submitOnce(&sub)
		}
		return t.submitAll(&sub)
	})
}

// submitOnce answers a call under an idempotency key.
func (t *tx) submitOnce(sub *store.Submission) (answers []store.Submitted, err error) {
	key, digest := name{sub.Tenant, sub.Key}, string(sub.Digest())
	if c, known := t.calls[key]; known && !c.at.Before(t.now.Add(-store.KeepKey)) {
		if c.digest != digest {
			return nil, job.Errorf(job.Conflict, "idempotency key %q was used for another request: use a new key",
				sub.Key)
		}
		for _, id := range c.jobs {
			a := store.Submitted{ID: id, Existed: true}
			if r := t.jobs[id]; r != nil {
				a.Place = r.Place
			}
			answers = append(answers, a)
		}
		return answers, nil
	}
	if answers, err = t.submitAll(sub); err != nil {
		return nil, err
	}
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
	}
	set(t, t.calls, key, keyed{digest, ids, t.now})
	return answers, nil
}

func (t *tx) submitAll(sub *store.Submission) ([]store.Submitted, error) {
	answers, fits := make([]store.Submitted, len(sub.Jobs)), t.fitting(sub)
	for i := range sub.Jobs {
		r, existed, err := t.submit(sub, &sub.Jobs[i], fits)
		if err != nil {
			return nil, err
		}
		answers[i] = store.Submitted{ID: r.ID, Place: r.Place, Existed: existed}
	}
	return answers, nil
}

// submit inserts one job, or finds the one that is there already.
func (t *tx) submit(sub *store.Submission, n *store.New, fits map[string]bool) (r *row, existed bool, err error) {
	external := name{sub.Tenant, n.Job.ExternalID}
	if external.name != "" {
		if r := t.jobs[t.external[external]]; r != nil {
			if r.fingerprint != n.Fingerprint {
				return nil, false, job.Errorf(job.Conflict,
					"external_id %q belongs to job %s, which was another request: use a new one", external.name, r.ID)
			}
			return r, true, nil
		}
	}
	if r := t.jobs[n.Job.ID]; r != nil {
		if r.Tenant != sub.Tenant {
			return nil, false, job.Errorf(job.Conflict, "job id %s is taken", r.ID)
		}
		return r, true, nil
	}
	r = &row{Job: plain(&n.Job), fingerprint: n.Fingerprint, seq: len(t.rows) + 1, keys: uniques(n.Unique)}
	for _, u := range r.keys {
		if r := t.jobs[t.unique[unique{sub.Tenant, n.Job.Kind, u}]]; r != nil {
			return r, true, nil
		}
		if u.Mode == job.UntilStart {
			r.Ties |= job.TieUniqueStart
		} else {
			r.Ties |= job.TieUniqueDone
		}
	}
	after := store.Strongest(n.After)
	broken, err := t.prerequisites(sub.Tenant, r, after)
	if err != nil {
		return nil, false, err
	}
	if n.Refusal != nil {
		return nil, false, n.Refusal
	}
	r.Tenant, r.Created, r.Since = sub.Tenant, t.now, t.now
	if n.Delay > 0 {
		r.Due = micros(t.now.Add(n.Delay))
	}
	r.Rank = r.RankAt(t.now)
	r.Epoch, r.N, r.Attempt = 1, 1, 1
	r.Limits = t.under(sub.Tenant, n)
	if len(r.Limits) > 0 {
		r.Ties |= job.TieLimited
	}
	if broken == nil {
		r.Job = r.Entering(fits, t.now)
	}
	r.Place = job.Next(&r.Job, job.Pending, t.now)
	if broken != nil {
		r.Place = job.Place{State: job.Waiting, Custody: job.Gate}
	}
	if r.Custody == job.Ready || !r.Due.After(t.now) {
		r.Due = time.Time{}
	}
	if broken == nil {
		r.Job = r.InLine(t.now)
	}
	r.Lane = job.LaneOf(r.State, r.Program(), 0)
	t.record(r, job.Event{N: 1, State: r.State, Custody: r.Custody, Cause: job.CauseSubmit, Actor: sub.By})
	t.swap(nil, r)
	t.takeTurns(r, r.Turns())
	if external.name != "" {
		set(t, t.external, external, r.ID)
	}
	for _, u := range r.keys {
		set(t, t.unique, unique{r.Tenant, r.Kind, u}, r.ID)
	}
	t.wait(r, after)
	t.owe(r, job.Owes(&job.Job{}, &r.Job))
	t.eff.Add(&r.Job)
	if broken != nil {
		r, err = t.write(r, job.Unmet(&r.Job, &broken.Job), job.CausePaid, "")
		return r, false, err
	}
	return r, false, t.admit(sub, r.Queue)
}

// plain returns a new job with what its maker says of it.
func plain(n *job.Job) job.Job {
	j := job.Job{
		ID: n.ID, Owner: n.Owner, Kind: n.Kind, Name: n.Name, App: n.App, Queue: n.Queue, Machine: n.Machine,
		Watch:       n.Watch,
		Priority:    n.Priority,
		MaxAttempts: n.MaxAttempts, Due: micros(n.Due), Parent: n.Parent, ExternalID: n.ExternalID, Trace: n.Trace,
		Request: n.Request, Notes: n.Notes,
		Order: n.Order, Rank: n.Rank, Ties: n.Ties,
	}
	if len(n.Labels) > 0 {
		j.Labels = n.Labels
	}
	return copyOf(j)
}

// uniques returns each key once.
func uniques(keys []store.Unique) []store.Unique {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b store.Unique) int {
		return strings.Compare(string(a.Mode)+a.Key,
			string(b.Mode)+b.Key)
	})
	return slices.Compact(keys)
}

// prerequisites counts in r what it waits for. broken is a prerequisite that has ended otherwise
// than needed.
func (t *tx) prerequisites(tenant string, r *row, after []store.After) (broken *row, err error) {
	for _, a := range after {
		switch p := t.jobs[a.Job]; {
		case p == nil || p.Tenant != tenant:
			return nil, job.Errorf(job.Invalid, "after: there is no job %s: name a job that was submitted before",
				a.Job)
		case !p.State.Terminal():
			r.Needs++
			r.after = append(r.after, p.ID)
		case !a.Need.Met(p.State):
			broken = p
		}
	}
	return broken, nil
}

// wait ties a new job to what it waits for.
func (t *tx) wait(r *row, after []store.After) {
	for _, a := range after {
		p := t.jobs[a.Job]
		if p.State.Terminal() {
			continue
		}
		set(t, t.edges, p.ID, append(t.edges[p.ID], edge{r.ID, a.Need}))
		if p.Ties&job.TieDependants == 0 {
			tied := *p
			tied.Ties |= job.TieDependants
			t.swap(p, &tied)
		}
	}
}

// admit checks the queue of a job that has been inserted.
func (t *tx) admit(sub *store.Submission, queue string) error {
	check := sub.Queues[queue]
	if _, there := t.resources[resource{sub.Tenant, job.KindQueue, queue}]; check.Document && !there {
		return store.NoQueue(queue)
	}
	return sub.Admit(queue, t.waiting[name{sub.Tenant, queue}])
}
