package sqlite

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
)

// HasEvents says that a job has n events of users. Long tests write them, one after the other.
func (s *Store) HasEvents(ctx context.Context, id job.ID, n int) error {
	return s.do(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE jobs SET told = ? WHERE id = ?`, int64(n), blob(id))
		return err
	})
}
