package fake

import (
	"context"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Claim implements [store.Jobs].
func (s *Store) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	return ask(ctx, s, func(t *tx) ([]job.Job, error) { return t.claim(c) })
}

// claim makes a claim.
func (t *tx) claim(c store.Claim) (jobs []job.Job, err error) {
	if !t.alive(c.Session) {
		return nil, store.NoSession(c.Session)
	}
	for _, r := range t.held(c.Session) {
		if r.Claim == c.ID {
			jobs = append(jobs, copyOf(r.Job))
		}
	}
	if len(jobs) > 0 || t.sessions[c.Session].Mode != store.Work {
		return jobs, nil
	}
	for _, lane := range job.Lanes {
		for _, r := range t.ready(&c, lane) {
			ch := job.Claim(&r.Job, c.Session, c.ID, t.launchesRated(r.Tenant))
			if r, err = t.write(r, ch, job.CauseClaim, c.Session.String()); err != nil {
				return nil, err
			}
			jobs = append(jobs, copyOf(r.Job))
		}
	}
	return jobs, nil
}

// ready returns the jobs that c takes of a lane, by priority and age: of those that it names, or
// else of those at the heads of its queues and kinds.
func (t *tx) ready(c *store.Claim, lane job.Lane) (found []*row) {
	slots := c.Slots[lane]
	if slots <= 0 {
		return nil
	}
	for _, id := range c.Jobs {
		if r := t.jobs[id]; r != nil && r.Lane == lane && asksFor(c, r) {
			found = append(found, r)
		}
	}
	for _, at := range spotsOf(c, lane) {
		n := len(found)
		if len(c.Jobs) > 0 {
			break
		}
		for _, r := range t.at[at] {
			if len(found)-n == slots {
				break
			}
			if ofTenant(c.Tenants, r) {
				found = append(found, r)
			}
		}
	}
	slices.SortFunc(found, (*row).compare) // a spot may be named twice, and a job as well
	found = slices.Compact(found)
	return found[:min(slots, len(found))]
}

// spotsOf returns the spots of a lane where the jobs stand that c asks for.
func spotsOf(c *store.Claim, lane job.Lane) []spot {
	var all []spot
	for _, queue := range c.Queues {
		for _, kind := range c.Kinds {
			if !lane.Takes(kind) {
				continue
			}
			at := spot{custody: job.Ready, queue: queue, kind: kind, lane: lane}
			all = append(all, at)
			if at.machine = c.Machine; at.machine != "" {
				all = append(all, at)
			}
		}
	}
	return all
}

func asksFor(c *store.Claim, r *row) bool {
	return r.Custody == job.Ready && (r.Machine == "" || r.Machine == c.Machine) &&
		slices.Contains(c.Queues, r.Queue) &&
		slices.Contains(c.Kinds, r.Kind) && ofTenant(c.Tenants, r)
}

// ofTenant reports whether a job belongs to one of some tenants; none stands for all.
func ofTenant(tenants []string, r *row) bool {
	return len(tenants) == 0 || slices.Contains(tenants, r.Tenant)
}
