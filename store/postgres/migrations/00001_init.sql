-- The tables of package store, their indexes, and the functions that statements call. In these
-- texts the schema is called pawl; it is replaced where another one is chosen.
--
-- Ids are UUIDs of version 7 made by the caller, and the keys everywhere: a call inserts a job,
-- its spec and its first event without reading a number back, and new rows lie side by side. Text
-- is compared byte by byte (COLLATE "C"), as Go does it.
--
-- A job's row is in two parts. specs has what never changes, or only when people say so: it is
-- written once and is what lists look at. The part that moves is in jobs until the job ends, and
-- in ended from then on. So the tables that are written again and again hold only the jobs that
-- live: their indexes stay small, and a vacuum of them is short, however many jobs are kept. The
-- end costs nothing more by that: an update that touches an index writes a new row and new index
-- entries anyway, and leaves the old ones to the vacuum.

-- +goose Up

-- One row. Transaction ids begin anew in a cluster that was restored from a dump: base is what is
-- added to them, so that the order of events goes on. A Pawl that knows migrations up to least,
-- or further, can work with this schema.
CREATE TABLE pawl.era (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    base  bigint  NOT NULL DEFAULT 0,
    least bigint  NOT NULL
);
INSERT INTO pawl.era (least) VALUES (1);


-- JOBS

CREATE TABLE pawl.specs (
    id           uuid        NOT NULL,
    tenant       text        COLLATE "C" NOT NULL,
    owner        text        COLLATE "C" NOT NULL,
    kind         text        COLLATE "C" NOT NULL,
    name         text        COLLATE "C" NOT NULL,
    stem         text        COLLATE "C" NOT NULL,  -- of the name: without the end of the id
    app          text        COLLATE "C" NOT NULL DEFAULT '',
    queue        text        COLLATE "C" NOT NULL,
    machine      text        COLLATE "C" NOT NULL DEFAULT '',
    watch        text        COLLATE "C" NOT NULL DEFAULT '',
    priority     smallint    NOT NULL,
    max_attempts int         NOT NULL,
    created      timestamptz NOT NULL,
    external_id  text        COLLATE "C",
    fingerprint  bytea,                         -- of the request, where there is an external id
    parent       uuid,
    trace        text        NOT NULL DEFAULT '',
    hidden       boolean     NOT NULL DEFAULT false,
    labels       json,
    notes        json,
    request      json        NOT NULL,
    resolved     json,
    CONSTRAINT specs_pkey PRIMARY KEY (id)
) WITH (fillfactor = 95,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

-- The labels of the jobs that are not hidden, for finding these by them. What is true of a job
-- stands in specs.
CREATE TABLE pawl.labels (
    tenant  text        COLLATE "C" NOT NULL,
    key     text        COLLATE "C" NOT NULL,
    value   text        COLLATE "C" NOT NULL,
    created timestamptz NOT NULL,
    job     uuid        NOT NULL,
    CONSTRAINT labels_pkey PRIMARY KEY (tenant, key, value, created, job)
);

-- Jobs that have not ended. A change of custody touches an index, so it is no HOT update; what
-- keeps the table small is that it holds no others. Vacuum comes often and has little to do.
CREATE TABLE pawl.jobs (
    id         uuid        NOT NULL,
    tenant     text        COLLATE "C" NOT NULL,
    kind       text        COLLATE "C" NOT NULL,
    queue      text        COLLATE "C" NOT NULL,
    machine    text        COLLATE "C" NOT NULL DEFAULT '',
    watch      text        COLLATE "C" NOT NULL DEFAULT '',
    priority   smallint    NOT NULL,
    created    timestamptz NOT NULL,

    state      text        COLLATE "C" NOT NULL,
    custody    text        COLLATE "C" NOT NULL,
    epoch      bigint      NOT NULL,
    n          bigint      NOT NULL,
    ord        bigint      NOT NULL,            -- of the newest event: see events
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
    told       int         NOT NULL DEFAULT 0,  -- events that users and the job itself wrote
    wish       text        NOT NULL DEFAULT '',
    wished_by  text        NOT NULL DEFAULT '',
    resume     text        NOT NULL DEFAULT '',
    code       text        NOT NULL DEFAULT '',
    message    text        NOT NULL DEFAULT '',
    work       json,
    result     json,

    limits     text[],                          -- the keys of its turns; NULL: it is under no limit
    line       text        COLLATE "C",         -- the key for a turn of which it waits
    owner      text        COLLATE "C",         -- that of specs, where it is under limits
    passed     int         NOT NULL DEFAULT 0,  -- how often it was sent to another line
    ordered    text        COLLATE "C",         -- the key of its order,
    rank       text        COLLATE "C",         -- and where it stands there
    grp        text        COLLATE "C",         -- of one that is blocked: the key of its group,
    until      timestamptz,                     -- and when it fails; NULL: never
    CONSTRAINT jobs_pkey PRIMARY KEY (id)
) WITH (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.5, autovacuum_analyze_threshold = 10000);

-- Jobs that have ended. A row is written once, and then only hidden. created and hidden are those
-- of specs: for the indexes.
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
    limits     text[],
    ordered    text,
    CONSTRAINT ended_pkey PRIMARY KEY (id)
) WITH (autovacuum_analyze_scale_factor = 0.02);

