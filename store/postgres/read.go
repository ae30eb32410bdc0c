package postgres

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Job implements [store.Reader].
func (s *Store) Job(ctx context.Context, tenant string, id job.ID) (job.Job, error) {
	jobs, err := s.jobs(ctx, tenant, `SELECT `+columns+`, `+documents+` FROM pawl.specs s `+itsJob+`
		WHERE s.id = $1 AND s.tenant = $2`, [16]byte(id), tenant)
	if err == nil && len(jobs) == 0 {
		err = store.NoJob(id)
	}
	if err != nil {
		return job.Job{}, err
	}
	return jobs[0], nil
}

// Held implements [store.Reader].
func (s *Store) Held(ctx context.Context, session job.ID) ([]job.Job, error) {
	return s.jobs(ctx, everyone, `SELECT `+columns+`, `+documents+` FROM (`+living+` WHERE session = $1) j `+
		itsSpec, [16]byte(session))
}

// Find implements [store.Reader].
func (s *Store) Find(ctx context.Context, ids []job.ID) ([]job.Job, error) {
	return s.jobs(ctx, everyone, `SELECT `+columns+`, `+documents+` FROM pawl.specs s `+itsJob+
		` WHERE s.id = ANY ($1)`, uuids(ids))
}

// Watched implements [store.Reader]. What is new and what is wished are found by an index each:
// most programs on a machine are neither.
func (s *Store) Watched(ctx context.Context, machine string, since time.Time) (jobs []job.Job, err error) {
	err = s.call(ctx, everyone, func(t *tx) error {
		jobs = nil
		return t.commit(read(`SELECT `+columns+` FROM (`+living+` WHERE id = ANY (ARRAY(
				SELECT w.id FROM pawl.jobs w WHERE w.custody = 'monitor' AND w.machine = $1 AND w.since >= $2
				UNION ALL SELECT w.id FROM pawl.jobs w WHERE w.custody = 'monitor' AND w.machine = $1
					AND w.wish <> ''))) j `+itsSpec, func(r *reader) error {
			j := r.row()
			j.Result, j.Labels = nil, nil
			jobs = append(jobs, j)
			return nil
		}, machine, since))
	})
	return jobs, err
}

// jobs reads whole jobs.
func (s *Store) jobs(ctx context.Context, tenant, text string, args ...any) (jobs []job.Job, err error) {
	err = s.call(ctx, tenant, func(t *tx) error {
		jobs = nil
		return t.commit(read(text, func(r *reader) error {
			jobs = append(jobs, r.whole())
			return nil
		}, args...))
	})
	return jobs, err
}
