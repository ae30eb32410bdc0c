-- For removing jobs that are hidden when they are kept no longer, as jobs_ended is for the others.

-- +goose Up
CREATE INDEX jobs_hidden_ended ON jobs (tenant, state, ended) WHERE hidden = 1;

-- +goose Down
DROP INDEX jobs_hidden_ended;