-- History: one row per change of state or custody, numbered within its job.
--
-- ord is where the event stands in the order of all events: the greater of its transaction's id
-- and the ord of the job's event before. It is at least the transaction's id, so while a
-- transaction is open all that it writes stands at or above the oldest open one; and within a job
-- it never falls. The transaction's id alone falls: a transaction has its id from its first lock
-- on, and may then wait for a job on which a transaction with a greater id is at work.
CREATE TABLE pawl.events (
    job     uuid        NOT NULL,
    n       bigint      NOT NULL,
    sub     int         NOT NULL DEFAULT 0,
    tenant  text        COLLATE "C" NOT NULL,
    ord     bigint      NOT NULL,
    epoch   bigint      NOT NULL,               -- of the row before the change
    state   text        NOT NULL,
    custody text        NOT NULL,
    at      timestamptz NOT NULL,
    cause   text        NOT NULL,
    session uuid,                               -- who made it: a session,
    actor   text,                               -- or a duty, or a principal
    code    text,
    message text,
    data    json,
    name    text,
    change  bigint,                             -- digest of what was asked for, in its last event
    CONSTRAINT events_pkey PRIMARY KEY (job, n, sub)
) WITH (autovacuum_analyze_scale_factor = 0.1);


-- WHAT JOBS NEED OF EACH OTHER

-- Prerequisites that have not been met: job waits for the end of needs.
CREATE TABLE pawl.prerequisites (
    needs uuid NOT NULL,
    job   uuid NOT NULL,
    need  text NOT NULL,
    CONSTRAINT prerequisites_pkey PRIMARY KEY (needs, job)
);

CREATE TABLE pawl.unique_keys (
    tenant text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    mode   text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    job    uuid NOT NULL,
    CONSTRAINT unique_keys_pkey PRIMARY KEY (tenant, kind, mode, key)
);

-- What changes owe to other jobs, until it is paid.
CREATE TABLE pawl.followups (
    seq  bigint      GENERATED ALWAYS AS IDENTITY,
    debt text        NOT NULL,
    job  uuid        NOT NULL,
    at   timestamptz NOT NULL,
    CONSTRAINT followups_pkey PRIMARY KEY (seq)
);


-- LIMITS
--
-- They hold jobs back until it is their turn: a limit says how many may hold turns of a key at
-- once. Turns are rows, so there is nothing to count wrong. A job under no limit has no row here.

