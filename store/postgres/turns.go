package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// A spot is a key of a tenant.
type spot struct{ tenant, key string }

// A turn is what a job has of a key.
type turn struct {
	job                job.ID
	key, tenant, owner string
}

// turns returns the queries that write what changes mean for turns and lines: none, where no job is
// under limits.
func (c *changes) turns() (qs []*query) {
	jobs := func(ts []turn) [][16]byte { return values(ts, func(t *turn) [16]byte { return t.job }) }
	keys := func(ts []turn) []string { return values(ts, func(t *turn) string { return t.key }) }
	if len(c.inLine) > 0 {
		qs = append(qs, do(enterLines, values(c.inLine, func(j *job.Job) [16]byte { return j.ID }),
			values(c.inLine, func(j *job.Job) string { return j.Line }),
			values(c.inLine, func(j *job.Job) int { return j.Passed }), values(c.inLine,
				func(j *job.Job) int { return int(j.Ties) }),
			values(c.inLine, func(j *job.Job) time.Time { return j.Since })))
	}
	if len(c.returned) > 0 {
		qs = append(qs, do(giveBack, jobs(c.returned), keys(c.returned)))
	}
	if len(c.taken) > 0 {
		qs = append(qs, do(takeTurns, jobs(c.taken), keys(c.taken),
			values(c.taken, func(t *turn) string { return t.tenant }), values(c.taken,
				func(t *turn) string { return t.owner })))
	}
	owe := func(spots []spot, after time.Duration) {
		if len(spots) > 0 {
			qs = append(qs, do(oweTurns, values(spots, func(s *spot) string { return s.tenant }),
				values(spots, func(s *spot) string { return s.key }), after))
		}
	}
	owe(c.handOn, 0)
	owe(c.later, store.FollowUpDelay)
	return qs
}

const (
	enterLines = `UPDATE pawl.jobs j SET line = ($2::text[])[array_position($1::uuid[], j.id)],
		passed = ($3::int[])[array_position($1::uuid[], j.id)],
	ties = ($4::int[])[array_position($1::uuid[], j.id)],
		since = ($5::timestamptz[])[array_position($1::uuid[], j.id)] WHERE j.id = ANY ($1::uuid[])`

	giveBack = `DELETE FROM pawl.turns t WHERE t.job = ANY ($1::uuid[])
		AND (t.job, t.key || '') IN (SELECT r.job, r.key FROM unnest($1::uuid[], $2::text[]) r(job, key))`

	takeTurns = `INSERT INTO pawl.turns (job, key, tenant, owner) SELECT *
		FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])`

	oweTurns = `INSERT INTO pawl.turns_owed (tenant, key, at)
		SELECT DISTINCT o.tenant, o.key, pawl.clock() + $3::interval FROM unnest($1::text[], $2::text[]) o(tenant, key)`

	// lockTurns has one at a time hand on turns of a tenant, or change what decides on them. What
	// it looks at then it reads in later statements: one that began before does not see what the
	// one before it did. It comes before the locks of jobs.
	lockTurns = `SELECT pg_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0))`

	// limitColumns are those of a limit as it is now: one that takes in jobs lets nobody go.
	limitColumns = `l.key, l.most, l.ahead, l.weights, l.per`
)

// limit reads the limitColumns; without one, the key is empty.
func (r *reader) limit() (l job.Limit) {
	l.Key, l.Most, l.Ahead = r.text(), r.int(), r.int()
	if weights := r.next(); weights != nil {
		json.Unmarshal(weights, &l.Weights) //nolint:errcheck // written from such a map
	}
	l.Per = job.Duration(time.Duration(r.int64()) * time.Microsecond)
	return l
}

// followUpDelay is [store.FollowUpDelay] as an interval.
var followUpDelay = store.FollowUpDelay.String()

