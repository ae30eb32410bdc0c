package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Recount implements [store.Jobs]. It looks on a connection that reads, so that a million jobs that wait hold up nobody.
func (s *Store) Recount(ctx context.Context, limit int) (int, store.Effects, error) {
	var wrong []job.ID
	err := s.query(ctx, `SELECT j.id FROM jobs j INDEXED BY jobs_needs
		WHERE j.custody = 'gate' AND j.needs <> 0 AND j.needs <> (SELECT count(*) FROM prerequisites p WHERE p.job = j.seq) LIMIT ?`, 1,
		func(v []driver.Value) { wrong = append(wrong, id(v[0])) }, int64(limit))
	if err != nil || len(wrong) == 0 {
		return 0, store.Effects{}, err
	}
	var n int
	var eff store.Effects
	err = s.do(ctx, func(t *tx) error {
		n, eff = 0, store.Effects{}
		for _, id := range wrong {
			changed, err := t.exec(`UPDATE jobs SET needs = (SELECT count(*) FROM prerequisites p WHERE p.job = jobs.seq)
				WHERE id = ? AND custody = 'gate' AND needs <> (SELECT count(*) FROM prerequisites p WHERE p.job = jobs.seq)`, blob(id))
			if err != nil {
				return err
			}
			if changed == 0 {
				continue // it has moved on meanwhile
			}
			n++
			rs, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE id = ?`, blob(id))
			if err != nil {
				return err
			}
			if err := t.open(&rs[0], job.CausePaid, &eff); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}
