package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Due implements [store.Jobs].
func (s *Store) Due(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	call := s.write
	if limit == 0 { // nothing is moved
		call = s.call
	}
	err := call(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		var qs []*query
		if limit > 0 {
			qs = append(qs, read(dueJobs, func(r *reader) error {
				n++
				if ready := r.bool(); ready {
					eff.Announce(job.Line{Queue: r.text(), Kind: r.text()})
				}
				return nil
			}, limit))
		}
		return t.commit(append(qs, read(`SELECT min(due) FROM pawl.jobs WHERE custody = 'gate' AND due IS NOT NULL`, func(r *reader) error {
			eff.Due = r.time()
			return nil
		}))...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

// dueJobs moves jobs whose time has come out of their gate, as [job.Next] says. Where another gate still holds one, the
// schedule does not any more.
const dueJobs = `
WITH x AS MATERIALIZED (
	SELECT pawl.clock() AS now, ` + ord + ` AS ord
), due AS MATERIALIZED (
	SELECT j.id FROM pawl.jobs j WHERE j.custody = 'gate' AND j.due <= (SELECT now FROM x) ORDER BY j.due LIMIT $1 FOR UPDATE SKIP LOCKED
), moved AS (
	UPDATE pawl.jobs j SET due = NULL,
		state = CASE WHEN j.needs = 0 THEN 'PENDING' ELSE j.state END, custody = CASE WHEN j.needs = 0 THEN 'ready' ELSE j.custody END,
		epoch = j.epoch + (j.needs = 0)::int, n = j.n + (j.needs = 0)::int, since = CASE WHEN j.needs = 0 THEN x.now ELSE j.since END,
		ord = CASE WHEN j.needs = 0 THEN greatest(j.ord, x.ord) ELSE j.ord END,
		code = CASE WHEN j.needs = 0 THEN '' ELSE j.code END, message = CASE WHEN j.needs = 0 THEN '' ELSE j.message END
	FROM x WHERE j.id = ANY (ARRAY(SELECT d.id FROM due d))
	RETURNING j.id, j.tenant, j.queue, j.kind, j.state, j.custody, j.epoch, j.n, j.ord, j.since, j.needs
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause)
	SELECT m.id, m.n, m.tenant, m.ord, m.epoch - 1, m.state, m.custody, m.since, 'due' FROM moved m WHERE m.needs = 0
)
SELECT m.needs = 0, m.queue, m.kind FROM moved m`