// ChangeLimit implements [store.Limits].
func (s *Store) ChangeLimit(ctx context.Context, tenant, key string, l *job.Limit) (store.Effects, error) {
	if l == nil {
		return s.changeLimit(ctx, tenant, key, func(missing *bool) *query {
			*missing = true
			return read(removeLimit, func(*reader) error { *missing = false; return nil }, tenant, key, job.Family(key),
				[16]byte(job.NewID()))
		})
	}
	var weights *string
	if len(l.Weights) > 0 {
		text := encode(l.Weights)
		weights = &text
	}
	walks, spans := false, turns.Ranges(key)
	eff, err := s.changeLimit(ctx, tenant, key, func(*bool) *query {
		if job.Rated(key) {
			return do(setRate, tenant, key, l.Most, time.Duration(l.Per).Microseconds(), l.Every().Microseconds(),
				[16]byte(job.NewID()))
		}
		return read(setLimit, func(r *reader) error { walks = r.bool(); return nil },
			tenant, key, l.Most, l.Ahead, weights, job.BuiltIn(key), job.Family(key),
			values(spans, func(s *turns.Range) string { return s.From }), values(spans,
				func(s *turns.Range) string { return s.To }))
	})
	eff.Owed = eff.Owed || walks && err == nil
	return eff, err
}

// setRate writes a limit that is a rate: nothing is counted for it, and it takes in no jobs.
const setRate = `
INSERT INTO pawl.limits (tenant, key, most, per, every, rate) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, key) DO UPDATE SET most = excluded.most, per = excluded.per, every = excluded.every,
	rate = excluded.rate`

// removeLimit takes a limit away; where groups close its line, what they leave of none stays. The
// rate of its family, if that decides now, is another one from here on: it does not know what was
// given under it before.
//
//	1 tenant  2 key  3 the key of its family  4 a new rate
const removeLimit = `
WITH gone AS (
	DELETE FROM pawl.limits l WHERE l.tenant = $1 AND l.key = $2 AND l.places IS NULL RETURNING l.key
), shut AS (
	UPDATE pawl.limits l SET set_most = NULL, set_ahead = NULL WHERE l.tenant = $1 AND l.key = $2
		AND l.set_most IS NOT NULL RETURNING l.key
), anew AS (
	UPDATE pawl.limits l SET rate = $4 WHERE l.tenant = $1 AND l.key = $3 AND l.key <> $2 AND l.rate IS NOT NULL
)
SELECT g.key FROM gone g UNION ALL SELECT s.key FROM shut s`

// setLimit writes a limit. It owes the walk by which it takes in the jobs that are there, unless
// one decided on its keys before, and has taken in its own, or there can be none.
//
//	1 tenant  2 key  3 most  4 ahead  5 weights  6 whether jobs are under the key by themselves
//	7 the key of its family  8 9 spans of the keys on whose turns it decides
const setLimit = `
INSERT INTO pawl.limits AS l (tenant, key, most, ahead, weights, walked, walked_at, then_most, then_ahead)
SELECT $1, $2, CASE WHEN w.walks THEN 0 ELSE $3::int END, CASE WHEN w.walks THEN 0 ELSE $4::int END, $5::json,
	CASE WHEN w.walks THEN '00000000-0000-0000-0000-000000000000'::uuid END, CASE WHEN w.walks THEN pawl.clock() END,
	CASE WHEN w.walks THEN $3::int END, CASE WHEN w.walks THEN $4::int END
FROM (SELECT ($6::bool OR EXISTS (SELECT FROM unnest($8::text[], $9::text[]) s(low, high) CROSS JOIN LATERAL (
		SELECT FROM pawl.turns t WHERE t.tenant = $1 AND t.key >= s.low AND t.key < s.high LIMIT 1) t))
	AND NOT EXISTS (SELECT FROM pawl.limits f WHERE f.tenant = $1 AND f.key = $7 AND f.walked IS NULL) AS walks) w
ON CONFLICT (tenant, key) DO UPDATE SET weights = excluded.weights,
	most = CASE WHEN l.walked IS NULL THEN $3::int ELSE 0 END, ahead = CASE WHEN l.walked IS NULL THEN $4::int
		ELSE 0 END,
	then_most = CASE WHEN l.walked IS NOT NULL THEN $3::int END, then_ahead = CASE WHEN l.walked IS NOT NULL
		THEN $4::int END,
	set_most = CASE WHEN l.places IS NOT NULL THEN $3::int END, set_ahead = CASE WHEN l.places IS NOT NULL
		THEN $4::int END
RETURNING l.walked IS NOT NULL`

