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
-- or further, can work with this schema. By the id a service knows whether a transaction of its
-- program is one of its own database.
CREATE TABLE pawl.era (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    id    uuid    NOT NULL DEFAULT gen_random_uuid(),
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
    key     text        COLLATE "C",            -- of an event that a repeated call does not write again
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
    through timestamptz,
    next    timestamptz,
    trouble text        NOT NULL DEFAULT '',
    CONSTRAINT resources_pkey PRIMARY KEY (tenant, kind, name)
);
CREATE INDEX resources_next ON pawl.resources (kind, next) WHERE next IS NOT NULL;

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
CREATE UNIQUE INDEX events_key ON pawl.events (job, key) WHERE key IS NOT NULL;

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

-- The statement by which Submit inserts jobs (store/postgres/submit.go), for enqueue. A test holds the
-- two together, and writes this one. A function in SQL would be planned at each call, which takes ten
-- times as long as the rest.
-- +goose StatementBegin
CREATE FUNCTION pawl.insert_jobs(text, text, uuid[], text[], text[], text[], text[], text[], text[], text[],
    int[], int[], text[], bytea[], uuid[], text[], json[], json[], json[], interval[], timestamptz[], int[], int[],
    bool[], text[], text[], uuid[], timestamptz, text[], text[], text[], text[], text[], text[], text[], bigint)
RETURNS TABLE (job uuid, due timestamptz, owed boolean, later boolean) LANGUAGE plpgsql VOLATILE AS $insert$
#variable_conflict use_column
BEGIN RETURN QUERY
WITH x AS MATERIALIZED (
	SELECT coalesce($28::timestamptz, pawl.clock()) AS now, $36::bigint AS ord
	WHERE CASE WHEN $29::text[] IS NULL THEN true
		WHEN ARRAY(SELECT l.key FROM pawl.limits l WHERE l.tenant = $1 AND l.key = ANY ($29::text[]) ORDER BY l.key)
			= $30::text[] COLLATE "C" THEN true
		ELSE pawl.refuse('the limits have changed', 'PW002') END
), given AS MATERIALIZED (
	SELECT u.*, x.now, x.ord, rank.at, CASE WHEN d.due > x.now
		THEN d.due END AS due, coalesce(d.due > x.now, false) OR coalesce(u.needs > 0, false)
			OR u.broken IS TRUE AS shut
	FROM x CROSS JOIN unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
		$10::text[], $11::int[], $12::int[],
		$13::text[], $14::bytea[], $15::uuid[], $16::text[], $17::json[], $18::json[], $19::json[],
			$20::interval[], $21::timestamptz[],
		$22::int[], $23::int[], $24::bool[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[])
		u(id, owner, kind, name, stem, app, queue, machine, priority, max_attempts, external_id, fingerprint,
			parent, trace, labels, notes,
			request, delay, given, needs, ties, broken, watch, limits, first, ordered, rank)
	CROSS JOIN LATERAL (SELECT CASE WHEN u.delay IS NOT NULL THEN x.now + u.delay ELSE u.given END AS due) d
	CROSS JOIN LATERAL (SELECT CASE
		WHEN u.ordered IS NULL OR u.rank <> 'due' THEN u.rank
		WHEN u.rank IS NULL THEN lpad(greatest(0, extract(epoch FROM x.now) * 1000000)::bigint::text, 18, '0') || u.id::text
		ELSE lpad(greatest(0, extract(epoch FROM coalesce(d.due, x.now)) * 1000000)::bigint::text, 18, '0') END AS at) rank
), wants AS MATERIALIZED (
	SELECT g.id, g.owner, CASE WHEN g.kind = 'app' THEN 'ahead/' ELSE '' END || l.key AS key, true AS enough
	FROM given g CROSS JOIN LATERAL unnest(g.limits::text[]) l(key) WHERE (SELECT nullif(current_setting('job.payer', true), '')) = $1 AND NOT g.shut
		AND g.ordered IS NULL
	UNION ALL
	SELECT g.id, g.owner, g.ordered, g.limits IS NULL FROM given g WHERE (SELECT nullif(current_setting('job.payer', true), '')) = $1 AND NOT g.shut
		AND g.ordered IS NOT NULL
), keys AS MATERIALIZED (
	SELECT k.key, k.n <= k.free AND NOT k.waited AS fits, k.free <= 0 AS full FROM (
		SELECT w.key, count(*) AS n, CASE WHEN regexp_replace(w.key, '^ahead/', '') = ANY (ARRAY(SELECT o.key FROM pawl.lines_owed o WHERE o.tenant = (SELECT nullif(current_setting('job.payer', true), '')))) THEN 0 ELSE coalesce((
		SELECT CASE WHEN NOT starts_with(w.key, 'ahead/') THEN m.most WHEN m.ahead > 0 THEN m.ahead
			ELSE 2 * m.most END
		FROM pawl.limits m WHERE m.tenant = (SELECT nullif(current_setting('job.payer', true), ''))
			AND m.key IN (regexp_replace(w.key, '^ahead/', ''), regexp_replace(regexp_replace(w.key, '^ahead/', ''), '[^/]*$', '*')) ORDER BY m.key <> regexp_replace(w.key, '^ahead/', '') LIMIT 1),
		CASE WHEN starts_with(w.key, 'order/') THEN 1 WHEN starts_with(regexp_replace(w.key, '^ahead/', ''), 'unique/') THEN CASE
			WHEN starts_with(w.key, 'ahead/') THEN 2 ELSE 1 END ELSE 1000000000 END) END
		- (SELECT count(*)::int FROM pawl.turns t WHERE t.tenant = (SELECT nullif(current_setting('job.payer', true), '')) AND t.key = w.key) AS free,
			EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = w.key) AS waited
		FROM wants w GROUP BY w.key OFFSET 0
	) k
), going AS MATERIALIZED (
	SELECT w.id FROM wants w GROUP BY w.id
		HAVING bool_and(w.enough AND w.key IN (SELECT k.key FROM keys k WHERE k.fits))
), new AS MATERIALIZED (
	SELECT g.*, g.shut OR g.first IS NOT NULL AND NOT g.goes AS gated,
		coalesce(g.ties, 0) | CASE WHEN NOT g.goes THEN 0 WHEN g.ordered IS NOT NULL THEN 256
			WHEN g.kind = 'app' THEN 16 ELSE 32 END AS tied,
		CASE WHEN NOT g.shut AND NOT g.goes THEN g.first END AS line
	FROM (SELECT g.*, g.id IN (SELECT o.id FROM going o) AS goes FROM given g OFFSET 0) g
), spec AS (
	INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, app, queue, machine, watch, priority, max_attempts,
		created, external_id,
		fingerprint, parent, trace, labels, notes, request)
	SELECT n.id, $1, n.owner, n.kind, n.name, n.stem, coalesce(n.app, ''), n.queue, coalesce(n.machine, ''),
		coalesce(n.watch, ''), n.priority, n.max_attempts, n.now,
		n.external_id, n.fingerprint, n.parent, coalesce(n.trace, ''), n.labels, n.notes, n.request
	FROM new n
), job AS (
	INSERT INTO pawl.jobs (id, tenant, kind, queue, machine, watch, priority, created, state, custody, epoch, n, ord,
		lane, attempt, since,
		due, needs, ties, limits, line, owner, ordered, rank)
	SELECT n.id, $1, n.kind, n.queue, coalesce(n.machine, ''), coalesce(n.watch, ''), n.priority, n.now,
		CASE WHEN n.gated THEN 'WAITING' ELSE 'PENDING' END, CASE WHEN n.gated THEN 'gate' ELSE 'ready' END,
		1, 1, n.ord, CASE WHEN n.kind = 'app' THEN 'prepare' ELSE 'task' END, 1, n.now,
		n.due, coalesce(n.needs, 0), n.tied, n.limits::text[], n.line, CASE WHEN n.limits IS NOT NULL
			OR n.ordered IS NOT NULL THEN n.owner END, n.ordered, n.at
	FROM new n
), history AS (
	INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, actor)
	SELECT n.id, 1, $1, n.ord, 0, CASE WHEN n.gated THEN 'WAITING' ELSE 'PENDING' END, CASE WHEN n.gated
		THEN 'gate' ELSE 'ready' END,
		n.now, 'submit', nullif($2, '')
	FROM new n
), label AS (
	INSERT INTO pawl.labels (tenant, key, value, created, job)
	SELECT $1, l.key, l.value, x.now, l.job FROM x, unnest($25::text[], $26::text[], $27::uuid[]) l(key, value, job)
), turns AS (
	INSERT INTO pawl.turns (job, key, tenant, owner) SELECT w.id, w.key, $1, w.owner FROM wants w
		WHERE coalesce(w.id IN (SELECT o.id FROM going o), false)
), lines AS MATERIALIZED (
	-- Others stand there, who are owed what is free, or nothing is.
	SELECT l.line, EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = l.line)
		OR l.line IN (SELECT k.key FROM keys k WHERE k.full) AS later
	FROM (SELECT DISTINCT n.line FROM new n WHERE n.line IS NOT NULL OFFSET 0) l
), owed AS (
	INSERT INTO pawl.turns_owed (tenant, key, at) SELECT $1, l.line, x.now + CASE WHEN l.later
		THEN interval '50ms' ELSE interval '0' END FROM x, lines l
	RETURNING key
)
SELECT n.id, n.due, n.line IN (SELECT o.key FROM owed o), n.line IN (SELECT l.line FROM lines l WHERE l.later) FROM new n WHERE n.gated;
END $insert$;
-- +goose StatementEnd

