-- A change that is repeated is known by the digest of what was asked for, which stands with its last event.

-- +goose Up
ALTER TABLE events ADD COLUMN change INTEGER;

-- +goose Down
ALTER TABLE events DROP COLUMN change;
