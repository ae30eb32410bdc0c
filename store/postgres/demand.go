package postgres

import (
	"context"
	"encoding/json"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Demand implements [store.Reader].
func (s *Store) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	var claimants []store.Claimant
	var ready []store.ReadyIn
	var lanes []string
	for lane, n := range c.Slots {
		if n > 0 {
			lanes = append(lanes, string(lane))
		}
	}
	err := s.call(ctx, everyone, func(t *tx) error {
		claimants, ready = nil, nil
		return t.commit(
			read(claimantsThere, func(r *reader) error {
				a := store.Claimant{ID: r.id()}
				if err := json.Unmarshal(r.next(), &a.Process); err != nil {
					return err
				}
				if held := r.next(); held != nil {
					if err := json.Unmarshal(held, &a.Held); err != nil {
						return err
					}
				}
				claimants = append(claimants, a)
				return nil
			}),
			read(readyParts, func(r *reader) error {
				ready = append(ready, store.ReadyIn{
					QueueKind: job.QueueKind{Queue: r.text(), Kind: r.text()}, Machine: r.text(), Lane: job.Lane(r.text()),
					Jobs: r.int(),
				})
				return nil
			}, nonNil(c.Queues), nonNil(c.Kinds), c.Machine, some(c.Tenants), nonNil(lanes)))
	})
	if err != nil {
		return nil, err
	}
	return store.Demands(c, ready, claimants), nil
}

var (
	claimantsThere = `
SELECT s.id, s.process, (SELECT json_object_agg(h.lane, h.n)
	FROM (SELECT j.lane, count(*) AS n FROM pawl.jobs j WHERE j.session = s.id GROUP BY j.lane) h)
FROM pawl.sessions s WHERE s.ended IS NULL AND s.lease_until > pawl.clock() AND s.mode = ''`

	// readyParts counts the ready jobs of each queue, kind, machine and lane, up to the slots of all,
	// and one at least.
	//
	//	1 queues  2 kinds  3 machine  4 tenants, NULL: all  5 lanes
	readyParts = store.SQL(`
WITH slots AS MATERIALIZED (
	SELECT l.lane, greatest(sum((s.process -> 'slots' ->> l.lane)::int), 1) AS n
		FROM unnest($5::text[]) l(lane), pawl.sessions s
	WHERE s.ended IS NULL AND s.lease_until > pawl.clock() AND s.mode = '' GROUP BY l.lane
)
SELECT q.queue, k.kind, m.machine, l.lane, r.n
FROM unnest($1::text[]) q(queue), unnest($2::text[]) k(kind), (SELECT '' UNION SELECT $3::text) m(machine),
	slots l CROSS JOIN LATERAL (
	SELECT count(*) AS n FROM (
		SELECT FROM pawl.jobs j
		WHERE j.custody = {Ready} AND j.queue = q.queue AND j.kind = k.kind AND j.machine = m.machine
			AND j.lane = l.lane
			AND ($4::text[] IS NULL OR j.tenant = ANY ($4::text[]))
		LIMIT l.n
	) h
) r
WHERE (l.lane = {LaneAlone} OR (k.kind = {KindApp}) <> (l.lane = {LaneTask})) AND r.n > 0`)
)
