-- For finding the programs that somebody wants to end or to pause, among many that just run.

-- +goose Up
CREATE INDEX jobs_wished ON jobs (machine) WHERE custody = 'monitor' AND wish <> '';

-- +goose Down
DROP INDEX jobs_wished;
