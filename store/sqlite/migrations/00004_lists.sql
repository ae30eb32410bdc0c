-- For lists by any filter, annotations, events that users write, and jobs that are removed.

-- +goose Up
ALTER TABLE jobs ADD COLUMN app TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN trace TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN told INTEGER NOT NULL DEFAULT 0; -- events that users and the job itself wrote

-- The name, without the end of the id in a name that comes from the job's id: such names lie anywhere in an index, while
-- what they have in common keeps the order of submission.
ALTER TABLE jobs ADD COLUMN stem TEXT NOT NULL DEFAULT '';
UPDATE jobs SET stem = CASE substr(name, -9) WHEN '-' || lower(hex(substr(id, -4))) THEN substr(name, 1, length(name) - 8) ELSE name END;

ALTER TABLE specs ADD COLUMN notes TEXT;
UPDATE specs SET notes = request -> '$.notes' WHERE request -> '$.notes' <> 'null';

ALTER TABLE events ADD COLUMN sub INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN name TEXT;
DROP INDEX events_job;
CREATE UNIQUE INDEX events_job ON events (job, n, sub);

-- The labels of the jobs that are not hidden, for finding these by them. What is true of a job stands in specs.
CREATE TABLE labels (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    job    INTEGER NOT NULL,
    PRIMARY KEY (tenant, key, value, job)
) WITHOUT ROWID;
INSERT INTO labels (tenant, key, value, job)
    SELECT j.tenant, e.key, e.value, j.seq FROM specs s JOIN jobs j ON j.seq = s.seq, json_each(s.labels) e WHERE s.labels IS NOT NULL;

-- Each of these holds the jobs in the order of submission, or of their ends, for every value: seq comes last in every
-- index. What is hidden is in none but jobs_hidden, so that no list reads past it. Jobs that a worker holds are not in
-- jobs_state: they are few, and they move on soon. (session stands there so that it need not be looked up.)
-- No index has the value that most jobs have: no app, and the default queue.
CREATE INDEX jobs_state ON jobs (tenant, state, session) WHERE session IS NULL AND hidden = 0;
CREATE INDEX jobs_kind ON jobs (tenant, kind) WHERE hidden = 0;
CREATE INDEX jobs_owner ON jobs (tenant, owner) WHERE hidden = 0;
CREATE INDEX jobs_queue ON jobs (tenant, queue) WHERE queue <> 'default' AND hidden = 0;
CREATE INDEX jobs_name ON jobs (tenant, stem) WHERE hidden = 0;
CREATE INDEX jobs_app ON jobs (tenant, app) WHERE app <> '' AND hidden = 0;
CREATE INDEX jobs_ended ON jobs (tenant, state, ended) WHERE ended IS NOT NULL AND hidden = 0;
CREATE INDEX jobs_hidden ON jobs (tenant) WHERE hidden = 1;

-- For counting what waits in a queue, beside jobs_ready.
CREATE INDEX jobs_gate ON jobs (tenant, queue) WHERE custody = 'gate';

CREATE INDEX followups_job ON followups (job);

-- +goose Down
DROP INDEX followups_job;
DROP INDEX jobs_gate;
DROP INDEX jobs_hidden;
DROP INDEX jobs_ended;
DROP INDEX jobs_app;
DROP INDEX jobs_name;
DROP INDEX jobs_queue;
DROP INDEX jobs_owner;
DROP INDEX jobs_kind;
DROP INDEX jobs_state;
DROP TABLE labels;
DELETE FROM events WHERE sub <> 0;
DROP INDEX events_job;
CREATE UNIQUE INDEX events_job ON events (job, n);
ALTER TABLE events DROP COLUMN name;
ALTER TABLE events DROP COLUMN sub;
ALTER TABLE specs DROP COLUMN notes;
ALTER TABLE jobs DROP COLUMN stem;
ALTER TABLE jobs DROP COLUMN told;
ALTER TABLE jobs DROP COLUMN trace;
ALTER TABLE jobs DROP COLUMN hidden;
ALTER TABLE jobs DROP COLUMN app;
