package fake

import (
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// write is the one function that changes a job: it writes the row that c makes of r and its
// history, gives up its keys, and notes what it owes. c has been guarded, fenced and diverted. It
// returns the new row.
func (t *tx) write(r *row, c job.Change, cause job.Cause, actor string) (*row, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	next := *r
	var path []job.Entry
	next.Job, path = next.Apply(c, t.now)
	if next.Live && (next.State.Terminal() || next.Custody == job.User) {
		return nil, job.Errorf(job.Internal, "change of job %s: %s with a launch whose end is not known", c.Job,
			next.Place)
	}
	next.Due = micros(next.Due)
	for i, e := range path {
		custody := r.Custody
		if i == len(path)-1 {
			custody = next.Custody
		}
		t.record(&next, job.Event{
			N: r.N + 1 + int64(i), Epoch: r.Epoch, State: e.State, Custody: custody, Cause: cause, Actor: actor,
			Code: e.Code, Message: e.Message, Data: e.Data,
		})
	}
	t.swap(r, &next)
	t.eff.Passed(&r.Job, &next.Job)
	if c.Set.Block != nil {
		t.join(&next, c.Set.Block)
	}
	for _, mode := range job.Releases(&r.Job, &next.Job) {
		t.release(&next, mode)
	}
	t.giveBack(&next, job.Returned(&r.Job, &next.Job))
	t.owe(&next, job.Owes(&r.Job, &next.Job))
	t.eff.Add(&next.Job)
	return &next, nil
}

// owe writes down what a change of a job owes to others.
func (t *tx) owe(r *row, owed []job.Owed) {
	for _, o := range owed {
		d := debt{job: r.ID, at: t.now}
		if o.Debt == job.DebtTurns {
			if t.returned != nil {
				t.returned[name{r.Tenant, o.Key}] = true
				continue
			}
			d = debt{key: name{r.Tenant, o.Key}, at: t.now}
		}
		t.owed = append(t.owed, d)
		t.eff.Owed = true
	}
}

// record writes an event of a job whose row is about to be put in place.
func (t *tx) record(r *row, e job.Event) *event {
	e.Job, e.At, e.Data = r.ID, t.now, slices.Clone(e.Data)
	written := &event{Event: e, tenant: r.Tenant, before: r.newest}
	t.events = append(t.events, written)
	r.newest = len(t.events)
	return written
}

// release gives up the keys of a mode that a job still holds.
func (t *tx) release(r *row, mode job.UniqueMode) {
	for _, u := range r.keys {
		if k := (unique{r.Tenant, r.Kind, u}); u.Mode == mode && t.unique[k] == r.ID {
			drop(t, t.unique, k)
		}
	}
}

// history goes through the events of a job, from the newest to the oldest.
func (s *State) history(r *row) func(yield func(n int, e *event) bool) {
	return func(yield func(int, *event) bool) {
		for n := r.newest; n > 0; {
			e := s.events[n-1]
			if !yield(n, e) {
				return
			}
			n = e.before
		}
	}
}
