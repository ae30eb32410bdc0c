package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Clear implements [store.Leases].
func (s *Store) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	var eff store.Effects
	err := s.call(ctx, everyone, func(t *tx) error {
		l, err := t.lock(values(lost, func(l *store.Lost) job.ID { return l.Job }))
		if err != nil {
			return err
		}
		eff = store.Effects{}
		var ids [][16]byte
		var lanes []string
		for _, x := range lost {
			j := l.jobs[x.Job]
			if j == nil {
				continue
			}
			after, cleared := j.Cleared(x.Epoch)
			if !cleared {
				continue
			}
			if j.Custody == job.Ready && after.Lane != j.Lane {
				eff.Add(j)
			}
			ids, lanes = append(ids, j.ID), append(lanes, string(after.Lane))
			*j = after
		}
		return t.commit(do(`UPDATE pawl.jobs j
			SET suspect = 0, lane = ($2::text[])[array_position($1::uuid[], j.id)]
			WHERE j.id = ANY ($1::uuid[])`, nonNil(ids), nonNil(lanes)))
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}
