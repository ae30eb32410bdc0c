-- For jobs that keep turns while they wait for others: they go first.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- it waits for those who are at work, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_kept; -- of a try that was broken off
CREATE INDEX CONCURRENTLY jobs_kept ON pawl.jobs (tenant, line) WHERE line IS NOT NULL AND ties & 64 <> 0;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_kept;
