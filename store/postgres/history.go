package postgres

import "github.com/pawl-jobs/pawl/store"

// This file has all SQL that writes history (events, and ended for jobs that have ended), and all
// that moves a job: what sets its state, custody, epoch and n. Each row that moves gets its history
// in the same statement. Other columns of a job, such as ties, line or due, are no change of it;
// what writes these stands beside the function that decides on them.
//
// The parts below are put into a statement after those in which it has locked its jobs and judged
// them. Their comments say which parts they read.

// submitHistory makes the jobs of new. where keeps a text if jobs are under limits. The statement
// that it is put into replaces the names.
func submitHistory(where func(string) string) string {
	return `job AS (
	INSERT INTO pawl.jobs (id, tenant, kind, queue, machine, watch, priority, created, state, custody, epoch, n, ord,
		lane, attempt, since,
		due, needs, ties` + where(`, limits, line, owner, ordered, rank`) + `)
	SELECT n.id, $1, n.kind, n.queue, coalesce(n.machine, ''), coalesce(n.watch, ''), n.priority, n.now,
		CASE WHEN n.gated THEN {Waiting} ELSE {Pending} END, CASE WHEN n.gated THEN {Gate} ELSE {Ready} END,
		1, 1, n.ord, CASE WHEN n.kind = {KindApp} THEN {LanePrepare} ELSE {LaneTask} END, 1, n.now,
		n.due, coalesce(n.needs, 0), n.tied` + where(`, n.limits::text[], n.line, CASE WHEN n.limits IS NOT NULL
			OR n.ordered IS NOT NULL THEN n.owner END, n.ordered, n.at`) + `
	FROM new n
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, actor)
	SELECT n.id, 1, $1, n.ord, 0, CASE WHEN n.gated THEN {Waiting} ELSE {Pending} END, CASE WHEN n.gated
		THEN {Gate} ELSE {Ready} END,
		n.now, {CauseSubmit}, nullif($2, '')
	FROM new n
)`
}

// taskHistory makes the task of new, which is under no limit. It is [submitHistory] for that.
var taskHistory = submitHistory(func(string) string { return "" })

// claimHistory gives the chosen jobs of heads to a session. It reads x, heads and locked, and makes
// took.
var claimHistory = store.SQL(`took AS (
	UPDATE pawl.jobs j SET
		state = CASE WHEN j.state <> {Pending} THEN j.state WHEN j.kind = {KindApp} THEN {ProcessingInputs}
			ELSE {Running} END,
		custody = {Worker}, epoch = j.epoch + 1, n = j.n + 1, ord = greatest(j.ord, x.ord), session = $2,
			claim = $1, since = locked.now,
		due = NULL, resume = '', code = '', message = CASE WHEN j.id = ANY (locked.intended)
			THEN {Launching} ELSE '' END,
		launch = j.launch + (j.id = ANY (locked.intended))::int, live = j.live OR j.id = ANY (locked.intended)
	FROM x, locked WHERE j.id = ANY (ARRAY(SELECT h.id FROM heads h WHERE h.chosen))
	RETURNING ` + livingRow + `, j.tenant
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, session, message)
	SELECT t.id, t.n, t.tenant, t.ord, t.epoch - 1, t.state, t.custody, t.since, {CauseClaim}, $2,
		nullif(t.message, '') FROM took t
)`)

