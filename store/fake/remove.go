package fake

import (
	"context"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Remove implements [store.Jobs].
func (s *Store) Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error) {
	return ask(ctx, s, func(t *tx) ([]error, error) {
		answers := make([]error, len(ids))
		for i, id := range ids {
			switch r := t.jobs[id]; {
			case r == nil || r.Tenant != tenant:
				answers[i] = store.NoJob(id)
			case !r.State.Terminal():
				answers[i] = job.Errorf(job.Conflict, "job %s is %s: cancel it before it is removed", id, r.State)
			case t.owes(id):
				answers[i] = job.Errorf(job.Conflict,
					"jobs that waited for job %s have not heard of its end yet: try again in a moment", id)
			default:
				t.erase(r)
			}
		}
		return answers, nil
	})
}

func (s *State) owes(id job.ID) bool {
	return slices.ContainsFunc(s.owed, func(d debt) bool { return d.job == id })
}

// erase deletes all that is known of a job, but for the idempotency key of its call. Its numbers
// are not given again. It cannot fail, and so need not be undone.
func (t *tx) erase(r *row) {
	for n := range t.history(r) {
		t.events[n-1] = nil
	}
	for _, p := range r.after {
		if edges := slices.DeleteFunc(slices.Clone(t.edges[p]),
			func(e edge) bool { return e.job == r.ID }); len(edges) > 0 {
			set(t, t.edges, p, edges)
		} else {
			drop(t, t.edges, p)
		}
	}
	if r.ExternalID != "" {
		drop(t, t.external, name{r.Tenant, r.ExternalID})
	}
	for _, mode := range []job.UniqueMode{job.UntilStart, job.UntilDone} {
		t.release(r, mode)
	}
	t.swap(r, nil)
}
