package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Demand implements [store.Reader].
func (s *Store) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	var claimants []store.Claimant
	var broken []error
	err := s.query(ctx, `SELECT id, process, (SELECT json_group_object(lane, n) FROM (
			SELECT lane, count(*) AS n FROM jobs INDEXED BY jobs_session WHERE session = sessions.id GROUP BY lane))
		FROM sessions WHERE ended IS NULL AND lease_until > ? AND mode = ''`, 3, func(v []driver.Value) {
		a := store.Claimant{ID: id(v[0])}
		broken = append(broken, json.Unmarshal([]byte(text(v[1])), &a.Process),
			json.Unmarshal([]byte(text(v[2])), &a.Held))
		claimants = append(claimants, a)
	}, micros(s.lease()))
	if err := errors.Join(append(broken, err)...); err != nil {
		return nil, err
	}
	slots := map[job.Lane]int{}
	for _, a := range claimants {
		for lane, n := range a.Process.Slots {
			slots[lane] += n
		}
	}
	ready, err := s.readyParts(ctx, c, slots)
	if err != nil {
		return nil, err
	}
	return store.Demands(c, ready, claimants), nil
}

// readyParts counts the ready jobs of each queue, kind, machine and lane that c asks for, up to the
// slots of all, and one at least.
func (s *Store) readyParts(ctx context.Context, c store.Claim, slots map[job.Lane]int) (ready []store.ReadyIn,
	err error,
) {
	machines := []string{""}
	if c.Machine != "" {
		machines = append(machines, c.Machine)
	}
	for lane, n := range c.Slots {
		for _, queue := range c.Queues {
			for _, kind := range c.Kinds {
				for _, machine := range machines {
					if n <= 0 || !lane.Takes(kind) {
						continue
					}
					r := store.ReadyIn{QueueKind: job.QueueKind{Queue: queue, Kind: kind}, Machine: machine, Lane: lane}
					err := s.query(ctx, `SELECT count(*) FROM (SELECT 1 FROM jobs j INDEXED BY jobs_ready
						WHERE `+inReadyPart+ofTenants(c.Tenants)+` LIMIT ? + 0)`, 1,
						func(v []driver.Value) { r.Jobs = integer(v[0]) },
						append(append([]any{queue, kind, machine, string(lane)}, tenantList(c.Tenants)...),
							int64(max(1, slots[lane])))...)
					if err != nil {
						return nil, err
					}
					ready = append(ready, r)
				}
			}
		}
	}
	return ready, nil
}
