-- What each connection that writes sets when it is opened. Every statement here finds its rows by a key that it is given,
-- so there is one right plan, and none is better with other statistics.

SET plan_cache_mode = force_generic_plan;       -- planned once per connection, and not for each list of arguments
SET enable_seqscan = off;                       -- a penalty, not a ban: tables without an index are still read
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off;                                  -- it starts at an estimated cost, and estimates of arrays are wide: 2 s for a claim of 3 ms

-- A client that is cut off between its BEGIN and its COMMIT must not hold rows for long, and who waits for it must hear.
SET idle_in_transaction_session_timeout = '15s';
SET lock_timeout = '10s';
