-- Idempotency keys that are kept no longer are deleted by those who make new ones. So whoever may make some may delete some,
-- and a role that was given its rights before works on. A Pawl that does not know it works with it.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE maker text;
BEGIN
    FOR maker IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid = 'pawl.idempotency'::regclass AND a.privilege_type = 'INSERT'
    LOOP
        EXECUTE 'GRANT DELETE ON pawl.idempotency TO ' || maker;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- The right stays: a Pawl that does not know it makes no use of it, and newer ones may still be at work.
