package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// ChangeLimit implements [store.Limits].
func (s *Store) ChangeLimit(ctx context.Context, tenant, key string, l *job.Limit) (store.Effects, error) {
	if l == nil {
		return s.limit(ctx, tenant, key, func(t *tx, _ *store.Effects) error { return t.removeLimit(tenant, key) })
	}
	doc, err := json.Marshal(l)
	if err != nil {
		return store.Effects{}, err
	}
	return s.limit(ctx, tenant, key, func(t *tx, eff *store.Effects) error {
		if job.Rated(key) {
			_, err := t.exec(`INSERT INTO limits (tenant, key, doc, rate) VALUES (?, ?, ?, ?)
				ON CONFLICT (tenant, key) DO UPDATE SET doc = excluded.doc, rate = excluded.rate`,
				tenant, key, string(doc), blob(job.NewID()))
			return err
		}
		return t.setLimit(tenant, l, string(doc), eff)
	})
}

func (t *tx) removeLimit(tenant, key string) error {
	n, err := t.exec(`DELETE FROM limits WHERE tenant = ? AND key = ?`, tenant, key)
	if err == nil && n == 0 {
		err = store.NoLimit(key)
	}
	if err == nil {
		_, err = t.exec(`DELETE FROM walks WHERE tenant = ?1 AND key = ?2
			AND NOT EXISTS (SELECT 1 FROM lines l WHERE l.tenant = ?1 AND l.key = ?2
				AND l.places IS NOT NULL)`, tenant, key)
	}
	if err == nil { // the rate of its family, if that decides now, does not know what was given under it before
		_, err = t.exec(`UPDATE limits SET rate = ? WHERE tenant = ? AND key = ? AND rate IS NOT NULL`,
			blob(job.NewID()), tenant, job.Family(key))
	}
	return err
}

// linesOf goes along the lines of a tenant, a step for each key.
const linesOf = `WITH RECURSIVE k (key) AS (
		SELECT min(line) FROM jobs INDEXED BY jobs_line WHERE line <> '' AND tenant = ?1
		UNION ALL
		SELECT (SELECT min(j.line) FROM jobs j INDEXED BY jobs_line WHERE j.line <> '' AND j.tenant = ?1
			AND j.line > k.key) FROM k WHERE k.key IS NOT NULL
	)
	SELECT key FROM k WHERE key IS NOT NULL`

// limit changes a limit, and owes the jobs in its lines the turns that it gives them now.
func (s *Store) limit(ctx context.Context, tenant, of string,
	change func(*tx, *store.Effects) error,
) (store.Effects, error) {
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		eff = store.Effects{}
		if err := change(t, &eff); err != nil {
			return err
		}
		delete(t.w.limits, tenant)
		return t.changed(tenant, of, &eff)
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}

// changed owes the jobs in the lines of a limit the turns that it gives them now.
func (t *tx) changed(tenant, of string, eff *store.Effects) error {
	if job.Rated(of) {
		return errors.Join(t.wake(tenant, eff), t.rerate(tenant, eff))
	}
	return t.oweLines(tenant, func(line string) bool {
		return job.LimitOf(line) == of ||
			job.Family(job.LimitOf(line)) == of
	}, eff)
}

// oweLines owes a look at the lines of a tenant that are chosen.
func (t *tx) oweLines(tenant string, chosen func(line string) bool, eff *store.Effects) error {
	var lines []string
	err := t.query(linesOf, func(v []driver.Value) error {
		if line := text(v[0]); chosen(line) {
			lines = append(lines, line)
		}
		return nil
	}, tenant)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := t.oweTurns(tenant, line); err != nil {
			return err
		}
		eff.Owed = true
	}
	return nil
}

// Limits implements [store.Limits].
func (s *Store) Limits(ctx context.Context, tenant string) (all []job.Limit, err error) {
	var broken []error
	err = s.query(ctx, `SELECT doc FROM limits WHERE tenant = ? ORDER BY key`, 1, func(v []driver.Value) {
		l, err := limit(v[0])
		all, broken = append(all, l), append(broken, err)
	}, tenant)
	return all, errors.Join(append(broken, err)...)
}

// keysInUse goes along turns and lines, a step for each key.
const keysInUse = `WITH RECURSIVE
	e (key) AS (
		SELECT min(key) FROM turns WHERE tenant = ?1 AND key > ?2
		UNION ALL
		SELECT (SELECT min(t.key) FROM turns t WHERE t.tenant = ?1 AND t.key > e.key) FROM e
			WHERE e.key IS NOT NULL LIMIT ?3 + 0
	),
	q (key) AS (
		SELECT min(line) FROM jobs INDEXED BY jobs_line WHERE line <> '' AND tenant = ?1 AND line > ?2
		UNION ALL
		SELECT (SELECT min(j.line) FROM jobs j INDEXED BY jobs_line WHERE j.line <> '' AND j.tenant = ?1
			AND j.line > q.key) FROM q WHERE q.key IS NOT NULL LIMIT ?3 + 0
	),
	k (key) AS (SELECT key FROM e WHERE key IS NOT NULL UNION SELECT key FROM q WHERE key IS NOT NULL ORDER BY 1
		LIMIT ?3 + 0)`

