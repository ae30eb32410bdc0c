package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// removeRows is about how many rows one transaction removes.
const removeRows = 2000

// Remove implements [store.Jobs].
func (s *Store) Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error) {
	answers := make([]error, 0, len(ids))
	for len(answers) < len(ids) {
		var some []error
		err := s.do(ctx, func(t *tx) (err error) {
			some, err = t.remove(tenant, ids[len(answers):])
			return err
		})
		if err != nil {
			return nil, err
		}
		answers = append(answers, some...)
	}
	return answers, nil
}

// remove removes the first of some jobs, as many as one transaction takes, and answers each of
// them.
func (t *tx) remove(tenant string, ids []job.ID) (answers []error, err error) {
	ids = ids[:min(len(ids), removeRows/4)]
	rows, err := t.find(ids)
	if err != nil {
		return nil, err
	}
	jobs, events, err := t.newest()
	if err != nil {
		return nil, err
	}
	var removed int64
	for _, id := range ids {
		if removed >= removeRows {
			break
		}
		r := rows[id]
		if r == nil || r.Tenant != tenant {
			answers = append(answers, store.NoJob(id))
			continue
		}
		refused, err := t.keeps(r)
		if err != nil {
			return nil, err
		}
		if refused == nil {
			delete(rows, id)
			n, err := t.erase(r)
			if err != nil {
				return nil, err
			}
			removed += n
		}
		answers = append(answers, refused)
	}
	return answers, t.reserve(jobs, events)
}

// keeps says why a job cannot be removed.
func (t *tx) keeps(r *row) (error, error) {
	if !r.State.Terminal() {
		return job.Errorf(job.Conflict, "job %s is %s: cancel it before it is removed", r.ID, r.State), nil
	}
	owes, err := t.exists(`SELECT 1 FROM followups WHERE job = ?`, r.seq)
	if owes {
		return job.Errorf(job.Conflict, "jobs that waited for job %s have not heard of its end yet: try again in "+
			"a moment", r.ID), err
	}
	return nil, err
}

// erase deletes all rows of a job and returns how many these were.
func (t *tx) erase(r *row) (total int64, err error) {
	for _, q := range []string{
		`DELETE FROM events WHERE job = ?`, `DELETE FROM prerequisites WHERE job = ?`,
		`DELETE FROM unique_keys WHERE job = ?`, `DELETE FROM labels WHERE job = ?`,
		`DELETE FROM specs WHERE seq = ?`, `DELETE FROM jobs WHERE seq = ?`,
	} {
		if err != nil {
			break
		}
		var n int64
		n, err = t.exec(q, r.seq)
		total += n
	}
	return total, err
}

// newest returns the highest numbers given so far.
func (t *tx) newest() (jobs, events int64, err error) {
	err = t.query(`SELECT (SELECT coalesce(max(seq), 0) FROM jobs), (SELECT coalesce(max(seq), 0) FROM events)`,
		func(v []driver.Value) error {
			jobs, events = v[0].(int64), v[1].(int64)
			return nil
		})
	return jobs, events, err
}

// reserve keeps numbers from being given again: an older cursor would pass over what got them.
// Placeholder rows keep the highest numbers while nothing higher is there.
func (t *tx) reserve(jobs, events int64) error {
	for _, q := range []string{dropJob, dropEvent} {
		if _, err := t.exec(q); err != nil {
			return err
		}
	}
	j, e, err := t.newest()
	if err != nil {
		return err
	}
	if j < jobs {
		_, err = t.exec(keepJob, jobs, micros(t.now))
	}
	if e < events && err == nil {
		_, err = t.exec(keepEvent, events)
	}
	return err
}
