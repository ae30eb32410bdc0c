-- What a next version may do to the schema. Tests add it to the migrations of this version.

-- +goose Up
ALTER TABLE jobs ADD COLUMN next TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_next ON jobs (next) WHERE next <> '';
CREATE TABLE next (
    job INTEGER PRIMARY KEY
);
INSERT INTO next (job) SELECT seq FROM jobs;

-- +goose Down
DROP TABLE next;
DROP INDEX jobs_next;
ALTER TABLE jobs DROP COLUMN next;