// changeLimit changes a limit, and owes the jobs in its lines the turns that it gives them now. A
// job that enters a line meanwhile owes that itself.
func (s *Store) changeLimit(ctx context.Context, tenant, key string,
	change func(missing *bool) *query,
) (eff store.Effects, err error) {
	err = s.call(ctx, tenant, func(t *tx) error {
		eff = store.Effects{}
		missing := false
		c := changes{}
		if job.Rated(key) {
			if err := t.send(do(setRates, tenant), change(&missing)); err != nil || missing {
				return cmp.Or(err, store.NoLimit(key))
			}
			return t.rerate(tenant, &eff)
		}
		err := t.send(do(lockTurns, tenant), change(&missing), do(closeLimits, tenant),
			c.linesUnder(tenant, func(of string) bool { return of == key || job.Family(of) == key }))
		if err == nil && missing {
			err = store.NoLimit(key)
		}
		if err != nil {
			return err
		}
		c.effects(&eff)
		return t.commit(c.turns()...)
	})
	if err != nil {
		return store.Effects{}, err
	}
	s.limited.Delete(tenant)
	return eff, nil
}

// linesUnder is the query that owes the jobs in the lines of limits the turns that are free there.
func (c *changes) linesUnder(tenant string, chosen func(of string) bool) *query {
	return read(linesOf, func(r *reader) error {
		if line := r.text(); chosen(job.LimitOf(line)) {
			c.handOn = append(c.handOn, spot{tenant, line})
		}
		return nil
	}, tenant)
}

// linesOf goes from line to line of a tenant.
const linesOf = `
WITH RECURSIVE lines AS (
	(SELECT j.line FROM pawl.jobs j WHERE j.tenant = $1 AND j.line IS NOT NULL ORDER BY j.line LIMIT 1)
	UNION ALL
	SELECT (SELECT j.line FROM pawl.jobs j WHERE j.tenant = $1 AND j.line > l.line ORDER BY j.line LIMIT 1)
		FROM lines l WHERE l.line IS NOT NULL
)
SELECT l.line FROM lines l WHERE l.line IS NOT NULL`

// Limits implements [store.Limits].
func (s *Store) Limits(ctx context.Context, tenant string) (all []job.Limit, err error) {
	err = s.call(ctx, tenant, func(t *tx) error {
		all = nil
		return t.commit(readLimits(tenant, func(l job.Limit) { all = append(all, l) }))
	})
	return all, err
}

func readLimits(tenant string, each func(l job.Limit)) *query {
	return read(`SELECT l.key, coalesce(l.set_most, l.then_most, l.most),
		coalesce(l.set_ahead, l.then_ahead, l.ahead), l.weights, l.per FROM pawl.limits l
		WHERE l.tenant = $1 AND `+isSet+` ORDER BY l.key`, func(r *reader) error {
		each(r.limit())
		return nil
	}, tenant)
}

// Turns implements [store.Limits].
func (s *Store) Turns(ctx context.Context, q store.TurnQuery) (all []store.Turns, err error) {
	if q.Key != "" && q.Key <= q.After {
		return nil, nil
	}
	err = s.look(ctx, q.Tenant, func(t *tx) error {
		all = nil
		set, shut := map[string]job.Limit{}, map[string]int{}
		qs := []*query{
			readLimits(q.Tenant, func(l job.Limit) { set[l.Key] = l }),
			read(closedLines, func(r *reader) error {
				key := r.text()
				shut[key] = r.int()
				return nil
			}, q.Tenant), read(turnsUsed, func(r *reader) error {
				key := r.text()
				if len(all) == 0 || all[len(all)-1].Key != key {
					all = append(all, store.Turns{Key: key})
				}
				last := &all[len(all)-1]
				last.Owners = append(last.Owners, store.Share{Owner: r.text(), Held: r.int(), Waiting: r.int()})
				return nil
			}, q.Tenant, q.After, store.Clamp(q.Limit, 100, 1000), nonzero(q.Key)),
		}
		var holders []job.ID
		if q.Key != "" && q.Holders > 0 {
			qs = append(qs, read(`SELECT t.job FROM pawl.turns t WHERE t.tenant = $1 AND t.key = $2
				ORDER BY t.owner, t.job LIMIT $3`, func(r *reader) error {
				holders = append(holders, r.id())
				return nil
			}, q.Tenant, q.Key, q.Holders))
		}
		err := t.commit(qs...)
		for i := range all {
			all[i].Holders = holders // it is the only one
			key := all[i].Key
			all[i].Limit = decides(set, key)
			if places, closed := shut[job.LimitOf(key)]; closed {
				all[i].Limit, all[i].Shut = all[i].Limit.Shut(key, places), true
			}
		}
		return err
	})
	return all, err
}

