-- For what a session tells of its process (JSON; it was host and pid), its slots in use, and what it was told to do.

-- +goose Up
UPDATE sessions SET process = json_object('host', process);
ALTER TABLE sessions ADD COLUMN used TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN command TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sessions DROP COLUMN command;
ALTER TABLE sessions DROP COLUMN used;
UPDATE sessions SET process = coalesce(process ->> '$.host', '') || coalesce(':' || (process ->> '$.pid'), '');
