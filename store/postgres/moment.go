package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Reserve implements [store.Limits]. Where no rate is set it is one statement that reads.
func (s *Store) Reserve(ctx context.Context, tenant string, asks []store.Ask) (all []store.Reserved, err error) {
	if err := store.CheckAsks(asks); err != nil {
		return nil, err
	}
	wanted := map[string]wants{}
	missing := map[string]bool{}
	keys := values(asks, func(a *store.Ask) string { return a.Key })
	err = s.call(ctx, tenant, func(t *tx) error {
		all = make([]store.Reserved, len(asks))
		clear(wanted)
		return t.commit(read(ratesOf, func(r *reader) error {
			i := r.int() - 1
			there, now := r.bool(), r.time()
			all[i] = store.Reserved{First: now, Now: now}
			if rated := r.reserved(&all[i]); !rated {
				return nil
			}
			if all[i].First = asks[i].Held.At; !asks[i].Held.Holds(keys[i], all[i].Rate, now) {
				all[i].First = time.Time{}
				w := wanted[keys[i]]
				wanted[keys[i]] = wants{w.n + asks[i].N, w.late + asks[i].Late}
				missing[keys[i]] = !there
			}
			return nil
		}, tenant, keys, values(asks, func(a *store.Ask) string { return job.Family(a.Key) })))
	})
	if err == nil && len(wanted) > 0 {
		err = s.call(ctx, tenant, func(t *tx) error { return t.reserve(tenant, asks, all, wanted, missing) })
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// wants are what is asked for of one key in a call.
type wants struct {
	n    int
	late time.Duration // the room of all
}

// reserve gives moments to the asks that have none yet.
func (t *tx) reserve(tenant string, asks []store.Ask, all []store.Reserved, wanted map[string]wants,
	missing map[string]bool,
) error {
	keys := slices.Sorted(maps.Keys(wanted))
	given := map[string]store.Reserved{}
	qs := []*query{do(lockRates, tenant)}
	if none := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !missing[k] }); len(none) > 0 {
		qs = append(qs, do(firstMoments, tenant, none))
	}
	qs = append(qs, do(lockMoments, tenant, keys), read(takeMoments, func(r *reader) error {
		key, first, now := r.text(), r.time(), r.time()
		a := store.Reserved{First: first, Now: now}
		r.reserved(&a)
		given[key] = a
		return nil
	}, tenant, keys, values(keys, func(k *string) string { return job.Family(*k) }),
		values(keys, func(k *string) int { return wanted[*k].n }), values(keys,
			func(k *string) int64 { return wanted[*k].late.Microseconds() })))
	if err := t.commit(qs...); err != nil {
		return err
	}
	for i := range all {
		if !all[i].First.IsZero() {
			continue
		}
		a, rated := given[asks[i].Key]
		if !rated { // it was removed meanwhile
			a = store.Reserved{First: all[i].Now, Now: all[i].Now}
		}
		all[i] = a
		a.First = a.Next(&asks[i])
		given[asks[i].Key] = a
	}
	return nil
}

// reserved reads the rateColumns, and reports whether there is a rate.
func (r *reader) reserved(a *store.Reserved) bool {
	l := job.Limit{Key: r.text(), Most: r.int(), Per: job.Duration(time.Duration(r.int64()) * time.Microsecond)}
	a.Every, a.Rate = time.Duration(r.int64())*time.Microsecond, r.id()
	if a.Rate.IsZero() {
		return false
	}
	a.Limit = &l
	return true
}

// 1 tenant 2 keys 3 families 4 how many moments of each 5 how much later than usual they may be
// used, in all, in microseconds
var (
	taken       = `(k.n * l.step + k.late * interval '1 microsecond')`
	takeMoments = `UPDATE pawl.moments m SET rate = l.rate, next = ` + free + ` + ` + taken + `
	FROM (SELECT pawl.clock() AS now) x,
		unnest($2::text[], $3::text[], $4::int[], $5::bigint[]) k(key, family, n, late), ` + rateOf + `
	WHERE m.tenant = $1 AND m.key = k.key RETURNING m.key, m.next - ` + taken + `, x.now, ` + rateColumns
)

