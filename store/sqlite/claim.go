package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Claim implements [store.Jobs].
func (s *Store) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	if s.write == nil {
		return nil, s.do(ctx, nil)
	}
	c = c.Once()
	var jobs []job.Job
	err := s.write.do(ctx, s.write.claims, func(t *tx) (err error) {
		claimed, err := t.claim(c)
		jobs = claimed
		return err
	})
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// claim makes a claim.
func (t *tx) claim(c store.Claim) ([]job.Job, error) {
	stands, err := t.mode(c.Session)
	if err != nil {
		return nil, err
	}
	jobs, err := t.claimed(c)
	if err != nil || len(jobs) > 0 || stands != store.Work {
		return jobs, err
	}
	for _, lane := range job.Lanes {
		look := t.heads
		if len(c.Jobs) > 0 {
			look = t.named
		}
		found, err := look(c, lane)
		if err != nil {
			return nil, err
		}
		for i := range found {
			r := &found[i]
			if err := t.take(r, c); err != nil {
				return nil, err
			}
			jobs = append(jobs, r.Job)
		}
	}
	return jobs, nil
}

// mode returns the mode of a session. It is Fenced unless the session may work.
func (t *tx) mode(session job.ID) (c store.Mode, err error) {
	alive := false
	err = t.query(`SELECT mode FROM sessions WHERE id = ? AND ended IS NULL AND lease_until > ?`,
		func(v []driver.Value) error {
			alive, c = true, store.Mode(text(v[0]))
			return nil
		}, blob(session), micros(t.lease))
	if err == nil && !alive {
		err = store.NoSession(session)
	}
	return c, err
}

// claimed returns the jobs that an earlier call with the same id claimed.
func (t *tx) claimed(c store.Claim) (jobs []job.Job, err error) {
	err = t.query(`SELECT `+withSpec+` FROM jobs j JOIN specs s ON s.seq = j.seq WHERE j.session = ? AND j.claim = ?`,
		func(v []driver.Value) error {
			jobs = append(jobs, scanSpec(v).Job)
			return nil
		}, blob(c.Session), blob(c.ID))
	return jobs, err
}

// inReadyPart is the condition that a job is ready, of a queue, kind, machine and lane.
var inReadyPart = store.SQL(`j.custody = {Ready} AND j.queue = ? AND j.kind = ? AND j.machine = ? AND j.lane = ?`)

// heads returns the first of the ready jobs that c asks for, by priority and age. The ready index
// holds those of each queue, kind, machine and lane in that order, so that a claim reads what it
// takes and no backlog.
//
// SQLite would prepare a statement anew whenever LIMIT is bound to a plain parameter, to plan for
// its value: for a claim of few jobs that is most of the work. It does not look into an expression.
func (t *tx) heads(c store.Claim, lane job.Lane) ([]row, error) {
	slots := c.Slots[lane]
	if slots <= 0 {
		return nil, nil
	}
	var found []row
	parts := 0
	machines := []string{""}
	if c.Machine != "" {
		machines = append(machines, c.Machine)
	}
	tenants := tenantList(c.Tenants)
	for _, queue := range c.Queues {
		for _, kind := range c.Kinds {
			if !lane.Takes(kind) {
				continue
			}
			for _, machine := range machines {
				n := len(found)
				err := t.query(`SELECT `+withSpec+` FROM jobs j JOIN specs s ON s.seq = j.seq
					WHERE `+inReadyPart+ofTenants(c.Tenants)+`
					ORDER BY j.priority, j.created LIMIT ? + 0`,
					func(v []driver.Value) error {
						found = append(found, scanSpec(v))
						return nil
					}, append(append([]any{queue, kind, machine, string(lane)}, tenants...), int64(slots))...)
				if err != nil {
					return nil, err
				}
				if len(found) > n {
					parts++
				}
			}
		}
	}
	if parts > 1 {
		slices.SortFunc(found, byAge)
	}
	return found[:min(slots, len(found))], nil
}

// byAge orders the jobs of a lane: priority decides, then age.
func byAge(a, b row) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), cmp.Compare(a.seq, b.seq))
}

// named returns those of the jobs that c names which it may claim.
func (t *tx) named(c store.Claim, lane job.Lane) ([]row, error) {
	var found []row
	err := t.query(`SELECT `+withSpec+` FROM json_each(?) e CROSS JOIN jobs j ON j.id = unhex(e.value, '-')
		JOIN specs s ON s.seq = j.seq`,
		func(v []driver.Value) error {
			r := scanSpec(v)
			if r.Custody == job.Ready && r.Lane == lane && (r.Machine == "" || r.Machine == c.Machine) &&
				slices.Contains(c.Queues, r.Queue) && slices.Contains(c.Kinds, r.Kind) &&
				(len(c.Tenants) == 0 || slices.Contains(c.Tenants, r.Tenant)) {
				found = append(found, r)
			}
			return nil
		}, idList(c.Jobs))
	slices.SortFunc(found, byAge)
	return found[:min(max(0, c.Slots[lane]), len(found))], err
}

// launchesRated tells whether a tenant's programs are launched at moments.
const launchesRated = `SELECT 1 FROM limits WHERE tenant = ? AND rate IS NOT NULL AND key >= '` + job.RateLaunches +
	`/' AND key < '` + job.RateLaunches + `0' LIMIT 1`

// take moves a ready job into the session's custody.
func (t *tx) take(r *row, c store.Claim) error {
	rated := false
	if r.Launches() {
		var err error
		if rated, err = t.exists(launchesRated, r.Tenant); err != nil {
			return err
		}
	}
	var none store.Effects
	return t.write(r, job.Claim(&r.Job, c.Session, c.ID, rated), job.CauseClaim, blob(c.Session), &none)
}
