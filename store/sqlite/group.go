package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

const (
	// inGroup are the jobs of a group g, and inItsLine those that wait in the line that it closes,
	// or to be made ready for it.
	inGroup   = `FROM jobs j INDEXED BY jobs_group WHERE j.grp <> '' AND j.tenant = g.tenant AND j.grp = g.key`
	inItsLine = `FROM jobs j INDEXED BY jobs_line WHERE j.line <> '' AND j.tenant = g.tenant
		AND j.line IN (g.line, 'ahead/' || g.line)`

	// tested is the condition that a group g is tested when its time has come, and somebody that it
	// is shown to people.
	tested   = `(g.places >= 0 OR EXISTS (SELECT 1 ` + inGroup + `))`
	somebody = `(EXISTS (SELECT 1 ` + inGroup + `) OR g.places >= 0 AND EXISTS (SELECT 1 ` + inItsLine + `))`
)

// groupOf reads a group.
func groupOf(tenant, key, doc driver.Value) (groups.Group, error) {
	g := groups.Group{Tenant: text(tenant), Key: text(key)}
	err := json.Unmarshal([]byte(text(doc)), &g)
	return g, err
}

// groups reads groups by a statement for tenant, key and doc.
func (t *tx) groups(q string, args ...any) (all []groups.Group, err error) {
	err = t.query(q, func(v []driver.Value) error {
		g, err := groupOf(v[0], v[1], v[2])
		all = append(all, g)
		return err
	}, args...)
	return all, err
}

// group returns a group; nil: it is not there.
func (t *tx) group(at spot) (*groups.Group, error) {
	gs, err := t.groups(`SELECT tenant, key, doc FROM groups WHERE tenant = ? AND key = ?`, at.tenant, at.key)
	if err != nil || len(gs) == 0 {
		return nil, err
	}
	return &gs[0], nil
}

// A joined is a group that jobs join.
type joined struct {
	was *groups.Group // as it stands in the database; nil: it is new
	now groups.Group
}

// join puts a job that b has blocked into its group.
func (t *tx) join(r *row, b *job.Block, eff *store.Effects) error {
	at := spot{r.Tenant, r.Group}
	g := t.joined[at]
	if g == nil {
		was, err := t.group(at)
		if err != nil {
			return err
		}
		if g = (&joined{was: was}); was != nil {
			g.now = *was
		}
		if t.joined != nil {
			t.joined[at] = g
		}
	}
	if g.now.Opened.IsZero() {
		g.now = *groups.Open(&r.Job, b, t.now)
	} else {
		eff.Joined(b, g.now.Join(b, t.now))
	}
	if t.joined == nil {
		return t.putGroup(&g.now, g.was, eff)
	}
	return nil
}

// putJoined writes the groups that the changes of an apply have joined.
func (t *tx) putJoined(eff *store.Effects) error {
	for _, at := range slices.SortedFunc(maps.Keys(t.joined), spot.compare) {
		g := t.joined[at]
		if err := t.putGroup(&g.now, g.was, eff); err != nil {
			return err
		}
	}
	t.joined = nil
	return nil
}

// putGroup writes a group, and owes its line what it gives now. was is the group before; nil: it is
// new.
func (t *tx) putGroup(g, was *groups.Group, eff *store.Effects) error {
	if err := t.writeGroup(g); err != nil {
		return err
	}
	eff.Soon(g.Wake())
	eff.Tests = eff.Tests || !g.Next.IsZero() && (was == nil || was.Next.IsZero() || g.Next.Before(was.Next))
	if g.Block.Line == "" || was != nil && g.Places == was.Places {
		return nil
	}
	return t.oweLine(spot{g.Tenant, g.Block.Line}, eff)
}

// writeGroup writes the row of a group. No change that waits to be written touches these rows.
func (t *tx) writeGroup(g *groups.Group) error {
	doc, err := json.Marshal(g)
	if err != nil {
		return err
	}
	_, err = t.run(`INSERT INTO groups (tenant, key, duty, probe, next, wake, line, places, doc)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, key) DO UPDATE
			SET next = excluded.next, wake = excluded.wake, line = excluded.line, places = excluded.places,
			doc = excluded.doc`,
		g.Tenant, g.Key, g.Duty(), g.Block.Probe(), micros(g.Next), micros(g.Wake()), g.Block.Line, int64(g.Places),
		string(doc))
	return err
}

