package postgres

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// locked are jobs as a transaction has found them: those that have not ended stay so until it
// commits.
type locked struct {
	now  time.Time
	jobs map[job.ID]*job.Job
}

// lock locks jobs in their order, and reads them.
func (t *tx) lock(ids []job.ID) (locked, error) {
	l := locked{jobs: make(map[job.ID]*job.Job, len(ids))}
	found := func(r *reader) error {
		j := r.row()
		l.jobs[j.ID] = &j
		return nil
	}
	return l, t.send(
		read(`SELECT `+columns+` FROM (`+living+` WHERE j.id = ANY ($1) ORDER BY j.id FOR UPDATE) j `+itsSpec,
			found, uuids(ids)),
		// Those that ended while they were waited for are seen by a later statement.
		read(`SELECT `+columns+` FROM (`+over+` WHERE id = ANY ($1)) j `+itsSpec, found, uuids(ids)),
		read(`SELECT pawl.clock()`, func(r *reader) error { l.now = r.time(); return nil }))
}
