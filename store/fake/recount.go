package fake

import (
	"context"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Recount implements [store.Jobs].
func (s *Store) Recount(ctx context.Context, limit int) (store.Recounted, store.Effects, error) {
	return call(ctx, s, func(t *tx) (n store.Recounted, err error) {
		if n.Needs, err = t.recountNeeds(limit); err != nil {
			return n, err
		}
		n.Turns = t.recountTurns(limit)
		n.Lines = t.recountLines(limit)
		t.trimGroups(limit)
		return n, nil
	})
}

func (t *tx) recountNeeds(limit int) (n int, err error) {
	needs := map[job.ID]int{}
	for _, edges := range t.edges {
		for _, e := range edges {
			needs[e.job]++
		}
	}
	for _, r := range slices.Clone(t.at[spot{custody: job.Gate}]) {
		if r.Needs == needs[r.ID] || n >= limit {
			continue
		}
		n++
		next := *r
		next.Needs = needs[r.ID]
		t.swap(r, &next)
		if err := t.goOn(&next, job.CausePaid); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// recountTurns gives back turns of jobs that have no use for them.
func (t *tx) recountTurns(limit int) (n int) {
	for _, at := range slices.SortedFunc(maps.Keys(t.turns), name.compare) {
		for _, x := range slices.Clone(t.turns[at]) {
			r := t.jobs[x.job]
			if r != nil && r.HasTurn(at.name) || n >= limit {
				continue
			}
			n++
			t.giveBack(&row{Job: job.Job{ID: x.job, Tenant: at.tenant}}, []string{at.name})
			t.owed = append(t.owed, debt{key: at, at: t.now})
			t.eff.Owed = true
		}
	}
	return n
}

// recountLines owes free turns to the jobs that wait for them.
func (t *tx) recountLines(limit int) (n int) {
	for _, at := range t.spots(job.Gate) {
		owed := slices.ContainsFunc(t.owed, func(d debt) bool { return d.key == at.line })
		k := t.turnsKey(at.line)
		if at.line.name == "" || owed || k.Free(at.line.name) == 0 || n >= limit {
			continue
		}
		n++
		t.owed = append(t.owed, debt{key: at.line, at: t.now})
		t.eff.Owed = true
	}
	return n
}
