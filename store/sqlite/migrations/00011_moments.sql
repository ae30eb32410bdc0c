-- For limits that are rates: the jobs under them wait for moments.

-- +goose Up

-- Which rate a limit is: another one whenever it is set.
ALTER TABLE limits ADD COLUMN rate BLOB;

-- The moment after those that were given of a key, and the rate under which they were.
CREATE TABLE moments (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    next   INTEGER NOT NULL,                    -- microseconds of Unix time
    rate   BLOB    NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- +goose Down
-- To a Pawl that knows no moments a time that comes makes every job PENDING, so that it begins anew: who waits for its moment goes on.
UPDATE jobs SET custody = 'ready', epoch = epoch + 1, n = n + 1, due = NULL,
    since = CAST(unixepoch('subsec') * 1000000 AS INTEGER), code = '', message = '' WHERE custody = 'gate' AND state <> 'WAITING' AND due IS NOT NULL;
INSERT INTO events (job, n, epoch, state, custody, at, cause) SELECT seq, n, epoch - 1, state, custody, since, 'due' FROM jobs
    WHERE custody = 'ready' AND state <> 'PENDING' AND NOT EXISTS (SELECT 1 FROM events e WHERE e.job = jobs.seq AND e.n = jobs.n);
DROP TABLE moments;
DELETE FROM limits WHERE rate IS NOT NULL;
ALTER TABLE limits DROP COLUMN rate;