// dueHistory moves the jobs of due out of their gate, and clears their time. It reads x, and makes
// moved. Only what goes has history.
var dueHistory = store.SQL(`moved AS (
	UPDATE pawl.jobs j SET due = NULL,
		line = CASE WHEN ` + goes + ` OR j.needs > 0 THEN NULL WHEN j.ties & {TieOrder} = 0 AND j.ordered IS NOT NULL
			THEN j.ordered
			WHEN j.kind = {KindApp} AND j.state = {Waiting} THEN 'ahead/' || j.limits[1] ELSE j.limits[1] END,
		state = CASE WHEN ` + goes + ` AND j.state = {Waiting} THEN {Pending} ELSE j.state END, custody = CASE
			WHEN ` + goes + ` THEN {Ready} ELSE j.custody END,
		epoch = j.epoch + (` + goes + `)::int, n = j.n + (` + goes + `)::int, since = CASE WHEN ` + goes + `
			OR j.needs = 0 THEN x.now ELSE j.since END,
		ord = CASE WHEN ` + goes + ` THEN greatest(j.ord, x.ord) ELSE j.ord END,
		code = CASE WHEN ` + goes + ` THEN '' ELSE j.code END, message = CASE WHEN ` + goes + ` THEN ''
			ELSE j.message END
	FROM x WHERE j.id = ANY (ARRAY(SELECT d.id FROM due d))
	RETURNING j.id, j.tenant, j.queue, j.kind, j.state, j.custody, j.epoch, j.n, j.ord, j.since, j.line,
		j.custody = {Ready} AS goes
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause)
	SELECT m.id, m.n, m.tenant, m.ord, m.epoch - 1, m.state, m.custody, m.since, {CauseDue} FROM moved m WHERE m.goes
)`)

// turnHistory makes the jobs of granted ready that are not chosen. It reads x, and makes moved.
var turnHistory = store.SQL(`moved AS (
	UPDATE pawl.jobs j SET state = {Pending}, custody = {Ready}, epoch = j.epoch + 1, n = j.n + 1,
		ord = greatest(j.ord, x.ord), since = x.now,
		ties = j.ties | {TieTurn}, line = NULL, code = '', message = ''
	FROM x WHERE j.id = ANY (ARRAY(SELECT g.id FROM granted g WHERE NOT g.chosen))
	RETURNING j.id, j.tenant, j.queue, j.kind, j.epoch, j.n, j.ord, j.since
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause)
	SELECT m.id, m.n, m.tenant, m.ord, m.epoch - 1, {Pending}, {Ready}, m.since, {CauseTurn} FROM moved m
)`)

// turnClaimHistory gives the chosen jobs of granted to a session. That is two changes, a turn and a
// claim, and one write of the row. It reads x, and makes took.
var turnClaimHistory = store.SQL(`took AS (
	UPDATE pawl.jobs j SET state = {Running}, custody = {Worker}, epoch = j.epoch + 2, n = j.n + 2,
		ord = greatest(j.ord, x.ord), session = $2, claim = $1,
		since = x.now, due = NULL, ties = j.ties | {TieTurn}, line = NULL, resume = '', code = '', message = ''
	FROM x WHERE j.id = ANY (ARRAY(SELECT g.id FROM granted g WHERE g.chosen))
	RETURNING ` + livingRow + `, j.tenant
), claims AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, session)
	SELECT t.id, t.n - 1, t.tenant, t.ord, t.epoch - 2, {Pending}, {Ready}, t.since, {CauseTurn}, NULL FROM took t
	UNION ALL
	SELECT t.id, t.n, t.tenant, t.ord, t.epoch - 1, {Running}, {Worker}, t.since, {CauseClaim}, $2 FROM took t
)`)

// finishHistory ends the tasks of done. keeps says which ties they keep.
func finishHistory(keeps string) string {
	return store.SQL(`gone AS (
	DELETE FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT d.id FROM done d))
), kept AS (
	INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created,
		since, ended, needs, ties, limits, told, wished_by,
		code, message, work, result)
	SELECT d.id, d.tenant, {Finished}, d.epoch + 1, d.n + 1, d.ord, d.attempt, d.recoveries, d.suspect,
		d.launch, d.created, d.now, d.now, d.needs, ` + keeps + `, d.limits,
		d.told, d.wished_by, {NormalCompletion}, '', d.work, d.result
	FROM done d
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, session, code, change)
	SELECT d.id, d.n + 1, d.tenant, d.ord, d.epoch, {Finished}, {None}, d.now, {CauseWork}, d.session,
		{NormalCompletion}, d.digest
	FROM done d
)`)
}

