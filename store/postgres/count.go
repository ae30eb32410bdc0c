package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Count implements [store.Reader].
func (s *Store) Count(ctx context.Context, tenant string, f job.Filter) (c store.Counts, err error) {
	err = s.look(ctx, tenant, func(t *tx) (err error) {
		if err := t.prepare(); err != nil {
			return err
		}
		c = store.Counts{States: map[job.State]int{}}
		if c.Since, err = t.since(f); err != nil {
			return err
		}
		sr := newSearch(tenant, f, c.Since, store.Newest, nil)
		l := sr.byPlace()
		if sr.looks() {
			if l, err = t.choose(sr); err != nil {
				return err
			}
		}
		sql, args := sr.tally(l)
		if sql == "" {
			return t.commit()
		}
		return t.commit(read(sql, func(r *reader) error { c.States[job.State(r.text())] += r.int(); return nil },
			args...))
	})
	return c, err
}

// looks reports whether the filter looks at more of a job than where it stands and when it was
// submitted.
func (s *search) looks() bool {
	for i := range s.filter {
		switch s.filter[i].Field {
		case "state", "custody", "created", "hidden":
		default:
			return true
		}
	}
	return false
}

// tally returns the statement that counts the jobs of a search by state; empty: there are none.
func (s *search) tally(l lead) (sql string, args []any) {
	var p params
	var parts []string
	for _, src := range s.of(l) {
		parts = append(parts, "SELECT j.state, count(*)"+s.chosen(&p, src, l, true, "OFFSET 0")+" GROUP BY j.state")
	}
	return union(parts), p
}

// waiting finds the jobs that wait in a queue.
var waiting = store.SQL(`SELECT 1 FROM pawl.jobs j WHERE j.custody = {Ready} AND j.queue = $2 AND j.tenant = $1
	UNION ALL SELECT 1 FROM pawl.jobs j WHERE j.custody || '' = {Gate} AND j.queue = $2 AND j.tenant = $1`)
