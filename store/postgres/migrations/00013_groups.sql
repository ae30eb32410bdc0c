-- Jobs that are blocked wait in groups for what they are blocked by to clear. A group may close a line of those who wait for turns: its
-- limit then gives as many places as groups leave.
--
-- Its indexes are made by the next migration. A Pawl that does not know it works with it, and lets nobody go who is blocked; a limit that it sets
-- for a line that is closed opens that for as long as nothing changes.

-- +goose Up
ALTER TABLE pawl.jobs
    ADD COLUMN grp   text COLLATE "C",                  -- of one that is blocked: the key of its group,
    ADD COLUMN until timestamptz;                       -- and when it fails; NULL: never

-- What is known of a group besides its jobs. doc has all of it; the other columns are what is asked for.
CREATE TABLE pawl.groups (
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    duty   text        COLLATE "C" NOT NULL,            -- of who tests it,
    probe  text        COLLATE "C" NOT NULL,            -- and what is asked then
    line   text        COLLATE "C" NOT NULL,            -- that it closes; empty: none
    places int         NOT NULL,                        -- that it leaves there; negative: it closes none
    next   timestamptz,                                 -- when it is tested next; NULL: it is clear
    wake   timestamptz,                                 -- when something is to be done for it that is no test
    writes bigint      NOT NULL DEFAULT 0,              -- 0: this transaction has made it
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

-- Of a limit whose line is closed, most and ahead are what groups leave of it.
ALTER TABLE pawl.limits
    ADD COLUMN places    int,                           -- that groups leave; NULL: none closes its line
    ADD COLUMN set_most  int,                           -- as it is set; NULL in a line that is closed: it is not, and is there for that alone
    ADD COLUMN set_ahead int;

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['groups', 'lines_owed'] LOOP
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
        EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.groups TO ' || writer;
        EXECUTE 'GRANT SELECT, INSERT, DELETE ON pawl.lines_owed TO ' || writer;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A Pawl that knows no groups would never let those go that are blocked: they go on where they were, or stand in line for the turns that they
-- lack. See job.Released and job.Next.
WITH x AS MATERIALIZED (
    SELECT (SELECT e.base FROM pawl.era e) + pg_current_xact_id()::text::bigint AS ord, pawl.clock() AS now
), lacking AS MATERIALIZED (
    SELECT j.id, CASE
        WHEN j.ties & 8 = 0 OR j.live OR j.resume = 'ARCHIVING' THEN NULL
        WHEN j.ordered IS NOT NULL AND j.ties & 256 = 0 THEN j.ordered
        WHEN j.limits IS NULL OR j.ties & 32 <> 0 THEN NULL
        WHEN j.kind <> 'app' OR j.resume = 'SUBMITTING_JOB' THEN j.limits[1]
        WHEN j.resume = 'PENDING' AND j.ties & 16 = 0 THEN 'ahead/' || j.limits[1]
    END AS line FROM pawl.jobs j WHERE j.state = 'BLOCKED'
), going AS (
    UPDATE pawl.jobs j SET
        state = CASE WHEN l.line IS NOT NULL AND j.resume <> 'SUBMITTING_JOB' THEN 'WAITING' ELSE j.resume END,
        custody = CASE WHEN l.line IS NOT NULL THEN 'gate' ELSE 'ready' END, line = l.line,
        lane = CASE WHEN j.suspect >= 2 THEN 'alone' WHEN j.kind <> 'app' THEN 'task' WHEN j.resume = 'ARCHIVING' THEN 'finish'
            WHEN j.resume = 'SUBMITTING_JOB' THEN 'launch' ELSE 'prepare' END,
        epoch = j.epoch + 1, n = j.n + 1, recoveries = j.recoveries + 1, ord = greatest(j.ord, x.ord), since = x.now, resume = '', code = '', message = ''
    FROM x, lacking l WHERE j.id = l.id
    RETURNING j.id, j.n, j.tenant, j.ord, j.epoch, j.state, j.custody, j.since
)
INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause)
SELECT g.id, g.n, g.tenant, g.ord, g.epoch - 1, g.state, g.custody, g.since, 'clear' FROM going g;
INSERT INTO pawl.turns_owed (tenant, key, at)
SELECT DISTINCT j.tenant, j.line, pawl.clock() FROM pawl.jobs j WHERE j.line IS NOT NULL AND (j.grp IS NOT NULL OR EXISTS (
    SELECT FROM pawl.limits l WHERE l.tenant = j.tenant AND l.key = regexp_replace(j.line, '^ahead/', '') AND l.places IS NOT NULL));
DELETE FROM pawl.limits WHERE places IS NOT NULL AND set_most IS NULL;
UPDATE pawl.limits SET most = CASE WHEN walked IS NULL THEN set_most ELSE 0 END, ahead = CASE WHEN walked IS NULL THEN set_ahead ELSE 0 END,
    then_most = CASE WHEN walked IS NOT NULL THEN set_most END, then_ahead = CASE WHEN walked IS NOT NULL THEN set_ahead END
WHERE places IS NOT NULL;
DROP TABLE pawl.lines_owed, pawl.groups;
ALTER TABLE pawl.limits DROP COLUMN places, DROP COLUMN set_most, DROP COLUMN set_ahead;
ALTER TABLE pawl.jobs DROP COLUMN grp, DROP COLUMN until;
