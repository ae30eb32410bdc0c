package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Reserve implements [store.Limits].
func (s *Store) Reserve(ctx context.Context, tenant string, asks []store.Ask) ([]store.Reserved, error) {
	if err := store.CheckAsks(asks); err != nil {
		return nil, err
	}
	var all []store.Reserved
	err := s.do(ctx, func(t *tx) error {
		all = make([]store.Reserved, len(asks))
		limits, err := t.limitsOf(tenant)
		for i := range asks {
			if err == nil {
				all[i], err = t.moments(tenant, &asks[i], limits.set)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (t *tx) moments(tenant string, a *store.Ask, limits map[string]*job.Limit) (store.Reserved, error) {
	now := t.now
	r := store.Reserved{First: now, Now: now}
	l := deciding(limits, a.Key)
	if l == nil || l.Per == 0 {
		return r, nil
	}
	own := *l
	r.First, r.Every, r.Limit = a.Held.At, l.Every(), &own
	var next time.Time
	var given job.ID // the rate under which the last one was
	err := t.query(`SELECT l.rate, m.next, m.rate FROM limits l LEFT JOIN moments m ON m.tenant = l.tenant
		AND m.key = ? WHERE l.tenant = ? AND l.key = ?`,
		func(v []driver.Value) error {
			r.Rate, next, given = id(v[0]), instant(v[1]), id(v[2])
			return nil
		}, a.Key, tenant, l.Key)
	if err != nil || a.Held.Holds(a.Key, r.Rate, now) {
		return r, err
	}
	r.First = l.NextFree(next, now, given != r.Rate)
	after := r.Next(a)
	_, err = t.run(`INSERT INTO moments (tenant, key, next, rate) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, key)
		DO UPDATE SET next = excluded.next, rate = excluded.rate`,
		tenant, a.Key, after.UnixMicro(), blob(r.Rate))
	return r, err
}

var wakeJobs = store.SQL(`UPDATE jobs SET due = ?1 WHERE custody = {Gate} AND due > ?1 AND tenant = ?2
	AND state <> {Waiting}`)

// wake has the jobs of a tenant that wait for their moments ask for them again.
func (t *tx) wake(tenant string, eff *store.Effects) error {
	n, err := t.exec(wakeJobs, t.now.UnixMicro(), tenant)
	if n > 0 {
		eff.Due = t.now
	}
	return err
}

// Moments implements [store.Limits].
func (s *Store) Moments(ctx context.Context, q store.TurnQuery) (all []store.Moments, err error) {
	now := s.now().Truncate(time.Microsecond)
	type set struct {
		limit *job.Limit
		rate  job.ID
	}
	type given struct {
		key  string
		next time.Time
		rate job.ID
	}
	sets := map[string]set{}
	limits := map[string]*job.Limit{}
	var keys []given
	var broken []error
	err = s.query(ctx, `SELECT '', rate, doc, 0 FROM limits WHERE tenant = ?1 AND rate IS NOT NULL
		UNION ALL SELECT * FROM (SELECT key, rate, '', next FROM moments WHERE tenant = ?1 AND key > ?2
			AND (?3 = '' OR key = ?3) ORDER BY key)`, 4, func(v []driver.Value) {
		if key := text(v[0]); key != "" {
			keys = append(keys, given{key, instant(v[3]), id(v[1])})
			return
		}
		l, err := limit(v[2])
		limits[l.Key], sets[l.Key], broken = &l, set{&l, id(v[1])}, append(broken, err)
	}, q.Tenant, q.After, q.Key)
	for _, m := range keys {
		l := deciding(limits, m.key)
		if l == nil || len(all) == store.Clamp(q.Limit, 100, 1000) {
			continue
		}
		free := l.NextFree(m.next, now, m.rate != sets[l.Key].rate)
		all = append(all, store.Moments{Key: m.key, Limit: *l, FreeIn: free.Sub(now)})
	}
	return all, errors.Join(append(broken, err)...)
}
