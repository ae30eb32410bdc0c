package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// waiting finds the jobs that wait in a queue.
const waiting = `SELECT 1 FROM pawl.jobs j WHERE j.custody = 'ready' AND j.queue = $2 AND j.tenant = $1
	UNION ALL SELECT 1 FROM pawl.jobs j WHERE j.custody || '' = 'gate' AND j.queue = $2 AND j.tenant = $1`

// Waiting implements [store.Reader].
func (s *Store) Waiting(ctx context.Context, tenant, queue string, limit int) (n int, err error) {
	err = s.call(ctx, tenant, func(t *tx) error {
		return t.commit(read(`SELECT count(*) FROM (`+waiting+` LIMIT $3) w`, func(r *reader) error { n = r.int(); return nil }, tenant, queue, limit))
	})
	return n, err
}

func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	err = s.look(ctx, q.Tenant, func(t *tx) error {
		p.Jobs = nil
		return t.commit(read(`SELECT `+columns+` FROM pawl.specs s `+itsJob+`
			WHERE s.tenant = $1 ORDER BY s.created DESC, s.id DESC`, func(r *reader) error {
			p.Jobs = append(p.Jobs, r.row())
			return nil
		}, q.Tenant))
	})
	return p, err
}
func (s *Store) Count(ctx context.Context, tenant string, f job.Filter) (c store.Counts, err error) {
	c.States = map[job.State]int{}
	p, err := s.List(ctx, store.Query{Tenant: tenant})
	for _, j := range p.Jobs {
		c.States[j.State]++
	}
	return c, err
}
