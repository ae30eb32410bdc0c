package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

func (n name) compare(o name) int {
	return cmp.Or(strings.Compare(n.tenant, o.tenant), strings.Compare(n.name, o.name))
}

// limit returns the limit that decides on the turns of a key, as groups leave it; nil: there is
// none.
func (s *State) limit(at name) *job.Limit {
	l := s.set(at)
	if places, shut := s.shut[name{at.tenant, job.LimitOf(at.name)}]; shut {
		l = l.Shut(at.name, places)
	}
	return l
}

// set returns the limit that is set for a key, or for its family, or is implied; nil: there is
// none.
func (s *State) set(at name) *job.Limit {
	key := job.LimitOf(at.name)
	for _, key := range []string{key, job.Family(key)} {
		if l, set := s.limits[name{at.tenant, key}]; set {
			return &l
		}
	}
	return job.Implied(key)
}

// under returns the keys under which a new job stands.
func (t *tx) under(tenant string, n *store.New) []string {
	keys := slices.Clone(n.Job.Limits)
	for _, key := range n.Optional {
		if t.limit(name{tenant, key}) != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// fitting returns the keys with enough free turns for all jobs of a submission that want one, and
// without waiting jobs.
func (t *tx) fitting(sub *store.Submission) map[string]bool {
	wanted := map[string]int{}
	for i := range sub.Jobs {
		j := sub.Jobs[i].Job
		j.Limits = t.under(sub.Tenant, &sub.Jobs[i])
		for _, key := range j.First() {
			wanted[key]++
		}
	}
	fits := map[string]bool{}
	for key, n := range wanted {
		at := name{sub.Tenant, key}
		k := t.turnsKey(at)
		fits[key] = len(t.at[spot{custody: job.Gate, line: at}]) == 0 && n <= k.Free(key)
	}
	return fits
}

// ChangeLimit implements [store.Limits].
func (s *Store) ChangeLimit(ctx context.Context, tenant, key string, to *job.Limit) (store.Effects, error) {
	return s.do(ctx, func(t *tx) error {
		at := name{tenant, key}
		if to == nil {
			return t.removeLimit(at)
		}
		l := *to
		l.Weights = maps.Clone(l.Weights)
		t.startWalk(at)
		set(t, t.limits, at, l)
		if job.Rated(key) {
			t.newRate(at)
		}
		t.changed(tenant, key)
		return nil
	})
}

func (t *tx) newRate(at name) {
	t.anew++
	set(t, t.rates, at, job.ID{15: byte(t.anew), 14: byte(t.anew >> 8), 13: byte(t.anew >> 16)})
}

func (t *tx) removeLimit(at name) error {
	if _, there := t.limits[at]; !there {
		return store.NoLimit(at.name)
	}
	drop(t, t.limits, at)
	if _, shut := t.shut[at]; !shut {
		drop(t, t.walks, at)
	}
	drop(t, t.rates, at)
	// it does not know what was given under it before
	if family := (name{at.tenant, job.Family(at.name)}); !t.rates[family].IsZero() {
		t.newRate(family)
	}
	t.changed(at.tenant, at.name)
	return nil
}

// changed owes the jobs in the lines of a limit the turns that it gives them now.
func (t *tx) changed(tenant, key string) {
	if job.Rated(key) {
		t.wake(tenant)
		t.rerate(tenant)
		return
	}
	t.oweLines(tenant, func(of string) bool { return of == key || job.Family(of) == key })
}

// oweLines owes the jobs in the lines of some limits the turns that are free there.
func (t *tx) oweLines(tenant string, chosen func(of string) bool) {
	for _, at := range t.spots(job.Gate) {
		if at.line.tenant == tenant && at.line.name != "" && chosen(job.LimitOf(at.line.name)) {
			t.owed = append(t.owed, debt{key: at.line, at: t.now})
			t.eff.Owed = true
		}
	}
}

// Limits implements [store.Limits].
func (s *Store) Limits(ctx context.Context, tenant string) ([]job.Limit, error) {
	return ask(ctx, s, func(t *tx) (all []job.Limit, err error) {
		for at, l := range t.limits {
			if at.tenant == tenant {
				l.Weights = maps.Clone(l.Weights)
				all = append(all, l)
			}
		}
		slices.SortFunc(all, func(a, b job.Limit) int { return strings.Compare(a.Key, b.Key) })
		return all, nil
	})
}

// Turns implements [store.Limits].
func (s *Store) Turns(ctx context.Context, q store.TurnQuery) ([]store.Turns, error) {
	return ask(ctx, s, func(t *tx) (all []store.Turns, err error) {
		keys := map[name]bool{}
		for at := range t.turns {
			keys[at] = true
		}
		for _, at := range t.spots(job.Gate) {
			keys[at.line] = at.line.name != ""
		}
		for _, at := range slices.SortedFunc(maps.Keys(keys), name.compare) {
			if keys[at] && at.tenant == q.Tenant && at.name > q.After && (q.Key == "" || q.Key == at.name) &&
				len(all) < store.Clamp(q.Limit, 100, 1000) {
				_, shut := t.shut[name{at.tenant, job.LimitOf(at.name)}]
				use := store.Turns{Key: at.name, Limit: t.limit(at), Shut: shut, Owners: t.shares(at)}
				if q.Key != "" {
					use.Holders = t.holders(at, q.Holders)
				}
				all = append(all, use)
			}
		}
		return all, nil
	})
}

// Behind implements [store.Limits].
func (s *Store) Behind(ctx context.Context, j *job.Job, limit int) (int, error) {
	return ask(ctx, s, func(t *tx) (n int, _ error) {
		of := t.jobs[j.ID]
		if of == nil {
			return 0, nil
		}
		var there []*row
		var before func(r *row) bool
		switch {
		case j.Line != "":
			there = t.at[spot{custody: job.Gate, line: name{j.Tenant, j.Line}}]
			before = func(r *row) bool { return (r.Owner == of.Owner || job.Ordered(j.Line)) && r.compare(of) < 0 }
		case j.Custody == job.Ready:
			there = t.at[spot{custody: j.Custody, queue: j.Queue, kind: j.Kind, machine: j.Machine, lane: j.Lane}]
			before = func(r *row) bool { return r.Tenant == j.Tenant && r.compare(of) < 0 }
		case j.Custody == job.Recovery:
			there = t.at[spot{custody: j.Custody, line: name{j.Tenant, j.Group}}]
			before = func(r *row) bool { return r.older(of) < 0 }
		}
		for _, r := range there {
			if n < limit && before(r) {
				n++
			}
		}
		return n, nil
	})
}

// holders returns up to n jobs that have turns of a key.
func (t *tx) holders(at name, n int) (ids []job.ID) {
	held := slices.SortedFunc(slices.Values(t.turns[at]), func(a, b turn) int {
		return cmp.Or(strings.Compare(a.owner, b.owner), a.job.Compare(b.job))
	})
	for _, x := range held[:min(n, len(held))] {
		ids = append(ids, x.job)
	}
	return ids
}

func (s *State) shares(at name) []store.Share {
	of := map[string]store.Share{}
	for owner, n := range s.holders(at) {
		of[owner] = store.Share{Owner: owner, Held: n}
	}
	for _, r := range s.at[spot{custody: job.Gate, line: at}] {
		share := of[r.Owner]
		share.Owner, share.Waiting = r.Owner, share.Waiting+1
		of[r.Owner] = share
	}
	return slices.SortedFunc(maps.Values(of), func(a, b store.Share) int { return strings.Compare(a.Owner, b.Owner) })
}

// holders returns how many turns of a key owners have.
func (s *State) holders(at name) map[string]int {
	held := map[string]int{}
	for _, x := range s.turns[at] {
		held[x.owner]++
	}
	return held
}

// takeTurns gives a job turns of keys.
func (t *tx) takeTurns(r *row, keys []string) {
	for _, key := range keys {
		at := name{r.Tenant, key}
		set(t, t.turns, at, append(slices.Clip(t.turns[at]), turn{r.ID, r.Owner}))
	}
}

// giveBack takes the turns of keys from a job.
func (t *tx) giveBack(r *row, keys []string) {
	for _, key := range keys {
		at := name{r.Tenant, key}
		left := slices.DeleteFunc(slices.Clone(t.turns[at]), func(x turn) bool { return x.job == r.ID })
		if len(left) == 0 {
			drop(t, t.turns, at)
		} else {
			set(t, t.turns, at, left)
		}
	}
}

// mostPassedOn bounds the turns that an apply hands on.
const mostPassedOn = 1000

// passOn hands on what the changes of an apply have given back, and owes what is more than it may.
func (t *tx) passOn() error {
	left, returned := mostPassedOn, slices.SortedFunc(maps.Keys(t.returned), name.compare)
	t.returned = nil // what the jobs that get a turn give back is owed
	for _, at := range returned {
		switch {
		case len(t.at[spot{custody: job.Gate, line: at}]) == 0:
			drop(t, t.served, at)
		case left <= 0:
			t.owed, t.eff.Owed = append(t.owed, debt{key: at, at: t.now}), true
		default:
			n, err := t.handOn(at, left)
			if err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// handOn gives the free turns of a key to the jobs that wait for them, and returns how many got
// one.
func (t *tx) handOn(at name, limit int) (int, error) {
	waiting := slices.Clone(t.at[spot{custody: job.Gate, line: at}])
	if job.Ordered(at.name) {
		waiting = waiting[:min(1, len(waiting))] // there is one place, and it is for the first
	}
	g := turns.Keys{}
	know := func(key string) {
		if at := (name{at.tenant, key}); g[key] == nil {
			g[key] = t.turnsKey(at)
		}
	}
	know(at.name)
	k := g[at.name]
	k.Served = maps.Clone(t.served[at])
	for _, r := range waiting {
		w := turns.WaiterOf(&r.Job)
		for _, key := range w.Keys {
			know(key)
		}
		k.Line = append(k.Line, w)
	}
	h := g.Hand([]string{at.name}, limit)
	for _, id := range h.Grant {
		r := t.jobs[id]
		lacks := turns.WaiterOf(&r.Job)
		next, err := t.write(r, job.Granted(&r.Job), job.CauseTurn, "")
		if err != nil {
			return 0, err
		}
		t.takeTurns(next, lacks.Lacks())
	}
	for _, m := range h.Move {
		r := t.jobs[m.Job]
		next := *r
		next.Job = r.Moved(m.Line, len(m.Keep) > 0)
		t.swap(r, &next)
		t.takeTurns(&next, m.Keep)
		t.giveBack(&next, m.Drop)
		for _, key := range m.Drop {
			t.eff.Owed = true
			t.owed = append(t.owed, debt{key: name{at.tenant, key}, at: t.now})
		}
	}
	if k.Served != nil {
		set(t, t.served, at, k.Served)
	} else {
		drop(t, t.served, at)
	}
	for _, key := range h.Again {
		t.eff.Owed = true
		t.owed = append(t.owed, debt{key: name{at.tenant, key}, at: t.now})
	}
	return len(h.Grant), nil
}