// trimGroups removes up to limit groups that have had no jobs for a while, and in whose line nobody
// waits.
func (t *tx) trimGroups(empty []spot, limit int, eff *store.Effects) error {
	slices.SortFunc(empty, spot.compare)
	for _, at := range empty {
		if limit == 0 {
			break
		}
		gs, err := t.groups(`SELECT g.tenant, g.key, g.doc FROM groups g WHERE g.tenant = ? AND g.key = ? AND NOT `+
			somebody, at.tenant, at.key)
		if err != nil {
			return err
		}
		if len(gs) == 0 || !gs[0].Idle(t.now) {
			continue
		}
		limit--
		if _, err := t.exec(`DELETE FROM groups WHERE tenant = ? AND key = ?`, at.tenant, at.key); err != nil {
			return err
		}
		if gs[0].Places < 0 {
			continue
		}
		if err := t.oweLine(spot{at.tenant, gs[0].Block.Line}, eff); err != nil {
			return err
		}
	}
	return nil
}

// testsDue reads the groups of a duty whose test is due, others that ask the same, and when the
// next of those is due that do not.
const testsDue = `WITH due (tenant, key, probe, next, doc) AS MATERIALIZED (
		SELECT g.tenant, g.key, g.probe, g.next, g.doc FROM groups g INDEXED BY groups_next
			WHERE g.next IS NOT NULL AND g.duty = ?1 AND g.next <= ?2 AND ` + tested + `
			ORDER BY g.next, g.tenant, g.key LIMIT ?3 + 0
	)
	SELECT tenant, key, doc, NULL FROM due
	UNION ALL
	SELECT g.tenant, g.key, g.doc, NULL FROM (SELECT DISTINCT probe FROM due) p
		CROSS JOIN groups g INDEXED BY groups_probe ON g.next IS NOT NULL AND g.duty = ?1 AND g.probe = p.probe
			WHERE g.next > ?2 AND ` + tested + `
	UNION ALL
	SELECT '', '', NULL, next FROM (SELECT g.next AS next FROM groups g INDEXED BY groups_next
		WHERE g.next IS NOT NULL AND g.duty = ?1 AND g.next > ?2 AND ` + tested + `
		AND g.probe NOT IN (SELECT probe FROM due) ORDER BY g.next LIMIT 1)`

// Tests implements [store.Groups].
func (s *Store) Tests(ctx context.Context, duty string, limit int) (store.Tests, error) {
	a := store.Tests{Now: s.now().UTC().Truncate(time.Microsecond)}
	var broken []error
	err := s.query(ctx, testsDue, 4, func(v []driver.Value) {
		if v[2] == nil {
			a.Next = instant(v[3])
			return
		}
		g, err := groupOf(v[0], v[1], v[2])
		a.Due, broken = append(a.Due, g), append(broken, err)
	}, duty, micros(a.Now), int64(limit))
	if err := errors.Join(append(broken, err)...); err != nil {
		return store.Tests{}, err
	}
	slices.SortFunc(a.Due, func(a, b groups.Group) int {
		return cmp.Or(a.Next.Compare(b.Next), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Key, b.Key))
	})
	return a, nil
}

// Tested implements [store.Groups].
func (s *Store) Tested(ctx context.Context, f job.Fence, found []groups.Test) (store.Effects, error) {
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		eff = store.Effects{}
		live, err := t.fence(f)
		if err == nil && !live {
			err = job.Errorf(job.Fenced, "%s is not held any more", f.Duty)
		}
		for i := range found {
			if err == nil {
				err = t.record(f, &found[i], &eff)
			}
		}
		return err
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}

