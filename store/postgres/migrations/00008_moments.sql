-- For limits that are rates: the jobs under them wait for moments.
--
-- A Pawl that does not know it works with it, and asks for no moments. To it a job that waits for one begins anew when that is near.

-- +goose Up
ALTER TABLE pawl.limits
    ADD COLUMN per   bigint NOT NULL DEFAULT 0,         -- of a rate: microseconds,
    ADD COLUMN every bigint NOT NULL DEFAULT 0,         -- how many are between two moments,
    ADD COLUMN rate  uuid;                              -- and which rate it is: another one whenever it is set

-- The moment after those that were given of a key, and the rate under which they were.
CREATE TABLE pawl.moments (
    tenant text        COLLATE "C" NOT NULL,
    key    text        COLLATE "C" NOT NULL,
    next   timestamptz NOT NULL,
    rate   uuid        NOT NULL,
    CONSTRAINT moments_pkey PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE pawl.moments ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON pawl.moments USING (tenant = (SELECT current_setting('job.tenant', true)) OR (SELECT current_setting('job.tenant', true)) = '*');

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
        EXECUTE 'GRANT SELECT, INSERT, UPDATE ON pawl.moments TO ' || writer;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE pawl.moments;
DELETE FROM pawl.limits WHERE rate IS NOT NULL;
ALTER TABLE pawl.limits DROP COLUMN per, DROP COLUMN every, DROP COLUMN rate;
