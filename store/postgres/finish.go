package postgres

import (
	"github.com/pawl-jobs/pawl/internal/guard"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Nearly every change says that a handler has returned: a task that a session held is FINISHED, with a result at most. Of
// all that applyChanges weighs, nothing comes up for it, so such changes have a statement of their own, at two thirds of
// the cost. What it does not make because something about the row is out of the ordinary, applyChanges judges.

// finishes reports whether a change says that and nothing more.
func finishes(c *job.Change) bool {
	f, s := &c.From, &c.Set
	return f.Place == job.Place{State: job.Running, Custody: job.Worker} && f.Fence == job.Fence{Session: f.Fence.Session} &&
		c.To == job.None && c.Work == nil && len(c.Path) == 1 && c.Path[0].State == job.Finished && c.Path[0].Code == job.NormalCompletion &&
		c.Path[0].Message == "" && c.Path[0].Data == nil &&
		flags(s) == flags(&job.Patch{Clear: s.Clear}) && s.Session.IsZero() && s.Claim.IsZero() && s.Delay == 0 && s.Resume == "" && s.Resolved == nil && s.Turns == 0
}

// finishing puts the changes first that finish tasks and have not been tried as such: those of one session, which clear
// suspicion or do not.
func finishing(cs []asking) (tasks, others []asking) {
	n := 0
	for i := range cs {
		c := &cs[i]
		if c.tried || !finishes(&c.Change) || n > 0 && (c.From.Fence.Session != cs[0].From.Fence.Session || c.Set.Clear != cs[0].Set.Clear) {
			continue
		}
		cs[n], cs[i] = cs[i], cs[n]
		n++
	}
	return cs[:n], cs[n:]
}

// finish is the query that finishes tasks, all of one session. Those that it does not answer are as they were.
func finish(tasks []asking, answered func(i int, owed bool)) *query {
	numbers := func(f func(c *asking) int64) []int64 { return values(tasks, f) }
	return read(finishTasks, func(r *reader) error { answered(r.int()-1, r.bool()); return nil },
		values(tasks, func(c *asking) [16]byte { return c.Job }), [16]byte(tasks[0].From.Fence.Session),
		numbers(func(c *asking) int64 { return c.From.Epoch }), numbers(func(c *asking) int64 { return c.From.N }),
		column(tasks, func(c *asking) *string { return document(c.Set.Result) }), numbers(func(c *asking) int64 { return c.digest }), tasks[0].Set.Clear)
}

// finished is the answer for a task that was finished.
func (a *asking) finished() store.Applied {
	g := a.From
	g.Place, g.Epoch, g.N = job.Place{State: job.Finished, Custody: job.None}, g.Epoch+1, g.N+1
	return store.Applied{Outcome: store.OK, Now: g}
}

// finishTasks comes after applyFences. It locks the jobs while it looks at them, in the order of locks: one that it has waited
// for is judged as it stands by then. What the time is, it asks after that.
//
//	1 jobs  2 session  3 epochs  4 ns  5 results  6 digests  7 whether suspicion is cleared
//
// A task under limits that has its turns, and nothing else that ties it, is as common as one without: it gives them back.
var finishTasks = `
WITH x AS MATERIALIZED (
	SELECT s.id AS session, ` + ord + ` AS ord FROM pawl.sessions s
	WHERE s.id = $2 AND ` + guard.Session.SQL(`s.ended IS NULL AND s.lease_until > pawl.clock()`, `true`) + `
), held AS MATERIALIZED (
	SELECT c.i, c.digest, x.session, greatest(j.ord, x.ord) AS ord, j.id, j.tenant, j.epoch, j.n, j.attempt, j.recoveries,
		CASE WHEN $7 THEN 0 ELSE j.suspect END AS suspect, j.launch, j.created, j.needs, j.ties, j.told, j.wished_by, j.work, coalesce(c.result, j.result) AS result
	FROM x CROSS JOIN (
		SELECT * FROM unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::json[], $6::bigint[]) WITH ORDINALITY u(job, epoch, n, result, digest, i)
		ORDER BY u.job
	) c CROSS JOIN LATERAL (SELECT * FROM pawl.jobs j WHERE j.id = c.job OFFSET 0 FOR UPDATE) j
	WHERE ` + guard.Epoch.SQL(`j.epoch = c.epoch`, `true`) + ` AND ` + guard.Place.SQL(`j.n = c.n AND j.custody = 'worker' AND j.state = 'RUNNING'`, `true`) + `
		AND ` + guard.Holder.SQL(`j.session = x.session`, `true`) + ` AND ` + guard.Turn.SQL(`j.wish = ''`, `true`) + ` AND j.ties IN (0, 40) AND NOT j.live
), t AS MATERIALIZED (
	SELECT pawl.clock() AS now FROM (SELECT count(*) FROM held) all_of_them
), done AS MATERIALIZED (
	SELECT h.*, t.now FROM held h, t
), gone AS (
	DELETE FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT d.id FROM done d))
), kept AS (
	INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created, since, ended, needs, ties, told, wished_by,
		code, message, work, result)
	SELECT d.id, d.tenant, 'FINISHED', d.epoch + 1, d.n + 1, d.ord, d.attempt, d.recoveries, d.suspect, d.launch, d.created, d.now, d.now, d.needs, d.ties & 8,
		d.told, d.wished_by, 'NORMAL_COMPLETION', '', d.work, d.result
	FROM done d
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, session, code, change)
	SELECT d.id, d.n + 1, d.tenant, d.ord, d.epoch, 'FINISHED', 'none', d.now, 'work', d.session, 'NORMAL_COMPLETION', d.digest
	FROM done d
), returned AS (
	DELETE FROM pawl.turns t WHERE t.job = ANY (ARRAY(SELECT d.id FROM done d WHERE d.ties <> 0)) RETURNING t.tenant, t.key
), owed AS (
	INSERT INTO pawl.turns_owed (tenant, key, at)
	SELECT DISTINCT r.tenant, r.key, t.now FROM returned r, t WHERE ` + guard.Owed.SQL(guard.HandOn.SQL(`true`, `false`), `false`) + `
)
SELECT d.i, ` + guard.Owed.SQL(`d.ties <> 0`, `false`) + ` FROM done d`