// record notes what a test found.
func (t *tx) record(f job.Fence, found *groups.Test, eff *store.Effects) error {
	was, err := t.group(spot{found.Tenant, found.Key})
	if err != nil || was == nil {
		return err
	}
	g := *was
	if g.Duty() != f.Duty {
		return job.Errorf(job.Fenced, "group %s is tested by the holder of %s", g.Key, g.Duty())
	}
	rate, err := t.rate(&g)
	if err != nil || !g.Record(found, rate, t.now) {
		return err
	}
	if err := t.putGroup(&g, was, eff); err != nil {
		return err
	}
	return t.query(`SELECT min(j.until) FROM jobs j INDEXED BY jobs_until WHERE `+mayFail+
		` AND j.tenant = ? AND j.grp = ?`, func(v []driver.Value) error {
		eff.Soon(g.Fails(instant(v[0])))
		return nil
	}, g.Tenant, g.Key)
}

// Steer implements [store.Groups].
func (s *Store) Steer(ctx context.Context, steer store.Steer) ([]error, store.Effects, error) {
	var answers []error
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		answers, eff = nil, store.Effects{}
		if steer.Group != "" {
			gs, err := t.groups(`SELECT g.tenant, g.key, g.doc FROM groups g WHERE g.tenant = ? AND g.key = ?
				AND (g.places >= 0 OR EXISTS (SELECT 1 `+inGroup+`))`, steer.Tenant, steer.Group)
			if err == nil && len(gs) == 0 {
				err = store.NoGroup(steer.Group)
			}
			if err != nil {
				return err
			}
			return t.steer(&gs[0], &steer, &eff)
		}
		answers = make([]error, len(steer.Jobs))
		rows, err := t.find(steer.Jobs)
		if err != nil {
			return err
		}
		for i, id := range steer.Jobs { // a job that stands twice is found as the first time left it
			r := rows[id]
			if r == nil || r.Tenant != steer.Tenant {
				answers[i] = store.NoJob(id)
				continue
			}
			c, err := groups.Change(&r.Job, steer.Want, steer.By, t.now)
			if err != nil {
				answers[i] = err
				continue
			}
			if steer.Want == groups.TryNow {
				var g *groups.Group
				switch g, err = t.group(spot{r.Tenant, r.Group}); {
				case err != nil:
				case g == nil:
					answers[i] = store.NoGroup(r.Group)
				default:
					err = t.steer(g, &steer, &eff)
				}
			} else {
				err = t.write(r, c, job.CauseWish, optional(steer.By), &eff)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// steer does what a person wants of a group.
func (t *tx) steer(was *groups.Group, s *store.Steer, eff *store.Effects) error {
	g := *was
	rate, err := t.rate(&g)
	if err != nil {
		return err
	}
	g.Act(s.Want, s.By, rate, t.now)
	return t.putGroup(&g, was, eff)
}

// groupsThere reads groups with what they have, of an index where one is named.
func groupsThere(index string) string {
	return `SELECT g.tenant, g.key, g.doc, (SELECT count(*) ` + inGroup + `), (SELECT min(j.since) ` + inGroup + `),
		CASE WHEN g.places >= 0 THEN (SELECT count(*) ` + inItsLine + `) END
	FROM groups g ` + index + ` WHERE g.tenant = ?1 AND g.key > ?2 AND ` + somebody
}

// inLineOf are those that close a line.
var inLineOf = groupsThere(`INDEXED BY groups_line`) + ` AND g.places >= 0 AND g.line = ?4`

// Groups implements [store.Groups].
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) (all []groups.Group, err error) {
	which, args := groupsThere(""), []any{q.Tenant, q.After, int64(store.Clamp(q.Limit, 100, 1000))}
	switch {
	case q.Line != "" && q.Key != "":
		which, args = inLineOf+` AND g.key = ?5`, append(args, q.Line, q.Key)
	case q.Line != "":
		which, args = inLineOf, append(args, q.Line)
	case q.Key != "":
		which, args = which+` AND g.key = ?4`, append(args, q.Key)
	}
	var broken []error
	err = s.query(ctx, which+` ORDER BY g.key LIMIT ?3 + 0`, 6, func(v []driver.Value) {
		g, err := groupOf(v[0], v[1], v[2])
		g.Jobs, g.Oldest, g.Behind = integer(v[3]), instant(v[4]), integer(v[5])
		all, broken = append(all, g), append(broken, err)
	}, args...)
	return all, errors.Join(append(broken, err)...)
}
