package sqlite

import (
	"cmp"
	"database/sql/driver"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// rate is how fast jobs of a group go.
func (t *tx) rate(g *groups.Group) (*job.Limit, error) {
	all, err := t.limitsOf(g.Tenant)
	return groups.Rate(deciding(all.set, g.RateKey())), err
}

// rerate tells the groups of a tenant whose jobs wait for their moments that another rate may hold.
func (t *tx) rerate(tenant string, eff *store.Effects) error {
	groups, err := t.groups(`SELECT tenant, key, doc FROM groups INDEXED BY groups_wake WHERE wake IS NOT NULL
		AND wake > ? AND tenant = ?`, micros(t.now), tenant)
	if err != nil {
		return err
	}
	for _, was := range groups {
		g := was
		rate, err := t.rate(&g)
		if err == nil && g.Rerate(rate, t.now) {
			err = t.putGroup(&g, &was, eff)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lapsing is the time ?1 up to which a job of a group g was to fail that does so by now: see
// [groups.Group.Lapses].
var lapsing = `max(min(?1, g.next - 1), ?1 - ` + strconv.FormatInt(groups.LateTestGrace.Microseconds(), 10) + `)`

// mayFail says of a job j that it has a deadline: see [job.Job.Deadline].
const mayFail = `j.until IS NOT NULL AND j.live = 0`

// firstFail is when the first job of all groups fails, as far as is known. A group that is clear
// has no time for its next test.
var firstFail = `SELECT min((SELECT CASE WHEN g.next > j.until THEN j.until
	ELSE j.until + ` + strconv.FormatInt(groups.LateTestGrace.Microseconds(), 10) + ` END
		FROM jobs j INDEXED BY jobs_until WHERE ` + mayFail + ` AND j.tenant = g.tenant AND j.grp = g.key
			ORDER BY j.until LIMIT 1))
	FROM groups g INDEXED BY groups_next WHERE g.next IS NOT NULL`

// dueGroups lets blocked jobs go whose moment has come, and fails those that have waited for too
// long.
func (t *tx) dueGroups(limit int, eff *store.Effects) (n int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if n, err = t.lapse(limit, eff); err != nil {
		return 0, err
	}
	var due []spot
	err = t.query(`SELECT tenant, key FROM groups INDEXED BY groups_wake WHERE wake IS NOT NULL AND wake <= ?
		ORDER BY wake, tenant, key LIMIT ? + 0`, func(v []driver.Value) error {
		due = append(due, spot{text(v[0]), text(v[1])})
		return nil
	}, micros(t.now), int64(mostTurned))
	for _, at := range due {
		if err != nil || n == limit {
			break
		}
		var went int
		went, err = t.turnGroup(at, limit-n, eff)
		n += went
	}
	return n, err
}

// mostTurned is how many groups are looked at in one call.
const mostTurned = 1000

// lapse fails jobs that have waited for too long, those first whose time was first.
func (t *tx) lapse(limit int, eff *store.Effects) (int, error) {
	groups, err := t.groups(`SELECT g.tenant, g.key, g.doc FROM groups g INDEXED BY groups_next
		WHERE g.next IS NOT NULL AND EXISTS (SELECT 1
		FROM jobs j INDEXED BY jobs_until WHERE `+mayFail+` AND j.tenant = g.tenant AND j.grp = g.key
			AND j.until <= `+lapsing+`)`, micros(t.now))
	if err != nil {
		return 0, err
	}
	tried := map[spot]string{}
	var late []row
	for i := range groups {
		g := &groups[i]
		rs, err := t.rows(`SELECT `+columns+` FROM jobs j INDEXED BY jobs_until WHERE `+mayFail+`
			AND j.tenant = ?2 AND j.grp = ?3
			AND j.until <= (SELECT `+lapsing+` FROM groups g WHERE g.tenant = ?2 AND g.key = ?3)
			ORDER BY j.until, j.seq LIMIT ?4 + 0`,
			micros(t.now), g.Tenant, g.Key, int64(limit))
		if err != nil {
			return 0, err
		}
		late = append(late, rs...)
		tried[spot{g.Tenant, g.Key}] = g.Tried(t.now)
	}
	slices.SortFunc(late, func(a, b row) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.seq, b.seq)) })
	late = late[:min(len(late), limit)]
	for i := range late {
		r := &late[i]
		if err := t.write(r, job.Lapsed(&r.Job, tried[spot{r.Tenant, r.Group}], t.now), job.CauseClear, nil,
			eff); err != nil {
			return 0, err
		}
	}
	return len(late), nil
}

// turnGroup does what there is to do for a group, of up to limit jobs.
func (t *tx) turnGroup(at spot, limit int, eff *store.Effects) (int, error) {
	was, err := t.group(at)
	if err != nil {
		return 0, err
	}
	g := *was
	if !g.GivenUp.IsZero() {
		return t.giveUp(&g, limit, eff)
	}
	rate, err := t.rate(&g)
	if err != nil {
		return 0, err
	}
	n := g.Allow(rate, t.now, limit)
	going, last, err := t.going(&g, n)
	if err != nil {
		return 0, err
	}
	for _, r := range going {
		if err := t.write(r, job.Released(&r.Job, g.Why(), t.now), job.CauseClear, nil, eff); err != nil {
			return 0, err
		}
	}
	var left, later bool
	err = t.query(`SELECT EXISTS (SELECT 1 `+inGroup+` AND j.since <= ?1), EXISTS (SELECT 1 `+inGroup+
		` AND j.since > ?1) FROM groups g WHERE g.tenant = ?2 AND g.key = ?3`,
		func(v []driver.Value) error {
			left, later = integer(v[0]) != 0, integer(v[1]) != 0
			return nil
		}, micros(g.Clear), g.Tenant, g.Key)
	if err != nil {
		return 0, err
	}
	g.Went(rate, len(going), last, left, later, t.now)
	return len(going), t.putGroup(&g, was, eff)
}

// giveUp fails jobs of a group that a person has given up, except jobs whose program may still run.
func (t *tx) giveUp(g *groups.Group, limit int, eff *store.Effects) (int, error) {
	was := *g
	rs, err := t.rows(`SELECT `+columns+
		` FROM jobs j INDEXED BY jobs_group WHERE j.grp <> '' AND j.tenant = ? AND j.grp = ? AND j.since <= ?
			AND j.live = 0 ORDER BY j.since, j.seq LIMIT ? + 0`,
		g.Tenant, g.Key, micros(g.GivenUp), int64(limit))
	if err != nil {
		return 0, err
	}
	s := store.Steer{By: g.GiverUp, Want: groups.GiveUp}
	for i := range rs {
		c, err := groups.Change(&rs[i].Job, s.Want, s.By, t.now)
		if err != nil {
			return 0, err
		}
		if err := t.write(&rs[i], c, job.CauseWish, optional(s.By), eff); err != nil {
			return 0, err
		}
	}
	if len(rs) < limit {
		g.GivenUp, g.GiverUp = time.Time{}, ""
	}
	return len(rs), t.putGroup(g, &was, eff)
}

// going reads up to n jobs of a group that had joined it before it was clear, in the turn in which
// they go, and the owner of the last of them. It steps from owner to owner, and reads about as many
// jobs as go.
func (t *tx) going(g *groups.Group, n int) ([]*row, string, error) {
	var owners []string
	heads := map[string][]*row{}
	for from, around := g.Last+"\x00", false; len(owners) < n; {
		rs, err := t.rows(`SELECT `+columns+` FROM jobs j INDEXED BY jobs_group_owner WHERE j.grp <> ''
			AND j.tenant = ? AND j.grp = ? AND j.owner >= ?
			ORDER BY j.owner, j.since, j.seq LIMIT 1`, g.Tenant, g.Key, from)
		if err != nil {
			return nil, "", err
		}
		if len(rs) == 0 || around && rs[0].Owner > g.Last {
			if around {
				break
			}
			from, around = "", true
			continue
		}
		r := &rs[0]
		if from = r.Owner + "\x00"; !r.Since.After(g.Clear) {
			owners, heads[r.Owner] = append(owners, r.Owner), []*row{r}
		}
	}
	slices.Sort(owners)
	if len(owners) == 0 || len(owners) == n { // one of each
		rs, last := groups.RoundRobin(owners, heads, g.Last, n)
		return rs, last, nil
	}
	for most := min(n, 1+n/len(owners)); ; most = min(n, 2*most) {
		jobs := map[string][]*row{}
		for _, owner := range owners {
			rs, err := t.rows(`SELECT `+columns+` FROM jobs j INDEXED BY jobs_group_owner WHERE j.grp <> ''
				AND j.tenant = ? AND j.grp = ? AND j.owner = ? AND j.since <= ?
				ORDER BY j.since, j.seq LIMIT ? + 0`, g.Tenant, g.Key, owner, micros(g.Clear), int64(most))
			if err != nil {
				return nil, "", err
			}
			for i := range rs {
				jobs[owner] = append(jobs[owner], &rs[i])
			}
		}
		rs, last := groups.RoundRobin(owners, jobs, g.Last, n)
		taken, short := map[string]int{}, false
		for _, r := range rs {
			taken[r.Owner]++
			// of this owner there may be more, whose turn was before that of others
			short = short || taken[r.Owner] == most
		}
		if !short || most == n {
			return rs, last, nil
		}
	}
}
