package postgres

import (
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Nearly every change says that a handler has returned: a task that a session held is FINISHED,
// with a result at most. Nothing else that applyChanges checks matters for it, so such changes have
// a statement of their own, at two thirds of the cost. What it does not make because something
// about the row is out of the ordinary, applyChanges judges.

// finishes reports whether a change says that and nothing more.
func finishes(c *job.Change) bool {
	f, s := &c.From, &c.Set
	return f.Place == job.Place{State: job.Running, Custody: job.Worker} &&
		f.Fence == job.Fence{Session: f.Fence.Session} &&
		c.To == job.None && c.Work == nil && c.Was == nil && len(c.Path) == 1 && c.Path[0].State == job.Finished &&
		c.Path[0].Code == job.NormalCompletion &&
		c.Path[0].Message == "" && c.Path[0].Data == nil &&
		flags(s) == flags(&job.Patch{Clear: s.Clear}) && s.Session.IsZero() && s.Claim.IsZero() && s.Delay == 0 &&
		s.Resume == "" && s.Block == nil && s.Resolved == nil && s.Turns == 0
}

// finishing puts the changes first that finish tasks and have not been tried as such: those of one
// session, which clear suspicion or do not.
func finishing(cs []asking) (tasks, others []asking) {
	n := 0
	for i := range cs {
		c := &cs[i]
		if c.tried || !finishes(&c.Change) || n > 0 &&
			(c.From.Fence.Session != cs[0].From.Fence.Session || c.Set.Clear != cs[0].Set.Clear) {
			continue
		}
		cs[n], cs[i] = cs[i], cs[n]
		n++
	}
	return cs[:n], cs[n:]
}

// finish is the query that finishes tasks, all of one session. Those that it does not answer are as
// they were: without turning, those under limits are among them.
func finish(tasks []asking, turning bool, answered func(i int, limited, owed bool)) *query {
	text := finishPlain
	if turning {
		text = finishTasks
	}
	numbers := func(f func(c *asking) int64) []int64 { return values(tasks, f) }
	return read(text, func(r *reader) error { answered(r.int()-1, r.bool(), r.bool()); return nil },
		values(tasks, func(c *asking) [16]byte { return c.Job }), [16]byte(tasks[0].From.Fence.Session),
		numbers(func(c *asking) int64 { return c.From.Epoch }), numbers(func(c *asking) int64 { return c.From.N }),
		column(tasks, func(c *asking) *string { return document(c.Set.Result) }), numbers(
			func(c *asking) int64 { return c.digest }), tasks[0].Set.Clear)
}

// finished is the answer for a task that was finished.
func (a *asking) finished() store.Applied {
	g := a.From
	g.Place, g.Epoch, g.N = job.Place{State: job.Finished, Custody: job.None}, g.Epoch+1, g.N+1
	return store.Applied{Outcome: store.OK, Now: g}
}

// finishTasks comes after applyFences. It locks the jobs while it looks at them, in the order of
// locks: one that it has waited for is judged as it stands by then. What the time is, it asks after
// that.
//
//	1 jobs  2 session  3 epochs  4 ns  5 results  6 digests  7 whether suspicion is cleared
//
// A task under limits that has its turns, and nothing else that ties it, is as common as one
// without: it gives them back. Where this transaction has the turns lock of their tenant, passOn
// hands them on. finishPlain leaves it alone: a task without limits does not pay for what is done
// for those that have some.
var (
	finishTasks = ends(`j.ties IN (0, {TieLimited} | {TieTurn})`, `d.ties & {TieLimited}`, `, returned AS (
	DELETE FROM pawl.turns t WHERE t.job = ANY (ARRAY(SELECT d.id FROM done d WHERE d.ties <> 0))
		RETURNING t.tenant, t.key
), owed AS (
	INSERT INTO pawl.turns_owed (tenant, key, at)
	SELECT DISTINCT r.tenant, r.key, t.now FROM returned r, t
	WHERE r.tenant IS DISTINCT FROM `+payer+`
), told AS MATERIALIZED (
	SELECT set_config('job.returned', coalesce(json_object_agg(k.key, k.n)::text, '{}'), true)
	FROM (SELECT r.key, count(*) AS n FROM returned r WHERE r.tenant = `+payer+` GROUP BY r.key) k
)
SELECT d.i, d.ties <> 0, d.ties <> 0 AND d.tenant IS DISTINCT FROM `+payer+` FROM told, done d`)

	finishPlain = ends(`j.ties = 0`, `0`, `
SELECT d.i, false, false FROM done d`)
)

// ends is a statement that finishes tasks that are tied so, and then does more.
func ends(tied, keeps, more string) string {
	return store.SQL(`
WITH x AS MATERIALIZED (
	SELECT s.id AS session, ` + ord + ` AS ord FROM pawl.sessions s
	WHERE s.id = $2 AND s.ended IS NULL AND s.lease_until > pawl.clock()
), held AS MATERIALIZED (
	SELECT c.i, c.digest, x.session, greatest(j.ord, x.ord) AS ord, j.id, j.tenant, j.epoch, j.n, j.attempt,
		j.recoveries,
		CASE WHEN $7 THEN 0 ELSE j.suspect END AS suspect, j.launch, j.created, j.needs, j.ties, j.limits,
			j.told, j.wished_by, j.work, coalesce(c.result, j.result) AS result
	FROM x CROSS JOIN (
		SELECT * FROM unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::json[],
			$6::bigint[]) WITH ORDINALITY u(job, epoch, n, result, digest, i)
		ORDER BY u.job
	) c CROSS JOIN LATERAL (SELECT * FROM pawl.jobs j WHERE j.id = c.job OFFSET 0 FOR UPDATE) j
	WHERE j.epoch = c.epoch
		AND j.n = c.n AND j.custody = {Worker} AND j.state = {Running}
		AND j.session = x.session
		AND j.wish = '' AND ` + tied + ` AND NOT j.live
), t AS MATERIALIZED (
	SELECT pawl.clock() AS now FROM (SELECT count(*) FROM held) all_of_them
), done AS MATERIALIZED (
	SELECT h.*, t.now FROM held h, t
), ` + finishHistory(keeps) + more)
}

// payer is the tenant whose turns lock this transaction has.
const payer = `(SELECT nullif(current_setting('job.payer', true), ''))`

var (
	// tryTurnsLock takes the turns lock of a tenant some of whose jobs $1 are under limits, if it
	// can be had at once: see lockTurns.
	tryTurnsLock = `SELECT set_config('job.payer', g.tenant, true) FROM (` + turnsLockToTry("$1") + `) g`

	// tryTurnsLockFor is tryTurnsLock for a tenant. It does not try where all there is to do is to
	// look at lines $2 for jobs $3, which have come to stand behind others: what is free there is
	// owed already. NULL: there is more to do.
	tryTurnsLockFor = `
SELECT o.crowded, CASE
	WHEN NOT o.crowded THEN pg_try_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0))
	ELSE false END FROM (
	SELECT $3::uuid[] IS NOT NULL AND NOT EXISTS (SELECT FROM unnest($2::text[]) k(key) WHERE NOT EXISTS (
		SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key AND j.id <> ALL ($3::uuid[])
			OFFSET 0)) AS crowded OFFSET 0
) o`

	// tryTurnsLockOf is tryTurnsLock for a tenant, if one of some keys has no waiting jobs.
	// awaitTurnsLockOf waits for the lock.
	tryTurnsLockOf   = turnsLockOf(`pg_try_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0))`)
	awaitTurnsLockOf = turnsLockOf(`pg_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0)) IS NOT NULL`)

	// turnsLockPatience is how long a submission waits for the turns lock. Its holder may be
	// frozen.
	turnsLockPatience = `SET LOCAL lock_timeout = '1s'`
)

// turnsLockToTry is the tenant, some of whose jobs are under limits, if its turns lock is had.
func turnsLockToTry(jobs string) string {
	return store.SQL(`SELECT l.tenant FROM (SELECT j.tenant FROM pawl.jobs j WHERE j.id = ANY (` + jobs + `::uuid[])
		AND j.ties & {TieLimited} <> 0 LIMIT 1) l
		WHERE pg_try_advisory_xact_lock(hashtextextended('pawl.turns/'||l.tenant, 0))`)
}

func turnsLockOf(lock string) string {
	return `
SELECT set_config('job.payer', $1::text, true) WHERE CASE
	WHEN EXISTS (SELECT FROM unnest($2::text[]) k(key)
		WHERE NOT EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key OFFSET 0))
	THEN ` + lock + ` ELSE false END`
}

// passing is the query that hands on the turns of the tasks that finished before it. With a claim,
// which also came before it, the jobs that get a turn are claimed at once as long as slots are
// free.
func passing(eff *store.Effects, claim *claiming) *query {
	each := func(r *reader) {
		eff.Owed = r.bool() || eff.Owed
		if queue, kind := r.text(), r.text(); queue != "" {
			eff.Announce(job.QueueKind{Queue: queue, Kind: kind})
		}
	}
	if claim == nil {
		return read(passOn, func(r *reader) error { each(r); return nil })
	}
	var named [][16]byte // NULL: all
	if len(claim.Jobs) > 0 {
		named = uuids(claim.Jobs)
	}
	return read(passOnClaimed, func(r *reader) error {
		if each(r); r.values[0] != nil {
			claim.jobs = append(claim.jobs, r.whole())
		}
		return nil
	}, append(claim.asks(), named)...)
}

// mostPassedOn bounds the jobs of a key to which passOn hands turns.
const mostPassedOn = "200"

// freeOf is how many more jobs may have turns of a key of the payer's: see [turns.Key.Free].
// None may, where the line is about to be closed.
func freeOf(key string) string {
	of := `regexp_replace(` + key + `, '^ahead/', '')`
	return `CASE WHEN ` + isClosing(payer, of) + ` THEN 0 ELSE coalesce((
		SELECT CASE WHEN NOT starts_with(` + key + `, 'ahead/') THEN m.most WHEN m.ahead > 0 THEN m.ahead
			ELSE 2 * m.most END
		FROM pawl.limits m WHERE m.tenant = ` + payer + `
			AND m.key IN (` + of + `, regexp_replace(` + of + `, '[^/]*$', '*')) ORDER BY m.key <> ` + of + ` LIMIT 1),
		CASE WHEN starts_with(` + key + `, 'order/') THEN 1 WHEN starts_with(` + of + `, 'unique/') THEN CASE
			WHEN starts_with(` + key + `, 'ahead/') THEN 2 ELSE 1 END ELSE 1000000000 END) END
		- (SELECT count(*)::int FROM pawl.turns t WHERE t.tenant = ` + payer + ` AND t.key = ` + key + `)`
}

// passOn hands the turns that finishTasks took back to the jobs that wait for them, in the same
// transaction. It decides as [turns.Keys.Hand] does for the tasks of one owner that are under one
// limit each, and so need no comparison with others. It leaves keys owed if other jobs wait for
// them, or if it meets a job that another transaction has locked: it waits for no lock, for it has
// locked jobs itself.
//
// passOnClaimed comes after a claim and has the claim's first parameters. A job that gets a turn,
// and fits the claim, goes to the session of the claim as long as there are slots. That is one
// write of a row instead of two.
var (
	passOn = passingOn(``, `false`, ``, `
SELECT (SELECT count(*) FROM owed) > 0, m.queue, m.kind FROM (SELECT) one LEFT JOIN moved m ON true
	GROUP BY m.queue, m.kind`)

	passOnClaimed = passingOn(`, j.priority, j.created, j.lane, j.queue = ANY ($3::text[])
		AND j.kind = ANY ($4::text[]) AND (j.machine = '' OR j.machine = $5::text)
		AND ($6::text[] IS NULL OR j.tenant = ANY ($6::text[]))
			AND ($7::uuid[] IS NULL OR j.id = ANY ($7::uuid[])) AS fits`,
		`l.fits AND row_number() OVER (PARTITION BY l.lane, l.fits
			ORDER BY l.priority, l.created, l.id) <= `+slotsLeft("l.lane"), `, `+turnClaimHistory+`, started AS (
	DELETE FROM pawl.unique_keys u WHERE u.job = ANY (ARRAY(SELECT t.id FROM took t
		WHERE t.ties & {TieUniqueStart} <> 0))
		AND u.mode || '' = {UntilStart}
)`, `
SELECT (SELECT count(*) FROM owed) > 0, r.queue, r.kind, `+columns+`, `+documents+`
FROM (SELECT m.queue, m.kind, row_number() OVER () = 1 AS first FROM (SELECT) one LEFT JOIN moved m ON true
	GROUP BY m.queue, m.kind) r
LEFT JOIN (took j `+itsSpec+`) ON r.first`)
)

func passingOn(fits, chosen, took, answer string) string {
	return store.SQL(`
WITH x AS MATERIALIZED (
	SELECT ` + payer + ` AS tenant, pawl.clock() AS now, ` + ord + ` AS ord
), returned AS MATERIALIZED (
	SELECT r.key, least(r.n::int, ` + mostPassedOn + `) AS n
	FROM json_each_text(current_setting('job.returned', true)::json) r(key, n)
), heads AS MATERIALIZED (
	SELECT r.key, h.id, h.owner, r.n FROM returned r CROSS JOIN LATERAL (
		SELECT j.id, j.owner FROM pawl.jobs j
		WHERE j.tenant = ` + payer + ` AND j.line = r.key
		ORDER BY j.owner, j.priority, j.created, j.id LIMIT r.n
	) h
), locked AS MATERIALIZED (
	SELECT j.id, j.line AS key, j.owner` + fits + ` FROM pawl.jobs j
	WHERE j.id = ANY (ARRAY(SELECT h.id FROM heads h)) AND coalesce(j.line, '') <> '' AND j.state = {Waiting}
		AND j.kind <> {KindApp} AND j.ties & ~({TieDependants} | {TieUniqueStart} | {TieUniqueDone}) = {TieLimited}
		AND cardinality(j.limits) = 1
	ORDER BY j.id FOR UPDATE SKIP LOCKED
), lines AS MATERIALIZED (
	SELECT l.key, l.found, l.all_of_them, ` + freeOf("l.key") + ` - l.found AS free,
		l.locked AND NOT EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = ` + payer + ` AND j.line = l.key
			AND j.owner > l.owner OFFSET 0)
			AND NOT EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = ` + payer + ` AND j.line = l.key
				AND ` + keeping + ` OFFSET 0) AS easy
	FROM (
		SELECT h.key, count(*)::int AS found, count(*) < h.n AS all_of_them, min(h.owner) AS owner,
			bool_and((h.id, h.key) IN (SELECT l.id, l.key FROM locked l)) AS locked
		FROM heads h GROUP BY h.key, h.n OFFSET 0
	) l
), passed AS MATERIALIZED (
	SELECT l.key FROM lines l WHERE l.easy AND l.free >= 0
), granted AS MATERIALIZED (
	SELECT l.id, l.key, l.owner, ` + chosen + ` AS chosen FROM locked l
		WHERE coalesce(l.key IN (SELECT p.key FROM passed p), false) -- looked up, and not joined
), ` + turnHistory + took + `, turns AS (
	INSERT INTO pawl.turns (job, key, tenant, owner) SELECT g.id, g.key, x.tenant, g.owner FROM x, granted g
), unserved AS (
	DELETE FROM pawl.served v WHERE v.tenant = (SELECT x.tenant FROM x)
		AND v.key = ANY (ARRAY(SELECT r.key FROM returned r WHERE r.key NOT IN (SELECT l.key FROM lines l)
			UNION ALL SELECT p.key FROM passed p))
), paid AS (
	DELETE FROM pawl.turns_owed o WHERE o.tenant = (SELECT x.tenant FROM x WHERE EXISTS (SELECT FROM passed))
		AND o.key = ANY (ARRAY(SELECT p.key FROM passed p))
), owed AS (
	INSERT INTO pawl.turns_owed (tenant, key, at) SELECT x.tenant, l.key, x.now FROM x, lines l
	WHERE CASE WHEN l.easy AND l.free >= 0 THEN l.free > 0 AND NOT l.all_of_them ELSE l.free + l.found > 0 END
	RETURNING key
)` + answer)
}
