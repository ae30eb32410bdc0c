-- Claim: BEGIN; claim_once; claim; COMMIT, sent together and so one round trip.

-- Two copies of one call may run at once: the repeat need not wait for the end of the first. The second waits here, and
-- in a statement of its own, so that the next one's snapshot shows what the first has claimed.
PREPARE claim_once(uuid) AS
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0));

-- claim(id, session, queues, kinds, machine, lanes, slots). One row at least: alive is false for a session that is not,
-- and more says that it passed over jobs which another transaction had locked; those may become free again without
-- anybody being told of it, so whoever got fewer than asked for has to come again.
--
-- The session's row is locked and its lease checked here. Expiry locks the same row FOR UPDATE: who comes second waits
-- for the first, and then this statement finds the session ended, or expiry finds these jobs.
PREPARE claim(uuid, uuid, text[], text[], text, text[], int[]) AS
WITH alive AS MATERIALIZED (
    SELECT s.id FROM sessions s
    WHERE s.id = $2 AND s.ended IS NULL AND s.lease_until > clock_timestamp()
    FOR KEY SHARE
), repeated AS MATERIALIZED (
    SELECT j.id FROM alive a JOIN jobs j ON j.session = a.id AND j.claim = $1
), lines AS MATERIALIZED (
    SELECT q.queue, k.kind, m.machine, l.lane, l.slots
    FROM alive, unnest($3) q(queue), unnest($4) k(kind), (SELECT '' UNION SELECT $5) m(machine), unnest($6, $7) l(lane, slots)
    WHERE l.slots > 0 AND (l.lane = 'alone' OR (k.kind = 'app') <> (l.lane = 'task')) AND NOT EXISTS (SELECT FROM repeated)
), heads AS MATERIALIZED (
    -- Each line is read from its head, and no further than the slots reach.
    SELECT l.queue, l.kind, l.machine, l.lane, h.id, row_number() OVER (PARTITION BY l.lane ORDER BY h.priority, h.created, h.id) <= l.slots AS chosen
    FROM lines l CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.created FROM jobs j
        WHERE j.custody = 'ready' AND j.queue = l.queue AND j.kind = l.kind AND j.machine = l.machine AND j.lane = l.lane
        ORDER BY j.priority, j.created, j.id LIMIT l.slots
        FOR UPDATE SKIP LOCKED
    ) h
), took AS (
    UPDATE jobs j SET
        state = CASE WHEN j.state <> 'PENDING' THEN j.state WHEN j.kind <> 'app' THEN 'RUNNING' ELSE 'PROCESSING_INPUTS' END,
        custody = 'worker', epoch = j.epoch + 1, n = j.n + 1, ord = greatest(j.ord, pg_current_xact_id()),
        session = $2, claim = $1, since = statement_timestamp(), due = NULL, resume = '', code = '', message = ''
    WHERE j.id = ANY (ARRAY(SELECT h.id FROM heads h WHERE h.chosen))
    RETURNING j.*
), history AS (
    INSERT INTO events (job, n, ord, epoch, state, custody, at, cause, session)
    SELECT t.id, t.n, t.ord, t.epoch - 1, t.state, t.custody, t.since, 'claim', $2 FROM took t
), started AS (
    -- Ties are few: the join is only made for those who have them.
    DELETE FROM unique_keys u
    WHERE u.job = ANY (ARRAY(SELECT t.id FROM took t WHERE t.ties & 2 <> 0)) AND u.mode = 'start'
), answer AS (
    SELECT t.* FROM took t
    UNION ALL
    SELECT j.* FROM jobs j WHERE j.id = ANY (ARRAY(SELECT r.id FROM repeated r))
)
SELECT EXISTS (SELECT FROM alive) AS alive,
    EXISTS (
        SELECT FROM lines l
        WHERE (SELECT count(*) FROM heads h WHERE h.lane = l.lane) < l.slots
          AND (SELECT count(*) FROM heads h WHERE (h.queue, h.kind, h.machine, h.lane) = (l.queue, l.kind, l.machine, l.lane)) <
              (SELECT count(*) FROM (
                  SELECT FROM jobs j
                  WHERE j.custody = 'ready' AND j.queue = l.queue AND j.kind = l.kind AND j.machine = l.machine AND j.lane = l.lane
                  ORDER BY j.priority, j.created, j.id LIMIT l.slots) there)
    ) AS more,
    a.*, s.owner, s.name, s.external_id, s.parent, s.labels, s.request, s.resolved
FROM (SELECT) one LEFT JOIN (answer a JOIN specs s ON s.id = a.id) ON true
ORDER BY a.lane, a.priority, a.created, a.id;
