-- The tables of a folder's database, and their indexes.
--
-- Times are microseconds of Unix time. Ids are 16 bytes. Empty text stands for "none" where a
-- column is NOT NULL.

-- To goose all of it is one statement: to part a text into statements costs it more than SQLite
-- takes to make the tables.

-- +goose Up
-- +goose StatementBegin
-- JOBS

-- One row per job. seq is the order of submission, and what other tables refer to.
CREATE TABLE jobs (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL UNIQUE,
    tenant       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    machine      TEXT    NOT NULL,
    watch        TEXT    NOT NULL DEFAULT '',
    priority     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    created      INTEGER NOT NULL,
    external_id  TEXT,
    parent       BLOB,
    limit_keys   TEXT,                          -- JSON list; NULL: it is under no limit

    state        TEXT    NOT NULL,
    custody      TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    n            INTEGER NOT NULL,
    lane         TEXT    NOT NULL,
    session      BLOB,
    claim        BLOB,
    attempt      INTEGER NOT NULL,
    recoveries   INTEGER NOT NULL DEFAULT 0,
    suspect      INTEGER NOT NULL DEFAULT 0,
    launch       INTEGER NOT NULL DEFAULT 0,
    live         INTEGER NOT NULL DEFAULT 0,
    since        INTEGER NOT NULL,
    due          INTEGER,
    ended        INTEGER,
    needs        INTEGER NOT NULL DEFAULT 0,
    ties         INTEGER NOT NULL DEFAULT 0,
    wish         TEXT    NOT NULL DEFAULT '',
    wished_by    TEXT    NOT NULL DEFAULT '',
    resume       TEXT    NOT NULL DEFAULT '',
    code         TEXT    NOT NULL DEFAULT '',
    message      TEXT    NOT NULL DEFAULT '',
    work         TEXT,
    result       TEXT,

    app          TEXT    NOT NULL DEFAULT '',
    hidden       INTEGER NOT NULL DEFAULT 0,
    trace        TEXT    NOT NULL DEFAULT '',
    told         INTEGER NOT NULL DEFAULT 0,    -- events that users and the job itself wrote
    -- The name, without the end of the id in a name that comes from the job's id: such names lie
    -- anywhere in an index, while what they have in common keeps the order of submission.
    stem         TEXT    NOT NULL DEFAULT '',
    -- The key in whose line it waits, and how often it was first in one and met another key that
    -- was full.
    line         TEXT    NOT NULL DEFAULT '',
    passed       INTEGER NOT NULL DEFAULT 0,
    ordered      TEXT,                          -- the key in whose order it stands,
    rank         TEXT    NOT NULL DEFAULT '',   -- and where
    grp          TEXT    NOT NULL DEFAULT '',   -- the group of one that is blocked,
    until        INTEGER                        -- and when it fails there; NULL: never
);

-- What never changes and may be large, apart from the rows that are written again and again.
CREATE TABLE specs (
    seq         INTEGER PRIMARY KEY,
    request     TEXT NOT NULL,
    resolved    TEXT,
    labels      TEXT,
    fingerprint BLOB,
    notes       TEXT
);

-- The labels of the jobs that are not hidden, for finding these by them. What is true of a job
-- stands in specs.
CREATE TABLE labels (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    job    INTEGER NOT NULL,
    PRIMARY KEY (tenant, key, value, job)
) WITHOUT ROWID;
CREATE INDEX labels_job ON labels (job);

-- History: one row per change of state or custody, numbered within its job. seq is the order of
-- commit.
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    job     INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    state   TEXT    NOT NULL,
    custody TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    cause   TEXT    NOT NULL,
    actor                   ,                   -- 16 bytes: a session; text: a duty or a principal
    code    TEXT,
    message TEXT,
    data    TEXT,
    sub     INTEGER NOT NULL DEFAULT 0,
    name    TEXT,
    change  INTEGER,                            -- digest of what was asked for, in its last event
    key     TEXT                                -- of an event that a repeated call does not write again
);

