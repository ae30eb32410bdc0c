package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// The rows of groups are locked last of all, in the order of their keys. A transaction that locks
// one before jobs waits for no job: it passes over jobs that are locked.

// A joining is a job that a change has blocked, and by what.
type joining struct {
	job   job.Job
	block *job.Block
}

// join sends the last queries of a transaction, and has those of the jobs that changes have blocked
// join their groups.
func (t *tx) join(c *changes, eff *store.Effects, qs ...*query) error {
	if len(c.joins) == 0 {
		return t.commit(qs...)
	}
	gs := map[spot]*groups.Group{} // as they are where these are the first
	for i := range c.joins {
		j, b := &c.joins[i].job, c.joins[i].block
		at := spot{j.Tenant, j.Group}
		if g := gs[at]; g != nil {
			g.Join(b, c.now)
		} else {
			gs[at] = groups.Open(j, b, c.now)
		}
	}
	var p grouping
	there := map[spot]*groups.Group{}
	var now time.Time
	opened := make([]groups.Group, 0, len(gs))
	for _, g := range gs {
		opened = append(opened, *g)
	}
	err := t.send(append(append(qs, t.last...), read(openGroups, func(r *reader) error {
		now = r.time()
		made := r.bool()
		g, err := r.group()
		if made {
			p.note(nil, &g, eff)
		} else {
			there[spot{g.Tenant, g.Key}] = &g
		}
		return err
	}, rowsOf(opened)...))...)
	t.last = nil
	if err != nil {
		return err
	}
	was := map[spot]groups.Group{}
	for at, g := range there {
		was[at] = *g
	}
	for i := range c.joins {
		if g := there[spot{c.joins[i].job.Tenant, c.joins[i].job.Group}]; g != nil {
			eff.Joined(c.joins[i].block, g.Join(c.joins[i].block, now))
		}
	}
	for at, g := range there {
		before := was[at]
		p.put(&before, g, eff)
	}
	return t.commit(p.queries()...)
}

// A grouping is what becomes of groups whose rows are locked.
type grouping struct {
	groups []groups.Group
	lines  []spot // the lines whose number of places changes
}

// put writes a group that stood otherwise before.
func (p *grouping) put(was, g *groups.Group, eff *store.Effects) {
	p.groups = append(p.groups, *g)
	p.note(was, g, eff)
}

// note notes what it means for others that a group stands so; it was nil before where it is new.
func (p *grouping) note(was, g *groups.Group, eff *store.Effects) {
	if was == nil {
		was = &groups.Group{Places: -1}
	}
	if g.Block.Line != "" && g.Places != was.Places {
		p.lines = append(p.lines, spot{g.Tenant, g.Block.Line})
		eff.Owed = true
	}
	eff.Soon(g.Wake())
	eff.Tests = eff.Tests || !g.Next.IsZero() && (was.Next.IsZero() || g.Next.Before(was.Next))
}

// queries returns what writes the groups.
func (p *grouping) queries() (qs []*query) {
	if len(p.groups) > 0 {
		qs = append(qs, do(writeGroups, rowsOf(p.groups)...))
	}
	if len(p.lines) > 0 {
		qs = append(qs, do(oweLines, values(p.lines, func(s *spot) string { return s.tenant }),
			values(p.lines, func(s *spot) string { return s.key })))
	}
	return qs
}

// rowsOf are the parameters of statements that write groups, which they put in the order of their
// keys.
func rowsOf(gs []groups.Group) []any {
	slices.SortFunc(gs, func(a, b groups.Group) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Key, b.Key))
	})
	texts := func(f func(g *groups.Group) string) []string { return values(gs, f) }
	times := func(f func(g *groups.Group) time.Time) []*time.Time {
		return values(gs, func(g *groups.Group) *time.Time { return instant(f(g)) })
	}
	return []any{
		texts(func(g *groups.Group) string { return g.Tenant }), texts(func(g *groups.Group) string { return g.Key }),
		texts((*groups.Group).Duty), texts(func(g *groups.Group) string { return g.Block.Probe() }),
		texts(func(g *groups.Group) string { return g.Block.Line }), values(gs,
			func(g *groups.Group) int { return g.Places }),
		times(func(g *groups.Group) time.Time { return g.Next }), times((*groups.Group).Wake), texts(
			func(g *groups.Group) string { return encode(g) }),
	}
}

// group reads the groupColumns.
func (r *reader) group() (g groups.Group, err error) {
	tenant, key := r.text(), r.text()
	err = json.Unmarshal(r.next(), &g)
	g.Tenant, g.Key = tenant, key
	return g, err
}

// A held is a group whose row is locked, with what is known of it besides.
type held struct {
	groups.Group
	rate  *job.Limit // at which its jobs go
	jobs  bool       // some belong to it
	until time.Time  // when the first of its jobs is to fail
}

