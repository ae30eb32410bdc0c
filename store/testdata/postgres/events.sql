-- events(tenant, ord, job, n, limit): the events after a cursor, which is (ord, job, n) of the last one, in an order that
-- is the same for every reader and in which each job's events stand in theirs.
--
-- It ends below the oldest transaction that is still open: whatever that one writes gets an ord at or above its own id.
-- A page that is not full has read everything below xmin; its cursor is (xmin, zero, 0), so that the events of other
-- tenants are not read again.
PREPARE events_after(text, xid8, uuid, bigint, int) AS
SELECT e.*, pg_snapshot_xmin(pg_current_snapshot()) AS xmin
FROM events e CROSS JOIN LATERAL (SELECT FROM jobs j WHERE j.id = e.job AND j.tenant = $1 OFFSET 0) own -- OFFSET: from event to job
WHERE (e.ord, e.job, e.n) > ($2, $3, $4) AND e.ord < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY e.ord, e.job, e.n LIMIT $5;
