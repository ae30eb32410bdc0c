-- Limits hold jobs back until it is their turn: they say how many may hold turns of a key at once. Turns are rows, so there is
-- nothing to count wrong. Jobs under no limit have no row here, and NULL in the new columns.
--
-- Its indexes are made by the next migration. A Pawl that does not know it works with it, and knows no limits: what it changes keeps its turns and gets none.

-- +goose Up
CREATE TABLE pawl.limits (
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,                  -- of one limit, or of a family of them
    most    int  NOT NULL,
    ahead   int  NOT NULL DEFAULT 0,
    weights json,                                       -- of owners
    CONSTRAINT limits_pkey PRIMARY KEY (tenant, key)
);

-- Who has a turn of a key. They come and go with the jobs that run.
CREATE TABLE pawl.turns (
    job    uuid NOT NULL,
    key    text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    owner  text COLLATE "C" NOT NULL,
    CONSTRAINT turns_pkey PRIMARY KEY (job, key)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Keys that are to be handed on, until that is done. They are no follow-ups, for a Pawl that knows no turns pays all of these.
CREATE TABLE pawl.turns_owed (
    seq    bigint      GENERATED ALWAYS AS IDENTITY,
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL,
    CONSTRAINT turns_owed_pkey PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- How much owners who wait side by side in the line of a key were given, by weight.
CREATE TABLE pawl.served (
    tenant text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    served json NOT NULL,
    CONSTRAINT served_pkey PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50);

ALTER TABLE pawl.jobs
    ADD COLUMN limits text[],                           -- the keys of its turns,
    ADD COLUMN line   text COLLATE "C",                 -- that for a turn of which it waits,
    ADD COLUMN owner  text COLLATE "C",                 -- that of specs, where it is under limits,
    ADD COLUMN passed int NOT NULL DEFAULT 0;           -- and how often it was sent to another line
ALTER TABLE pawl.ended ADD COLUMN limits text[];

-- As refuse, with a code of its own.
-- +goose StatementBegin
CREATE FUNCTION pawl.refuse(what text, code text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = what; END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['limits', 'turns', 'turns_owed', 'served'] LOOP
        EXECUTE format('ALTER TABLE pawl.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON pawl.%I USING (tenant = (SELECT current_setting(''job.tenant'', true))
            OR (SELECT current_setting(''job.tenant'', true)) = ''*'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd

-- Whoever may write jobs may write these, and a role that was given its rights before works on.
-- +goose StatementBegin
DO $$
DECLARE writer text;
BEGIN
    FOR writer IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid = 'pawl.jobs'::regclass AND a.privilege_type = 'INSERT'
    LOOP
        EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.limits, pawl.served TO ' || writer;
        EXECUTE 'GRANT SELECT, INSERT, DELETE ON pawl.turns, pawl.turns_owed TO ' || writer;
        EXECUTE 'GRANT EXECUTE ON FUNCTION pawl.refuse(text, text) TO ' || writer;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A Pawl that knows no limits would never let those go that wait in line.
WITH x AS MATERIALIZED (
    SELECT (SELECT e.base FROM pawl.era e) + pg_current_xact_id()::text::bigint AS ord
), going AS (
    UPDATE pawl.jobs j SET state = CASE j.state WHEN 'WAITING' THEN 'PENDING' ELSE j.state END, custody = 'ready', epoch = j.epoch + 1, n = j.n + 1,
        ord = greatest(j.ord, x.ord), since = pawl.clock(), line = NULL, code = '', message = ''
    FROM x WHERE j.line IS NOT NULL
    RETURNING j.id, j.n, j.tenant, j.ord, j.epoch, j.state, j.since
)
INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause)
SELECT g.id, g.n, g.tenant, g.ord, g.epoch - 1, g.state, 'ready', g.since, 'turn' FROM going g;
UPDATE pawl.jobs SET ties = ties & 7 WHERE ties > 7;
DROP TABLE pawl.served, pawl.turns_owed, pawl.turns, pawl.limits;
DROP FUNCTION pawl.refuse(text, text);
ALTER TABLE pawl.ended DROP COLUMN limits;
ALTER TABLE pawl.jobs DROP COLUMN limits, DROP COLUMN line, DROP COLUMN owner, DROP COLUMN passed;
