BEGIN;
DO $$ BEGIN CREATE ROLE pawl_service; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT USAGE ON SCHEMA pawl TO pawl_service;
GRANT EXECUTE ON FUNCTION pawl.clock(), pawl.refuse(text), pawl.refuse(text, text) TO pawl_service;
-- What an earlier version gave is taken back; nobody sees that before the end. A lock on rows needs the right to change them.
REVOKE ALL ON pawl.migrations, pawl.era, pawl.specs, pawl.labels, pawl.jobs, pawl.ended, pawl.events, pawl.prerequisites, pawl.unique_keys,
    pawl.followups, pawl.idempotency, pawl.sessions, pawl.duties, pawl.resources, pawl.messages,
    pawl.limits, pawl.turns, pawl.turns_owed, pawl.served, pawl.moments, pawl.groups, pawl.lines_owed FROM pawl_service;
GRANT SELECT                         ON pawl.migrations    TO pawl_service;
GRANT SELECT, UPDATE                 ON pawl.era           TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.specs         TO pawl_service;
GRANT SELECT, INSERT, DELETE         ON pawl.labels        TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.jobs          TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.ended         TO pawl_service;
GRANT SELECT, INSERT, DELETE         ON pawl.events        TO pawl_service;
GRANT SELECT, INSERT, DELETE         ON pawl.prerequisites TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.unique_keys   TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.followups     TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.idempotency   TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.sessions      TO pawl_service;
GRANT SELECT, INSERT, UPDATE         ON pawl.duties        TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.resources     TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.messages      TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.limits        TO pawl_service;
GRANT SELECT, INSERT, DELETE         ON pawl.turns         TO pawl_service;
GRANT SELECT, INSERT, DELETE         ON pawl.turns_owed    TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.served        TO pawl_service;
GRANT SELECT, INSERT, UPDATE         ON pawl.moments       TO pawl_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.groups        TO pawl_service;
GRANT SELECT, INSERT, DELETE         ON pawl.lines_owed    TO pawl_service;
COMMIT;
