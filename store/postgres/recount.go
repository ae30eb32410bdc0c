package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Recount implements [store.Jobs].
func (s *Store) Recount(ctx context.Context, limit int) (int, store.Effects, error) {
	wrong := false // it hardly ever is
	err := s.call(ctx, everyone, func(t *tx) error {
		wrong = false
		return t.commit(read(miscounted, func(*reader) error { wrong = true; return nil }, 1))
	})
	if err != nil || !wrong {
		return 0, store.Effects{}, err
	}
	var n int
	var eff store.Effects
	err = s.write(ctx, everyone, func(t *tx) error {
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

const (
	// miscounted finds jobs that wait for another number of prerequisites than they have.
	miscounted = `
	SELECT j.id FROM pawl.jobs j
	WHERE j.custody = 'gate' AND j.needs <> 0 AND j.needs <> (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id)
	ORDER BY j.id LIMIT $1`

	// recount corrects the number of prerequisites of jobs that wait, and answers these. What it finds wrong at first sight
	// is locked and counted again: a payment counts and deletes in one transaction.
	recount = `
WITH wrong AS MATERIALIZED (` + miscounted + ` FOR UPDATE SKIP LOCKED
), corrected AS (
	UPDATE pawl.jobs j SET needs = (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id)
	WHERE j.id = ANY (ARRAY(SELECT w.id FROM wrong w)) RETURNING ` + livingRow + `
)
SELECT pawl.clock(), ` + columns + ` FROM corrected j ` + itsSpec
)
