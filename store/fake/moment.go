package fake

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Reserve implements [store.Limits].
func (s *Store) Reserve(ctx context.Context, tenant string, asks []store.Ask) ([]store.Reserved, error) {
	if err := store.CheckAsks(asks); err != nil {
		return nil, err
	}
	return ask(ctx, s, func(t *tx) ([]store.Reserved, error) {
		all := make([]store.Reserved, len(asks))
		for i := range asks {
			all[i] = t.reserve(name{tenant, asks[i].Key}, &asks[i])
		}
		return all, nil
	})
}

func (t *tx) reserve(at name, a *store.Ask) store.Reserved {
	l := t.limit(at)
	if l == nil || l.Per == 0 {
		return store.Reserved{First: t.now, Now: t.now}
	}
	rate := t.rates[name{at.tenant, l.Key}]
	r := store.Reserved{First: a.Held.At, Every: l.Every(), Now: t.now, Limit: l, Rate: rate}
	if a.Held.Holds(at.name, rate, t.now) {
		return r
	}
	m := t.moments[at]
	r.First = l.NextFree(m.next, t.now, m.rate != rate)
	set(t, t.moments, at, moments{next: r.Next(a), rate: rate})
	return r
}

// Moments implements [store.Limits].
func (s *Store) Moments(ctx context.Context, q store.TurnQuery) ([]store.Moments, error) {
	return ask(ctx, s, func(t *tx) (all []store.Moments, err error) {
		for _, at := range slices.SortedFunc(maps.Keys(t.moments), name.compare) {
			l := t.limit(at)
			if at.tenant != q.Tenant || at.name <= q.After || q.Key != "" && q.Key != at.name || l == nil ||
				l.Per == 0 || len(all) == store.Clamp(q.Limit, 100, 1000) {
				continue
			}
			m := t.moments[at]
			free := l.NextFree(m.next, t.now, m.rate != t.rates[name{at.tenant, l.Key}])
			all = append(all, store.Moments{Key: at.name, Limit: *l, FreeIn: free.Sub(t.now)})
		}
		return all, nil
	})
}

// launchesRated reports whether a tenant's programs are launched at moments.
func (t *tx) launchesRated(tenant string) bool {
	for at := range t.rates {
		if first, _, _ := strings.Cut(at.name, "/"); at.tenant == tenant && first == job.RateLaunches {
			return true
		}
	}
	return false
}

// wake has the jobs of a tenant that wait for their moments ask for them again.
func (t *tx) wake(tenant string) {
	for _, r := range t.at[spot{custody: job.Gate}] {
		if r.Tenant == tenant && r.State != job.Waiting && r.Due.After(t.now) {
			next := *r
			next.Due = t.now
			defer func() { // the list is not changed while it is gone through
				t.swap(r, &next)
				t.eff.Add(&next.Job)
			}()
		}
	}
}
