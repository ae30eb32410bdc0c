-- Submit of jobs without unique keys and prerequisites: BEGIN; submit_key; submit; submit_answer; COMMIT, sent together
-- and so one round trip. submit_key only with an idempotency key.
--
-- With them: BEGIN; submit_prerequisites; submit_reserve; submit_holders | package job decides |
-- submit; submit_ties; submit_keep; submit_answer; COMMIT: two round trips.

-- submit_key(tenant, key, fingerprint, jobs). A call at work under the same key is waited for. Ids are made by the
-- caller, so a row with this call's ids is this call's own, made now or when its answer was lost.
PREPARE submit_key(text, text, bytea, uuid[]) AS
INSERT INTO idempotency AS i (tenant, key, fingerprint, jobs, at) VALUES ($1, $2, $3, $4, statement_timestamp())
ON CONFLICT (tenant, key) DO UPDATE SET fingerprint = excluded.fingerprint, jobs = excluded.jobs, answers = NULL, at = excluded.at
    WHERE i.at < statement_timestamp() - interval '24 hours';

-- submit inserts what is not there yet. Rows go in by (external id, id), so that of two bulk calls at once one waits for
-- the other and never both.
--
--  1 tenant  4 id     7 name    10 priority   13 fingerprint  16 request            19 needs
--  2 by      5 owner  8 queue   11 attempts   14 parent       17 delay, microsec.   20 ties
--  3 key     6 kind   9 machine 12 external   15 labels       18 due
PREPARE submit(text, text, text, uuid[], text[], text[], text[], text[], text[], smallint[], int[], text[], bytea[], uuid[], jsonb[],
    json[], bigint[], timestamptz[], int[], int[]) AS
WITH new AS MATERIALIZED (
    SELECT n.*, due IS NOT NULL AND due > statement_timestamp() OR needs > 0 AS gated
    FROM (
        SELECT u.*, CASE WHEN u.delay > 0 THEN statement_timestamp() + u.delay * interval '1 microsecond' ELSE u.given END AS due
        FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
            u(id, owner, kind, name, queue, machine, priority, max_attempts, external_id, fingerprint, parent, labels, request,
                delay, given, needs, ties)
    ) n
    WHERE $3 = '' OR EXISTS (SELECT FROM idempotency i WHERE i.tenant = $1 AND i.key = $3 AND i.jobs = $4)
), spec AS (
    INSERT INTO specs (id, tenant, owner, name, created, external_id, fingerprint, parent, labels, request)
    SELECT n.id, $1, n.owner, n.name, statement_timestamp(), n.external_id, n.fingerprint, n.parent, n.labels, n.request
    FROM new n ORDER BY n.external_id COLLATE "C", n.id
    ON CONFLICT DO NOTHING RETURNING id
), job AS (
    INSERT INTO jobs (id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n, ord, lane, attempt, max_attempts,
        since, due, needs, ties)
    SELECT n.id, $1, n.kind, n.queue, n.machine, n.priority, statement_timestamp(),
        CASE WHEN n.gated THEN 'WAITING' ELSE 'PENDING' END, CASE WHEN n.gated THEN 'gate' ELSE 'ready' END,
        1, 1, pg_current_xact_id(), CASE WHEN n.kind = 'app' THEN 'prepare' ELSE 'task' END, 1, n.max_attempts,
        statement_timestamp(), CASE WHEN n.gated THEN n.due END, n.needs, n.ties
    FROM new n WHERE (n.id IN (SELECT s.id FROM spec s)) IS TRUE -- so it is looked up in a hash table, and is no join
    RETURNING id, state, custody, since
), history AS (
    INSERT INTO events (job, n, ord, epoch, state, custody, at, cause, actor)
    SELECT j.id, 1, pg_current_xact_id(), 0, j.state, j.custody, j.since, 'submit', nullif($2, '') FROM job j
)
SELECT count(*) AS inserted FROM job;

