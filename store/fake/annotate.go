package fake

import (
	"context"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Annotate implements [store.Jobs].
func (s *Store) Annotate(ctx context.Context, a store.Annotation) ([]error, error) {
	return ask(ctx, s, func(t *tx) ([]error, error) {
		answers := make([]error, len(a.Jobs))
		for i, id := range a.Jobs {
			if r := t.jobs[id]; r == nil || r.Tenant != a.Tenant {
				answers[i] = store.NoJob(id)
			} else {
				answers[i] = t.annotate(r, &a)
			}
		}
		return answers, nil
	})
}

// annotate changes one job, or says why not.
func (t *tx) annotate(r *row, a *store.Annotation) (err error) {
	next := *r
	if a.Hidden != nil {
		next.Hidden = *a.Hidden
	}
	if next.Hidden && !r.State.Terminal() {
		return job.Errorf(job.Conflict, "job %s is %s: it can be hidden once it has ended", r.ID, r.State)
	}
	if next.Labels, next.Notes, err = a.Merge(&r.Job, a.Replace); err != nil {
		return err
	}
	next.Labels, next.Notes = maps.Clone(next.Labels), slices.Clone(next.Notes)
	t.swap(r, &next)
	return nil
}

// AddEvent implements [store.Jobs]. No claim comes by meanwhile.
func (s *Store) AddEvent(ctx context.Context, n store.NewEvent) (store.Event, store.Effects, error) {
	if n.Cause != job.CauseUser && n.Cause != job.CauseJob {
		return store.Event{}, store.Effects{}, job.Errorf(job.Internal, "an event of a user with cause %q", n.Cause)
	}
	return call(ctx, s, func(t *tx) (e store.Event, err error) {
		r := t.jobs[n.Job]
		if r == nil || r.Tenant != n.Tenant {
			return e, store.NoJob(n.Job)
		}
		if n.Key != "" {
			for at, there := range t.history(r) {
				if there.key == n.Key {
					return answered(at, there), n.Repeats(&there.Event)
				}
			}
		}
		if err := n.Allowed(&r.Job); err != nil {
			return e, err
		}
		if r.notes == job.MaxJobEvents {
			return e, job.Errorf(job.Conflict, "job %s has %d events of users and its own: it takes no more", n.Job,
				job.MaxJobEvents)
		}
		next := *r
		next.notes++
		written := t.record(&next, job.Event{
			N: r.N, Sub: t.events[r.newest-1].Sub + 1, Name: n.Name, Epoch: r.Epoch, State: r.State,
			Custody: r.Custody, Cause: n.Cause,
			Actor: n.By, Message: n.Message, Data: n.Data,
		})
		written.key = n.Key
		t.swap(r, &next)
		return answered(next.newest, written), nil
	})
}
