-- For jobs that are blocked: they wait in groups, which may close lines.

-- +goose Up

-- The group of a job that is blocked, and when it fails there.
ALTER TABLE jobs ADD COLUMN grp TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN until INTEGER;
CREATE INDEX jobs_group ON jobs (tenant, grp, since) WHERE grp <> '';
CREATE INDEX jobs_group_owner ON jobs (tenant, grp, owner, since) WHERE grp <> '';
CREATE INDEX jobs_until ON jobs (tenant, grp, until) WHERE until IS NOT NULL;

CREATE TABLE groups (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    duty   TEXT    NOT NULL,                    -- whose holder tests it
    probe  TEXT    NOT NULL,                    -- what it asks the world
    next   INTEGER,                             -- when it is tested next; NULL: it is clear
    wake   INTEGER,                             -- when there is something else to do for it
    line   TEXT    NOT NULL,                    -- that it may close
    places INTEGER NOT NULL,                    -- that this gives; negative: it closes none
    doc    TEXT    NOT NULL,                    -- JSON
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX groups_next ON groups (duty, next) WHERE next IS NOT NULL;
CREATE INDEX groups_probe ON groups (duty, probe) WHERE next IS NOT NULL;
CREATE INDEX groups_wake ON groups (wake) WHERE wake IS NOT NULL;
CREATE INDEX groups_line ON groups (tenant, line, places) WHERE places >= 0;

-- The lines that groups close, and those of which that may have changed.
CREATE TABLE lines (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    places INTEGER,                             -- that groups leave it; NULL: it is open
    owed   INTEGER,                             -- since when it is to be looked at what they leave it; NULL: it was
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX lines_owed ON lines (owed, tenant, key) WHERE owed IS NOT NULL;

-- The limits that take in the jobs which were there before them, and lines that are closed and on which no limit decides.
CREATE TABLE walks (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    walked INTEGER NOT NULL,                    -- the job that was looked at last
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX walks_at ON walks (at, tenant);
INSERT INTO walks (tenant, key, walked, at) SELECT tenant, key, walked, walked_at FROM limits WHERE walked IS NOT NULL;
DROP INDEX limits_walked;
ALTER TABLE limits DROP COLUMN walked_at;
ALTER TABLE limits DROP COLUMN walked;

-- +goose Down
-- A Pawl that knows no groups would never let those go that are blocked. Who can wait at a gate waits for a time there that has come, and is
-- moved on from it; all others are ready.
UPDATE jobs SET state = CASE WHEN resume = 'PENDING' OR resume IN ('STAGING_INPUTS', 'STAGING_JOB') AND ordered IS NOT NULL AND ties & 256 = 0 THEN 'WAITING' ELSE resume END,
    epoch = epoch + 1, n = n + 1, recoveries = recoveries + 1, since = CAST(unixepoch('subsec') * 1000000 AS INTEGER), resume = '', code = '', message = '' WHERE grp <> '';
UPDATE jobs SET custody = iif(state IN ('WAITING', 'PROCESSING_INPUTS', 'SUBMITTING_JOB'), 'gate', 'ready'),
    due = iif(state IN ('WAITING', 'PROCESSING_INPUTS', 'SUBMITTING_JOB'), since, NULL),
    lane = CASE WHEN lane <> 'prepare' THEN lane WHEN state = 'ARCHIVING' THEN 'finish' WHEN state = 'SUBMITTING_JOB' THEN 'launch' ELSE lane END WHERE grp <> '';
INSERT INTO events (job, n, epoch, state, custody, at, cause) SELECT seq, n, epoch - 1, state, custody, since, 'clear' FROM jobs WHERE grp <> '';
-- Where a line was closed there may be no limit.
INSERT INTO followups (debt, job, at, tenant, key)
    SELECT DISTINCT 'turns', 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER), tenant, line FROM jobs WHERE line <> ''
    ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING;
ALTER TABLE limits ADD COLUMN walked INTEGER;
ALTER TABLE limits ADD COLUMN walked_at INTEGER;
UPDATE limits SET (walked, walked_at) = (SELECT w.walked, w.at FROM walks w WHERE w.tenant = limits.tenant AND w.key = limits.key);
CREATE INDEX limits_walked ON limits (walked_at, tenant) WHERE walked IS NOT NULL;
DROP TABLE walks;
DROP TABLE lines;
DROP TABLE groups;
DROP INDEX jobs_until;
DROP INDEX jobs_group_owner;
DROP INDEX jobs_group;
ALTER TABLE jobs DROP COLUMN until;
ALTER TABLE jobs DROP COLUMN grp;
