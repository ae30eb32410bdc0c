-- The limits that take in jobs: hardly ever is there one.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- it waits for those who are at work, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS pawl.limits_walked; -- of a try that was broken off
CREATE INDEX CONCURRENTLY limits_walked ON pawl.limits (walked_at) WHERE walked IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.limits_walked;