-- While a limit takes in the jobs that were there before it, it lets nobody go: most and ahead
-- are 0, and what was asked for stands beside them. Where groups close its line, most and ahead are
-- what these leave of it. A limit that nobody has set is there for such a line alone, and has NULL
-- in set_most.
CREATE TABLE pawl.limits (
    tenant     text        COLLATE "C" NOT NULL,
    key        text        COLLATE "C" NOT NULL,    -- of one limit, or of a family of them
    most       int         NOT NULL,
    ahead      int         NOT NULL DEFAULT 0,
    weights    json,                            -- of owners

    walked     uuid,                            -- the job that was looked at last; NULL: all were
    walked_at  timestamptz,
    then_most  int,                             -- from then on
    then_ahead int,

    per        bigint      NOT NULL DEFAULT 0,  -- of a rate: microseconds,
    every      bigint      NOT NULL DEFAULT 0,  -- how many are between two moments,
    rate       uuid,                            -- and which it is: another one whenever it is set

    places     int,                             -- that groups leave; NULL: none closes its line
    set_most   int,                             -- as people have set it
    set_ahead  int,
    CONSTRAINT limits_pkey PRIMARY KEY (tenant, key)
);

-- Who has a turn of a key. They come and go with the jobs that run.
CREATE TABLE pawl.turns (
    job    uuid NOT NULL,
    key    text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    owner  text COLLATE "C" NOT NULL,
    CONSTRAINT turns_pkey PRIMARY KEY (job, key)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);

-- Keys that are to be handed on, until that is done.
CREATE TABLE pawl.turns_owed (
    seq    bigint      GENERATED ALWAYS AS IDENTITY,
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL,
    CONSTRAINT turns_owed_pkey PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);

-- How much owners who wait side by side in the line of a key were given, by weight.
CREATE TABLE pawl.served (
    tenant text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    served json NOT NULL,
    CONSTRAINT served_pkey PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50);

-- Of a limit that is a rate: the moment after those that were given, and the rate under which
-- they were.
CREATE TABLE pawl.moments (
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    next   timestamptz NOT NULL,
    rate   uuid        NOT NULL,
    CONSTRAINT moments_pkey PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);


-- GROUPS
--
-- Jobs that are blocked wait in groups for what they are blocked by to clear. A group may close a
-- line of those who wait for turns: its limit then gives as many places as groups leave.

-- What is known of a group besides its jobs. doc has all of it; the other columns are what is
-- asked for.
CREATE TABLE pawl.groups (
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    duty   text        COLLATE "C" NOT NULL,    -- of who tests it,
    probe  text        COLLATE "C" NOT NULL,    -- and what is asked then
    line   text        COLLATE "C" NOT NULL,    -- that it closes; empty: none
    places int         NOT NULL,                -- that it leaves there; negative: it closes none
    next   timestamptz,                         -- when it is tested next; NULL: it is clear
    wake   timestamptz,                         -- when something else is to be done for it
    writes bigint      NOT NULL DEFAULT 0,      -- 0: this transaction has made it
    doc    json        NOT NULL,
    CONSTRAINT groups_pkey PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Lines whose places may have changed, until their limits say so.
CREATE TABLE pawl.lines_owed (
    seq    bigint      GENERATED ALWAYS AS IDENTITY,
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL,
    CONSTRAINT lines_owed_pkey PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);


-- CALLS, PROCESSES AND RESOURCES

CREATE TABLE pawl.idempotency (
    tenant      text        COLLATE "C" NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    fingerprint bytea       NOT NULL,
    jobs        uuid[]      NOT NULL,           -- with which the call was answered
    at          timestamptz NOT NULL,
    CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key)
);

