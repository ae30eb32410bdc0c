package sqlite

import (
	"context"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Count implements [store.Reader].
func (s *Store) Count(ctx context.Context, tenant string, f job.Filter) (store.Counts, error) {
	sr := newSearch(tenant, f, f.Window(s.now()).Truncate(time.Microsecond))
	counts := store.Counts{States: map[job.State]int{}, Since: sr.since}
	if err := s.bound(ctx, sr); err != nil {
		return counts, err
	}
	l, err := s.choose(ctx, sr, store.Newest)
	if err != nil {
		return counts, err
	}
	var parts []string
	var args []any
	for _, src := range sr.of(l) {
		c := sr.chosen(src, l, store.Newest, cond{})
		parts, args = append(parts, "SELECT j.state, count(*) "+c.sql+" GROUP BY j.state"), append(args, c.args...)
	}
	if len(parts) == 0 {
		return counts, nil
	}
	err = s.query(ctx, strings.Join(parts, " UNION ALL "), 2, func(v []driver.Value) {
		counts.States[job.State(text(v[0]))] += integer(v[1])
	}, args...)
	return counts, err
}

// waiting finds the jobs that wait in a queue.
var waiting = store.SQL(`SELECT 1 FROM jobs INDEXED BY jobs_ready WHERE custody = {Ready} AND queue = ? AND tenant = ?
	UNION ALL SELECT 1 FROM jobs INDEXED BY jobs_gate WHERE custody = {Gate} AND queue = ? AND tenant = ?`)