// applyHistory makes the changes of made that go, and writes what they have chosen.
var applyHistory = store.SQL(`written AS (
	-- Each row is found by its key: an UPDATE would leave it to the planner how these rows are
	-- joined with the table's. What is not named here stays as it is.
	INSERT INTO pawl.jobs AS j (id, tenant, kind, queue, priority, created, state, custody, epoch, n,
		ord, lane, session, claim,
		attempt, recoveries, suspect, launch, live, since, due, needs, ties, told, wish, wished_by, resume,
			code, message, work, result)
	SELECT m.id, m.tenant, m.kind, m.queue, m.priority, m.created, m.new_state, m.new_custody,
		m.epoch + m.moved::int, m.n + m.steps,
		m.new_ord, CASE WHEN m.new_suspect >= 2 THEN {LaneAlone} WHEN m.kind = {KindApp} THEN m.lane
			ELSE {LaneTask} END, CASE WHEN NOT m.moved THEN m.session END,
		CASE WHEN NOT m.moved THEN m.claim END, m.new_attempt, m.new_recoveries, m.new_suspect, m.new_launch,
			m.new_live,
		CASE WHEN m.moved THEN m.now ELSE m.since END, m.new_due,
		m.needs, m.ties, m.told, CASE WHEN m.new_state = {Paused} THEN '' ELSE m.at_wish END, m.wished_by,
		CASE WHEN m.new_state IN ({Blocked}, {Paused}) THEN coalesce(m.resume, '')
			ELSE '' END, coalesce(m.code, ''), coalesce(m.message, ''),
		m.new_work, m.new_result
	FROM made m WHERE m.goes_on
	ON CONFLICT (id) DO UPDATE SET
		state = excluded.state, custody = excluded.custody, epoch = excluded.epoch, n = excluded.n,
			ord = excluded.ord, lane = excluded.lane,
		session = excluded.session, claim = excluded.claim, attempt = excluded.attempt,
			recoveries = excluded.recoveries,
		suspect = excluded.suspect, launch = excluded.launch, live = excluded.live, since = excluded.since,
			due = excluded.due,
		grp = NULL, until = NULL, wish = excluded.wish, resume = excluded.resume, code = excluded.code,
			message = excluded.message, work = excluded.work, result = excluded.result
), gone AS (
	DELETE FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT m.id FROM made m WHERE m.ends))
), kept AS (
	INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created,
		since, ended, needs, ties, limits, told, wished_by,
		code, message, work, result)
	SELECT m.id, m.tenant, m.new_state, m.epoch + 1, m.n + m.steps, m.new_ord, m.new_attempt, m.new_recoveries,
		m.new_suspect, m.new_launch, m.created, m.now, m.now,
		m.needs, m.ties, m.limits, m.told, m.wished_by, coalesce(m.code, ''), coalesce(m.message, ''),
			m.new_work, m.new_result
	FROM made m WHERE m.ends
), resolved AS (
	UPDATE pawl.specs s SET resolved = coalesce(s.resolved, ($21::json[])[array_position($1::uuid[], s.id)])
	WHERE s.id = ANY (ARRAY(SELECT m.id FROM made m WHERE m.resolves))
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, session, actor, code,
		message, data, change)
	SELECT m.id, m.n + m.steps, m.tenant, m.new_ord, m.epoch, m.new_state, m.new_custody, m.now, m.cause,
		m.session, m.duty,
		m.code, m.message, m.data, m.digest
	FROM made m WHERE m.go
	UNION ALL
	SELECT m.id, m.n + p.position, m.tenant, m.new_ord, m.epoch, p.state, m.at_custody, m.now, m.cause,
		m.session, m.duty,
		p.code, p.message, p.data::json, NULL
	FROM made m CROSS JOIN LATERAL ROWS FROM (json_to_recordset(m.path) AS (state text, code text, message text,
		data text))
		WITH ORDINALITY p(state, code, message, data, position)
	WHERE m.walks
)`)

