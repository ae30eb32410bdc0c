package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Recount implements [store.Jobs].
func (s *Store) Recount(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	err := s.write(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		c := changes{cause: job.CausePaid}
		err := t.send(read(recount, func(r *reader) error {
			n++
			c.now = r.time()
			j := r.row()
			return c.open(&j)
		}, limit))
		if err != nil {
			return err
		}
		c.effects(&eff)
		return t.commit(c.queries()...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

// recount corrects the number of prerequisites of jobs that wait, and answers these. What it finds wrong at first sight is
// locked and counted again: a payment counts and deletes in one transaction.
const recount = `
WITH wrong AS MATERIALIZED (
	SELECT j.id FROM pawl.jobs j
	WHERE j.custody = 'gate' AND j.needs <> 0 AND j.needs <> (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id)
	ORDER BY j.id LIMIT $1 FOR UPDATE SKIP LOCKED
), corrected AS (
	UPDATE pawl.jobs j SET needs = (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id)
	WHERE j.id = ANY (ARRAY(SELECT w.id FROM wrong w)) RETURNING ` + livingRow + `
)
SELECT pawl.clock(), ` + columns + ` FROM corrected j ` + itsSpec
