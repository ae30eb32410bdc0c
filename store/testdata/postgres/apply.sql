-- Apply: BEGIN; apply_fences; apply_lock; apply; COMMIT, sent together and so one round trip.
--
-- The locks are taken in statements of their own: a statement sees the rows as they were when it began, so only one
-- that begins after the locks were granted sees what stands. Order: sessions, then jobs, each by id.

-- apply_fences(sessions, duties) keeps the holders from being ended until the commit, and so the duties from changing
-- hands. Expiry and who takes over a duty lock the session FOR UPDATE; a renewal, which changes no key, passes.
PREPARE apply_fences(uuid[], text[]) AS
SELECT count(*) FROM (
    SELECT FROM sessions s
    WHERE s.id = ANY ($1) OR s.id = ANY (ARRAY(SELECT d.session FROM duties d WHERE d.name = ANY ($2)))
    ORDER BY s.id FOR KEY SHARE
) held;

PREPARE apply_lock(uuid[]) AS
SELECT count(*) FROM (SELECT FROM jobs j WHERE j.id = ANY ($1) ORDER BY j.id FOR UPDATE) held;

-- apply makes each change whose guard holds, and answers each:
--
--   applied, turned   made now, or made before (its last history row has its digest)
--   fenced, conflict  refused; the row stands as answered
--   wish              not made: a wish stands on the row that the caller had not seen. The caller turns the change and
--                     sends it again with that wish; $9 is the wish that the change has met
--
--  1 job      5 custody   9 wish      13 lane      17 flags     21 work
--  2 epoch    6 session  10 steps     14 code      18 delay     22 cause
--  3 n        7 duty     11 state     15 message   19 resolved  23 path
--  4 state    8 term     12 custody   16 resume    20 result    24 digest
--
-- 2 to 5 are where the change goes out from, 10 to 21 what it makes. path is a JSON list of {state, code, message, data},
-- the last of which is 11, 14 and 15 again: a list for each change needs no join, and so no guess of the planner's.
-- digest is that of the change as the caller made it, with its fence and before a wish turned it.
-- flags: 1 intent, 2 over, 4 retry, 8 recovery, 16 crash, 32 clear. delay: microseconds. lane: that of a program.
PREPARE apply(uuid[], bigint[], bigint[], text[], text[], uuid[], text[], bigint[], text[], int[], text[], text[], text[],
    text[], text[], text[], int[], bigint[], json[], json[], json[], text[], json[], bigint[]) AS
