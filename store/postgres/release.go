package postgres

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// mostTurned bounds the groups from which one transaction releases jobs.
const mostTurned = 100

// lapse fails up to limit jobs that have waited for too long for what blocks them.
func (s *Store) lapse(ctx context.Context, limit int) (n int, eff store.Effects, d dues, err error) {
	err = s.write(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		var late []job.Job
		err := t.send(read(lapsing, func(r *reader) error { late = append(late, r.row()); return nil }, limit,
			groups.LateTestGrace))
		if err != nil {
			return err
		}
		c := changes{cause: job.CauseClear}
		if len(late) > 0 {
			gs, now, err := t.hold(values(late, func(j *job.Job) spot { return spot{j.Tenant, j.Group} }))
			if err != nil {
				return err
			}
			c.now = now
			for i := range late {
				j := &late[i]
				g := gs[spot{j.Tenant, j.Group}]
				if g == nil || !g.Lapses(j.Deadline(), now) {
					continue // it was found clear meanwhile
				}
				if _, err := c.add(j, job.Lapsed(j, g.Tried(now), now)); err != nil {
					return err
				}
				n++
			}
		}
		c.effects(&eff)
		return t.commit(append(c.queries(), d.query())...)
	})
	return n, eff, d, err
}

// A turning is a group that has jobs go, or fail.
type turning struct {
	held
	was   groups.Group          // as it stood before
	n     int                   // how many may
	of    map[string][]*job.Job // the locked jobs, by their owners
	found int                   // how many were there in time; n + 1 means more than n
	later bool                  // some joined later
}

// before is when they must have been there.
func (g *turning) before() time.Time {
	if !g.GivenUp.IsZero() {
		return g.GivenUp
	}
	return g.Clear
}

// release does what there is to do for groups, of up to limit jobs: they go where their group is
// clear and their moments have come, and fail where it was given up.
func (s *Store) release(ctx context.Context, limit int) (n int, eff store.Effects, d dues, err error) {
	err = s.write(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		var gs []*turning
		var now time.Time
		left := limit
		err := t.send(read(wakeGroups, func(r *reader) (err error) {
			now = r.time()
			g := &turning{of: map[string][]*job.Job{}}
			if g.Group, err = r.group(); err != nil || left == 0 {
				return err
			}
			g.rate = r.rate()
			g.was = g.Group
			if g.n = left; g.GivenUp.IsZero() {
				g.n = g.Allow(g.rate, now, left)
			}
			left -= g.n
			gs = append(gs, g)
			return nil
		}, mostTurned))
		if err != nil {
			return err
		}
		if len(gs) > 0 {
			if err := t.heads(gs); err != nil {
				return err
			}
		}
		var qs []*query
		var p grouping
		freed, failed := changes{cause: job.CauseClear, now: now}, map[string]*changes{}
		for _, g := range gs {
			went, err := g.turn(&freed, failed, now)
			if err != nil {
				return err
			}
			n += went
			p.put(&g.was, &g.Group, &eff)
		}
		for _, by := range slices.Sorted(maps.Keys(failed)) {
			failed[by].effects(&eff)
			qs = append(qs, failed[by].queries()...)
		}
		freed.effects(&eff)
		qs = append(append(qs, freed.queries()...), p.queries()...)
		return t.commit(append(qs, d.query())...)
	})
	return n, eff, d, err
}

// rerate has jobs that wait for their moments ask for them again, and tells the groups of a tenant
// that another rate may hold.
func (t *tx) rerate(tenant string, eff *store.Effects) error {
	var p grouping
	err := t.send(
		read(wakeJobs, func(r *reader) error { eff.Soon(r.time()); return nil }, tenant),
		read(pacedGroups, func(r *reader) error {
			now := r.time()
			g, err := r.group()
			if err != nil {
				return err
			}
			if was := g; g.Rerate(r.rate(), now) {
				p.put(&was, &g, eff)
			}
			return nil
		}, tenant))
	if err != nil {
		return err
	}
	return t.commit(p.queries()...)
}