-- submit_answer(tenant, key, fingerprint of the call, ids, external ids, fingerprints) sees what stands now: the jobs of
-- this call and those that others had committed under the same id or external id. It undoes the call, with its COMMIT
-- on the way, when a key or an external id belongs to another request.
PREPARE submit_answer(text, text, bytea, uuid[], text[], bytea[]) AS
WITH call AS MATERIALIZED (
    -- The ids of the call that this key stands for, and whether that was another one.
    SELECT coalesce(i.answers, i.jobs, $4) AS jobs, i.jobs <> $4 AS other
    FROM (SELECT) one LEFT JOIN idempotency i ON $2 <> '' AND i.tenant = $1 AND i.key = $2
    WHERE i.fingerprint IS NULL OR i.fingerprint = $3
       OR refuse('idempotency key ' || $2 || ' was used for another request: use a new key')
)
SELECT a.i, j.id, j.state, j.custody, j.queue, j.kind, j.due, j.id <> a.id OR call.other IS TRUE OR j.ord <> pg_current_xact_id() AS existed
FROM call, unnest(call.jobs, $5, $6) WITH ORDINALITY a(id, external_id, fingerprint, i)
LEFT JOIN specs e ON e.tenant = $1 AND e.external_id = a.external_id
LEFT JOIN specs o ON o.id = a.id AND a.external_id IS NULL
LEFT JOIN jobs j ON j.id = coalesce(e.id, o.id)
WHERE (a.external_id IS NULL OR e.fingerprint = a.fingerprint
       OR refuse('external_id ' || a.external_id || ' belongs to another request: use a new one'))
  AND (o.tenant IS NULL OR o.tenant = $1 OR refuse('job id ' || a.id || ' is taken'))
ORDER BY a.i;

-- submit_prerequisites(ids) locks them in order and answers how they stand. None can end before the commit, so none
-- ends without knowing of the new jobs.
PREPARE submit_prerequisites(uuid[]) AS
SELECT j.id, j.tenant, j.state, j.custody FROM jobs j WHERE j.id = ANY ($1) ORDER BY j.id FOR UPDATE;

-- submit_reserve(tenant, kinds, modes, keys, jobs) takes every unique key of the call that is free, in the order of keys:
-- here and nowhere else a call waits for another one's keys. Within the call the first job with a key gets it.
PREPARE submit_reserve(text, text[], text[], text[], uuid[]) AS
INSERT INTO unique_keys (tenant, kind, mode, key, job)
SELECT $1, u.kind, u.mode, u.key, u.job FROM unnest($2, $3, $4, $5) WITH ORDINALITY u(kind, mode, key, job, i)
ORDER BY u.kind COLLATE "C", u.mode COLLATE "C", u.key COLLATE "C", u.i
ON CONFLICT DO NOTHING;

-- submit_holders(tenant, kinds, modes, keys) answers who has each key now. No row for one of them: its holder gave it up
-- between the two statements, and the call begins again.
PREPARE submit_holders(text, text[], text[], text[]) AS
SELECT u.i, k.job, j.state, j.custody
FROM unnest($2, $3, $4) WITH ORDINALITY u(kind, mode, key, i)
JOIN unique_keys k ON k.tenant = $1 AND k.kind = u.kind AND k.mode = u.mode AND k.key = u.key
LEFT JOIN jobs j ON j.id = k.job ORDER BY u.i;

-- submit_ties(needs, jobs, need, ended, jobs that give up keys) writes the edges of new jobs and marks those they wait
-- for. An edge to a job that has ended otherwise than needed is written too and owed at once: the payment ends the job.
PREPARE submit_ties(uuid[], uuid[], text[], uuid[], uuid[]) AS
WITH edges AS (
    INSERT INTO prerequisites (needs, job, need) SELECT * FROM unnest($1, $2, $3)
), tied AS (
    UPDATE jobs j SET ties = j.ties | 1 WHERE j.id = ANY ($1) AND j.ties & 1 = 0
), owed AS (
    INSERT INTO followups (debt, job, at) SELECT 'dependants', e.id, statement_timestamp() FROM unnest($4) e(id)
), given_up AS (
    DELETE FROM unique_keys u WHERE u.job = ANY ($5)
)
SELECT cardinality($1) AS edges;

-- submit_keep(tenant, key, ids) keeps the answers of a call whose unique keys others had.
PREPARE submit_keep(text, text, uuid[]) AS
UPDATE idempotency i SET answers = $3 WHERE i.tenant = $1 AND i.key = $2;
