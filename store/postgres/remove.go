package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// removeJobs is how many jobs one transaction removes.
const removeJobs = 500

// Remove implements [store.Jobs].
func (s *Store) Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error) {
	answers := make([]error, 0, len(ids))
	for len(answers) < len(ids) {
		some := ids[len(answers):min(len(ids), len(answers)+removeJobs)]
		var refused []error
		err := s.call(ctx, tenant, func(t *tx) (err error) {
			refused, err = t.remove(tenant, some)
			return err
		})
		if err != nil {
			return nil, err
		}
		answers = append(answers, refused...)
	}
	return answers, nil
}

// remove removes jobs in one transaction, and answers each of them.
func (t *tx) remove(tenant string, ids []job.ID) ([]error, error) {
	there := map[job.ID]*job.Job{}
	owes := map[job.ID]bool{}
	// A job that has ended changes no more: what is locked is its removal by another.
	err := t.send(
		read(`SELECT `+columns+` FROM (SELECT * FROM pawl.specs WHERE id = ANY ($1) AND tenant = $2 ORDER BY id
			FOR UPDATE) s
			`+itsJob+``, func(r *reader) error {
			j := r.row()
			there[j.ID] = &j
			return nil
		}, uuids(ids), tenant),
		read(`SELECT f.job FROM pawl.followups f WHERE f.job = ANY ($1)`,
			func(r *reader) error { owes[r.id()] = true; return nil }, uuids(ids)))
	if err != nil {
		return nil, err
	}
	answers := make([]error, len(ids))
	var gone [][16]byte
	for i, id := range ids {
		switch j := there[id]; {
		case j == nil:
			answers[i] = store.NoJob(id)
		case !j.State.Terminal():
			answers[i] = job.Errorf(job.Conflict, "job %s is %s: cancel it before it is removed", id, j.State)
		case owes[id]:
			answers[i] = job.Errorf(job.Conflict,
				"jobs that waited for job %s have not heard of its end yet: try again in a moment", id)
		default:
			gone = append(gone, id)
			delete(there, id) // if it stands there twice
		}
	}
	return answers, t.commit(erase(gone)...)
}

// erase returns what deletes all rows of jobs.
func erase(ids [][16]byte) (qs []*query) {
	if len(ids) == 0 {
		return nil
	}
	for _, text := range []string{
		`DELETE FROM pawl.labels WHERE job = ANY ($1)`,
		`DELETE FROM pawl.events WHERE job = ANY ($1)`,
		`DELETE FROM pawl.prerequisites WHERE ctid = ANY (ARRAY(SELECT p.at
			FROM unnest($1::uuid[]) u(id) -- a hash index finds one job at a time
			CROSS JOIN LATERAL (SELECT p.ctid AS at FROM pawl.prerequisites p WHERE p.job = u.id OFFSET 0) p))`,
		`DELETE FROM pawl.unique_keys WHERE job = ANY ($1)`,
		`DELETE FROM pawl.ended WHERE id = ANY ($1)`,
		`DELETE FROM pawl.specs WHERE id = ANY ($1)`,
	} {
		qs = append(qs, do(text, ids))
	}
	return qs
}
