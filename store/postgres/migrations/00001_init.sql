-- The tables of package store. In these texts the schema is called pawl; it is replaced where another one is chosen.
--
-- Ids are UUIDs of version 7 made by the caller, and the keys everywhere: a call inserts a job, its spec and its first
-- event without reading a number back, and new rows lie side by side. Text is compared byte by byte (COLLATE "C"), as Go
-- does it.
--
-- A job's row is in two parts. specs has what never changes, or only when people say so: it is written once and is what
-- lists look at. The part that moves is in jobs until the job ends, and in ended from then on. So the tables that are
-- written again and again hold only the jobs that live: their indexes stay small, and a vacuum of them is short, however
-- many jobs are kept. The end costs nothing more by that: an update that touches an index writes a new row and new index
-- entries anyway, and leaves the old ones to the vacuum.

-- +goose Up

-- What decides about time. Tests replace it.
-- +goose StatementBegin
CREATE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
-- +goose StatementEnd

-- refuse fails the statement, and so the transaction: a call that was sent as a whole is undone as a whole.
-- +goose StatementBegin
CREATE FUNCTION pawl.refuse(what text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'PW001', MESSAGE = what; END $$;
-- +goose StatementEnd

-- One row. Transaction ids begin anew in a cluster that was restored from a dump: base is what is added to them, so that
-- the order of events goes on. A Pawl that knows migrations up to least, or further, can work with this schema.
CREATE TABLE pawl.era (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    base  bigint  NOT NULL DEFAULT 0,
    least bigint  NOT NULL
);
INSERT INTO pawl.era (least) VALUES (1);

CREATE TABLE pawl.specs (
    id           uuid        NOT NULL,
    tenant       text        COLLATE "C" NOT NULL,
    owner        text        COLLATE "C" NOT NULL,
    kind         text        COLLATE "C" NOT NULL,
    name         text        COLLATE "C" NOT NULL,
    stem         text        COLLATE "C" NOT NULL,      -- of the name: without the end of the id
    app          text        COLLATE "C" NOT NULL DEFAULT '',
    queue        text        COLLATE "C" NOT NULL,
    machine      text        COLLATE "C" NOT NULL DEFAULT '',
    priority     smallint    NOT NULL,
    max_attempts int         NOT NULL,
    created      timestamptz NOT NULL,
    external_id  text        COLLATE "C",
    fingerprint  bytea,                                 -- of the request, where there is an external id
    parent       uuid,
    trace        text        NOT NULL DEFAULT '',
    hidden       boolean     NOT NULL DEFAULT false,
    labels       json,
    notes        json,
    request      json        NOT NULL,
    resolved     json,
    CONSTRAINT specs_pkey PRIMARY KEY (id)
) WITH (fillfactor = 95, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);
CREATE UNIQUE INDEX specs_external ON pawl.specs (tenant, external_id) WHERE external_id IS NOT NULL;
-- For lists: each holds the jobs of a value in the order of submission. What is hidden is in none but the last, so that no
-- list reads past it, and no index has the value that most jobs have: no app, and the default queue. The first index holds
-- all jobs in that order: its second condition is always true, and is there so that only a statement that repeats it is led
-- by this index; no statistics make it look better than the index of a value.
CREATE INDEX specs_created ON pawl.specs (tenant, created, id) WHERE NOT hidden AND priority >= 0;
CREATE INDEX specs_kind    ON pawl.specs (tenant, kind, created, id) WHERE NOT hidden;
CREATE INDEX specs_owner   ON pawl.specs (tenant, owner, created, id) WHERE NOT hidden;
CREATE INDEX specs_stem    ON pawl.specs (tenant, stem, created, id) WHERE NOT hidden;
CREATE INDEX specs_queue   ON pawl.specs (tenant, queue, created, id) WHERE NOT hidden AND queue <> 'default';
CREATE INDEX specs_app     ON pawl.specs (tenant, app, created, id) WHERE NOT hidden AND app <> '';
CREATE INDEX specs_hidden  ON pawl.specs (tenant, created, id) WHERE hidden;

-- The labels of the jobs that are not hidden, for finding these by them. What is true of a job stands in specs.
CREATE TABLE pawl.labels (
    tenant  text        COLLATE "C" NOT NULL,
    key     text        COLLATE "C" NOT NULL,
    value   text        COLLATE "C" NOT NULL,
    created timestamptz NOT NULL,
    job     uuid        NOT NULL,
    CONSTRAINT labels_pkey PRIMARY KEY (tenant, key, value, created, job)
);
CREATE INDEX labels_job ON pawl.labels (job);

-- Jobs that have not ended. A change of custody touches an index, so it is no HOT update; what keeps the table small is
-- that it holds no others. Vacuum comes often and has little to do.
CREATE TABLE pawl.jobs (
    id         uuid        NOT NULL,
    tenant     text        COLLATE "C" NOT NULL,
    kind       text        COLLATE "C" NOT NULL,
    queue      text        COLLATE "C" NOT NULL,
    machine    text        COLLATE "C" NOT NULL,
    priority   smallint    NOT NULL,
    created    timestamptz NOT NULL,

    state      text        COLLATE "C" NOT NULL,
    custody    text        COLLATE "C" NOT NULL,
    epoch      bigint      NOT NULL,
    n          bigint      NOT NULL,
    ord        bigint      NOT NULL,                    -- of the newest event: see events
    lane       text        COLLATE "C" NOT NULL,
    session    uuid,
    claim      uuid,
    attempt    int         NOT NULL,
    recoveries int         NOT NULL DEFAULT 0,
    suspect    int         NOT NULL DEFAULT 0,
    launch     int         NOT NULL DEFAULT 0,
    live       boolean     NOT NULL DEFAULT false,
    since      timestamptz NOT NULL,
    due        timestamptz,
    needs      int         NOT NULL DEFAULT 0 CHECK (needs >= 0),
    ties       int         NOT NULL DEFAULT 0,
    told       int         NOT NULL DEFAULT 0,          -- events that users and the job itself wrote
    wish       text        NOT NULL DEFAULT '',
    wished_by  text        NOT NULL DEFAULT '',
    resume     text        NOT NULL DEFAULT '',
    code       text        NOT NULL DEFAULT '',
    message    text        NOT NULL DEFAULT '',
    work       json,
    result     json,
    CONSTRAINT jobs_pkey PRIMARY KEY (id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5, autovacuum_analyze_threshold = 10000);
-- The order inside a line ends with the id, so that a claim needs no sort.
CREATE INDEX jobs_ready   ON pawl.jobs (queue, kind, machine, lane, priority, created, id) WHERE custody = 'ready';
CREATE INDEX jobs_session ON pawl.jobs (session, claim) WHERE session IS NOT NULL;
CREATE INDEX jobs_due     ON pawl.jobs (due) WHERE custody = 'gate' AND due IS NOT NULL;
CREATE INDEX jobs_gate    ON pawl.jobs (tenant, queue) WHERE custody || '' = 'gate'; -- for those who say it so, and no others
CREATE INDEX jobs_needs   ON pawl.jobs (id) WHERE custody = 'gate' AND needs <> 0;
CREATE INDEX jobs_monitor ON pawl.jobs (machine, since) WHERE custody = 'monitor';
CREATE INDEX jobs_wished  ON pawl.jobs (machine) WHERE custody = 'monitor' AND wish <> '';
-- For lists, in the order of submission. Jobs that a worker holds are not in it: they are few, and they move on soon.
-- The condition is written as nobody else writes it, so that no other statement takes the index.
CREATE INDEX jobs_state   ON pawl.jobs (state, tenant, created, id) WHERE coalesce(custody, '') <> 'worker';

-- Jobs that have ended. A row is written once, and then only hidden. created and hidden are those of specs: for the indexes.
CREATE TABLE pawl.ended (
    id         uuid        NOT NULL,
    tenant     text        COLLATE "C" NOT NULL,
    state      text        COLLATE "C" NOT NULL,
    epoch      bigint      NOT NULL,
    n          bigint      NOT NULL,
    ord        bigint      NOT NULL,
    attempt    int         NOT NULL,
    recoveries int         NOT NULL,
    suspect    int         NOT NULL,
    launch     int         NOT NULL,
    created    timestamptz NOT NULL,
    since      timestamptz NOT NULL,
    ended      timestamptz NOT NULL,
    hidden     boolean     NOT NULL DEFAULT false,
    needs      int         NOT NULL,
    ties       int         NOT NULL,
    told       int         NOT NULL,
    wished_by  text        NOT NULL,
    code       text        NOT NULL,
    message    text        NOT NULL,
    work       json,
    result     json,
    CONSTRAINT ended_pkey PRIMARY KEY (id)
) WITH (autovacuum_analyze_scale_factor = 0.02);
-- For lists by state, in the order of submission and in that of the ends.
CREATE INDEX ended_created ON pawl.ended (tenant, state, created, id) WHERE NOT hidden;
CREATE INDEX ended_ended   ON pawl.ended (tenant, state, ended, created, id) WHERE NOT hidden;

-- History: one row per change of state or custody, numbered within its job.
--
-- ord is where the event stands in the order of all events: the greater of its transaction's id and the ord of the
-- job's event before. It is at least the transaction's id, so while a transaction is open all that it writes stands at
-- or above the oldest open one; and within a job it never falls. The transaction's id alone falls: a transaction has its
-- id from its first lock on, and may then wait for a job on which a transaction with a greater id is at work.
CREATE TABLE pawl.events (
    job     uuid        NOT NULL,
    n       bigint      NOT NULL,
    sub     int         NOT NULL DEFAULT 0,
    tenant  text        COLLATE "C" NOT NULL,
    ord     bigint      NOT NULL,
    epoch   bigint      NOT NULL,                       -- of the row before the change
    state   text        NOT NULL,
    custody text        NOT NULL,
    at      timestamptz NOT NULL,
    cause   text        NOT NULL,
    session uuid,                                       -- who made it: a session,
    actor   text,                                       -- or a duty, or a principal
    code    text,
    message text,
    data    json,
    name    text,
    change  bigint,                                     -- digest of the change that was asked for, in its last event
    CONSTRAINT events_pkey PRIMARY KEY (job, n, sub)
) WITH (autovacuum_analyze_scale_factor = 0.1);
-- Entries of one transaction are equal, and so stored once.
CREATE INDEX events_ord ON pawl.events (tenant, ord);

-- Prerequisites that have not been met: job waits for the end of needs.
CREATE TABLE pawl.prerequisites (
    needs uuid NOT NULL,
    job   uuid NOT NULL,
    need  text NOT NULL,
    CONSTRAINT prerequisites_pkey PRIMARY KEY (needs, job)
);
CREATE INDEX prerequisites_job ON pawl.prerequisites USING hash (job); -- in no order, for which one of the two would be taken for the other

CREATE TABLE pawl.unique_keys (
    tenant text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    mode   text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    job    uuid NOT NULL,
    CONSTRAINT unique_keys_pkey PRIMARY KEY (tenant, kind, mode, key)
);
CREATE INDEX unique_keys_job ON pawl.unique_keys (job);

-- What changes owe to other jobs, until it is paid.
CREATE TABLE pawl.followups (
    seq  bigint      GENERATED ALWAYS AS IDENTITY,
    debt text        NOT NULL,
    job  uuid        NOT NULL,
    at   timestamptz NOT NULL,
    CONSTRAINT followups_pkey PRIMARY KEY (seq)
);
CREATE INDEX followups_job ON pawl.followups (job);

CREATE TABLE pawl.idempotency (
    tenant      text        COLLATE "C" NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    fingerprint bytea       NOT NULL,
    jobs        uuid[]      NOT NULL,                   -- with which the call was answered
    at          timestamptz NOT NULL,
    CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_at ON pawl.idempotency (at);

-- A session's row is updated by each renewal: no index but the key, and room for HOT updates.
CREATE TABLE pawl.sessions (
    id          uuid        NOT NULL,
    process     json        NOT NULL,                   -- what it told of itself,
    used        json        NOT NULL DEFAULT '{}',      -- and of its slots in use
    command     text        NOT NULL DEFAULT '',        -- that it was told
    lease       interval    NOT NULL,
    started     timestamptz NOT NULL,
    renewed     timestamptz NOT NULL,
    renewed_ago timestamptz NOT NULL,                   -- the renewal before
    lease_until timestamptz NOT NULL,
    ended       timestamptz,
    crashed     boolean     NOT NULL DEFAULT false,
    CONSTRAINT sessions_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);

CREATE TABLE pawl.duties (
    name    text   COLLATE "C" NOT NULL,
    term    bigint NOT NULL,
    session uuid   NOT NULL,
    CONSTRAINT duties_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

CREATE TABLE pawl.resources (
    tenant  text        COLLATE "C" NOT NULL,
    kind    text        COLLATE "C" NOT NULL,
    name    text        COLLATE "C" NOT NULL,
    version bigint      NOT NULL,
    updated timestamptz NOT NULL,
    doc     json        NOT NULL,
    CONSTRAINT resources_pkey PRIMARY KEY (tenant, kind, name)
);

-- What is told to other processes and does not fit into a notification; each row lives for about a minute. A crash may
-- take it: whoever waited looks at the rows of jobs then.
CREATE UNLOGGED TABLE pawl.messages (
    id      uuid        NOT NULL,
    content bytea       NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT messages_pkey PRIMARY KEY (id)
);

-- The second wall between tenants, for roles that do not own the tables: a transaction sees the rows of the tenant that it
-- has named, or all of them where it serves all.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['specs', 'labels', 'jobs', 'ended', 'events', 'unique_keys', 'idempotency', 'resources'] LOOP
        EXECUTE format('ALTER TABLE pawl.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON pawl.%I USING (tenant = (SELECT current_setting(''job.tenant'', true))
            OR (SELECT current_setting(''job.tenant'', true)) = ''*'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE pawl.messages, pawl.resources, pawl.duties, pawl.sessions, pawl.idempotency, pawl.followups, pawl.unique_keys, pawl.prerequisites,
    pawl.events, pawl.ended, pawl.jobs, pawl.labels, pawl.specs, pawl.era;
DROP FUNCTION pawl.refuse(text);
DROP FUNCTION pawl.clock();
