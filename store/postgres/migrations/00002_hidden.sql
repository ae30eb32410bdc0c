-- For removing jobs that are hidden when they are kept no longer: those of a tenant and state in the order of their ends,
-- as ended_ended has the others. Few jobs are hidden, if any, so it costs the others nothing. A Pawl that does not know it
-- works with it.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- it waits for those who are at work, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS pawl.ended_hidden; -- of a try that was broken off
CREATE INDEX CONCURRENTLY ended_hidden ON pawl.ended (tenant, state, ended, created, id) WHERE hidden;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.ended_hidden;