// hold locks the rows of groups in their order, and reads them, and what the time is by then.
func (t *tx) hold(at []spot) (gs map[spot]*held, now time.Time, err error) {
	slices.SortFunc(at, func(a, b spot) int {
		return cmp.Or(strings.Compare(a.tenant, b.tenant),
			strings.Compare(a.key, b.key))
	})
	at = slices.Compact(at)
	gs = map[spot]*held{}
	err = t.send(read(holdGroups, func(r *reader) (err error) {
		h := &held{}
		now = r.time()
		if h.Group, err = r.group(); err != nil {
			return err
		}
		h.rate = r.rate()
		h.jobs, h.until = r.bool(), r.time()
		gs[spot{h.Tenant, h.Key}] = h
		return nil
	}, values(at, func(s *spot) string { return s.tenant }), values(at, func(s *spot) string { return s.key })))
	return gs, now, err
}

// rate reads the limit that says how fast jobs of a group go.
func (r *reader) rate() *job.Limit {
	if l := r.limit(); l.Key != "" {
		return groups.Rate(&l)
	}
	return groups.Rate(nil)
}

// Tests implements [store.Groups].
func (s *Store) Tests(ctx context.Context, duty string, limit int) (a store.Tests, err error) {
	err = s.call(ctx, everyone, func(t *tx) error {
		a = store.Tests{}
		return t.commit(read(dueTests, func(r *reader) error {
			a.Now, a.Next = r.time(), r.time()
			if r.values[0] == nil {
				return nil
			}
			g, err := r.group()
			a.Due = append(a.Due, g)
			return err
		}, duty, limit))
	})
	if err != nil {
		return store.Tests{}, err
	}
	return a, nil
}

