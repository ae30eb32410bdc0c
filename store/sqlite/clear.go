package sqlite

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Clear implements [store.Leases].
func (s *Store) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	ids := make([]job.ID, len(lost))
	for i, l := range lost {
		ids[i] = l.Job
	}
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		eff = store.Effects{}
		rows, err := t.find(ids)
		if err != nil {
			return err
		}
		for _, l := range lost {
			r := rows[l.Job]
			if r == nil {
				continue
			}
			after, cleared := r.Cleared(l.Epoch)
			if !cleared {
				continue
			}
			if _, err := t.exec(`UPDATE jobs SET suspect = ?, lane = ? WHERE seq = ?`, int64(after.Suspect),
				string(after.Lane), r.seq); err != nil {
				return err
			}
			if r.Custody == job.Ready && after.Lane != r.Lane {
				eff.Announce(job.QueueKind{Queue: r.Queue, Kind: r.Kind})
			}
			r.Job = after
		}
		return nil
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}
