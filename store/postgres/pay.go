package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Pay implements [store.Jobs].
func (s *Store) Pay(ctx context.Context, limit int) (int, store.Effects, error) {
	var paid int
	var eff store.Effects
	owesTurns, owesWalks, owesLines := false, false, false // are owed
	err := s.write(ctx, everyone, func(t *tx) error {
		paid, eff = 0, store.Effects{}
		c := changes{cause: job.CausePaid}
		err := t.send(read(payDebts, func(r *reader) error {
			paid, c.now = r.int(), r.time()
			prerequisite := job.Job{ID: r.id(), Name: r.text()}
			prerequisite.State = job.State(r.text())
			if r.values[0] == nil {
				return nil // nobody waits any more
			}
			j := r.row()
			if prerequisite.State == "" {
				return c.open(&j)
			}
			_, err := c.add(&j, job.Unmet(&j, &prerequisite))
			return err
		}, limit))
		if err != nil {
			return err
		}
		c.effects(&eff)
		return t.commit(append(c.queries(), read(whatIsOwed, func(r *reader) error {
			eff.Owed, owesTurns, owesWalks, owesLines = r.bool(), r.bool(), r.bool(), r.bool()
			return nil
		}))...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	eff.Owed = eff.Owed || owesTurns || owesWalks || owesLines
	pay := func(n int, more store.Effects, err error) error {
		if err != nil {
			if eff.Owed = true; paid > 0 {
				return nil
			}
			return err
		}
		for _, line := range more.Ready {
			eff.Announce(line)
		}
		paid, eff.Owed, eff.Later = paid+n, more.Owed, eff.Later || more.Later
		return nil
	}
	if owesLines && paid < limit {
		n, more, err := s.payLines(ctx, limit-paid)
		owesTurns, owesWalks = owesTurns || n > 0, owesWalks || n > 0
		if err := pay(n, more, err); err != nil {
			return 0, store.Effects{}, err
		}
	}
	if owesWalks && paid < limit {
		n, owes, more, err := s.walk(ctx, turns.WalkSize(limit-paid))
		if err := pay(n, more, err); err != nil {
			return 0, store.Effects{}, err
		}
		owesTurns = owesTurns || owes
	}
	if owesTurns && paid < limit {
		if err := pay(s.handOn(ctx, limit-paid)); err != nil {
			return 0, store.Effects{}, err
		}
	}
	return paid, eff, nil
}

// payDebts takes edges from the oldest follow-ups that nobody else is paying, counts them off from
// the jobs that wait, and answers those jobs as they are now. The count and the answer come from
// the edges that this statement deleted: its snapshot may show some that another payer has paid in
// the meantime. An edge whose need was not met ends the job: the first of them by id is named.
var payDebts = store.SQL(`
WITH debts AS MATERIALIZED (
	SELECT f.seq, f.job FROM pawl.followups f ORDER BY f.seq LIMIT $1 FOR UPDATE SKIP LOCKED
), edges AS MATERIALIZED (
	SELECT d.seq, p.needs, p.job, p.at
	FROM debts d CROSS JOIN LATERAL (SELECT p.needs, p.job, p.ctid AS at FROM pawl.prerequisites p
		WHERE p.needs = d.job ORDER BY p.job LIMIT $1) p
	ORDER BY d.seq, p.job LIMIT $1
), gone AS MATERIALIZED (
	DELETE FROM pawl.prerequisites p WHERE p.ctid = ANY (ARRAY(SELECT e.at FROM edges e))
		RETURNING p.needs, p.job, p.need
), locked AS MATERIALIZED (
	SELECT j.id FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT g.job FROM gone g)) ORDER BY j.id FOR UPDATE
), counted AS MATERIALIZED (
	SELECT g.job, count(*) AS k, (min(g.needs::text) FILTER (WHERE g.need = 'finished'
		AND e.state <> {Finished}))::uuid AS unmet
	FROM gone g CROSS JOIN LATERAL (SELECT e.state FROM pawl.ended e WHERE e.id = g.needs OFFSET 0) e
	WHERE (SELECT count(*) FROM locked) >= 0 -- all of them are locked first, in their order
	GROUP BY g.job
), released AS (
	UPDATE pawl.jobs j SET needs = j.needs - (SELECT c.k FROM counted c WHERE c.job = j.id)
	WHERE j.id = ANY (ARRAY(SELECT c.job FROM counted c))
	RETURNING ` + livingRow + `, (SELECT c.unmet FROM counted c WHERE c.job = j.id) AS unmet
), settled AS (
	DELETE FROM pawl.followups f WHERE f.seq = ANY (ARRAY(SELECT d.seq FROM debts d WHERE NOT EXISTS (
		SELECT FROM pawl.prerequisites p
		WHERE p.needs = d.job AND p.job > ALL (SELECT e.job FROM edges e WHERE e.seq = d.seq ORDER BY e.job DESC
			LIMIT 1) OFFSET 0)))
)
SELECT greatest((SELECT count(*) FROM gone), (SELECT count(*) FROM (SELECT FROM debts LIMIT 1) one)),
	pawl.clock(), u.id, u.name, u.state, ` + columns + `
FROM (SELECT) one LEFT JOIN (released j ` + itsSpec + `
	LEFT JOIN LATERAL (SELECT u.id, u.name, e.state FROM pawl.specs u, pawl.ended e WHERE u.id = j.unmet
		AND e.id = j.unmet OFFSET 0) u ON true) ON true`)