-- WHAT JOBS NEED OF EACH OTHER

-- Prerequisites that have not been met: job waits for the end of needs.
CREATE TABLE prerequisites (
    needs INTEGER NOT NULL,
    job   INTEGER NOT NULL,
    need  TEXT    NOT NULL,
    PRIMARY KEY (needs, job)
) WITHOUT ROWID;

CREATE TABLE unique_keys (
    tenant TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    mode   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    job    INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, mode, key)
) WITHOUT ROWID;

-- What changes owe to other jobs, until it is paid. What is owed to those who wait for turns of a
-- key is owed by no job (0), and once.
CREATE TABLE followups (
    seq    INTEGER PRIMARY KEY,
    debt   TEXT    NOT NULL,
    job    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    tenant TEXT,
    key    TEXT
);

-- LIMITS

CREATE TABLE limits (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    doc    TEXT NOT NULL,                       -- JSON
    rate   BLOB,                                -- which rate it is: another one whenever it is set
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

-- Of a limit that is a rate: the moment after those that were given, and the rate under which
-- they were.
CREATE TABLE moments (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    next   INTEGER NOT NULL,                    -- microseconds of Unix time
    rate   BLOB    NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- The limits that take in the jobs which were there before them, and lines that are closed and on
-- which no limit decides.
CREATE TABLE walks (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    walked INTEGER NOT NULL,                    -- the job that was looked at last
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- GROUPS

-- Jobs that are blocked wait in groups, which may close lines.
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

-- The lines that groups close, and those of which that may have changed.
CREATE TABLE lines (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    places INTEGER,                             -- that groups leave it; NULL: it is open
    owed   INTEGER,                             -- since when that is to be looked at; NULL: it was
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- CALLS, PROCESSES AND RESOURCES

CREATE TABLE idempotency (
    tenant      TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    jobs        BLOB    NOT NULL,               -- ids, 16 bytes each
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE TABLE sessions (
    id          BLOB    PRIMARY KEY,
    process     TEXT    NOT NULL,               -- JSON
    started     INTEGER NOT NULL,
    renewed     INTEGER NOT NULL,
    renewed_ago INTEGER NOT NULL,               -- the renewal before
    lease_until INTEGER NOT NULL,
    ended       INTEGER,
    crashed     INTEGER NOT NULL DEFAULT 0,
    used        TEXT    NOT NULL DEFAULT '{}',  -- its slots in use
    mode        TEXT    NOT NULL DEFAULT ''     -- see store.Mode
) WITHOUT ROWID;

CREATE TABLE duties (
    name    TEXT    PRIMARY KEY,
    term    INTEGER NOT NULL,
    session BLOB    NOT NULL
) WITHOUT ROWID;

CREATE TABLE resources (
    tenant  TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    doc     TEXT    NOT NULL,
    through INTEGER,
    next    INTEGER,
    trouble TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, kind, name)
) WITHOUT ROWID;

-- INDEXES

CREATE INDEX jobs_ready ON jobs (queue, kind, machine, lane, priority, created) WHERE custody = 'ready';
CREATE INDEX jobs_session ON jobs (session, claim) WHERE session IS NOT NULL;
CREATE INDEX jobs_due ON jobs (due) WHERE custody = 'gate' AND due IS NOT NULL;
CREATE INDEX resources_next ON resources (kind, next) WHERE next IS NOT NULL;
CREATE INDEX jobs_monitor ON jobs (watch, since) WHERE custody = 'monitor';
CREATE UNIQUE INDEX jobs_external ON jobs (tenant, external_id) WHERE external_id IS NOT NULL;
-- For comparing the prerequisites that a job waits for with their number.
CREATE INDEX jobs_needs ON jobs (seq) WHERE custody = 'gate' AND needs <> 0;
-- For finding the programs that somebody wants to end or to pause, among many that just run.
CREATE INDEX jobs_wished ON jobs (watch) WHERE custody = 'monitor' AND wish <> '';
-- Each of these holds the jobs in the order of submission, or of their ends, for every value: seq
-- comes last in every index. What is hidden is in none but jobs_hidden, so that no list reads
-- past it. Jobs that a worker holds are not in jobs_state: they are few, and they move on soon.
-- (session stands there so that it need not be looked up.) No index has the value that most jobs
-- have: no app, and the default queue.
CREATE INDEX jobs_state ON jobs (tenant, state, session) WHERE session IS NULL AND hidden = 0;
CREATE INDEX jobs_kind ON jobs (tenant, kind) WHERE hidden = 0;
CREATE INDEX jobs_owner ON jobs (tenant, owner) WHERE hidden = 0;
CREATE INDEX jobs_queue ON jobs (tenant, queue) WHERE queue <> 'default' AND hidden = 0;
CREATE INDEX jobs_name ON jobs (tenant, stem) WHERE hidden = 0;
CREATE INDEX jobs_app ON jobs (tenant, app) WHERE app <> '' AND hidden = 0;
CREATE INDEX jobs_ended ON jobs (tenant, state, ended) WHERE ended IS NOT NULL AND hidden = 0;
CREATE INDEX jobs_hidden ON jobs (tenant) WHERE hidden = 1;
-- For counting what waits in a queue, beside jobs_ready.
CREATE INDEX jobs_gate ON jobs (tenant, queue) WHERE custody = 'gate';
-- For removing jobs that are hidden when they are kept no longer, as jobs_ended is for the others.
CREATE INDEX jobs_hidden_ended ON jobs (tenant, state, ended) WHERE hidden = 1;
-- Who waits for a turn, who is next in an order, and who keeps turns while it waits for others:
-- they go first.
CREATE INDEX jobs_line ON jobs (tenant, line, owner, priority, created) WHERE line <> '';
CREATE INDEX jobs_order ON jobs (tenant, line, rank, priority, created) WHERE line <> '' AND line GLOB 'order/*';
CREATE INDEX jobs_kept ON jobs (tenant, line) WHERE line <> '' AND ties & 64 <> 0;
-- Who is blocked: since when, each owner's, and when the first of them fails.
CREATE INDEX jobs_group ON jobs (tenant, grp, since) WHERE grp <> '';
CREATE INDEX jobs_group_owner ON jobs (tenant, grp, owner, since) WHERE grp <> '';
CREATE INDEX jobs_until ON jobs (tenant, grp, until) WHERE until IS NOT NULL;

CREATE UNIQUE INDEX events_job ON events (job, n, sub);
CREATE UNIQUE INDEX events_key ON events (job, key) WHERE key IS NOT NULL;

CREATE INDEX prerequisites_job ON prerequisites (job);
CREATE INDEX unique_keys_job ON unique_keys (job);
CREATE INDEX followups_job ON followups (job);
CREATE UNIQUE INDEX followups_key ON followups (tenant, key) WHERE key IS NOT NULL;

CREATE INDEX walks_at ON walks (at, tenant);

CREATE INDEX groups_next ON groups (duty, next) WHERE next IS NOT NULL;
CREATE INDEX groups_probe ON groups (duty, probe) WHERE next IS NOT NULL;
CREATE INDEX groups_wake ON groups (wake) WHERE wake IS NOT NULL;
CREATE INDEX groups_line ON groups (tenant, line, places) WHERE places >= 0;
CREATE INDEX lines_owed ON lines (owed, tenant, key) WHERE owed IS NOT NULL;

CREATE INDEX idempotency_at ON idempotency (at);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE resources;
DROP TABLE duties;
DROP TABLE sessions;
DROP TABLE idempotency;
DROP TABLE lines;
DROP TABLE groups;
DROP TABLE walks;
DROP TABLE moments;
DROP TABLE served;
DROP TABLE turns;
DROP TABLE limits;
DROP TABLE followups;
DROP TABLE unique_keys;
DROP TABLE prerequisites;
DROP TABLE events;
DROP TABLE labels;
DROP TABLE specs;
DROP TABLE jobs;
-- +goose StatementEnd
