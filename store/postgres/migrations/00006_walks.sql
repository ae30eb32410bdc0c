-- For limits that take in the jobs which were there before them. Until they have done so they let nobody go: most and ahead are 0,
-- and what was asked for stands beside them.

-- +goose Up
ALTER TABLE pawl.limits
    ADD COLUMN walked     uuid,                         -- the job that was looked at last; NULL: all were
    ADD COLUMN walked_at  timestamptz,
    ADD COLUMN then_most  int,                          -- from then on
    ADD COLUMN then_ahead int;

-- +goose Down
UPDATE pawl.limits SET most = then_most, ahead = then_ahead WHERE walked IS NOT NULL;
ALTER TABLE pawl.limits DROP COLUMN walked, DROP COLUMN walked_at, DROP COLUMN then_most, DROP COLUMN then_ahead;
