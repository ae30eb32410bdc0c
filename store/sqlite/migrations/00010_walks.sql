-- For limits that take in the jobs which were there before them.

-- +goose Up
ALTER TABLE limits ADD COLUMN walked INTEGER;   -- the job that was looked at last; NULL: all were
ALTER TABLE limits ADD COLUMN walked_at INTEGER;
CREATE INDEX limits_walked ON limits (walked_at, tenant) WHERE walked IS NOT NULL;

-- +goose Down
DROP INDEX limits_walked;
ALTER TABLE limits DROP COLUMN walked_at;
ALTER TABLE limits DROP COLUMN walked;