-- A session's row is updated by each renewal: no index but the key, and room for HOT updates.
CREATE TABLE pawl.sessions (
    id          uuid        NOT NULL,
    process     json        NOT NULL,           -- what it told of itself,
    used        json        NOT NULL DEFAULT '{}',  -- and of its slots in use
    mode        text        NOT NULL DEFAULT '',    -- see store.Mode
    lease       interval    NOT NULL,
    started     timestamptz NOT NULL,
    renewed     timestamptz NOT NULL,
    renewed_ago timestamptz NOT NULL,           -- the renewal before
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

-- What is told to other processes and does not fit into a notification; each row lives for about
-- a minute. A crash may take it: whoever waited looks at the rows of jobs then.
CREATE UNLOGGED TABLE pawl.messages (
    id      uuid        NOT NULL,
    content bytea       NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT messages_pkey PRIMARY KEY (id)
);


-- INDEXES

CREATE UNIQUE INDEX specs_external ON pawl.specs (tenant, external_id) WHERE external_id IS NOT NULL;
-- For lists: each holds the jobs of a value in the order of submission. What is hidden is in none
-- but the last, so that no list reads past it, and no index has the value that most jobs have: no
-- app, and the default queue. The first index holds all jobs in that order: its second condition
-- is always true, and is there so that only a statement that repeats it is led by this index; no
-- statistics make it look better than the index of a value.
CREATE INDEX specs_created ON pawl.specs (tenant, created, id) WHERE NOT hidden AND priority >= 0;
CREATE INDEX specs_kind    ON pawl.specs (tenant, kind, created, id) WHERE NOT hidden;
CREATE INDEX specs_owner   ON pawl.specs (tenant, owner, created, id) WHERE NOT hidden;
CREATE INDEX specs_stem    ON pawl.specs (tenant, stem, created, id) WHERE NOT hidden;
CREATE INDEX specs_queue   ON pawl.specs (tenant, queue, created, id) WHERE NOT hidden AND queue <> 'default';
CREATE INDEX specs_app     ON pawl.specs (tenant, app, created, id) WHERE NOT hidden AND app <> '';
CREATE INDEX specs_hidden  ON pawl.specs (tenant, created, id) WHERE hidden;

CREATE INDEX labels_job ON pawl.labels (job);

-- The order inside a line ends with the id, so that a claim needs no sort.
CREATE INDEX jobs_ready   ON pawl.jobs (queue, kind, machine, lane, priority, created, id) WHERE custody = 'ready';
CREATE INDEX jobs_session ON pawl.jobs (session, claim) WHERE session IS NOT NULL;
CREATE INDEX jobs_due     ON pawl.jobs (due) WHERE custody = 'gate' AND due IS NOT NULL;
-- For those who say the condition in this way, and no others.
CREATE INDEX jobs_gate    ON pawl.jobs (tenant, queue) WHERE custody || '' = 'gate';
CREATE INDEX jobs_needs   ON pawl.jobs (id) WHERE custody = 'gate' AND needs <> 0;
CREATE INDEX jobs_monitor ON pawl.jobs (watch, since) WHERE custody = 'monitor';
CREATE INDEX jobs_wished  ON pawl.jobs (watch) WHERE custody = 'monitor' AND wish <> '';
-- For lists, in the order of submission. Jobs that a worker holds are not in it: they are few,
-- and they move on soon. The condition is written as nobody else writes it, so that no other
-- statement takes the index.
CREATE INDEX jobs_state   ON pawl.jobs (state, tenant, created, id) WHERE coalesce(custody, '') <> 'worker';
-- Who waits for a turn, each owner's jobs in their order. Jobs that are in no line are not in it.
CREATE INDEX jobs_line    ON pawl.jobs (tenant, line, owner, priority, created, id) WHERE line IS NOT NULL;
-- Who is next in an order. Those who have got that far wait in another line, or in none.
CREATE INDEX jobs_order   ON pawl.jobs (tenant, line, rank, priority, created, id)
    WHERE starts_with(line, 'order/');
-- Who keeps turns while it waits for others: they go first.
CREATE INDEX jobs_kept    ON pawl.jobs (tenant, line) WHERE line IS NOT NULL AND ties & 64 <> 0;
-- Who is blocked: the jobs of a group, each owner's in the order in which they go; since when;
-- and when the first of them fails.
CREATE INDEX jobs_group   ON pawl.jobs (tenant, grp, owner, since, created, id) WHERE custody = 'recovery';
CREATE INDEX jobs_blocked ON pawl.jobs (tenant, grp, since) WHERE custody = 'recovery';
CREATE INDEX jobs_until   ON pawl.jobs (tenant, grp, until) WHERE custody = 'recovery' AND until IS NOT NULL;

-- For lists by state, in the order of submission and in that of the ends.
CREATE INDEX ended_created ON pawl.ended (tenant, state, created, id) WHERE NOT hidden;
CREATE INDEX ended_ended   ON pawl.ended (tenant, state, ended, created, id) WHERE NOT hidden;
-- For removing jobs that are hidden when they are kept no longer. Few are, so it costs the others
-- nothing.
CREATE INDEX ended_hidden  ON pawl.ended (tenant, state, ended, created, id) WHERE hidden;

-- Entries of one transaction are equal, and so stored once.
CREATE INDEX events_ord ON pawl.events (tenant, ord);

-- In no order, for which one of this and the key would be taken for the other.
CREATE INDEX prerequisites_job ON pawl.prerequisites USING hash (job);
CREATE INDEX unique_keys_job ON pawl.unique_keys (job);
CREATE INDEX followups_job ON pawl.followups (job);

-- The limits that take in jobs: hardly ever is there one.
CREATE INDEX limits_walked ON pawl.limits (walked_at) WHERE walked IS NOT NULL;
CREATE INDEX turns_key ON pawl.turns (tenant, key, owner);
CREATE INDEX turns_owed_tenant ON pawl.turns_owed (tenant, seq);

-- Which groups are tested next, need something else done, or close a line.
CREATE INDEX groups_next ON pawl.groups (duty, next) WHERE next IS NOT NULL;
CREATE INDEX groups_wake ON pawl.groups (wake) WHERE wake IS NOT NULL;
CREATE INDEX groups_line ON pawl.groups (tenant, line, key) WHERE places >= 0;
CREATE INDEX lines_owed_tenant ON pawl.lines_owed (tenant, seq);

CREATE INDEX idempotency_at ON pawl.idempotency (at);


-- FUNCTIONS

-- What decides about time. Tests replace it.
-- +goose StatementBegin
CREATE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
-- +goose StatementEnd

-- refuse fails the statement, and so the transaction: a call that was sent as a whole is undone
-- as a whole.
-- +goose StatementBegin
CREATE FUNCTION pawl.refuse(what text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'PW001', MESSAGE = what; END $$;
-- +goose StatementEnd

-- The same, with a code that the caller chooses.
-- +goose StatementBegin
CREATE FUNCTION pawl.refuse(what text, code text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = what; END $$;
-- +goose StatementEnd


-- TENANTS

-- The second wall between tenants, for roles that do not own the tables: a transaction sees the
-- rows of the tenant that it has named, or all of them where it serves all.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['specs', 'labels', 'jobs', 'ended', 'events', 'unique_keys',
        'limits', 'turns', 'turns_owed', 'served', 'moments', 'groups', 'lines_owed', 'idempotency', 'resources'] LOOP
        EXECUTE format('ALTER TABLE pawl.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON pawl.%I USING (tenant = (SELECT current_setting(''job.tenant'', true))
            OR (SELECT current_setting(''job.tenant'', true)) = ''*'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE pawl.messages, pawl.resources, pawl.duties, pawl.sessions, pawl.idempotency,
    pawl.lines_owed, pawl.groups, pawl.moments, pawl.served, pawl.turns_owed, pawl.turns, pawl.limits,
    pawl.followups, pawl.unique_keys, pawl.prerequisites,
    pawl.events, pawl.ended, pawl.jobs, pawl.labels, pawl.specs, pawl.era;
DROP FUNCTION pawl.refuse(text, text), pawl.refuse(text), pawl.clock();
