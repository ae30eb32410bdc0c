-- For jobs that are under limits (limit_keys) and wait for their turns.

-- +goose Up

-- The key in whose line a job waits, and how often it stood at the head of one and met another key that was full.
ALTER TABLE jobs ADD COLUMN line TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN passed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_line ON jobs (tenant, line, owner, priority, created) WHERE line <> '';

CREATE TABLE limits (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    doc    TEXT NOT NULL,                       -- JSON
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- Who has turns of a key. An owner's are together, so that they are counted along the key.
CREATE TABLE turns (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    owner  TEXT    NOT NULL,
    job    INTEGER NOT NULL,
    PRIMARY KEY (tenant, key, owner, job)
) WITHOUT ROWID;

-- How much was given to each of the owners who wait side by side for turns of a key.
CREATE TABLE served (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    doc    TEXT NOT NULL,                       -- JSON, by owner
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- What is owed to those who wait for turns of a key is owed by no job (0), and once.
ALTER TABLE followups ADD COLUMN tenant TEXT;
ALTER TABLE followups ADD COLUMN key TEXT;
CREATE UNIQUE INDEX followups_key ON followups (tenant, key) WHERE key IS NOT NULL;

-- +goose Down
-- A Pawl that knows no limits would never let those go that wait in line.
UPDATE jobs SET state = CASE state WHEN 'WAITING' THEN 'PENDING' ELSE state END, custody = 'ready', epoch = epoch + 1, n = n + 1,
    since = CAST(unixepoch('subsec') * 1000000 AS INTEGER), code = '', message = '' WHERE line <> '';
INSERT INTO events (job, n, epoch, state, custody, at, cause) SELECT seq, n, epoch - 1, state, custody, since, 'paid' FROM jobs WHERE line <> '';
UPDATE jobs SET ties = ties & 7, limit_keys = NULL WHERE limit_keys IS NOT NULL;
DROP INDEX followups_key;
DELETE FROM followups WHERE key IS NOT NULL;
ALTER TABLE followups DROP COLUMN key;
ALTER TABLE followups DROP COLUMN tenant;
DROP TABLE served;
DROP TABLE turns;
DROP TABLE limits;
DROP INDEX jobs_line;
ALTER TABLE jobs DROP COLUMN passed;
ALTER TABLE jobs DROP COLUMN line;
