package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Claim implements [store.Jobs].
func (s *Store) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	claim := newClaiming(c)
	if err := s.write(ctx, everyone, func(t *tx) error { return t.commit(claim.queries(false)...) }); err != nil {
		return nil, err
	}
	if !claim.alive {
		return nil, store.NoSession(c.Session)
	}
	return claim.sorted(), nil
}

// A claiming is a claim on its way, and what it came to.
type claiming struct {
	store.Claim
	alive bool // its session
	jobs  []job.Job
}

func newClaiming(c store.Claim) *claiming { return &claiming{Claim: c.Once()} }

// queries returns the queries that make the claim. With tell, they also leave the number of free
// slots for the queries after them.
func (c *claiming) queries(tell bool) []*query {
	var lanes []string
	var slots []int
	all := 0
	for lane, n := range c.Slots {
		if n > 0 {
			lanes, slots = append(lanes, string(lane)), append(slots, n)
			all += n
		}
	}
	text := claimHeads
	args := append(c.asks(), nonNil(lanes), nonNil(slots))
	if len(c.Jobs) > 0 {
		text, args = claimNamed, append(args, uuids(c.Jobs))
	}
	if tell {
		text += claimTold
	} else {
		text += claimed
	}
	c.jobs, c.alive = nil, false
	return []*query{do(claimOnce, [16]byte(c.ID)), read(text, func(r *reader) error {
		c.alive = r.bool()
		if r.values[0] == nil {
			return nil
		}
		if len(c.jobs) == 8 { // a claim that gets some mostly gets all that it asks for
			c.jobs = slices.Grow(c.jobs, min(all, 500))
		}
		c.jobs = append(c.jobs, r.whole())
		return nil
	}, args...)}
}

// handed is the query that comes before tasks are finished whose turns go to whom the claim takes,
// and before nothing else.
func (c *claiming) handed(tasks any) *query {
	c.jobs, c.alive = nil, false
	return read(claimHanded, func(r *reader) error { c.alive = true; return nil }, [16]byte(c.Session),
		encode(c.Slots), tasks)
}

// asks are the first parameters of a claim.
func (c *claiming) asks() []any {
	return []any{[16]byte(c.ID), [16]byte(c.Session), nonNil(c.Queues), nonNil(c.Kinds), c.Machine, some(c.Tenants)}
}

// sorted returns the jobs, those that come first before the others.
func (c *claiming) sorted() []job.Job {
	slices.SortFunc(c.jobs, func(a, b job.Job) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Priority, b.Priority),
			a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return c.jobs
}

