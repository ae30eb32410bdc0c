-- renew(session, lease in microseconds, queues, kinds, machine, duties): the heartbeat, one statement and one round
-- trip. No row: the session is not alive. It needs no transaction around it.
--
-- A duty is taken from a holder whose lease is over. That holder's row is locked, and passed over when it is locked by
-- another: it may be in the middle of a renewal that this statement's snapshot does not show.
PREPARE renew(uuid, bigint, text[], text[], text, text[]) AS
WITH me AS MATERIALIZED (
    UPDATE sessions s SET renewed_ago = s.renewed, renewed = statement_timestamp(),
        lease_until = clock_timestamp() + $2 * interval '1 microsecond'
    WHERE s.id = $1 AND s.ended IS NULL AND s.lease_until > clock_timestamp()
    RETURNING s.*
), wanted AS MATERIALIZED (
    SELECT w.name, d.session, d.term FROM me, unnest($6) w(name) LEFT JOIN duties d ON d.name = w.name
), dead AS MATERIALIZED (
    SELECT s.id FROM sessions s
    WHERE s.id = ANY (ARRAY(SELECT w.session FROM wanted w WHERE w.session <> $1))
      AND (s.ended IS NOT NULL OR s.lease_until <= clock_timestamp())
    FOR UPDATE SKIP LOCKED
), taken AS (
    INSERT INTO duties AS d (name, term, session)
    SELECT w.name, 1, $1 FROM wanted w
    WHERE w.session IS NULL OR w.session IN (SELECT dead.id FROM dead)
       OR w.session <> $1 AND NOT EXISTS (SELECT FROM sessions s WHERE s.id = w.session)
    ORDER BY w.name
    ON CONFLICT (name) DO UPDATE SET term = d.term + 1, session = excluded.session
        WHERE (d.session, d.term) IN (SELECT w.session, w.term FROM wanted w WHERE w.name = d.name)
    RETURNING d.name, d.term
)
SELECT me.renewed AS now, me.renewed_ago AS held_before,
    (SELECT count(*) FROM jobs j WHERE j.session = $1 AND j.since < me.renewed_ago) AS held,
    (SELECT jsonb_agg(jsonb_build_array(j.id, j.epoch, j.wish)) FROM jobs j WHERE j.session = $1 AND j.wish <> '') AS wishes,
    (SELECT min(s.lease_until) FROM sessions s WHERE s.ended IS NULL AND s.id <> $1) AS next_expiry,
    (SELECT jsonb_agg(jsonb_build_array(q.queue, k.kind)) FROM unnest($3) q(queue), unnest($4) k(kind)
        WHERE EXISTS (SELECT FROM (VALUES (''), ($5)) m(machine) CROSS JOIN LATERAL (
            SELECT FROM jobs j WHERE j.custody = 'ready' AND j.queue = q.queue AND j.kind = k.kind AND j.machine = m.machine
            ORDER BY j.lane, j.priority, j.created, j.id LIMIT 1) one)) AS ready,
    (SELECT jsonb_agg(jsonb_build_array(d.name, d.term)) FROM (
        SELECT w.name, w.term FROM wanted w WHERE w.session = $1 UNION ALL SELECT t.name, t.term FROM taken t) d) AS duties,
    EXISTS (SELECT FROM followups f WHERE f.at < clock_timestamp() - $2 * interval '1 microsecond') AS unpaid
FROM me;
