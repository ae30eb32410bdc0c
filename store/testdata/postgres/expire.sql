-- Expire: BEGIN; expire_close; expire_take | package job decides | write; COMMIT: two round trips, after crashes only.

-- expire_close ends the sessions whose lease is over. A claim or an apply that holds one is waited for; what it did is
-- seen by the next statement.
PREPARE expire_close AS
WITH dead AS MATERIALIZED (
    SELECT s.id FROM sessions s WHERE s.ended IS NULL AND s.lease_until <= clock_timestamp() ORDER BY s.id FOR UPDATE
)
UPDATE sessions s SET ended = clock_timestamp(), crashed = true FROM dead WHERE s.id = dead.id RETURNING s.id;

-- End of a session in good order takes the same two steps.
PREPARE end_session(uuid) AS
WITH live AS MATERIALIZED (SELECT s.id FROM sessions s WHERE s.id = $1 AND s.ended IS NULL FOR UPDATE)
UPDATE sessions s SET ended = clock_timestamp() FROM live WHERE s.id = live.id RETURNING s.id;

-- expire_take(limit) locks and answers jobs of every session that is not live, of whoever closed it and of those that
-- are not there any more. Sessions are few: the index of held jobs is read from session to session, so those of live
-- sessions cost one probe each.
PREPARE expire_take(int) AS
WITH RECURSIVE holders AS (
    (SELECT j.session FROM jobs j WHERE j.session IS NOT NULL ORDER BY j.session LIMIT 1)
    UNION ALL
    SELECT (SELECT j.session FROM jobs j WHERE j.session > h.session ORDER BY j.session LIMIT 1) FROM holders h WHERE h.session IS NOT NULL
), dead AS MATERIALIZED (
    SELECT h.session, s.ended IS NULL OR s.crashed AS crashed FROM holders h LEFT JOIN sessions s ON s.id = h.session
    WHERE h.session IS NOT NULL AND (s.id IS NULL OR s.ended IS NOT NULL)
), held AS MATERIALIZED (
    SELECT j.id, d.crashed
    FROM dead d CROSS JOIN LATERAL (SELECT j.id FROM jobs j WHERE j.session = d.session ORDER BY j.claim LIMIT $1) j LIMIT $1
)
SELECT j.*, h.crashed, statement_timestamp() AS now
FROM held h JOIN jobs j ON j.id = h.id
WHERE j.session = ANY (ARRAY(SELECT d.session FROM dead d)) -- asked again of a row that was waited for
ORDER BY j.id FOR UPDATE OF j;