// changeHistory writes the rows of a, which package job has made, and their paths. With ended, some
// of them may have ended.
func changeHistory(ended bool) string {
	ends := ``
	if ended {
		ends = `gone AS (
	DELETE FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT a.id FROM a WHERE a.over))
), kept AS (
	INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created,
		since, ended, needs, ties, limits, ordered, told, wished_by,
		code, message, work, result)
	SELECT a.id, a.tenant, a.state, a.epoch, a.n, a.ord, a.attempt, a.recoveries, a.suspect, a.launch,
		a.created, a.since, a.ended, a.needs, a.ties, a.limits, a.ordered, a.told,
		coalesce(a.wished_by, ''), coalesce(a.code, ''), coalesce(a.message, ''), a.work, a.result
	FROM a WHERE a.over
), `
	}
	return `written AS (
	INSERT INTO pawl.jobs AS j (id, tenant, kind, queue, priority, created, state, custody, epoch, n,
		ord, lane, session, claim,
		attempt, recoveries, suspect, launch, live, since, due, needs, ties, line, passed, grp, until, owner,
			told, wish, wished_by, resume, code, message, work, result)
	SELECT a.id, a.tenant, a.kind, a.queue, a.priority, a.created, a.state, a.custody, a.epoch, a.n,
		a.ord, a.lane, a.session, a.claim,
		a.attempt, a.recoveries, a.suspect, a.launch, a.live, a.since, a.due, a.needs, a.ties, a.line,
			coalesce(a.passed, 0), a.grp, a.until, a.owner, a.told, coalesce(a.wish, ''),
		coalesce(a.wished_by, ''), coalesce(a.resume, ''), coalesce(a.code, ''), coalesce(a.message, ''),
			a.work, a.result
	FROM a WHERE NOT a.over
	ON CONFLICT (id) DO UPDATE SET
		state = excluded.state, custody = excluded.custody, epoch = excluded.epoch, n = excluded.n,
			ord = excluded.ord, lane = excluded.lane,
		session = excluded.session, claim = excluded.claim, attempt = excluded.attempt,
			recoveries = excluded.recoveries,
		suspect = excluded.suspect, launch = excluded.launch, live = excluded.live, since = excluded.since,
			due = excluded.due,
		ties = excluded.ties, line = excluded.line, passed = excluded.passed, grp = excluded.grp,
			until = excluded.until,
		owner = coalesce(excluded.owner, j.owner), wish = excluded.wish, wished_by = excluded.wished_by,
			resume = excluded.resume, code = excluded.code, message = excluded.message,
		work = excluded.work, result = excluded.result
), ` + ends + `history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, session, actor, code,
		message, data, change)
	SELECT a.id, a.was_n + p.position, a.tenant, a.ord, a.was_epoch, p.state, p.custody, $1,
		coalesce(a.made, $2), a.maker, coalesce(a.duty, $3),
		p.code, p.message, p.data::json, CASE WHEN a.was_n + p.position = a.n THEN a.digest END
	FROM a CROSS JOIN LATERAL ROWS FROM (json_to_recordset(a.path) AS (state text, custody text, code text,
		message text, data text))
		WITH ORDINALITY p(state, custody, code, message, data, position)
)`
}

// addEvent writes an event of a job that is locked.
const addEvent = `
WITH x AS MATERIALIZED (
	SELECT pawl.clock() AS now, ` + ord + ` AS ord
), told AS (
	UPDATE pawl.jobs j SET told = told + 1, ord = greatest(j.ord, x.ord) FROM x WHERE j.id = $1 RETURNING j.ord, x.now
)
INSERT INTO pawl.events (job, n, sub, tenant, ord, epoch, state, custody, at, cause, actor, message, data, name, key)
SELECT $1, $2, (SELECT coalesce(max(v.sub), 0) + 1 FROM pawl.events v WHERE v.job = $1 AND v.n = $2), $3,
	told.ord, $4, $5, $6, told.now, $7, $8, $9,
	$10::json, $11, $12
FROM told RETURNING sub, at, ord`
