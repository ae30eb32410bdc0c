-- For comparing the prerequisites that a job waits for with their number.

-- +goose Up
CREATE INDEX jobs_needs ON jobs (seq) WHERE custody = 'gate' AND needs <> 0;
CREATE INDEX prerequisites_job ON prerequisites (job);

-- +goose Down
DROP INDEX prerequisites_job;
DROP INDEX jobs_needs;