// Tested implements [store.Groups].
func (s *Store) Tested(ctx context.Context, f job.Fence, found []groups.Test) (eff store.Effects, err error) {
	fenced := job.Errorf(job.Fenced, "%s is not held any more", f.Duty)
	if f.Duty == "" {
		return eff, fenced
	}
	err = s.call(ctx, everyone, func(t *tx) error {
		eff = store.Effects{}
		stands := false
		err := t.send(do(applyFences, [][16]byte{}, []string{f.Duty}),
			read(dutyStands, func(*reader) error { stands = true; return nil }, f.Duty, f.Term))
		if err == nil && !stands {
			err = fenced
		}
		if err != nil {
			return err
		}
		gs, now, err := t.hold(values(found, func(x *groups.Test) spot { return spot{x.Tenant, x.Key} }))
		if err != nil {
			return err
		}
		was, p := map[spot]groups.Group{}, grouping{}
		for i := range found {
			at := spot{found[i].Tenant, found[i].Key}
			g := gs[at]
			if g == nil {
				continue
			}
			if g.Duty() != f.Duty {
				return job.Errorf(job.Fenced, "group %s is tested by the holder of %s", g.Key, g.Duty())
			}
			before := g.Group
			if _, twice := was[at]; g.Record(&found[i], g.rate, now) && !twice {
				was[at] = before
			}
		}
		for at, before := range was {
			g := gs[at]
			p.put(&before, &g.Group, &eff)
			eff.Soon(g.Fails(g.until))
		}
		return t.commit(p.queries()...)
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}

// Steer implements [store.Groups].
func (s *Store) Steer(ctx context.Context, steer store.Steer) (answers []error, eff store.Effects, err error) {
	if steer.Group != "" {
		err = s.call(ctx, steer.Tenant, func(t *tx) error {
			eff = store.Effects{}
			at := spot{steer.Tenant, steer.Group}
			gs, now, err := t.hold([]spot{at})
			if err != nil {
				return err
			}
			g := gs[at]
			if g == nil || !g.jobs && g.Places < 0 {
				return store.NoGroup(steer.Group)
			}
			return t.commit(steered(&steer, gs, now, &eff)...)
		})
	} else {
		err = s.write(ctx, steer.Tenant, func(t *tx) error {
			answers, eff = make([]error, len(steer.Jobs)), store.Effects{}
			return t.steer(&steer, answers, &eff)
		})
	}
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// steered returns the queries that do with groups what a person wants.
func steered(steer *store.Steer, gs map[spot]*held, now time.Time, eff *store.Effects) []*query {
	var p grouping
	for _, g := range gs {
		was := g.Group
		g.Act(steer.Want, steer.By, g.rate, now)
		p.put(&was, &g.Group, eff)
	}
	return p.queries()
}

// steer does with jobs what a person wants.
func (t *tx) steer(steer *store.Steer, answers []error, eff *store.Effects) error {
	l, err := t.lock(steer.Jobs)
	if err != nil {
		return err
	}
	c := changes{cause: job.CauseWish, actor: steer.By, now: l.now}
	var tried []spot
	for i, id := range steer.Jobs { // a job that stands twice is found as the first time left it
		j := l.jobs[id]
		if j == nil || j.Tenant != steer.Tenant {
			answers[i] = store.NoJob(id)
			continue
		}
		ch, err := groups.Change(j, steer.Want, steer.By, l.now)
		switch {
		case err != nil:
			answers[i] = err
		case steer.Want == groups.TryNow:
			tried = append(tried, spot{j.Tenant, j.Group})
		default:
			if *j, err = c.add(j, ch); err != nil {
				return err
			}
		}
	}
	c.effects(eff)
	qs := c.queries()
	if len(tried) > 0 {
		gs, now, err := t.hold(tried)
		if err != nil {
			return err
		}
		qs = append(qs, steered(steer, gs, now, eff)...)
	}
	return t.commit(qs...)
}

// Groups implements [store.Groups].
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) (all []groups.Group, err error) {
	err = s.look(ctx, q.Tenant, func(t *tx) error {
		all = nil
		return t.commit(read(listGroups, func(r *reader) error {
			g, err := r.group()
			g.Jobs, g.Oldest, g.Behind = r.int(), r.time(), r.int()
			all = append(all, g)
			return err
		}, q.Tenant, q.After, store.Clamp(q.Limit, 100, 1000), nonzero(q.Key), nonzero(q.Line)))
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// trim removes groups that have had no jobs for a while, and in whose line nobody waits.
func (s *Store) trim(ctx context.Context, limit int) (eff store.Effects, err error) {
	err = s.call(ctx, everyone, func(t *tx) error {
		eff = store.Effects{}
		var idle []spot
		err := t.send(read(emptyGroups, func(r *reader) error {
			now := r.time()
			g, err := r.group()
			if g.Idle(now) {
				idle = append(idle, spot{g.Tenant, g.Key})
			}
			return err
		}, limit))
		if err != nil || len(idle) == 0 {
			return err
		}
		// A job that joined before this transaction had the lock is visible now, and a later one
		// opens the group again.
		return t.commit(read(removeGroups, func(*reader) error { eff.Owed = true; return nil },
			values(idle, func(s *spot) string { return s.tenant }), values(idle,
				func(s *spot) string { return s.key })))
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}

var (
	groupColumns = `g.tenant, g.key, g.doc`

	// groupRate is the limit of the releases of a group g: its own, or that of its family.
	groupRate = `LEFT JOIN LATERAL (SELECT ` + limitColumns + ` FROM pawl.limits l WHERE l.tenant = g.tenant
		AND l.key = ANY (ARRAY['` + job.RateReleases + `/' || g.key, '` + job.RateReleases + `/*'])
		ORDER BY l.key = '` + job.RateReleases + `/*' LIMIT 1) l ON true`

	// hasJobs is the condition that jobs belong to a group g, and hasLine that jobs wait in its
	// line, or to be made ready for that.
	hasJobs = store.SQL(`EXISTS (SELECT FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = g.tenant
		AND j.grp = g.key OFFSET 0)`)
	hasLine = `EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = g.tenant
		AND j.line = ANY (ARRAY[nullif(g.line, ''), 'ahead/' || nullif(g.line, '')]) OFFSET 0)`

	// mayFail says of a blocked job j that it has a deadline: see [job.Job.Deadline].
	mayFail = `j.until IS NOT NULL AND NOT j.live`

	// firstUntil is when the first job of a group g is to fail.
	firstUntil = store.SQL(`(SELECT j.until FROM pawl.jobs j WHERE j.custody = {Recovery} AND j.tenant = g.tenant
		AND j.grp = g.key AND ` + mayFail + ` ORDER BY j.until LIMIT 1)`)
)

// openGroups makes the groups that are not there, in the order of their keys, and locks the others.
// For each it answers the time, whether it is new, and its row. Each row is found by its key.
// writeGroups writes those that are locked.
//
//	1 tenant  2 key  3 duty  4 probe  5 line  6 places  7 next  8 wake  9 document
var (
	openGroups  = insertGroups + `writes = g.writes + 1 RETURNING pawl.clock(), g.writes = 0, ` + groupColumns
	writeGroups = insertGroups + `line = excluded.line, places = excluded.places, next = excluded.next,
		wake = excluded.wake, doc = excluded.doc`
)

const insertGroups = `
INSERT INTO pawl.groups AS g (tenant, key, duty, probe, line, places, next, wake, doc)
SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::timestamptz[],
	$8::timestamptz[], $9::json[])
	u(tenant, key, duty, probe, line, places, next, wake, doc) ORDER BY u.tenant COLLATE "C", u.key COLLATE "C"
ON CONFLICT (tenant, key) DO UPDATE SET `

// dutyStands answers where the holder of a duty $1 in a term $2 is alive.
const dutyStands = `SELECT FROM pawl.duties d JOIN pawl.sessions s ON s.id = d.session
	WHERE d.name = $1 AND d.term = $2::bigint AND s.ended IS NULL AND s.lease_until > pawl.clock()`

var (
	// oweLines owes limits, of tenants $1 and with keys $2, what groups leave of them.
	oweLines = `INSERT INTO pawl.lines_owed (tenant, key, at) SELECT DISTINCT o.tenant, o.key, pawl.clock()
		FROM unnest($1::text[], $2::text[]) o(tenant, key)`

	// holdGroups locks groups of tenants $1 with keys $2, one after the other.
	holdGroups = `
SELECT pawl.clock(), ` + groupColumns + `, ` + limitColumns + `, ` + hasJobs + `, ` + firstUntil + `
FROM (SELECT * FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u(tenant, key, i) ORDER BY u.i) u
CROSS JOIN LATERAL (SELECT * FROM pawl.groups g WHERE g.tenant = u.tenant AND g.key = u.key OFFSET 0 FOR UPDATE) g
` + groupRate

	// dueTests answers the time, when the next test of a duty $1 is due, and, row by row, up to $2
	// groups whose test is due, and those that want to know the same.
	dueTests = `
WITH x AS MATERIALIZED (
	SELECT pawl.clock() AS now
), due AS MATERIALIZED (
	SELECT g.tenant, g.key, g.probe, g.next, g.doc, 0 AS other FROM pawl.groups g
	WHERE g.duty = $1 AND g.next <= (SELECT x.now FROM x) AND (g.places >= 0 OR ` + hasJobs + `)
		ORDER BY g.next, g.tenant, g.key LIMIT $2
), others AS MATERIALIZED (
	SELECT g.tenant, g.key, g.next, g.doc, 1 AS other, g.probe = ANY (ARRAY(SELECT d.probe FROM due d)) AS along
		FROM pawl.groups g
	WHERE g.duty = $1 AND g.next > (SELECT x.now FROM x) AND (g.places >= 0 OR ` + hasJobs + `)
)
SELECT x.now, (SELECT min(o.next) FROM others o WHERE NOT o.along), ` + groupColumns + ` FROM x LEFT JOIN (
	SELECT d.tenant, d.key, d.next, d.doc, d.other FROM due d
	UNION ALL
	SELECT o.tenant, o.key, o.next, o.doc, o.other FROM others o WHERE o.along
) g ON true ORDER BY g.other, g.next, g.tenant, g.key`

	//	1 tenant  2 the key before the first  3 how many  4 the only key
	//	5 the line that they close; NULL: all
	listGroups = store.SQL(`
SELECT ` + groupColumns + `, w.jobs, w.oldest, b.behind FROM pawl.groups g CROSS JOIN LATERAL (
	SELECT count(*) AS jobs, min(j.since) AS oldest FROM pawl.jobs j WHERE j.custody = {Recovery}
		AND j.tenant = g.tenant AND j.grp = g.key OFFSET 0
) w CROSS JOIN LATERAL (
	SELECT count(*) AS behind FROM pawl.jobs j
	WHERE g.places >= 0 AND j.tenant = g.tenant
		AND j.line = ANY (ARRAY[nullif(g.line, ''), 'ahead/' || nullif(g.line, '')]) OFFSET 0
) b
WHERE g.tenant = $1 AND g.key > $2 AND ($4::text IS NULL OR g.key = $4::text)
	AND ($5::text IS NULL OR g.places >= 0 AND g.line = $5::text) AND w.jobs + b.behind > 0 ORDER BY g.key LIMIT $3`)

	// bare says of a group g that nothing is left of it.
	bare = `NOT ` + hasJobs + ` AND NOT (g.places >= 0 AND ` + hasLine + `)`

	emptyGroups = `SELECT pawl.clock(), ` + groupColumns + ` FROM pawl.groups g WHERE ` + bare +
		` ORDER BY g.tenant, g.key LIMIT $1 FOR UPDATE SKIP LOCKED`

	// removeGroups answers each line that is owed what is left without one of the groups.
	removeGroups = `
WITH gone AS (
	DELETE FROM pawl.groups g WHERE (g.tenant, g.key) IN (SELECT u.tenant, u.key
		FROM unnest($1::text[], $2::text[]) u(tenant, key)) AND ` + bare + `
	RETURNING g.tenant, g.line, g.places
)
INSERT INTO pawl.lines_owed (tenant, key, at) SELECT DISTINCT g.tenant, g.line, pawl.clock() FROM gone g
	WHERE g.places >= 0 RETURNING key`
)