// Behind implements [store.Limits].
func (s *Store) Behind(ctx context.Context, j *job.Job, limit int) (n int, err error) {
	statement, where := behind, j.Line
	switch {
	case job.Ordered(j.Line):
		statement = behindInOrder
	case j.Line != "":
	case j.Custody == job.Ready:
		statement, where = behindReady, j.Queue
	case j.Custody == job.Recovery:
		statement, where = behindInGroup, j.Group
	default:
		return 0, nil
	}
	err = s.look(ctx, j.Tenant, func(t *tx) error {
		return t.commit(read(statement, func(r *reader) error { n = r.int(); return nil }, j.Tenant, where,
			[16]byte(j.ID), limit))
	})
	return n, err
}

// behind counts the jobs of the owner of $3 that stand before it in a line $2, up to $4;
// behindInOrder counts those of all. behindReady counts those that are claimed before it in a queue
// $2, and behindInGroup those that were blocked before it in a group $2.
var (
	behind = `SELECT count(*) FROM (SELECT FROM (SELECT * FROM pawl.jobs o WHERE o.id = $3 OFFSET 0) o
		CROSS JOIN LATERAL (
	SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = $2 AND j.owner = o.owner
		AND (j.priority, j.created, j.id) < (o.priority, o.created, o.id) LIMIT $4) j) before`

	behindInOrder = `SELECT count(*) FROM (SELECT FROM (SELECT * FROM pawl.jobs o WHERE o.id = $3 OFFSET 0) o
		CROSS JOIN LATERAL (
	SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = $2 AND starts_with(j.line, 'order/')
		AND (j.rank, j.priority, j.created, j.id) < (o.rank, o.priority, o.created, o.id) LIMIT $4) j) before`

	behindReady = store.SQL(`SELECT count(*) FROM (SELECT FROM (SELECT * FROM pawl.jobs o WHERE o.id = $3 OFFSET 0) o
		CROSS JOIN LATERAL (
	SELECT FROM pawl.jobs j WHERE j.custody = {Ready} AND j.queue = $2 AND j.kind = o.kind
		AND j.machine = o.machine AND j.lane = o.lane AND j.tenant = $1
		AND (j.priority, j.created, j.id) < (o.priority, o.created, o.id) LIMIT $4) j) before`)

	behindInGroup = store.SQL(`SELECT count(*) FROM (SELECT FROM (SELECT * FROM pawl.jobs o WHERE o.id = $3 OFFSET 0) o
		CROSS JOIN LATERAL (
	SELECT FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = $1 AND j.grp = $2
		AND (j.since, j.created, j.id) < (o.since, o.created, o.id) LIMIT $4) j) before`)
)

// decides returns the limit that decides on the turns of a key; nil: there is none.
func decides(set map[string]job.Limit, key string) *job.Limit {
	of := job.LimitOf(key)
	for _, key := range []string{of, job.Family(of)} {
		if l, there := set[key]; there {
			l.Weights = maps.Clone(l.Weights)
			return &l
		}
	}
	return job.Implied(key)
}

