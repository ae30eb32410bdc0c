-- For jobs that go one after the other.

-- +goose Up

-- The key in whose order a job stands, and where.
ALTER TABLE jobs ADD COLUMN ordered TEXT;
ALTER TABLE jobs ADD COLUMN rank TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_order ON jobs (tenant, line, rank, priority, created) WHERE line <> '' AND line GLOB 'order/*';

-- +goose Down
-- A Pawl that knows no orders would never let those go that wait in one: who is under limits waits for these, all others are ready.
UPDATE jobs SET state = CASE state WHEN 'WAITING' THEN 'PENDING' ELSE state END, custody = 'ready', epoch = epoch + 1, n = n + 1,
    since = CAST(unixepoch('subsec') * 1000000 AS INTEGER), code = '', message = '' WHERE line GLOB 'order/*' AND limit_keys IS NULL;
INSERT INTO events (job, n, epoch, state, custody, at, cause) SELECT seq, n, epoch - 1, state, custody, since, 'turn' FROM jobs
    WHERE line GLOB 'order/*' AND limit_keys IS NULL;
INSERT INTO followups (debt, job, at, tenant, key)
    SELECT 'turns', 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER), tenant, iif(kind = 'app' AND state = 'WAITING', 'ahead/', '') || json_extract(limit_keys, '$[0]')
        FROM jobs WHERE line GLOB 'order/*' AND limit_keys IS NOT NULL
    ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING;
UPDATE jobs SET line = iif(limit_keys IS NULL, '', iif(kind = 'app' AND state = 'WAITING', 'ahead/', '') || json_extract(limit_keys, '$[0]'))
    WHERE line GLOB 'order/*';
UPDATE jobs SET ties = ties & iif(limit_keys IS NULL, ~776, ~768) WHERE ordered IS NOT NULL;
DELETE FROM followups WHERE key GLOB 'order/*';
DELETE FROM turns WHERE key GLOB 'order/*';
DROP INDEX jobs_order;
ALTER TABLE jobs DROP COLUMN rank;
ALTER TABLE jobs DROP COLUMN ordered;
