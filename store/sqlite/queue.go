package sqlite

import (
	"database/sql/driver"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A place is a queue of a tenant.
type place struct{ tenant, queue string }

// admit checks the queue of a job that has been inserted.
func (t *tx) admit(sub *store.Submission, queue string) error {
	tenant, check := sub.Tenant, sub.Queues[queue]
	if check.Document {
		there, err := t.exists(`SELECT 1 FROM resources WHERE tenant = ? AND kind = ? AND name = ?`, tenant,
			job.KindQueue, queue)
		if err != nil {
			return err
		}
		if !there {
			return store.NoQueue(queue)
		}
	}
	if check.Most == 0 {
		return nil
	}
	n, err := t.waitingIn(place{tenant, queue})
	if err != nil {
		return err
	}
	return sub.Admit(queue, n)
}

// waitingIn returns how many jobs wait in a queue. They are counted once; from then on every change
// is followed, for nobody else writes.
func (t *tx) waitingIn(p place) (int, error) {
	n, known := t.w.waiting[p]
	if !known {
		err := t.query(`SELECT count(*) FROM (`+waiting+`)`, func(v []driver.Value) error {
			n = integer(v[0])
			return nil
		}, p.queue, p.tenant, p.queue, p.tenant)
		if err != nil {
			return 0, err
		}
		t.w.waiting[p] = n - t.moved[p] // as the call found it
	}
	return t.w.waiting[p] + t.moved[p], nil
}

// waits notes that a job begins (1) or ceases (-1) to stand where it does.
func (t *tx) waits(r *row, n int) {
	if r.Custody != job.Gate && r.Custody != job.Ready {
		return
	}
	if t.moved == nil {
		t.moved = map[place]int{}
	}
	t.moved[place{r.Tenant, r.Queue}] += n
}

// settle keeps what a call that has succeeded moved.
func (t *tx) settle() {
	for p, n := range t.moved {
		if _, known := t.w.waiting[p]; known {
			t.w.waiting[p] += n
		}
	}
	clear(t.moved)
}

// using finds a job that needs a document of a kind and has not ended. The watch of a program tells
// its system, unless the service itself starts the programs of that: then the request does.
var using = map[string]string{
	job.KindQueue: living(`tenant = ? AND queue = ?`),
	job.KindSystem: living(`watch <> '' AND tenant = ? AND ? = CASE
		WHEN instr(watch, '/') > 0 THEN substr(watch, 1, instr(watch, '/') - 1)
		ELSE (SELECT nullif(s.request ->> '$.system', '` + job.SystemLocal + `') FROM specs s WHERE s.seq = jobs.seq) END`),
}

// living finds a job that has not ended and of which more is true.
func living(more string) string {
	parts := []string{
		`jobs_ready WHERE custody = {Ready}`, `jobs_gate WHERE custody = {Gate}`, `jobs_session WHERE session IS NOT NULL`,
		`jobs_monitor WHERE custody = {Monitor}`, `jobs_state WHERE state = {Blocked} AND session IS NULL AND hidden = 0`,
		`jobs_state WHERE state = {Paused} AND session IS NULL AND hidden = 0`,
	}
	for i, part := range parts {
		parts[i] = `SELECT 1 FROM jobs INDEXED BY ` + part + ` AND ` + more
	}
	return store.SQL(`SELECT 1 FROM (` + strings.Join(parts, ` UNION ALL `) + `) LIMIT 1`)
}
