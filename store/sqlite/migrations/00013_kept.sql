-- For jobs that keep turns while they wait for others: they go first.

-- +goose Up
CREATE INDEX jobs_kept ON jobs (tenant, line) WHERE line <> '' AND ties & 64 <> 0;

-- +goose Down
DROP INDEX jobs_kept;