-- plain_json writes a JSON value so that equal values have one text, as package job does for unique
-- keys: names in order, and each number as its digits and the power of ten that they count.
-- +goose StatementBegin
CREATE FUNCTION pawl.plain_json(v jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $plain$
DECLARE
    whole text; fraction text; digits text;
BEGIN
    CASE jsonb_typeof(v)
    WHEN 'object' THEN
        RETURN '{' || coalesce((SELECT string_agg(pawl.plain_json(to_jsonb(f.key)) || ':' || pawl.plain_json(f.value), ','
            ORDER BY f.key COLLATE "C") FROM jsonb_each(v) f), '') || '}';
    WHEN 'array' THEN
        RETURN '[' || coalesce((SELECT string_agg(pawl.plain_json(e.value), ',' ORDER BY e.i)
            FROM jsonb_array_elements(v) WITH ORDINALITY e(value, i)), '') || ']';
    WHEN 'string' THEN
        RETURN replace(replace(replace(replace(replace(v::text, '<', '\u003c'), '>', '\u003e'), '&', '\u0026'),
            U&'\2028', '\u2028'), U&'\2029', '\u2029');
    WHEN 'number' THEN
        whole := split_part(ltrim(v::text, '-'), '.', 1);
        fraction := split_part(v::text, '.', 2);
        digits := ltrim(whole || fraction, '0');
        RETURN CASE WHEN digits = '' THEN '0' ELSE CASE WHEN v::text LIKE '-%' THEN '-' ELSE '' END || rtrim(digits, '0')
            || 'e' || length(digits) - length(rtrim(digits, '0')) - length(fraction) END;
    ELSE
        RETURN v::text;
    END CASE;
END $plain$;
-- +goose StatementEnd

-- args_key is the key of jobs whose arguments have equal fields; no fields: of equal arguments.
-- +goose StatementBegin
CREATE FUNCTION pawl.args_key(args jsonb, fields jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $key$
DECLARE
    field text; chosen jsonb := '{}';
BEGIN
    IF fields IS NULL THEN
        chosen := jsonb_build_object('', args);
    END IF;
    FOR field IN SELECT jsonb_array_elements_text(fields) LOOP
        chosen := chosen || jsonb_build_object(field, pawl.arg(args, field));
    END LOOP;
    RETURN pawl.json_key(chosen);
END $key$;
-- +goose StatementEnd

-- arg is a field of arguments, where a dot leads into a field; NULL if there is none.
-- +goose StatementBegin
CREATE FUNCTION pawl.arg(args jsonb, field text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $arg$
DECLARE
    part text; v jsonb := args;
BEGIN
    FOREACH part IN ARRAY string_to_array(field, '.') LOOP
        v := CASE WHEN jsonb_typeof(v) = 'object' THEN v -> part END;
    END LOOP;
    RETURN v;
END $arg$;
-- +goose StatementEnd

-- limit_key is a key of a limit as a task names it, with the values of its arguments in place of
-- fields, such as {account}.
-- +goose StatementBegin
CREATE FUNCTION pawl.limit_key(args jsonb, named text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $limit$
DECLARE
    key text := named; field text; v jsonb; n numeric; word text; wrong text;
BEGIN
    LOOP
        field := substring(key FROM '[{]([^{}/]+)[}]');
        EXIT WHEN field IS NULL OR length(key) > 2 * {MaxLimitKey};
        v := pawl.arg(args, field);
        word := NULL;
        IF jsonb_typeof(v) IN ('string', 'boolean') THEN
            word := v #>> '{}';
        ELSIF jsonb_typeof(v) = 'number' THEN
            n := v::numeric;
            word := CASE WHEN n = trunc(n) THEN trunc(n)::text END;
        END IF;
        IF coalesce(word, '') = '' THEN
            wrong := 'finds no text, whole number, true or false in the field ' || field || ' of args';
            EXIT;
        END IF;
        word := (SELECT string_agg(CASE WHEN c ~ '^[A-Za-z0-9._:@-]$' THEN c
            ELSE upper(regexp_replace(encode(convert_to(c, 'UTF8'), 'hex'), '(..)', '%\1', 'g')) END, '' ORDER BY i)
            FROM regexp_split_to_table(left(word, {MaxLimitKey}), '') WITH ORDINALITY s(c, i));
        key := replace(key, '{' || field || '}', word);
    END LOOP;
    wrong := CASE
        WHEN wrong IS NOT NULL THEN wrong
        WHEN length(key) > {MaxLimitKey} THEN 'is too long, perhaps with the values of args: keep it to {MaxLimitKey} bytes'
        WHEN key !~ {LimitKeyPattern} THEN 'is not a key: use letters, digits and . _ : @ % + -, in parts that are '
            || 'separated by slashes'
        WHEN key ~ {OwnKeyPattern} OR split_part(named, '/', 1) LIKE '%{%' THEN 'begins with ' || split_part(named, '/', 1)
            || ': name another key'
        END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PW004', MESSAGE = 'limits: ' || named || ' ' || wrong;
    END IF;
    RETURN key;
END $limit$;
-- +goose StatementEnd

-- rank is where a task stands in an order by a field of its arguments: a text that sorts by its bytes.
-- +goose StatementBegin
CREATE FUNCTION pawl.rank(args jsonb, field text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $rank$
DECLARE
    v jsonb := pawl.arg(args, field); f float8; bits bit(64); whole numeric; sign bit(64) := 1::bit(64) << 63;
BEGIN
    CASE coalesce(jsonb_typeof(v), 'null')
    WHEN 'null' THEN
        RETURN 'z';
    WHEN 'string' THEN
        IF octet_length(v #>> '{}') <= 255 THEN
            RETURN 't' || (v #>> '{}');
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PW004', MESSAGE = 'order.by: args.' || field || ' has a text of more than 255 bytes';
    WHEN 'number' THEN
        whole := trunc(v::numeric);
        BEGIN
            f := v::numeric::float8;
        EXCEPTION WHEN numeric_value_out_of_range THEN
            IF abs(whole) > 0 THEN
                RAISE EXCEPTION USING ERRCODE = 'PW004', MESSAGE = 'order.by: args.' || field || ' has a number that is out of range';
            END IF;
            f := 0;
        END;
        bits := ('x' || encode(float8send(f), 'hex'))::bit(64);
        bits := CASE WHEN f < 0 THEN ~bits ELSE bits # sign END;
        whole := greatest(-9223372036854775808, least(9223372036854775807, whole));
        RETURN 'n' || encode(int8send(bits::bigint), 'hex')
            || encode(int8send((whole::bigint::bit(64) # sign)::bigint), 'hex');
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'PW004', MESSAGE = 'order.by: args.' || field || ' is neither a number nor a text';
    END CASE;
END $rank$;
-- +goose StatementEnd

-- json_key is the digest of a JSON value, the same for equal ones.
-- +goose StatementBegin
CREATE FUNCTION pawl.json_key(v jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $digest$
DECLARE
    bits bit(160) := ('x' || encode(substr(sha256(convert_to(pawl.plain_json(v), 'UTF8')), 1, 20), 'hex'))::bit(160);
BEGIN
    RETURN (SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567', substring(bits FROM i * 5 + 1 FOR 5)::int + 1, 1),
        '' ORDER BY i) FROM generate_series(0, 31) i);
END $digest$;
-- +goose StatementEnd

-- arg_key is args_key of one field of a request's arguments; NULL if PostgreSQL cannot read it, as where
-- the request has \u0000 or a number of a hundred thousand digits.
-- +goose StatementBegin
CREATE FUNCTION pawl.arg_key(request json, field text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $arg$
DECLARE
    part text; v json;
BEGIN
    v := request -> 'args';
    FOREACH part IN ARRAY string_to_array(field, '.') LOOP
        v := CASE WHEN json_typeof(v) = 'object' THEN v -> part END;
    END LOOP;
    RETURN pawl.json_key(jsonb_build_object(field, v::jsonb));
EXCEPTION WHEN untranslatable_character OR numeric_value_out_of_range OR invalid_text_representation THEN
    RETURN NULL;
END $arg$;
-- +goose StatementEnd

-- label_rows are the rows of the table of labels that a new task gets: its labels and its index.
-- +goose StatementBegin
CREATE FUNCTION pawl.label_rows(task jsonb) RETURNS TABLE (key text, value text) LANGUAGE sql IMMUTABLE AS $$
    SELECT key, value FROM jsonb_each_text(coalesce(task -> 'labels', '{}'))
    UNION ALL SELECT 'args:' || key, value FROM jsonb_each_text(coalesce(task -> 'index', '{}')) $$;
-- +goose StatementEnd

-- misfit says what in a task is not of the shape that it must have: which field is none, or has another
-- type; NULL: nothing. Null in a shape stands for any value. The elements of a list are like its first.
-- +goose StatementBegin
CREATE FUNCTION pawl.misfit(v jsonb, shape jsonb, path text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $misfit$
DECLARE
    kind text := jsonb_typeof(shape); f record; wrong text;
BEGIN
    IF kind = 'null' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(v) <> kind OR kind = 'number' AND v::text !~ '^-?[0-9]{1,9}$' THEN
        RETURN path || ': give ' || CASE kind WHEN 'string' THEN 'a text' WHEN 'number' THEN 'a whole number'
            WHEN 'boolean' THEN 'true or false' WHEN 'array' THEN 'a list' ELSE 'fields and their values' END;
    ELSIF kind = 'object' THEN
        FOR f IN SELECT key, value, concat_ws('.', nullif(path, ''), key) AS at FROM jsonb_each(v) ORDER BY key LOOP
            wrong := CASE
                WHEN NOT shape ? f.key THEN f.at || ': is not a field of a task that enqueue takes'
                WHEN f.value <> 'null' THEN pawl.misfit(f.value, shape -> f.key, f.at) END;
            EXIT WHEN wrong IS NOT NULL;
        END LOOP;
    ELSIF kind = 'array' THEN
        wrong := (SELECT pawl.misfit(e, shape -> 0, path) FROM jsonb_array_elements(v) e
            WHERE pawl.misfit(e, shape -> 0, path) IS NOT NULL LIMIT 1);
    END IF;
    RETURN wrong;
END $misfit$;
-- +goose StatementEnd

-- duration reads a duration as package job does; NULL: it is none of up to ten years. What is less than
-- a microsecond is left out.
-- +goose StatementBegin
CREATE FUNCTION pawl.duration(said text) RETURNS interval LANGUAGE plpgsql IMMUTABLE AS $duration$
DECLARE
    d interval;
BEGIN
    IF said ~ {DurationPattern} THEN
        d := coalesce(nullif(regexp_replace(replace(said, 'µs', 'us'), '[0-9.]+ns', '', 'g'), ''), '0')::interval;
    END IF;
    RETURN CASE WHEN extract(epoch FROM d) <= {MaxDelay} THEN d END;
EXCEPTION WHEN datetime_field_overflow OR interval_field_overflow OR invalid_datetime_format THEN
    RETURN NULL;
END $duration$;
-- +goose StatementEnd

-- instant reads a time as package job does; NULL: it is none from 1970 to 2200.
-- +goose StatementBegin
CREATE FUNCTION pawl.instant(said text) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS $instant$
DECLARE
    t timestamptz;
BEGIN
    IF said ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.]\d+)?(Z|[+-]\d\d:\d\d)$' THEN
        t := said::timestamptz;
    END IF;
    RETURN CASE WHEN t BETWEEN {MinTime} AND {MaxTime} THEN t END;
EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format OR invalid_time_zone_displacement_value THEN
    RETURN NULL;
END $instant$;
-- +goose StatementEnd

-- task_row makes of a task as its author writes it what enqueue inserts. It takes the fields that
-- docs/go.md names, and refuses all others, and values that package job would refuse. What the task
-- does not say comes from the document of its kind.
-- +goose StatementBegin
CREATE FUNCTION pawl.task_row(given jsonb, owner text) RETURNS jsonb LANGUAGE plpgsql AS $row$
#variable_conflict use_variable
DECLARE
    -- A UUID of version 7: milliseconds, then random bits.
    id uuid := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
    short text := right(id::text, 8);
    kind text := given ->> 'kind';
    name text := coalesce(nullif(given ->> 'name', ''), kind || '-' || short);
    wrong text := pawl.misfit(given, '{"kind": "", "args": null, "args_version": 0, "queue": "", "name": "", "owner": "",
        "priority": null, "delay": null, "not_before": "", "limits": null, "labels": null, "notes": null, "external_id": "",
        "order": {"key": "", "args": [""], "by": "", "failing": ""},
        "unique": {"key": "", "args": [""], "until": "", "alone": false},
        "retry": {"max_attempts": 0, "backoff": {"kind": "", "base": "", "max": "", "jitter": false}}}', '');
    declared jsonb := (SELECT r.doc::jsonb FROM pawl.resources r
        WHERE r.tenant = current_setting('job.tenant') AND r.kind = 'kind' AND r.name = given ->> 'kind');
    s jsonb := (SELECT coalesce(jsonb_object_agg(f.key, f.value), '{}') FROM jsonb_each(declared) f
            WHERE f.key IN ('queue', 'unique', 'order', 'limits', 'retry'))
        || (SELECT coalesce(jsonb_object_agg(f.key, CASE WHEN f.key NOT IN ('order', 'unique') OR wrong IS NOT NULL THEN f.value
                ELSE (SELECT coalesce(jsonb_object_agg(n.key, n.value), '{}') FROM jsonb_each(f.value) n
                    WHERE n.value NOT IN ('null', '""')) END), '{}')
            FROM jsonb_each(given) f WHERE f.value <> 'null' -- empty texts are not given
                AND (f.value <> '""' OR f.key NOT IN ('queue', 'name', 'owner', 'external_id')));
    queue text; known boolean; equal text; ordered text;
BEGIN
    queue := coalesce(s ->> 'queue', 'default');
    known := queue = 'default' OR EXISTS (SELECT FROM pawl.resources r
        WHERE r.tenant = current_setting('job.tenant') AND r.kind = 'queue' AND r.name = queue);
    owner := coalesce(s ->> 'owner', owner);
    wrong := CASE
        WHEN wrong IS NOT NULL THEN wrong
        WHEN kind !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$' OR kind IS NULL THEN
            'kind: give the name of a task: up to 64 of A-Z a-z 0-9 . _ -'
        WHEN kind = 'app' THEN 'kind: app is a program: only tasks are enqueued in a transaction'
        WHEN (declared ->> 'disabled')::boolean THEN 'kind: ' || kind || ' is disabled: it takes no new jobs until it is enabled'
        WHEN NOT known THEN 'queue: ' || queue || ' is unknown: give one that pawl get queues lists, or make it'
        WHEN jsonb_typeof(s #> '{unique,args}') <> 'array' OR s #>> '{unique,key}' <> '' AND s #> '{unique,args}' IS NOT NULL THEN
            'unique: give a key, or a list of fields of args'
        WHEN jsonb_typeof(s #> '{order,args}') <> 'array' OR s ? 'order' AND coalesce(s #>> '{order,key}', '') = ''
                AND coalesce(s #> '{order,args}', '[]') = '[]'
            OR s #>> '{order,key}' <> '' AND s #> '{order,args}' IS NOT NULL THEN 'order: give a key, or a list of fields of args'
        WHEN coalesce(s #>> '{unique,until}', 'done') NOT IN ('start', 'done', 'running') THEN
            'unique.until: give start, done or running'
        WHEN coalesce(s #>> '{order,by}', 'created') !~ '^(created|due|args[.].+)$' THEN
            'order.by: give created, due, or a field such as args.version'
        WHEN s #>> '{order,failing}' NOT IN ('block', 'pass') THEN 'order.failing: give block or pass'
        WHEN pawl.misfit(s -> 'limits', '[""]', '') IS NOT NULL OR jsonb_array_length(s -> 'limits') > {MaxJobLimits} THEN
            'limits: give a list of {MaxJobLimits} keys at most'
        WHEN (SELECT count(*) > count(DISTINCT l) FROM jsonb_array_elements(s -> 'limits') l) THEN 'limits: name each key once'
        WHEN jsonb_typeof(s -> 'labels') <> 'object' OR EXISTS (SELECT FROM jsonb_path_query(s, '$.labels.keyvalue()') l
                WHERE jsonb_typeof(l -> 'value') <> 'string' OR l ->> 'key' !~ '^[A-Za-z0-9._/-]{1,63}$') THEN
            'labels: give texts under names of up to 63 of A-Z a-z 0-9 . _ / -, such as {"order": "17"}'
        WHEN (SELECT count(*) FROM jsonb_path_query(s, '$.labels.keyvalue()')) > {MaxLabels} THEN
            'labels: give {MaxLabels} at most'
        WHEN octet_length((s -> 'args')::text) > {MaxArgs} THEN
            'args: keep them to {MaxArgs} bytes and pass larger data by reference'
        WHEN octet_length((s -> 'notes')::text) > {MaxNotes} THEN
            'notes: keep them to {MaxNotes} bytes and pass larger data by reference'
        WHEN jsonb_path_exists(s -> 'args', {TooDeep}) OR jsonb_path_exists(s -> 'notes', {TooDeep}) THEN
            'args, notes: keep lists and maps at most {MaxDepth} deep in each other'
        WHEN (s ->> 'args_version')::int NOT BETWEEN 1 AND {MaxVersion} THEN 'args_version: give 1 to {MaxVersion}'
        WHEN (s #>> '{unique,alone}')::boolean AND s #>> '{unique,until}' IS DISTINCT FROM 'start' THEN
            'unique.alone: belongs to until: start. Leave it out: equal jobs never run at once anyway'
        WHEN s ? 'delay' AND (jsonb_typeof(s -> 'delay') <> 'string' OR pawl.duration(s ->> 'delay') IS NULL) THEN
            'delay: give a duration with units of up to ten years, such as 90s or 1h30m'
        WHEN s ? 'not_before' AND pawl.instant(s ->> 'not_before') IS NULL THEN
            'not_before: give a time from 1970 to 2200 with its zone, such as 2030-01-02T15:04:05Z'
        WHEN s ? 'not_before' AND s ->> 'delay' ~ '[1-9]' THEN 'delay: give only one of delay and not_before'
        WHEN jsonb_typeof(s -> 'priority') <> 'number' OR s ->> 'priority' !~ '^[0-9]$' THEN 'priority: give 0 to 9'
        WHEN s #>> '{retry,backoff,kind}' NOT IN ('', 'constant', 'linear', 'exponential') THEN
            'retry.backoff.kind: give constant, linear or exponential'
        WHEN coalesce((s #>> '{retry,max_attempts}')::int, 10) NOT BETWEEN 1 AND 1000 THEN 'retry.max_attempts: give 1 to 1000'
        END;
    wrong := coalesce(wrong, (SELECT f.name || ': give up to ' || f.most || ' printable characters'
        FROM (VALUES ('name', name, {MaxName}), ('owner', owner, {MaxOwner}), ('external_id', s ->> 'external_id', {MaxExternalID}),
            ('unique.key', s #>> '{unique,key}', {MaxKey}), ('order.key', s #>> '{order,key}', {MaxKey})) f(name, value, most)
        WHERE length(f.value) > f.most OR f.value ~ '[[:cntrl:]]'
        UNION ALL SELECT 'labels.' || l.key || ': give up to {MaxKey} printable characters'
        FROM jsonb_each_text(s -> 'labels') l WHERE length(l.value) > {MaxKey} OR l.value ~ '[[:cntrl:]]'
        UNION ALL SELECT l.name || '.args: give up to 16 fields of args' FROM (VALUES ('order'), ('unique')) l(name)
        WHERE jsonb_array_length(s #> ARRAY[l.name, 'args']) > 16 OR s #> ARRAY[l.name, 'args'] ? ''
        UNION ALL SELECT 'retry.backoff.' || l.name || ': give a duration of up to ten years, such as 1s' || l.more
        FROM (VALUES ('base', s #>> '{retry,backoff,base}', '', '0'), ('max', s #>> '{retry,backoff,max}',
            ', and no less than base', s #>> '{retry,backoff,base}')) l(name, said, more, least)
        WHERE l.said IS NOT NULL AND (pawl.duration(l.said) IS NULL
            OR l.said ~ '[1-9]' AND pawl.duration(l.said) < pawl.duration(l.least))
        LIMIT 1));
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PW004', MESSAGE = wrong;
    END IF;
    IF s ? 'unique' THEN
        equal := coalesce(nullif(s #>> '{unique,key}', ''), pawl.args_key(s -> 'args', s #> '{unique,args}'));
    END IF;
    IF s ? 'order' THEN
        ordered := coalesce(pawl.key_part(nullif(s #>> '{order,key}', '')),
            kind || '/' || pawl.args_key(s -> 'args', s #> '{order,args}'));
    END IF;
    RETURN jsonb_strip_nulls(jsonb_build_object(
        'id', id, 'owner', owner, 'kind', kind, 'name', name, 'queue', queue,
        'stem', CASE WHEN right(name, 9) = '-' || short THEN left(name, -8) ELSE name END,
        'priority', coalesce((s ->> 'priority')::int, 5), 'max_attempts', coalesce((s #>> '{retry,max_attempts}')::int, 10),
        'external_id', s ->> 'external_id',
        'fingerprint', CASE WHEN s ? 'external_id' THEN encode(sha256(convert_to(given::text, 'UTF8')), 'hex') END,
        'labels', s -> 'labels', 'index', (SELECT jsonb_object_agg(f, pawl.args_key(s -> 'args', jsonb_build_array(f)))
            FROM jsonb_array_elements_text(declared -> 'index') f), 'notes', (s -> 'notes')::text, 'request', s::text,
        'delay', floor(extract(epoch FROM pawl.duration(s ->> 'delay')) * 1000000)::bigint, 'due', s ->> 'not_before',
        'ties', CASE WHEN s ? 'order' THEN {TieLimited} ELSE 0 END
            | CASE WHEN s #>> '{order,failing}' = 'pass' THEN {TiePass} ELSE 0 END
            | CASE coalesce(s #>> '{unique,until}', CASE WHEN s ? 'unique' THEN 'done' END)
                WHEN 'start' THEN {TieUniqueStart} WHEN 'done' THEN {TieUniqueDone} ELSE 0 END,
        'limits', coalesce((SELECT jsonb_agg(DISTINCT pawl.limit_key(s -> 'args', l.key))
                FROM jsonb_array_elements_text(s -> 'limits') l(key)), '[]') || CASE WHEN s #>> '{unique,until}' = 'running'
                OR (s #>> '{unique,alone}')::boolean THEN jsonb_build_array('unique/' || kind || '/' || pawl.key_part(equal))
            ELSE '[]' END,
        'optional', jsonb_build_array('tenant', 'user/' || pawl.key_part(owner), 'kind/' || kind),
        'order', 'order/' || ordered, 'rank', CASE WHEN s #>> '{order,by}' LIKE 'args.%'
            THEN pawl.rank(s -> 'args', substr(s #>> '{order,by}', 6)) ELSE nullif(s #>> '{order,by}', 'created') END,
        'unique', CASE WHEN s ? 'unique' AND s #>> '{unique,until}' IS DISTINCT FROM 'running' THEN jsonb_build_array(
            jsonb_build_object('mode', coalesce(s #>> '{unique,until}', 'done'), 'key', equal)) END));
END $row$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION pawl.key_part(name text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT replace(replace(replace(name, '%', '%25'), '/', '%2F'), '*', '%2A') $$;
-- +goose StatementEnd

-- tell sends messages as broker/pgnotify does.
-- +goose StatementBegin
CREATE FUNCTION pawl.tell(messages text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $tell$
DECLARE
    here text := {schema};
    channel text := CASE WHEN length(here) <= 58 THEN 'pawl/' || here
        ELSE 'pawl/' || encode(substr(sha256(here::bytea), 1, 16), 'hex') END;
    m text;
BEGIN
    FOREACH m IN ARRAY messages LOOP
        PERFORM pg_notify(channel, m);
    END LOOP;
END $tell$;
-- +goose StatementEnd

-- enter begins an enqueue of one task that waits for nothing (store/postgres/enqueue.go), and returns
-- the ord of its event. NULL: enqueue is to do it, for the tenant has limits, rows are secured, the
-- isolation level is another one, or the tables are another store's.
-- +goose StatementBegin
CREATE FUNCTION pawl.enter(store text, of text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $enter$
#variable_conflict use_column
DECLARE
    at bigint;
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' AND NOT row_security_active('pawl.jobs')
        AND pg_advisory_xact_lock_shared({writers})::text
            || pg_advisory_xact_lock_shared(hashtextextended('pawl.submissions/' || of, 0))::text = '' THEN
        -- What is read here is read after the locks.
        SELECT e.base + greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
            INTO at FROM pawl.era e
            WHERE e.id = store::uuid AND NOT EXISTS (SELECT FROM pawl.limits l WHERE l.tenant = of);
    END IF;
    RETURN at;
END $enter$;
-- +goose StatementEnd

-- enqueue inserts tasks in the transaction of its caller. It only writes new rows. A conflict fails
-- nothing: it is answered. docs/go.md says what doc is, and what others wait for until the commit.
-- +goose StatementBegin
CREATE FUNCTION pawl.enqueue(doc jsonb, OUT i int, OUT job uuid, OUT existed boolean, OUT conflict text)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $enqueue$
#variable_conflict use_variable
DECLARE
    t text := coalesce(doc ->> 'tenant', 'default');
    was text := coalesce(current_setting('job.tenant', true), '');
    here text := {schema};
    tasks jsonb := doc -> 'jobs';
    nth int := 0;
    at bigint;
    at_clock timestamptz := pawl.clock();
    wake text; wakes text[] := '{}';
    ignored text; -- what is assigned costs a tenth of what is performed
    quiet boolean;
    some_limits boolean; -- for what is held under optional keys
    s jsonb; u jsonb; r record; taken boolean; held text[];
    -- Of jobs that wait. They begin as NULL: first values of all would be a tenth of a call.
    ids uuid[]; owners text[]; kinds text[]; names text[]; stems text[];
    queues text[]; priorities int[]; attempts int[]; externals text[];
    prints bytea[]; traces text[]; labelled json[]; noted json[];
    requests json[]; delays interval[]; dues timestamptz[]; tied int[];
    keys text[]; vals text[]; label_jobs uuid[];
    limited text[]; firsts text[]; orders text[]; ranks text[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = 'PW003', MESSAGE = 'enqueue works in transactions of isolation level READ '
            || 'COMMITTED, and this one has ' || upper(current_setting('transaction_isolation'));
    END IF;
    IF NOT coalesce(tasks -> 0 ? 'request', false) THEN -- package postgres writes no wrong ones
        wake := CASE
            WHEN jsonb_typeof(tasks) IS DISTINCT FROM 'array' OR jsonb_path_exists(tasks, 'strict $[*] ? (@.type() != "object")') THEN
                'jobs: give a list of tasks'
            WHEN EXISTS (SELECT FROM jsonb_object_keys(doc) f WHERE f NOT IN ('tenant', 'by', 'jobs')) THEN
                'give the fields tenant, by and jobs, and no others'
            WHEN jsonb_typeof(doc -> 'tenant') NOT IN ('string', 'null') OR t !~ '^[A-Za-z0-9][A-Za-z0-9._-]*$' OR length(t) > {MaxTenant} THEN
                'tenant: give a name of up to {MaxTenant} letters, digits, dots, dashes and underscores'
            WHEN jsonb_typeof(doc -> 'by') NOT IN ('string', 'null') OR doc ->> 'by' = '' OR length(doc ->> 'by') > {MaxOwner} OR doc ->> 'by' ~ '[[:cntrl:]]' THEN
                'by: give 1 to {MaxOwner} printable characters'
            END;
        IF wake IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'PW004', MESSAGE = wake;
        END IF;
    END IF;
    ignored := set_config('job.tenant', t, true);
    ignored := pg_advisory_xact_lock_shared({writers});
    ignored := pg_advisory_xact_lock_shared(hashtextextended('pawl.submissions/' || t, 0));
    -- The transaction may be older than its lock: its events stand behind all that was read before.
    SELECT e.base + greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint),
        EXISTS (SELECT FROM pawl.limits l WHERE l.tenant = t) INTO at, some_limits FROM pawl.era e;
    IF jsonb_array_length(tasks) > 1 THEN
        -- All calls take what they share in one order: none waits for another that waits for it.
        tasks := (SELECT jsonb_agg(x.s || jsonb_build_object('i', x.n) ORDER BY x.s ->> 'kind', (x.s -> 'unique')::text, x.n)
            FROM (SELECT e.n, CASE WHEN e.s ? 'request' THEN e.s
                ELSE pawl.task_row(e.s, coalesce(doc ->> 'by', 'pawl')) END AS s
                FROM jsonb_array_elements(tasks) WITH ORDINALITY e(s, n)) x);
        PERFORM pg_advisory_xact_lock(l.key) FROM (SELECT DISTINCT
            hashtextextended('pawl.external/' || t || '/' || (e.s ->> 'external_id'), 0) AS key
            FROM jsonb_array_elements(tasks) e(s) WHERE e.s ? 'external_id' ORDER BY 1) l;
    END IF;
    WHILE nth < jsonb_array_length(tasks) LOOP
        s := tasks -> nth;
        IF NOT s ? 'request' THEN
            s := pawl.task_row(s, coalesce(doc ->> 'by', 'pawl'));
        END IF;
        nth := nth + 1; i := coalesce((s ->> 'i')::int, nth); existed := false; conflict := NULL; job := (s ->> 'id')::uuid;
        IF s ? 'external_id' THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('pawl.external/' || t || '/' || (s ->> 'external_id'), 0));
            SELECT x.id, x.fingerprint INTO r FROM pawl.specs x
                WHERE x.tenant = t AND x.external_id = s ->> 'external_id';
            IF FOUND THEN
                IF r.fingerprint IS DISTINCT FROM decode(s ->> 'fingerprint', 'hex') THEN
                    conflict := 'external_id';
                END IF;
                existed := true; job := r.id;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        IF s ? 'unique' THEN
            FOR u IN SELECT value FROM jsonb_array_elements(s -> 'unique') LOOP
                FOR try IN 1 .. 100 LOOP -- a key may be given up between the two statements
                    INSERT INTO pawl.unique_keys AS k (tenant, kind, mode, key, job)
                        VALUES (t, s ->> 'kind', u ->> 'mode', u ->> 'key', (s ->> 'id')::uuid) ON CONFLICT DO NOTHING;
                    taken := FOUND;
                    EXIT WHEN taken;
                    SELECT k.job INTO r FROM pawl.unique_keys k WHERE k.tenant = t AND k.kind = s ->> 'kind'
                        AND k.mode = u ->> 'mode' AND k.key = u ->> 'key';
                    IF FOUND THEN
                        existed := true; job := r.job;
                        EXIT;
                    END IF;
                END LOOP;
                EXIT WHEN existed;
            END LOOP;
        END IF;
        IF existed AND job <> (s ->> 'id')::uuid THEN
            DELETE FROM pawl.unique_keys k WHERE k.job = (s ->> 'id')::uuid;
            RETURN NEXT;
            CONTINUE;
        END IF;
        existed := false;
        wake := 'sql.0 jobs ' || (s ->> 'queue') || ' ' || (s ->> 'kind');
        IF wake <> ALL (wakes) THEN
            wakes := array_append(wakes, wake);
        END IF;
        held := NULL;
        IF s ? 'limits' OR some_limits THEN
            SELECT array_agg(DISTINCT x.key COLLATE "C" ORDER BY x.key COLLATE "C") INTO held FROM (
                SELECT l.key FROM jsonb_array_elements_text(coalesce(s -> 'limits', '[]')) l(key)
                UNION ALL
                SELECT o.key FROM jsonb_array_elements_text(coalesce(s -> 'optional', '[]')) o(key)
                WHERE EXISTS (SELECT FROM pawl.limits l WHERE l.tenant = t
                    AND l.key IN (o.key, regexp_replace(o.key, '[^/]*$', '*')))
            ) x;
        END IF;
        -- Most jobs wait for nothing: plain statements take a third of the time of the whole one.
        IF held IS NULL AND NOT s ?| ARRAY['order', 'delay', 'due'] THEN
            INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, app, queue, machine, watch, priority, max_attempts,
                created, external_id, fingerprint, trace, labels, notes, request)
                VALUES (job, t, s ->> 'owner', s ->> 'kind', s ->> 'name', s ->> 'stem', '', s ->> 'queue', '', '',
                (s ->> 'priority')::int, (s ->> 'max_attempts')::int, at_clock, s ->> 'external_id',
                decode(s ->> 'fingerprint', 'hex'), coalesce(s ->> 'trace', ''), (s -> 'labels')::json,
                (s ->> 'notes')::json, (s ->> 'request')::json);
            INSERT INTO pawl.jobs (id, tenant, kind, queue, machine, watch, priority, created, state, custody, epoch, n, ord,
                lane, attempt, since, needs, ties)
                VALUES (job, t, s ->> 'kind', s ->> 'queue', '', '', (s ->> 'priority')::int, at_clock, {Pending}, {Ready},
                1, 1, at, 'task', 1, at_clock, 0, coalesce((s ->> 'ties')::int, 0));
            INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause, actor)
                VALUES (job, 1, t, at, 0, {Pending}, {Ready}, at_clock, 'submit', nullif(coalesce(doc ->> 'by', 'pawl'), ''));
            IF s ?| ARRAY['labels', 'index'] THEN
                INSERT INTO pawl.labels (tenant, key, value, created, job)
                    SELECT t, l.key, l.value, at_clock, job FROM pawl.label_rows(s) l;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;
        ids := array_append(ids, job); owners := array_append(owners, (s ->> 'owner')); kinds := array_append(kinds, (s ->> 'kind'));
        names := array_append(names, (s ->> 'name')); stems := array_append(stems, (s ->> 'stem')); queues := array_append(queues, (s ->> 'queue'));
        priorities := array_append(priorities, (s ->> 'priority')::int); attempts := array_append(attempts, (s ->> 'max_attempts')::int);
        externals := array_append(externals, (s ->> 'external_id'));
        prints := array_append(prints, CASE WHEN s ? 'external_id' THEN decode(s ->> 'fingerprint', 'hex') END);
        traces := array_append(traces, (s ->> 'trace')); labelled := array_append(labelled, (s -> 'labels')::json);
        noted := array_append(noted, (s ->> 'notes')::json); requests := array_append(requests, (s ->> 'request')::json);
        delays := array_append(delays, make_interval(secs => (s ->> 'delay')::float8 / 1000000));
        dues := array_append(dues, (s ->> 'due')::timestamptz);
        tied := array_append(tied, coalesce((s ->> 'ties')::int, 0) | CASE WHEN held IS NULL THEN 0 ELSE {TieLimited} END);
        limited := array_append(limited, held::text); orders := array_append(orders, (s ->> 'order')); ranks := array_append(ranks, (s ->> 'rank'));
        firsts := array_append(firsts, coalesce(s ->> 'order', held[1]));
        FOR r IN SELECT l.key, l.value FROM pawl.label_rows(s) l LOOP
            keys := array_append(keys, r.key); vals := array_append(vals, r.value);
            label_jobs := array_append(label_jobs, job);
        END LOOP;
        RETURN NEXT;
    END LOOP;
    IF cardinality(ids) > 0 THEN
        PERFORM FROM pawl.insert_jobs(t, coalesce(doc ->> 'by', 'pawl'), ids, owners, kinds, names, stems, NULL, queues,
            NULL, priorities, attempts, externals, prints, NULL, traces, labelled, noted, requests, delays, dues, NULL,
            tied, NULL, keys, vals, label_jobs, NULL, NULL, NULL, NULL, limited, firsts, orders, ranks, at);
        wakes := array_append(wakes, 'sql.0 message gate ');
    END IF;
    IF cardinality(wakes) > 0 THEN
        -- broker/pgnotify says what these locks are. Nothing comes between the two calls for the second one.
        quiet := pg_try_advisory_xact_lock_shared(hashtextextended('pawl/untold/' || here, 0));
        quiet := quiet AND CASE WHEN pg_try_advisory_lock(hashtextextended('pawl/wanted/' || here, 0))
            THEN pg_advisory_unlock(hashtextextended('pawl/wanted/' || here, 0)) ELSE false END;
        IF NOT quiet THEN
            ignored := pawl.tell(array_append(wakes, 'sql.0 message news '));
        END IF;
    END IF;
    ignored := set_config('job.tenant', was, true);
END $enqueue$;
-- +goose StatementEnd

-- finish decides in the transaction of its caller that a job ends with a result. The worker ends it
-- after the commit; if it cannot, the next one does so. Until the commit nobody else gets the job.
-- +goose StatementBegin
CREATE FUNCTION pawl.finish(tenant text, job uuid, epoch bigint, result json) RETURNS void
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $finish$
#variable_conflict use_variable
DECLARE
    was text := coalesce(current_setting('job.tenant', true), '');
BEGIN
    PERFORM set_config('job.tenant', finish.tenant, true);
    UPDATE pawl.jobs j SET result = finish.result WHERE j.id = finish.job AND j.tenant = finish.tenant
        AND j.epoch = finish.epoch AND j.custody = {Worker} AND j.wish <> {WishCancel};
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PW006', MESSAGE = 'job ' || finish.job || ' is not in the hands of this run any '
            || 'more, or was canceled: roll the transaction back';
    END IF;
    PERFORM set_config('job.tenant', was, true);
END $finish$;
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
DROP FUNCTION pawl.finish(text, uuid, bigint, json), pawl.enqueue(jsonb), pawl.enter(text, text), pawl.tell(text[]), pawl.task_row(jsonb, text), pawl.args_key(jsonb, jsonb),
    pawl.misfit(jsonb, jsonb, text), pawl.duration(text), pawl.instant(text),
    pawl.limit_key(jsonb, text), pawl.rank(jsonb, text), pawl.arg(jsonb, text),
    pawl.arg_key(json, text), pawl.json_key(jsonb), pawl.label_rows(jsonb),
    pawl.plain_json(jsonb), pawl.key_part(text), pawl.insert_jobs(text, text, uuid[], text[], text[], text[], text[], text[], text[],
    text[], int[], int[], text[], bytea[], uuid[], text[], json[], json[], json[], interval[], timestamptz[], int[], int[],
    bool[], text[], text[], uuid[], timestamptz, text[], text[], text[], text[], text[], text[], text[], bigint),
    pawl.refuse(text, text), pawl.refuse(text), pawl.clock();
