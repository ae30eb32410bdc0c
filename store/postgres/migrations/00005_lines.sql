-- Who waits for a turn, each owner's jobs in their order: jobs that are in no line are not in it. And who has turns of a key, and whom
-- some are owed.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- it waits for those who are at work, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_line; -- of a try that was broken off; the same below
CREATE INDEX CONCURRENTLY jobs_line ON pawl.jobs (tenant, line, owner, priority, created, id) WHERE line IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS pawl.turns_key;
CREATE INDEX CONCURRENTLY turns_key ON pawl.turns (tenant, key, owner);
DROP INDEX CONCURRENTLY IF EXISTS pawl.turns_owed_tenant;
CREATE INDEX CONCURRENTLY turns_owed_tenant ON pawl.turns_owed (tenant, seq);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.turns_owed_tenant;
DROP INDEX CONCURRENTLY IF EXISTS pawl.turns_key;
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_line;
