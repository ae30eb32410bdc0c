-- Who is next in an order. Those who have got that far wait in another line, or in none.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- it waits for those who are at work, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_order; -- of a try that was broken off
CREATE INDEX CONCURRENTLY jobs_order ON pawl.jobs (tenant, line, rank, priority, created, id) WHERE starts_with(line, 'order/');
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_order;
