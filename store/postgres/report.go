package postgres

import (
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// reporting takes the reports out of changes.
func reporting(cs []asking) (others, reports []asking) {
	i := 0
	for _, c := range cs {
		if c.Reports() {
			reports = append(reports, c)
		} else {
			cs[i], i = c, i+1
		}
	}
	return slices.Clip(cs[:i]), reports
}

// report is the query that keeps what workers report, and answers it.
func report(cs []asking, answers []store.Applied) *query {
	numbers := func(f func(c *asking) int64) []int64 { return values(cs, f) }
	return read(keepReports, func(r *reader) error {
		c := &cs[r.int()-1]
		a := &answers[c.at]
		a.Outcome = store.Outcome(r.text())
		j := job.Job{ID: c.Job}
		j.State, j.Custody, j.Epoch, j.N = job.State(r.text()), job.Custody(r.text()), r.int64(), r.int64()
		if a.Wish = job.Wish(r.text()); j.State != "" {
			a.Now = j.Guard(c.From.Fence)
		}
		return nil
	},
		values(cs, func(c *asking) [16]byte { return c.Job }),
		numbers(func(c *asking) int64 { return c.From.Epoch }), numbers(func(c *asking) int64 { return c.From.N }),
		values(cs, func(c *asking) [16]byte { return c.From.Fence.Session }),
		values(cs, func(c *asking) string { return string(c.Work) }),
		column(cs, func(c *asking) *string {
			if c.Was == nil {
				return nil
			}
			was := string(c.Was)
			return &was
		}))
}

// keepReports keeps each report whose guard holds, and answers all. The jobs and the sessions are
// locked. 1 job  2 epoch  3 n  4 session  5 work  6 the work before, NULL: any
var keepReports = store.SQL(`
WITH given AS MATERIALIZED (
	SELECT c.*, c.session IN (SELECT s.id FROM pawl.sessions s
		WHERE s.id = ANY ($4::uuid[]) AND s.ended IS NULL AND s.lease_until > pawl.clock()) AS alive
	FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::json[], $6::text[]) WITH ORDINALITY
		c(job, epoch, n, session, work, was, i)
), kept AS (
	UPDATE pawl.jobs j SET work = c.work FROM given c
	WHERE j.id = c.job AND j.epoch = c.epoch AND j.n = c.n AND j.custody = {Worker} AND j.session = c.session AND c.alive
		AND (c.was IS NULL OR coalesce(j.work::text, '') = c.was)
	RETURNING c.i
)
SELECT c.i, CASE WHEN c.i IN (SELECT k.i FROM kept k) THEN 'applied'
	WHEN c.alive AND j.epoch = c.epoch AND j.session = c.session THEN 'conflict' ELSE 'fenced' END,
	j.state, j.custody, j.epoch, j.n, j.wish
FROM given c LEFT JOIN LATERAL (SELECT * FROM pawl.jobs j WHERE j.id = c.job OFFSET 0) j ON true`)