// heads reads and locks the jobs of groups that are next.
func (t *tx) heads(gs []*turning) error {
	of := map[spot]*turning{}
	for _, g := range gs {
		of[spot{g.Tenant, g.Key}] = g
	}
	tenants, keys := values(gs, func(g **turning) string { return (*g).Tenant }), values(gs,
		func(g **turning) string { return (*g).Key })
	before, n := values(gs, func(g **turning) time.Time { return (*g).before() }), values(gs,
		func(g **turning) int { return (*g).n })
	fail := values(gs, func(g **turning) bool { return !(*g).GivenUp.IsZero() })
	err := t.send(read(groupHeads, func(r *reader) error {
		j := r.row()
		// it may have been blocked anew meanwhile
		if g := of[spot{j.Tenant, j.Group}]; g != nil && !j.Since.After(g.before()) &&
			!(j.Live && !g.GivenUp.IsZero()) {
			g.of[j.Owner] = append(g.of[j.Owner], &j)
		}
		return nil
	}, tenants, keys, before, n, fail, values(gs, func(g **turning) string { return (*g).Last })),
		read(groupLeft, func(r *reader) error {
			g := gs[r.int()-1]
			g.found, g.later = r.int(), r.bool()
			return nil
		}, tenants, keys, before, n, fail))
	for _, g := range gs {
		for _, list := range g.of {
			slices.SortFunc(list, func(a, b *job.Job) int {
				return cmp.Or(a.Since.Compare(b.Since), a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
			})
		}
	}
	return err
}

// turn releases jobs, or fails them if their group was given up, and returns how many.
func (g *turning) turn(freed *changes, failed map[string]*changes, now time.Time) (int, error) {
	going, last := groups.RoundRobin(slices.Sorted(maps.Keys(g.of)), g.of, g.Last, g.n)
	if !g.GivenUp.IsZero() {
		s := store.Steer{By: g.GiverUp, Want: groups.GiveUp}
		c := failed[s.By]
		if c == nil {
			c = &changes{cause: job.CauseWish, actor: s.By, now: now}
			failed[s.By] = c
		}
		for _, j := range going {
			ch, err := groups.Change(j, s.Want, s.By, now)
			if err == nil {
				_, err = c.add(j, ch)
			}
			if err != nil {
				return 0, err
			}
		}
		if g.found <= len(going) {
			g.GivenUp, g.GiverUp = time.Time{}, ""
		}
		return len(going), nil
	}
	for _, j := range going {
		if _, err := freed.add(j, job.Released(j, g.Why(), now)); err != nil {
			return 0, err
		}
	}
	g.Went(g.rate, len(going), last, g.found > len(going), g.later, now)
	return len(going), nil
}

var (
	// lapsing locks and answers up to $1 jobs that are to fail by now, as [groups.Group.Lapses]
	// says with a patience $2, those first that were to fail first. A job that another call has
	// locked is left to that call.
	lapsing = store.SQL(`
WITH x AS MATERIALIZED (
	SELECT pawl.clock() AS now
), late AS MATERIALIZED (
	SELECT l.id FROM x CROSS JOIN pawl.groups g CROSS JOIN LATERAL (
		SELECT j.id, j.until FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = g.tenant
			AND j.grp = g.key AND ` + mayFail + `
			AND j.until
				<= least(x.now, greatest(g.next - interval '1 microsecond', x.now - $2::interval))
		ORDER BY j.until LIMIT $1
	) l WHERE g.next IS NOT NULL ORDER BY l.until LIMIT $1
), taken AS MATERIALIZED (
	SELECT ` + livingRow + ` FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT l.id FROM late l))
		AND ` + isBlocked + ` ORDER BY j.id FOR UPDATE SKIP LOCKED
)
SELECT ` + columns + ` FROM taken j ` + itsSpec)

	// groupHeads locks and answers the jobs of groups that go next: the oldest of each owner,
	// beginning after the owner that went last. It goes from owner to owner, and no further than
	// jobs may go; of a few owners it looks at some more, where not all have as many.
	//
	//	1 tenants  2 keys  3 since when jobs must have been blocked  4 how many go
	//	5 whether they fail: then no job whose program may still run
	//	6 the owner of the one that went last
	groupHeads = store.SQL(`
WITH RECURSIVE owners AS (
	SELECT w.tenant, w.key, w.before, w.n, w.fail, w.last COLLATE "C" AS last, w.last COLLATE "C" AS owner,
		false AS again, 0 AS nr
	FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::int[], $5::bool[], $6::text[]) w(tenant, key,
		before, n, fail, last) WHERE w.n > 0
	UNION ALL
	SELECT o.tenant, o.key, o.before, o.n, o.fail, o.last, f.owner, f.again, o.nr + 1 FROM owners o CROSS JOIN LATERAL (
		SELECT a.owner, a.again FROM (
			(SELECT j.owner, o.again AS again FROM pawl.jobs j WHERE j.custody = {Recovery}
				AND j.tenant = o.tenant AND j.grp = o.key AND j.owner > o.owner
				AND (NOT o.again OR j.owner <= o.last) AND j.since <= o.before AND NOT (o.fail AND j.live)
					ORDER BY j.owner LIMIT 1)
			UNION ALL
			(SELECT j.owner, true FROM pawl.jobs j WHERE j.custody = {Recovery} AND NOT o.again
				AND j.tenant = o.tenant AND j.grp = o.key
				AND j.owner <= o.last AND j.since <= o.before AND NOT (o.fail AND j.live) ORDER BY j.owner LIMIT 1)
		) a ORDER BY a.again LIMIT 1
	) f WHERE o.nr < o.n
), heads AS MATERIALIZED (
	SELECT h.id FROM (
		SELECT o.*, count(*) OVER (PARTITION BY o.tenant, o.key) AS owners FROM owners o WHERE o.nr > 0
	) o CROSS JOIN LATERAL (
		SELECT j.id FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = o.tenant AND j.grp = o.key
			AND j.owner = o.owner AND j.since <= o.before
			AND NOT (o.fail AND j.live)
		ORDER BY j.since, j.created, j.id LIMIT least(o.n, 2 * o.n / o.owners + 1)
	) h
), taken AS MATERIALIZED (
	SELECT ` + livingRow + ` FROM pawl.jobs j WHERE j.id = ANY (ARRAY(SELECT h.id FROM heads h))
		AND ` + isBlocked + ` ORDER BY j.id FOR UPDATE SKIP LOCKED
)
SELECT ` + columns + ` FROM taken j ` + itsSpec)
)

var (
	// isBlocked is asked again of a row that is locked by its id, and not of an index.
	isBlocked = store.SQL(`j.custody || '' = {Recovery}`)

	// wakeGroups locks and answers up to $1 groups for which something is to be done, those for the
	// longest that nobody else has locked.
	wakeGroups = `
SELECT pawl.clock(), ` + groupColumns + `, ` + limitColumns + ` FROM (
	SELECT g.tenant, g.key, g.doc, g.wake FROM pawl.groups g WHERE g.wake <= (SELECT pawl.clock())
		ORDER BY g.wake LIMIT $1 FOR UPDATE SKIP LOCKED
) g ` + groupRate + ` ORDER BY g.wake`

	// pacedGroups locks and answers the groups of a tenant $1 for which something is to be done
	// later.
	pacedGroups = `
SELECT pawl.clock(), ` + groupColumns + `, ` + limitColumns + ` FROM (
	SELECT g.tenant, g.key, g.doc FROM pawl.groups g WHERE g.tenant = $1 AND g.wake > (SELECT pawl.clock())
		ORDER BY g.tenant, g.key FOR UPDATE
) g ` + groupRate + ` ORDER BY g.key`

	// groupLeft counts, of each group, the jobs that have been blocked since then or longer, up to
	// one more than may go, and says whether there are others. Its parameters are the first of
	// groupHeads.
	groupLeft = store.SQL(`
SELECT w.i, (SELECT count(*) FROM (
		SELECT FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = w.tenant AND j.grp = w.key
			AND j.since <= w.before
			AND NOT (w.fail AND j.live) LIMIT w.n + 1) e),
	EXISTS (SELECT FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = w.tenant AND j.grp = w.key
		AND j.since > w.before OFFSET 0)
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::int[], $5::bool[]) WITH ORDINALITY w(tenant, key,
	before, n, fail, i)`)
)
