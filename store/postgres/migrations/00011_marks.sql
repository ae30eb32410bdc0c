-- Those who write may count the debts of turns that there have been.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE writer text;
BEGIN
    FOR writer IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid = 'pawl.turns_owed'::regclass AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
    LOOP
        EXECUTE 'GRANT SELECT, USAGE ON SEQUENCE pawl.turns_owed_seq_seq TO ' || writer;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE writer text;
BEGIN
    FOR writer IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid = 'pawl.turns_owed'::regclass AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
    LOOP
        EXECUTE 'REVOKE ALL ON SEQUENCE pawl.turns_owed_seq_seq FROM ' || writer;
    END LOOP;
END $$;
-- +goose StatementEnd