// keyInUse is one key, if it comes after another one.
const keyInUse = `WITH k (key) AS (SELECT ?4 WHERE ?4 > ?2 AND ?3 > 0)`

// usesOf reads how many jobs have turns of keys k and how many wait for them, together with all
// limits and all closed lines.
const usesOf = `
	SELECT 'held', k.key, t.owner, count(*) FROM k CROSS JOIN turns t ON t.tenant = ?1 AND t.key = k.key GROUP BY 2, 3
	UNION ALL
	SELECT 'waiting', k.key, j.owner, count(*) FROM k CROSS JOIN jobs j INDEXED BY jobs_line ON j.line <> ''
		AND j.tenant = ?1 AND j.line = k.key GROUP BY 2, 3
	UNION ALL
	SELECT 'limit', '', doc, 0 FROM limits WHERE tenant = ?1
	UNION ALL
	SELECT 'shut', key, '', places FROM lines WHERE tenant = ?1 AND places IS NOT NULL`

// behind counts the jobs before a job in its line, and behindInOrder in the line of an order;
// behindReady the jobs that are claimed before it, and behindInGroup those that were blocked before
// it in its group.
var (
	behind = `SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_line WHERE line <> '' AND tenant = ?
		AND line = ? AND owner = ?
		AND (priority, created, seq) < (?, ?, (SELECT seq FROM jobs WHERE id = ?)) LIMIT ? + 0)`
	behindInOrder = `SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_order WHERE line <> ''
		AND line GLOB 'order/*' AND tenant = ? AND line = ?
		AND (rank, priority, created, seq) < (?, ?, ?, (SELECT seq FROM jobs WHERE id = ?)) LIMIT ? + 0)`
	behindReady = store.SQL(`SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_ready WHERE custody = {Ready}
		AND tenant = ? AND queue = ? AND kind = ? AND machine = ? AND lane = ?
		AND (priority, created, seq) < (?, ?, (SELECT seq FROM jobs WHERE id = ?)) LIMIT ? + 0)`)
	behindInGroup = `SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_group WHERE grp <> ''
		AND tenant = ? AND grp = ?
		AND (since, seq) < (?, (SELECT seq FROM jobs WHERE id = ?)) LIMIT ? + 0)`
)

// Behind implements [store.Limits].
func (s *Store) Behind(ctx context.Context, j *job.Job, limit int) (n int, err error) {
	q, args := behind, []any{j.Tenant, j.Line, j.Owner, int64(j.Priority), micros(j.Created)}
	switch {
	case job.Ordered(j.Line):
		q, args[2] = behindInOrder, j.Rank
	case j.Line != "":
	case j.Custody == job.Ready:
		q, args = behindReady, []any{
			j.Tenant, j.Queue, j.Kind, j.Machine, string(j.Lane), int64(j.Priority),
			micros(j.Created),
		}
	case j.Custody == job.Recovery:
		q, args = behindInGroup, []any{j.Tenant, j.Group, micros(j.Since)}
	default:
		return 0, nil
	}
	err = s.query(ctx, q, 1, func(v []driver.Value) { n = integer(v[0]) }, append(args, blob(j.ID), int64(limit))...)
	return n, err
}

// Turns implements [store.Limits].
func (s *Store) Turns(ctx context.Context, q store.TurnQuery) (all []store.Turns, err error) {
	keys, args := keysInUse, []any{q.Tenant, q.After, int64(store.Clamp(q.Limit, 100, 1000))}
	if q.Key != "" {
		keys, args = keyInUse, append(args, q.Key)
	}
	of := limits{set: map[string]*job.Limit{}, shut: map[string]int{}}
	uses := map[string]map[string]store.Share{}
	var broken []error
	err = s.query(ctx, keys+usesOf, 4, func(v []driver.Value) {
		what, key := text(v[0]), text(v[1])
		switch what {
		case "limit":
			l, err := limit(v[2])
			of.set[l.Key], broken = &l, append(broken, err)
			return
		case "shut":
			of.shut[key] = integer(v[3])
			return
		}
		if uses[key] == nil {
			uses[key] = map[string]store.Share{}
		}
		share := uses[key][text(v[2])]
		share.Owner = text(v[2])
		if what == "held" {
			share.Held = integer(v[3])
		} else {
			share.Waiting = integer(v[3])
		}
		uses[key][share.Owner] = share
	}, args...)
	if err := errors.Join(append(broken, err)...); err != nil {
		return nil, err
	}
	var holders []job.ID
	if q.Key != "" && q.Holders > 0 {
		err = s.query(ctx, `SELECT j.id FROM turns t CROSS JOIN jobs j ON j.seq = t.job WHERE t.tenant = ?
			AND t.key = ? ORDER BY t.owner, t.job LIMIT ? + 0`, 1,
			func(v []driver.Value) { holders = append(holders, id(v[0])) }, q.Tenant, q.Key, int64(q.Holders))
		if err != nil {
			return nil, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(uses)) {
		_, shut := of.shut[job.LimitOf(key)]
		all = append(all, store.Turns{
			Key: key, Limit: of.deciding(key), Shut: shut,
			Owners: slices.SortedFunc(maps.Values(uses[key]),
				func(a, b store.Share) int { return cmp.Compare(a.Owner, b.Owner) }),
			Holders: holders, // there are any only where it is the only one
		})
	}
	return all, nil
}
