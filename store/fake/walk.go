package fake

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
)

// startWalk owes the walk by which a limit that is about to be set takes in the jobs that are
// there: unless one decided on its keys before, and has taken in its own.
func (t *tx) startWalk(at name) {
	_, set := t.limits[at]
	_, shut := t.shut[at] // it has taken them in
	family := name{at.tenant, job.Family(at.name)}
	_, under := t.limits[family]
	_, walking := t.walks[family]
	if !set && !shut && (!under || walking) && (job.BuiltIn(at.name) || t.anyTurns(at)) {
		t.owesWalk(at, 0)
		t.eff.Owed = true
	}
}

// anyTurns reports whether a job has a turn on which a limit would decide.
func (s *State) anyTurns(limit name) bool {
	for at := range s.turns {
		for _, span := range turns.Ranges(limit.name) {
			if at.tenant == limit.tenant && at.name >= span.From && at.name < span.To {
				return true
			}
		}
	}
	return false
}

func (t *tx) owesWalk(at name, after int) { set(t, t.walks, at, walk{after, t.now}) }

// turnsKey returns a key with the owners that have turns of it. A limit that is still taking in
// existing jobs lets no job go.
func (s *State) turnsKey(at name) *turns.Key {
	k := &turns.Key{Limit: s.limit(at), Held: s.holders(at)}
	if k.Limit != nil {
		if _, walks := s.walks[name{at.tenant, k.Limit.Key}]; walks {
			k.Limit = &job.Limit{}
		}
	}
	if _, owed := s.shutting[name{at.tenant, job.LimitOf(at.name)}]; owed {
		k.Limit = k.Limit.Shut(at.name, 0) // until that is paid
	}
	return k
}

// walk makes a step of the walk that waits for the longest, and returns how many jobs it looked at:
// one at least, where there is a walk.
func (t *tx) walk(most int) (int, error) {
	if len(t.walks) == 0 || most == 0 {
		return 0, nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(t.walks)), func(a, b name) int {
		return cmp.Or(t.walks[a].at.Compare(t.walks[b].at), a.compare(b))
	})
	limits := slices.SortedFunc(maps.Keys(t.walks), name.compare)
	limits = slices.DeleteFunc(limits, func(at name) bool { return at.tenant != first.tenant })
	last := t.walks[first].after
	for _, at := range limits {
		last = min(last, t.walks[at].after)
	}
	n := 0
	for _, r := range t.rows[last:] {
		if r == nil || r.Tenant != first.tenant || r.Custody == job.None {
			continue
		}
		if n == most {
			break
		}
		if err := t.takeIn(r); err != nil {
			return 0, err
		}
		n, last = n+1, r.seq
	}
	for _, at := range limits {
		switch {
		case n == most:
			t.owesWalk(at, max(last, t.walks[at].after))
		default:
			drop(t, t.walks, at)
			t.oweLines(at.tenant, func(of string) bool {
				l := t.limit(name{at.tenant, of})
				return l != nil &&
					l.Key == at.name
			})
		}
	}
	return max(1, n), nil
}

// takeIn puts a job under the keys on which limits decide by now.
func (t *tx) takeIn(r *row) error {
	keys := turns.NewKeys(&r.Job, func(key string) bool { return t.limit(name{r.Tenant, key}) != nil },
		func(key string) bool {
			l := t.limit(name{r.Tenant, key})
			if l == nil {
				return false
			}
			_, walks := t.walks[name{r.Tenant, l.Key}]
			return walks
		})
	if len(keys) == 0 {
		return nil
	}
	next := *r
	under, turns, back := r.Under(keys)
	next.Job = under
	t.swap(r, &next)
	t.takeTurns(&next, turns)
	t.owe(&next, job.Owes(&r.Job, &next.Job))
	if back == nil {
		return nil
	}
	_, err := t.write(&next, *back, job.CauseTurn, "")
	return err
}
