package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// firstDue is when the first of all jobs behind a schedule gate, or blocked, is due.
var firstDue = store.SQL(`(SELECT min(at) FROM (
	SELECT min(due) AS at FROM jobs WHERE custody = {Gate} AND due IS NOT NULL
	UNION ALL SELECT min(wake) FROM groups INDEXED BY groups_wake WHERE wake IS NOT NULL UNION ALL ` + firstFail + `))`)

var dueJobs = store.SQL(`SELECT ` + columns + ` FROM jobs j
	WHERE custody = {Gate} AND due <= ? ORDER BY due LIMIT ? + 0`)

// Due implements [store.Jobs].
func (s *Store) Due(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		n, eff = 0, store.Effects{}
		var rs []row
		var err error
		if limit > 0 {
			rs, err = t.rows(dueJobs, micros(t.now), int64(limit))
		}
		if err != nil {
			return err
		}
		for i := range rs {
			r := &rs[i]
			n++
			if p := job.Next(&r.Job, r.Opened(), t.now); p != r.Place {
				c := job.Change{
					Job: r.ID, From: r.Guard(job.Fence{}), To: p.Custody,
					Path: []job.Entry{{State: p.State}},
				}
				err = t.write(r, c, job.CauseDue, nil, &eff)
			} else { // another gate still holds it; the schedule does not any more
				if _, err = t.exec(`UPDATE jobs SET due = NULL WHERE seq = ?`, r.seq); err != nil {
					return err
				}
				r.Due = time.Time{}
				err = t.inLine(r, &eff)
			}
			if err != nil {
				return err
			}
		}
		some, err := t.dueGroups(limit-n, &eff)
		if err != nil {
			return err
		}
		n += some
		return t.query(`SELECT `+firstDue, func(v []driver.Value) error {
			eff.Due = instant(v[0])
			return nil
		})
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}
