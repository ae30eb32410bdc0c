-- What expiry, due times, wishes and payments do to rows is decided by package job from rows that an earlier statement
-- of the same transaction has locked and answered. write takes the rows that it made: the guard is for defects only.
--
--  1 id      6 epoch    11 attempt     16 since   21 resume    26 cause   31 debtors
--  2 epoch   7 n        12 recoveries  17 due     22 code      27 actor   32 debts
--  3 n       8 lane     13 suspect     18 ended   23 message   28 path
--  4 state   9 session  14 launch      19 wish    24 work      29 jobs that give up keys
--  5 custody 10 claim   15 live        20 wisher  25 result    30 the mode of those
--
-- 2 and 3 are those of the row before; path is a JSON list of {state, custody, code, message, data} for each job.
PREPARE write(uuid[], bigint[], bigint[], text[], text[], bigint[], bigint[], text[], uuid[], uuid[], int[], int[], int[], int[],
    boolean[], timestamptz[], timestamptz[], timestamptz[], text[], text[], text[], text[], text[], json[], json[], text[], text[],
    json[], uuid[], text[], uuid[], text[]) AS
WITH a AS MATERIALIZED (
    SELECT a.*, greatest(j.ord, pg_current_xact_id()) AS ord
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)
        a(id, was_epoch, was_n, state, custody, epoch, n, lane, session, claim, attempt, recoveries, suspect, launch,
        live, since, due, ended, wish, wished_by, resume, code, message, work, result, cause, actor, path)
    JOIN jobs j ON j.id = a.id AND j.epoch = a.was_epoch AND j.n = a.was_n
), written AS (
    UPDATE jobs j SET
        state = a.state, custody = a.custody, epoch = a.epoch, n = a.n, ord = a.ord, lane = a.lane, session = a.session, claim = a.claim,
        attempt = a.attempt, recoveries = a.recoveries, suspect = a.suspect, launch = a.launch, live = a.live, since = a.since,
        due = a.due, ended = a.ended, wish = a.wish, wished_by = a.wished_by, resume = a.resume, code = a.code,
        message = a.message, work = a.work, result = a.result
    FROM a WHERE j.id = a.id
), history AS (
    INSERT INTO events (job, n, ord, epoch, state, custody, at, cause, actor, code, message, data)
    SELECT a.id, a.was_n + p.position, a.ord, a.was_epoch, p.state, p.custody, statement_timestamp(), a.cause, a.actor,
        coalesce(p.code, ''), coalesce(p.message, ''), p.data
    FROM a CROSS JOIN LATERAL ROWS FROM (json_to_recordset(a.path) AS (state text, custody text, code text, message text, data json))
        WITH ORDINALITY p(state, custody, code, message, data, position)
), freed AS (
    DELETE FROM unique_keys u USING unnest($29, $30) f(job, mode) WHERE u.job = f.job AND u.mode = f.mode
), owed AS (
    INSERT INTO followups (debt, job, at) SELECT o.debt, o.job, statement_timestamp() FROM unnest($31, $32) o(job, debt)
)
SELECT count(*) = cardinality($1) OR refuse('a job moved under the lock') AS written FROM a;
