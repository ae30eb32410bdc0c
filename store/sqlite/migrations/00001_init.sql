-- Times are microseconds of Unix time. Ids are 16 bytes. Empty text stands for "none" where a column is NOT NULL.

-- +goose Up

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
    priority     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    created      INTEGER NOT NULL,
    external_id  TEXT,
    parent       BLOB,
    limit_keys   TEXT,                          -- JSON list; reserved for limits

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
    result       TEXT
);
CREATE INDEX jobs_ready ON jobs (queue, kind, machine, lane, priority, created) WHERE custody = 'ready';
CREATE INDEX jobs_session ON jobs (session, claim) WHERE session IS NOT NULL;
CREATE INDEX jobs_due ON jobs (due) WHERE custody = 'gate' AND due IS NOT NULL;
CREATE INDEX jobs_monitor ON jobs (machine, since) WHERE custody = 'monitor';
CREATE UNIQUE INDEX jobs_external ON jobs (tenant, external_id) WHERE external_id IS NOT NULL;

-- What never changes and may be large, apart from the rows that are written again and again.
CREATE TABLE specs (
    seq         INTEGER PRIMARY KEY,
    request     TEXT NOT NULL,
    resolved    TEXT,
    labels      TEXT,
    fingerprint BLOB
);

-- History: one row per change of state or custody, numbered within its job. seq is the order of commit.
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
    data    TEXT
);
CREATE UNIQUE INDEX events_job ON events (job, n);

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
CREATE INDEX unique_keys_job ON unique_keys (job);

-- What changes owe to other jobs, until it is paid.
CREATE TABLE followups (
    seq  INTEGER PRIMARY KEY,
    debt TEXT    NOT NULL,
    job  INTEGER NOT NULL,
    at   INTEGER NOT NULL
);

CREATE TABLE idempotency (
    tenant      TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    jobs        BLOB    NOT NULL,               -- ids, 16 bytes each
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_at ON idempotency (at);

CREATE TABLE sessions (
    id          BLOB    PRIMARY KEY,
    process     TEXT    NOT NULL,
    started     INTEGER NOT NULL,
    renewed     INTEGER NOT NULL,
    renewed_ago INTEGER NOT NULL,               -- the renewal before
    lease_until INTEGER NOT NULL,
    ended       INTEGER,
    crashed     INTEGER NOT NULL DEFAULT 0
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
    PRIMARY KEY (tenant, kind, name)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE resources;
DROP TABLE duties;
DROP TABLE sessions;
DROP TABLE idempotency;
DROP TABLE followups;
DROP TABLE unique_keys;
DROP TABLE prerequisites;
DROP TABLE events;
DROP TABLE specs;
DROP TABLE jobs;
