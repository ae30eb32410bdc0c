-- The tables of the contract in package store, as PostgreSQL has them.
--
-- Ids are UUIDs of version 7 and made by the caller, so they serve as keys everywhere: a call inserts a job, its spec
-- and its first event without reading a number back. Text is compared byte by byte (COLLATE "C"), as Go does it.
--
-- jobs holds what changes, specs what does not. Every change of custody touches a column of an index and so cannot be a
-- HOT update: it adds an entry to each index of the table that covers the row. Therefore jobs has one full index, its
-- key; the others are partial and small. What only people ask for (lists, external ids) is indexed on specs.

CREATE TABLE jobs (
    id           uuid        PRIMARY KEY,
    tenant       text        COLLATE "C" NOT NULL,
    kind         text        COLLATE "C" NOT NULL,
    queue        text        COLLATE "C" NOT NULL,
    machine      text        COLLATE "C" NOT NULL,
    priority     smallint    NOT NULL,
    created      timestamptz NOT NULL,

    state        text        COLLATE "C" NOT NULL,
    custody      text        COLLATE "C" NOT NULL,
    epoch        bigint      NOT NULL,
    n            bigint      NOT NULL,
    ord          xid8        NOT NULL,          -- of the newest event: see events
    lane         text        COLLATE "C" NOT NULL,
    session      uuid,
    claim        uuid,
    attempt      int         NOT NULL,
    max_attempts int         NOT NULL,
    recoveries   int         NOT NULL DEFAULT 0,
    suspect      int         NOT NULL DEFAULT 0,
    launch       int         NOT NULL DEFAULT 0,
    live         boolean     NOT NULL DEFAULT false,
    since        timestamptz NOT NULL,
    due          timestamptz,
    ended        timestamptz,
    needs        int         NOT NULL DEFAULT 0 CHECK (needs >= 0),
    ties         int         NOT NULL DEFAULT 0,
    wish         text        NOT NULL DEFAULT '',
    wished_by    text        NOT NULL DEFAULT '',
    resume       text        NOT NULL DEFAULT '',
    code         text        NOT NULL DEFAULT '',
    message      text        NOT NULL DEFAULT '',
    work         json,
    result       json
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
-- The order inside a line ends with the id, so that a claim needs no sort.
CREATE INDEX jobs_ready   ON jobs (queue, kind, machine, lane, priority, created, id) WHERE custody = 'ready';
CREATE INDEX jobs_session ON jobs (session, claim) WHERE session IS NOT NULL;
CREATE INDEX jobs_due     ON jobs (due) WHERE custody = 'gate' AND due IS NOT NULL;
CREATE INDEX jobs_monitor ON jobs (machine, since) WHERE custody = 'monitor';

-- What never changes (but resolved, which is written once) and may be large: PostgreSQL moves long values out of the
-- row by itself, but without this table the short ones would be copied by each of a job's changes.
CREATE TABLE specs (
    id          uuid        PRIMARY KEY,
    tenant      text        COLLATE "C" NOT NULL,
    owner       text        NOT NULL,
    name        text        NOT NULL,
    created     timestamptz NOT NULL,
    external_id text        COLLATE "C",
    fingerprint bytea,
    parent      uuid,
    labels      jsonb,
    request     json        NOT NULL,
    resolved    json
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX specs_external ON specs (tenant, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX specs_list ON specs (tenant, created, id);

-- History: one row per change of state or custody, numbered within its job.
--
-- ord is where the event stands in the order of all events: the greater of its transaction's id and the ord of the
-- job's event before. It is at least the transaction's id, so while a transaction is open all that it writes stands at
-- or above pg_snapshot_xmin; and within a job it never falls. The transaction's id alone falls: a transaction has its
-- id from its first lock on, and may then wait for a job on which a transaction with a greater id is at work.
CREATE TABLE events (
    job     uuid        NOT NULL,
    n       bigint      NOT NULL,
    ord     xid8        NOT NULL,
    epoch   bigint      NOT NULL,               -- of the row before the change
    state   text        NOT NULL,
    custody text        NOT NULL,
    at      timestamptz NOT NULL,
    cause   text        NOT NULL,
    session uuid,                               -- who made it: a session,
    actor   text,                               -- or a duty, or a principal
    code    text        NOT NULL DEFAULT '',
    message text        NOT NULL DEFAULT '',
    data    json,
    change  bigint,                             -- digest of the change that was asked for, in its last event
    PRIMARY KEY (job, n)
);
CREATE INDEX events_ord ON events (ord, job, n);

-- Prerequisites that have not been met: job waits for the end of needs.
CREATE TABLE prerequisites (
    needs uuid NOT NULL,
    job   uuid NOT NULL,
    need  text NOT NULL,
    PRIMARY KEY (needs, job)
);

CREATE TABLE unique_keys (
    tenant text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    mode   text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    job    uuid NOT NULL,
    PRIMARY KEY (tenant, kind, mode, key)
);
CREATE INDEX unique_keys_job ON unique_keys (job);

-- What changes owe to other jobs, until it is paid.
CREATE TABLE followups (
    seq  bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    debt text        NOT NULL,
    job  uuid        NOT NULL,
    at   timestamptz NOT NULL
);

CREATE TABLE idempotency (
    tenant      text        COLLATE "C" NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    fingerprint bytea       NOT NULL,
    jobs        uuid[]      NOT NULL,           -- that the call brought
    answers     uuid[],                         -- with which it was answered, where a unique key made them others
    at          timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_at ON idempotency (at);

-- A session's row is updated by each renewal: no index but the key, and room for HOT updates.
CREATE TABLE sessions (
    id          uuid        PRIMARY KEY,
    process     text        NOT NULL,
    started     timestamptz NOT NULL,
    renewed     timestamptz NOT NULL,
    renewed_ago timestamptz NOT NULL,           -- the renewal before
    lease_until timestamptz NOT NULL,
    ended       timestamptz,
    crashed     boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);

CREATE TABLE duties (
    name    text   PRIMARY KEY,
    term    bigint NOT NULL,
    session uuid   NOT NULL
);

-- refuse fails the statement, and so the transaction, when it is evaluated: a call that was sent as a whole, its COMMIT
-- included, is undone as a whole.
CREATE FUNCTION refuse(what text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'PW001', MESSAGE = what; END $$;
