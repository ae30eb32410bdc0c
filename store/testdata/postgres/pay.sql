-- Pay: BEGIN; pay | package job decides | write; COMMIT: two round trips, and only for jobs with dependants.

-- pay(limit) takes edges from the oldest follow-ups that nobody else is paying, counts them off from the jobs that wait,
-- and answers those jobs as they are now. The count and the answer come from the edges that this statement deleted: its
-- snapshot may show some that another payer has paid in the meantime.
PREPARE pay(int) AS
WITH debts AS MATERIALIZED (
    SELECT f.seq, f.job FROM followups f ORDER BY f.seq LIMIT $1 FOR UPDATE SKIP LOCKED
), edges AS MATERIALIZED (
    SELECT d.seq, p.needs, p.job
    FROM debts d CROSS JOIN LATERAL (SELECT p.needs, p.job FROM prerequisites p WHERE p.needs = d.job ORDER BY p.job LIMIT $1) p
    ORDER BY d.seq, p.job LIMIT $1
), gone AS MATERIALIZED (
    DELETE FROM prerequisites p USING edges e WHERE p.needs = e.needs AND p.job = e.job RETURNING p.needs, p.job, p.need
), locked AS MATERIALIZED (
    SELECT j.id FROM jobs j WHERE j.id = ANY (ARRAY(SELECT g.job FROM gone g)) ORDER BY j.id FOR UPDATE
), counted AS MATERIALIZED (
    -- An edge whose need was not met ends the job: the first of them by id is named.
    SELECT g.job, count(*) AS k,
        min(g.needs::text) FILTER (WHERE g.need = 'finished' AND e.state <> 'FINISHED') AS unmet
    FROM gone g JOIN jobs e ON e.id = g.needs
    WHERE (SELECT count(*) FROM locked) >= 0 -- all of them are locked first, in their order
    GROUP BY g.job
), released AS (
    UPDATE jobs j SET needs = j.needs - c.k FROM counted c WHERE j.id = c.job RETURNING j.*, c.k, c.unmet
), settled AS (
    DELETE FROM followups f USING debts d
    WHERE f.seq = d.seq AND NOT EXISTS (
        SELECT FROM prerequisites p
        WHERE p.needs = d.job AND p.job > ALL (SELECT e.job FROM edges e WHERE e.seq = d.seq ORDER BY e.job DESC LIMIT 1))
    RETURNING f.seq
)
SELECT r.*, u.name AS unmet_name, e.state AS unmet_state, statement_timestamp() AS now,
    (SELECT count(*) FROM gone) AS paid, (SELECT count(*) FROM settled) AS settled
FROM (SELECT) one LEFT JOIN (released r LEFT JOIN (specs u JOIN jobs e ON e.id = u.id) ON u.id = r.unmet::uuid) ON true;

PREPARE owed AS SELECT EXISTS (SELECT FROM followups) AS owed;
