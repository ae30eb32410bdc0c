package postgres

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Find implements [store.Reader].
func (s *Store) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	switch {
	case !q.Session.IsZero():
		return s.jobs(ctx, everyone, `SELECT `+columns+`, `+documents+` FROM (`+living+` WHERE session = $1) j `+
			itsSpec, [16]byte(q.Session))
	case q.Watch != "":
		return s.watched(ctx, q.Watch, q.Since)
	case q.Tenant != "":
		return s.jobs(ctx, q.Tenant, byID+` AND s.tenant = $2`, uuids(q.IDs), q.Tenant)
	}
	return s.jobs(ctx, everyone, byID, uuids(q.IDs))
}

var byID = `SELECT ` + columns + `, ` + documents + ` FROM pawl.specs s ` + itsJob + ` WHERE s.id = ANY ($1)`

// watched reads the programs of a watch that are new, or that somebody wishes something of.
func (s *Store) watched(ctx context.Context, watch string, since time.Time) (jobs []job.Job, err error) {
	err = s.call(ctx, everyone, func(t *tx) error {
		jobs = nil
		return t.commit(read(watchedJobs, func(r *reader) error {
			j := r.row()
			j.Result, j.Labels = nil, nil
			jobs = append(jobs, j)
			return nil
		}, watch, since))
	})
	return jobs, err
}

// watchedJobs finds what is new and what is wished by an index each: most programs are neither.
var watchedJobs = store.SQL(`SELECT ` + columns + ` FROM (` + living + ` WHERE id = ANY (ARRAY(
	SELECT w.id FROM pawl.jobs w WHERE w.custody = {Monitor} AND w.watch = $1 AND w.since >= $2
	UNION ALL SELECT w.id FROM pawl.jobs w WHERE w.custody = {Monitor} AND w.watch = $1
		AND w.wish <> ''))) j ` + itsSpec)

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
