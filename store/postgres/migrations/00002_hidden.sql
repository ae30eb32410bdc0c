-- For removing jobs that are hidden when they are kept no longer: those of a tenant and state in the order of their ends,
-- as ended_ended has the others. Few jobs are hidden, if any, so it costs the others nothing. While it is made jobs that
-- end wait, for it takes one look at all that have ended. A Pawl that does not know it works with it.

-- +goose Up
CREATE INDEX ended_hidden ON pawl.ended (tenant, state, ended, created, id) WHERE hidden;

-- +goose Down
DROP INDEX pawl.ended_hidden;