// turnsUsed goes from key to key that is in use or waited for, and counts the turns and the jobs in
// line by owner.
//
//	1 tenant  2 the key before the first  3 how many keys  4 the only key; NULL: all
const turnsUsed = `
WITH RECURSIVE keys AS (
	SELECT coalesce($4::text, $2::text) COLLATE "C" AS key, CASE WHEN $4::text IS NULL THEN 0 ELSE $3::int END AS i
	UNION ALL
	SELECT least(
		(SELECT t.key FROM pawl.turns t WHERE t.tenant = $1 AND t.key > k.key ORDER BY t.key LIMIT 1),
		(SELECT j.line FROM pawl.jobs j WHERE j.tenant = $1 AND j.line > k.key ORDER BY j.line LIMIT 1)), k.i + 1
	FROM keys k WHERE k.key IS NOT NULL AND k.i < $3::int
)
SELECT k.key, u.owner, u.held, u.waiting FROM keys k CROSS JOIN LATERAL (
	SELECT x.owner, sum(x.held)::bigint AS held, sum(x.waiting)::bigint AS waiting FROM (
		SELECT t.owner, count(*) AS held, 0 AS waiting FROM pawl.turns t WHERE t.tenant = $1 AND t.key = k.key
			GROUP BY t.owner
		UNION ALL
		SELECT j.owner, 0, count(*) FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key GROUP BY j.owner
	) x GROUP BY x.owner
) u WHERE k.i > 0 ORDER BY k.key, u.owner`

// limitKeys are the keys of a tenant's limits as this process knows them. They may have changed
// since: the statement that inserts jobs by what they say checks it, in its own snapshot, and
// refuses where it is not so any more.
type limitKeys map[string]bool

func (ks limitKeys) decide(key string) bool {
	of := job.LimitOf(key)
	return ks[of] || ks[job.Family(of)]
}

// under returns the jobs with the keys under which each stands. They are not those that were given:
// a call that is made again begins with these.
func (ks limitKeys) under(jobs []store.New) []store.New {
	under := func(n *store.New) bool { return len(n.Job.Limits) > 0 || len(ks) > 0 && len(n.Optional) > 0 }
	if !anyOf(jobs, under) {
		return jobs
	}
	jobs = slices.Clone(jobs)
	for i := range jobs {
		n := &jobs[i]
		keys := slices.Clone(n.Job.Limits)
		for _, key := range n.Optional {
			if ks.decide(key) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		if n.Job.Limits = slices.Compact(keys); len(keys) > 0 {
			n.Job.Ties |= job.TieLimited
		}
	}
	return jobs
}

// askedOf returns the keys of the limits that decide which optional keys count; nil: none does.
func askedOf(jobs []store.New) (asked []string) {
	seen := map[string]bool{"": true}
	for i := range jobs {
		if i > 0 && slices.Equal(jobs[i].Optional, jobs[i-1].Optional) {
			continue // most jobs of a call are alike
		}
		for _, key := range jobs[i].Optional {
			of := job.LimitOf(key)
			for _, key := range [...]string{of, job.Family(of)} {
				if !seen[key] {
					seen[key] = true
					asked = append(asked, key)
				}
			}
		}
	}
	return asked
}

// limitKeys returns what is known of a tenant's limits.
func (s *Store) limitKeys(tenant string) limitKeys {
	if known, ok := s.limited.Load(tenant); ok {
		return known.(limitKeys)
	}
	return nil
}

// learnLimits reads the keys of a tenant's limits anew.
func (s *Store) learnLimits(ctx context.Context, tenant string) error {
	var known limitKeys
	err := s.call(ctx, tenant, func(t *tx) error {
		known = limitKeys{}
		return t.commit(read(`SELECT l.key FROM pawl.limits l WHERE l.tenant = $1`,
			func(r *reader) error { known[r.text()] = true; return nil }, tenant))
	})
	if err == nil {
		s.limited.Store(tenant, known)
	}
	return err
}

// set returns those of some keys that are there, in their order.
func (ks limitKeys) set(some []string) (set []string) {
	for _, key := range some {
		if ks[key] {
			set = append(set, key)
		}
	}
	slices.Sort(set)
	return set
}
