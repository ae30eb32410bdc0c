-- For jobs in order: of those with the same key one goes after the other.
--
-- A Pawl that does not know it works with it, and knows no orders: what it changes keeps its place and gets none.

-- +goose Up
ALTER TABLE pawl.jobs
    ADD COLUMN ordered text COLLATE "C",                -- the key of its order,
    ADD COLUMN rank    text COLLATE "C";                -- and where it stands there
ALTER TABLE pawl.ended ADD COLUMN ordered text;

-- +goose Down
-- A Pawl that knows no orders would never let those go that wait in one. Of these some are under limits, whose line is their next.
DELETE FROM pawl.turns t WHERE t.job IN (SELECT j.id FROM pawl.jobs j WHERE j.ordered IS NOT NULL) AND t.key LIKE 'order/%';
DELETE FROM pawl.turns_owed o WHERE o.key LIKE 'order/%';
WITH x AS MATERIALIZED (
    SELECT (SELECT e.base FROM pawl.era e) + pg_current_xact_id()::text::bigint AS ord
), going AS (
    UPDATE pawl.jobs j SET state = CASE j.state WHEN 'WAITING' THEN 'PENDING' ELSE j.state END, custody = 'ready', epoch = j.epoch + 1, n = j.n + 1,
        ord = greatest(j.ord, x.ord), since = pawl.clock(), line = NULL, code = '', message = ''
    FROM x WHERE j.line = j.ordered AND j.limits IS NULL
    RETURNING j.id, j.n, j.tenant, j.ord, j.epoch, j.state, j.since
)
INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause)
SELECT g.id, g.n, g.tenant, g.ord, g.epoch - 1, g.state, 'ready', g.since, 'turn' FROM going g;
UPDATE pawl.jobs j SET line = CASE WHEN j.kind = 'app' AND j.state = 'WAITING' THEN 'ahead/' ELSE '' END || j.limits[1] WHERE j.line = j.ordered;
INSERT INTO pawl.turns_owed (tenant, key, at) SELECT DISTINCT j.tenant, j.line, pawl.clock() FROM pawl.jobs j WHERE j.ordered IS NOT NULL AND j.line IS NOT NULL;
UPDATE pawl.jobs j SET ties = j.ties & CASE WHEN j.limits IS NULL THEN 7 ELSE 255 END WHERE j.ordered IS NOT NULL;
ALTER TABLE pawl.ended DROP COLUMN ordered;
ALTER TABLE pawl.jobs DROP COLUMN ordered, DROP COLUMN rank;