WITH sessions_alive AS MATERIALIZED (
    SELECT s.id FROM sessions s WHERE s.id = ANY ($6) AND s.ended IS NULL AND s.lease_until > clock_timestamp()
), duties_alive AS MATERIALIZED (
    SELECT d.name, d.term FROM duties d JOIN sessions s ON s.id = d.session
    WHERE d.name = ANY ($7) AND s.ended IS NULL AND s.lease_until > clock_timestamp()
), judged AS (
    SELECT c.*, j.id, j.state AS at_state, j.custody AS at_custody, j.epoch AS at_epoch, j.n AS at_n, j.ord, j.wish AS at_wish,
        CASE WHEN c.flags & 32 <> 0 THEN 0 ELSE j.suspect + (c.flags >> 4 & 1) END AS new_suspect, j.wished_by, j.live, j.needs, j.ties, j.queue, j.kind, j.machine, m.state AS made_state, m.custody AS made_custody, m.cause AS made_cause,
        CASE WHEN c.delay > 0 THEN statement_timestamp() + c.delay * interval '1 microsecond' ELSE j.due END AS new_due,
        CASE
        WHEN j.id IS NULL THEN 'fenced'
        WHEN m.change = c.digest THEN 'made'
        WHEN j.epoch <> c.epoch THEN 'fenced'
        WHEN c.session IS NOT NULL AND c.session NOT IN (SELECT a.id FROM sessions_alive a) THEN 'fenced'
        WHEN c.session IS NULL AND (c.duty, c.term) NOT IN (SELECT a.name, a.term FROM duties_alive a) THEN 'fenced'
        -- A session decides on the jobs that it holds, a duty on all others.
        WHEN j.custody = 'worker' AND j.session IS DISTINCT FROM c.session THEN 'fenced'
        WHEN j.custody <> 'worker' AND c.duty IS NULL THEN 'fenced'
        WHEN j.n <> c.n OR j.state <> c.from_state OR j.custody <> c.from_custody THEN 'conflict'
        WHEN j.custody IN ('worker', 'monitor') AND c.custody <> j.custody AND j.wish <> c.wish THEN 'wish'
        ELSE 'go'
        END AS verdict
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)
        WITH ORDINALITY c(job, epoch, n, from_state, from_custody, session, duty, term, wish, steps, state, custody, lane,
            code, message, resume, flags, delay, resolved, result, work, cause, path, digest, i)
    LEFT JOIN jobs j ON j.id = c.job
    LEFT JOIN LATERAL (
        SELECT e.state, e.custody, e.cause, e.change FROM events e
        WHERE (j.epoch <> c.epoch OR j.n <> c.n) AND e.job = c.job AND e.n = c.n + c.steps AND e.epoch = c.epoch
    ) m ON true
), gated AS (
    SELECT g.*, g.custody IN ('gate', 'ready') AND g.state IN ('WAITING', 'PENDING') AS asks,
        coalesce(g.new_due > statement_timestamp(), false) OR g.needs > 0 AS shut
    FROM judged g
), placed AS (
    -- The gate has the last word on where a job waits.
    SELECT g.*,
        CASE WHEN NOT g.asks THEN g.state WHEN g.shut THEN 'WAITING' ELSE 'PENDING' END AS new_state,
        CASE WHEN g.asks AND g.shut THEN 'gate' WHEN g.custody IN ('gate', 'ready') THEN 'ready' ELSE g.custody END AS new_custody
    FROM gated g
), made AS MATERIALIZED (
    SELECT p.*, p.verdict = 'go' AS go, p.new_custody <> p.at_custody AS moved, p.new_state IN ('FINISHED', 'FAILED', 'CANCELED') AS ends,
        p.flags & 2 = 0 AND (p.live OR p.flags & 1 <> 0) AS new_live, greatest(p.ord, pg_current_xact_id()) AS new_ord
    FROM placed p
), written AS (
    UPDATE jobs j SET
        state = m.new_state, custody = m.new_custody, epoch = j.epoch + m.moved::int, n = j.n + m.steps, ord = m.new_ord,
        lane = CASE WHEN m.new_suspect >= 2 THEN 'alone' WHEN j.kind <> 'app' THEN 'task' ELSE m.lane END,
        session = CASE WHEN NOT m.moved THEN j.session END, claim = CASE WHEN NOT m.moved THEN j.claim END,
        since = CASE WHEN m.moved THEN statement_timestamp() ELSE j.since END,
        attempt = j.attempt + (m.flags >> 2 & 1), recoveries = j.recoveries + (m.flags >> 3 & 1),
        suspect = m.new_suspect,
        launch = j.launch + (m.flags & 1), live = m.new_live,
        due = CASE WHEN NOT m.ends AND (m.new_state = 'PAUSED' OR m.new_custody = 'gate') THEN m.new_due END,
        ended = CASE WHEN m.ends THEN statement_timestamp() ELSE j.ended END,
        wish = CASE WHEN m.ends OR m.new_state = 'PAUSED' THEN '' ELSE j.wish END,
        resume = CASE WHEN m.new_state IN ('BLOCKED', 'PAUSED') THEN m.resume ELSE '' END,
        code = m.code, message = m.message, work = coalesce(m.work, j.work), result = coalesce(m.result, j.result)
    FROM made m
    WHERE m.go AND j.id = m.id AND NOT (m.new_live AND (m.ends OR m.new_custody = 'user')
        AND refuse('job ' || m.id || ': ' || m.new_state || ' with a launch whose end is not known'))
), resolved AS (
    UPDATE specs s SET resolved = m.resolved FROM made m WHERE m.go AND m.resolved IS NOT NULL AND s.id = m.id AND s.resolved IS NULL
), history AS (
    INSERT INTO events (job, n, ord, epoch, state, custody, at, cause, session, actor, code, message, data, change)
    SELECT m.id, m.n + p.position, m.new_ord, m.epoch,
        CASE WHEN p.position = m.steps THEN m.new_state ELSE p.state END,
        CASE WHEN p.position = m.steps THEN m.new_custody ELSE m.at_custody END,
        statement_timestamp(), m.cause, m.session, m.duty, coalesce(p.code, ''), coalesce(p.message, ''), p.data,
        CASE WHEN p.position = m.steps THEN m.digest END
    FROM made m CROSS JOIN LATERAL ROWS FROM (json_to_recordset(m.path) AS (state text, code text, message text, data json))
        WITH ORDINALITY p(state, code, message, data, position)
    WHERE m.go
), freed AS (
    DELETE FROM unique_keys u WHERE u.job = ANY (ARRAY(SELECT m.id FROM made m WHERE m.go AND m.ends AND m.ties & 6 <> 0))
), owed AS (
    INSERT INTO followups (debt, job, at)
    SELECT 'dependants', m.id, statement_timestamp() FROM made m WHERE m.go AND m.ends AND m.ties & 1 <> 0 ORDER BY m.id
)
SELECT m.i,
    CASE m.verdict WHEN 'go' THEN CASE m.cause WHEN 'turned' THEN 'turned' ELSE 'applied' END
        WHEN 'made' THEN CASE m.made_cause WHEN 'turned' THEN 'turned' ELSE 'applied' END ELSE m.verdict END AS outcome,
    CASE m.verdict WHEN 'go' THEN m.new_state WHEN 'made' THEN m.made_state ELSE m.at_state END AS state,
    CASE m.verdict WHEN 'go' THEN m.new_custody WHEN 'made' THEN m.made_custody ELSE m.at_custody END AS custody,
    CASE m.verdict WHEN 'go' THEN m.epoch + m.moved::int WHEN 'made' THEN m.epoch + (m.made_custody <> m.from_custody)::int ELSE m.at_epoch END AS epoch,
    CASE WHEN m.verdict IN ('go', 'made') THEN m.n + m.steps ELSE m.at_n END AS n,
    m.at_wish AS wish, m.wished_by, m.live, m.queue, m.kind, m.machine, m.new_due AS due, m.go AND m.ends AND m.ties & 1 <> 0 AS owed
FROM made m ORDER BY m.i;