// nonNil makes an array of no values of a list of none: NULL is something else.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// some makes NULL of an empty list, which stands for all.
func some(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

// launches tells of a ready job whether its claim is the intent to launch its program, as
// [job.Claim] says.
var launches = store.SQL(`(j.state = {SubmittingJob} AND j.lane = {LaneLaunch} AND NOT j.live
	AND j.wish = '' AND NOT EXISTS (SELECT FROM pawl.limits r WHERE r.tenant = j.tenant
		AND r.key >= '` + job.RateLaunches + `/' AND r.key < '` + job.RateLaunches + `0' AND r.rate IS NOT NULL))`)

// claimOnce lets one copy of a call follow the other: the repeat need not wait for the end of the
// first. It is a statement of its own, so that the next one sees what the first copy has claimed.
const claimOnce = `SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))`

// slotsLeft is how many more jobs of a lane may be claimed in this transaction by a claim that it
// has made: none, where the session was told to drain, or where the claim is a repeat.
func slotsLeft(lane string) string {
	return `coalesce((nullif(current_setting('job.slots', true), '')::json ->> ` + lane + `)::int, 0)`
}

// claimHanded holds the session as applyFences does, makes all slots $2 those that are left, and
// takes the turns lock of the jobs $3 as tryTurnsLock does.
var claimHanded = `
WITH held AS MATERIALIZED (
	SELECT s.mode = '' AND s.lease_until > pawl.clock() AS works FROM pawl.sessions s WHERE s.id = $1
		AND s.ended IS NULL FOR KEY SHARE
)
SELECT set_config('job.slots', CASE WHEN h.works THEN $2::text ELSE '' END, true),
	set_config('job.payer', coalesce((` + turnsLockToTry("$3") + `), ''), true) FROM held h`

// A claim answers one row at least, which says whether the session lives. How many slots are left
// it tells the statements that follow in its transaction.
//
//	1 id  2 session  3 queues  4 kinds  5 machine  6 tenants, NULL: all  7 lanes  8 slots
//	9 the jobs that may be claimed, where some are named
//
// The session's row is locked and its lease checked here. Expiry locks the same row FOR UPDATE: the
// second waits for the first. Then this statement finds the session ended, or expiry finds these
// jobs.
var (
	claimAlive = `
WITH x AS MATERIALIZED (
	SELECT ` + ord + ` AS ord
), alive AS MATERIALIZED (
	SELECT s.id, s.mode = '' AS works FROM pawl.sessions s
	WHERE s.id = $2 AND s.ended IS NULL AND s.lease_until > pawl.clock()
	FOR KEY SHARE
), repeated AS MATERIALIZED (
	SELECT j.id FROM alive a CROSS JOIN LATERAL (
		SELECT j.id FROM pawl.jobs j WHERE j.session = a.id AND j.claim = $1 OFFSET 0) j
), `
	claimTake = store.SQL(`, locked AS MATERIALIZED (
	SELECT pawl.clock() AS now, h.intended -- all of them first: what was waited for has moved meanwhile
	FROM (SELECT coalesce(array_agg(h.id) FILTER (WHERE h.chosen AND h.launches), '{}') AS intended FROM heads h) h
), ` + claimHistory + `, started AS (
	-- Ties are few: only who has them is looked up.
	DELETE FROM pawl.unique_keys u WHERE u.job = ANY (ARRAY(SELECT t.id FROM took t
		WHERE t.ties & {TieUniqueStart} <> 0))
		AND u.mode || '' = {UntilStart}
), answer AS (
	SELECT * FROM took
	UNION ALL
	SELECT ` + livingRow + `, j.tenant FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT r.id FROM repeated r))
)`)

	claimed = `
SELECT EXISTS (SELECT FROM alive), ` + columns + `, ` + documents + `
FROM (SELECT) one LEFT JOIN (answer j ` + itsSpec + `) ON true`

	claimTold = `, told AS MATERIALIZED (
	SELECT set_config('job.slots', coalesce((
		SELECT json_object_agg(l.lane, l.slots - (SELECT count(*) FROM took t WHERE t.lane = l.lane))
			FROM alive a, unnest($7::text[], $8::int[]) l(lane, slots)
		WHERE a.works AND NOT EXISTS (SELECT FROM repeated))::text, '{}'), true)
)
SELECT EXISTS (SELECT FROM alive), ` + columns + `, ` + documents + `
FROM told LEFT JOIN (answer j ` + itsSpec + `) ON true`

	claimHeads = store.SQL(claimAlive + `parts AS MATERIALIZED (
	SELECT q.queue, k.kind, m.machine, l.lane, l.slots
	FROM alive a, unnest($3::text[]) q(queue), unnest($4::text[]) k(kind), (SELECT '' UNION SELECT $5::text) m(machine),
		unnest($7::text[], $8::int[]) l(lane, slots)
	WHERE a.works AND (l.lane = {LaneAlone} OR (k.kind = {KindApp}) <> (l.lane = {LaneTask}))
		AND NOT EXISTS (SELECT FROM repeated)
), heads AS MATERIALIZED (
	-- Each part is read from its head, and no further than the slots reach.
	SELECT h.id, h.launches, row_number() OVER (PARTITION BY l.lane
		ORDER BY h.priority, h.created, h.id) <= l.slots AS chosen
	FROM parts l CROSS JOIN LATERAL (
		SELECT j.id, j.priority, j.created, ` + launches + ` AS launches FROM pawl.jobs j
		WHERE j.custody = {Ready} AND j.queue = l.queue AND j.kind = l.kind AND j.machine = l.machine
			AND j.lane = l.lane
			AND ($6::text[] IS NULL OR j.tenant = ANY ($6::text[]))
		ORDER BY j.priority, j.created, j.id LIMIT l.slots
		FOR NO KEY UPDATE SKIP LOCKED
	) h
)` + claimTake)

	claimNamed = store.SQL(claimAlive + `found AS MATERIALIZED (
	SELECT j.id, j.lane, j.priority, j.created, ` + launches + ` AS launches FROM pawl.jobs j
	WHERE j.id = ANY ($9::uuid[]) AND j.custody || '' = {Ready} AND j.queue || '' = ANY ($3::text[])
		AND j.kind || '' = ANY ($4::text[])
		AND (j.machine = '' OR j.machine = $5::text) AND ($6::text[] IS NULL OR j.tenant = ANY ($6::text[]))
		AND EXISTS (SELECT FROM alive a WHERE a.works) AND NOT EXISTS (SELECT FROM repeated)
	ORDER BY j.id FOR NO KEY UPDATE
), heads AS MATERIALIZED (
	SELECT f.id, f.launches, row_number() OVER (PARTITION BY f.lane
		ORDER BY f.priority, f.created, f.id) <= l.slots AS chosen
	FROM found f JOIN unnest($7::text[], $8::int[]) l(lane, slots) ON l.lane = f.lane
)` + claimTake)
)
