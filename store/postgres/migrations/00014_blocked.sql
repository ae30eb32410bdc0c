-- Who is blocked: the jobs of a group, each owner's in the order in which they go, since when, and when the first of them fails. And which
-- groups are tested next, need something else done, or close a line.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0; -- it waits for those who are at work, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_group; -- of a try that was broken off; the same below
CREATE INDEX CONCURRENTLY jobs_group ON pawl.jobs (tenant, grp, owner, since, created, id) WHERE custody = 'recovery';
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_blocked;
CREATE INDEX CONCURRENTLY jobs_blocked ON pawl.jobs (tenant, grp, since) WHERE custody = 'recovery';
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_until;
CREATE INDEX CONCURRENTLY jobs_until ON pawl.jobs (tenant, grp, until) WHERE custody = 'recovery' AND until IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS pawl.groups_next;
CREATE INDEX CONCURRENTLY groups_next ON pawl.groups (duty, next) WHERE next IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS pawl.groups_wake;
CREATE INDEX CONCURRENTLY groups_wake ON pawl.groups (wake) WHERE wake IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS pawl.groups_line;
CREATE INDEX CONCURRENTLY groups_line ON pawl.groups (tenant, line, key) WHERE places >= 0;
DROP INDEX CONCURRENTLY IF EXISTS pawl.lines_owed_tenant;
CREATE INDEX CONCURRENTLY lines_owed_tenant ON pawl.lines_owed (tenant, seq);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS pawl.lines_owed_tenant;
DROP INDEX CONCURRENTLY IF EXISTS pawl.groups_line;
DROP INDEX CONCURRENTLY IF EXISTS pawl.groups_wake;
DROP INDEX CONCURRENTLY IF EXISTS pawl.groups_next;
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_until;
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_blocked;
DROP INDEX CONCURRENTLY IF EXISTS pawl.jobs_group;
