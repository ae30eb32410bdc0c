-- What a next version may do to the schema while this one works. Tests add it to the migrations of
-- this version: see CONTRIBUTING.md, which says why it is written as it is.

-- +goose Up
ALTER TABLE pawl.jobs ADD COLUMN next text NOT NULL DEFAULT '';

CREATE TABLE pawl.next (
    tenant text COLLATE "C" NOT NULL,
    job    uuid NOT NULL,
    CONSTRAINT next_pkey PRIMARY KEY (job)
);
CREATE INDEX next_tenant ON pawl.next (tenant, job);

ALTER TABLE pawl.next ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON pawl.next USING (tenant = (SELECT current_setting('job.tenant', true))
    OR (SELECT current_setting('job.tenant', true)) = '*');

-- Whoever may write jobs may write these: a role that was given its rights before works on.
-- +goose StatementBegin
DO $$
DECLARE writer text;
BEGIN
    FOR writer IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid = 'pawl.jobs'::regclass AND a.privilege_type = 'INSERT'
    LOOP
        EXECUTE 'GRANT SELECT, INSERT, DELETE ON pawl.next TO ' || writer;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE pawl.next;
ALTER TABLE pawl.jobs DROP COLUMN next;