var (
	rateColumns = `l.key, l.most, l.per, l.every, l.rate`

	// rateOf is the rate that decides on k: its own, or that of its family.
	rateOf = `LATERAL (SELECT ` + rateColumns + `, l.every * interval '1 microsecond' AS step FROM pawl.limits l
		WHERE l.tenant = $1 AND l.key IN (k.key, k.family) AND l.rate IS NOT NULL ORDER BY l.key = k.key DESC
			LIMIT 1) l`

	// free is the next free moment of m, as [job.Limit.NextFree] says.
	free = `greatest(x.now, CASE WHEN m.rate = l.rate THEN m.next
		ELSE least(m.next, x.now + interval '1 second' + l.step) END)`

	//	1 tenant  2 keys  3 families
	ratesOf = `SELECT k.i, m.key IS NOT NULL, x.now, ` + rateColumns + `
	FROM (SELECT pawl.clock() AS now) x CROSS JOIN unnest($2::text[], $3::text[]) WITH ORDINALITY k(key, family, i)
		LEFT JOIN ` + rateOf + ` ON true LEFT JOIN pawl.moments m ON m.tenant = $1 AND m.key = k.key`

	// lockRates keeps the rates of a tenant as they are. A change takes the lock with setRates, so
	// no moment is given by an old rate. What it guards is read in later statements, as after
	// lockTurns.
	lockRates = `SELECT pg_advisory_xact_lock_shared(hashtextextended('pawl.rates/'||$1::text, 0))`
	setRates  = `SELECT pg_advisory_xact_lock(hashtextextended('pawl.rates/'||$1::text, 0))`

	// Keys come in their order, so that two calls do not wait for each other.
	firstMoments = `INSERT INTO pawl.moments (tenant, key, next, rate)
		SELECT $1, k.key, pawl.clock(), '00000000-0000-0000-0000-000000000000'
	FROM unnest($2::text[]) k(key) ON CONFLICT (tenant, key) DO NOTHING`
	lockMoments = `SELECT FROM pawl.moments m WHERE m.tenant = $1 AND m.key = ANY ($2::text[]) ORDER BY m.key
		FOR UPDATE`

	// wakeJobs has the jobs of a tenant that wait for their moments ask for them again.
	wakeJobs = store.SQL(`UPDATE pawl.jobs j SET due = x.now FROM (SELECT pawl.clock() AS now) x WHERE j.id = ANY (ARRAY(
		SELECT w.id FROM pawl.jobs w WHERE w.custody = {Gate} AND w.due > (SELECT pawl.clock())
			AND w.tenant = $1 AND w.state <> {Waiting}
		ORDER BY w.due FOR UPDATE SKIP LOCKED -- one that is locked is on its way
	)) RETURNING x.now`)

	//	1 tenant  2 the key before the first  3 how many keys  4 the only key; NULL: all
	momentsOf = `SELECT k.key, (extract(epoch FROM ` + free + ` - x.now) * 1000000)::bigint, ` + rateColumns + `
	FROM (SELECT pawl.clock() AS now) x, (
		SELECT m.key, m.next, m.rate, left(m.key,
			length(m.key) - position('/' in reverse(m.key))) || '/*' AS family FROM pawl.moments m
		WHERE m.tenant = $1 AND m.key > $2 AND ($4::text IS NULL OR m.key = $4::text)
	) k CROSS JOIN LATERAL (SELECT k.next, k.rate) m, ` + rateOf + ` ORDER BY k.key LIMIT $3`
)

// Moments implements [store.Limits].
func (s *Store) Moments(ctx context.Context, q store.TurnQuery) (all []store.Moments, err error) {
	err = s.look(ctx, q.Tenant, func(t *tx) error {
		all = nil
		return t.commit(read(momentsOf, func(r *reader) error {
			m := store.Moments{Key: r.text(), FreeIn: time.Duration(r.int64()) * time.Microsecond}
			var a store.Reserved
			if r.reserved(&a) {
				m.Limit = *a.Limit
				all = append(all, m)
			}
			return nil
		}, q.Tenant, q.After, store.Clamp(q.Limit, 100, 1000), nonzero(q.Key)))
	})
	return all, err
}
