package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// join puts a job that b has blocked into its group.
func (t *tx) join(r *row, b *job.Block) {
	at := name{r.Tenant, r.Group}
	g, there := t.groups[at]
	if there {
		t.eff.Joined(b, g.Join(b, t.now))
	} else {
		g = *groups.Open(&r.Job, b, t.now)
	}
	t.putGroup(g)
}

// putGroup writes a group, and owes its line what it gives now.
func (t *tx) putGroup(g groups.Group) {
	at := name{g.Tenant, g.Key}
	was, there := t.groups[at]
	set(t, t.groups, at, g)
	if g.Block.Line != "" && (!there || g.Places != was.Places) {
		t.oweLine(name{g.Tenant, g.Block.Line})
	}
	t.eff.Soon(g.Wake())
	t.eff.Tests = t.eff.Tests || !g.Next.IsZero() && (was.Next.IsZero() || g.Next.Before(was.Next))
}

func (t *tx) oweLine(at name) {
	if _, owed := t.shutting[at]; !owed {
		set(t, t.shutting, at, t.now)
	}
	t.eff.Owed = true
}

// members are the jobs of a group, the oldest first.
func (s *State) members(at name) []*row {
	rows := slices.Clone(s.at[spot{custody: job.Recovery, line: at}])
	slices.SortFunc(rows, (*row).older)
	return rows
}

// older orders the jobs of a group by when they were blocked.
func (r *row) older(o *row) int { return cmp.Or(r.Since.Compare(o.Since), cmp.Compare(r.seq, o.seq)) }

// behind counts the jobs that wait in a line, or to be made ready for it.
func (s *State) behind(at name) int {
	if at.name == "" {
		return 0
	}
	return len(s.at[spot{custody: job.Gate, line: at}]) + len(s.at[spot{
		custody: job.Gate,
		line:    name{at.tenant, job.AheadOf(at.name)},
	}])
}

// rate is how fast jobs of a group go.
func (s *State) rate(g *groups.Group) *job.Limit {
	return groups.Rate(s.set(name{g.Tenant, g.RateKey()}))
}

// dueGroups lets blocked jobs go whose moment has come, and fails those that have waited for too
// long.
func (t *tx) dueGroups(limit int) (n int, err error) {
	var late []*row
	for _, at := range t.spots(job.Recovery) {
		g := t.groups[at.line]
		for _, r := range t.at[at] {
			if g.Lapses(r.Deadline(), t.now) {
				late = append(late, r)
			}
		}
	}
	slices.SortFunc(late, func(a, b *row) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.seq, b.seq)) })
	for _, r := range late[:min(len(late), limit)] {
		g := t.groups[r.group()]
		if _, err := t.write(r, job.Lapsed(&r.Job, g.Tried(t.now), t.now), job.CauseClear, ""); err != nil {
			return 0, err
		}
		n++
	}
	var due []name
	for at, g := range t.groups {
		if wake := g.Wake(); !wake.IsZero() && !wake.After(t.now) {
			due = append(due, at)
		}
	}
	slices.SortFunc(due, func(a, b name) int {
		x, y := t.groups[a], t.groups[b]
		return cmp.Or(x.Wake().Compare(y.Wake()), a.compare(b))
	})
	for _, at := range due {
		if n == limit {
			break
		}
		went, err := t.turnGroup(at, limit-n)
		if err != nil {
			return 0, err
		}
		n += went
	}
	return n, nil
}

// rerate tells the groups of a tenant whose jobs wait for their moments that another rate may hold.
func (t *tx) rerate(tenant string) {
	for _, at := range slices.SortedFunc(maps.Keys(t.groups), name.compare) {
		if g := t.groups[at]; at.tenant == tenant && g.Rerate(t.rate(&g), t.now) {
			t.putGroup(g)
		}
	}
}

// turnGroup does what there is to do for a group, of up to limit jobs.
func (t *tx) turnGroup(at name, limit int) (n int, err error) {
	g, members := t.groups[at], t.members(at)
	if !g.GivenUp.IsZero() {
		for _, r := range members {
			if r.Since.After(g.GivenUp) || n == limit {
				break
			}
			if r.Live {
				continue
			}
			s := store.Steer{By: g.GiverUp, Want: groups.GiveUp}
			c, _ := groups.Change(&r.Job, s.Want, s.By, t.now)
			if _, err := t.write(r, c, job.CauseWish, s.By); err != nil {
				return 0, err
			}
			n++
		}
		if n < limit {
			g.GivenUp, g.GiverUp = time.Time{}, ""
		}
		t.putGroup(g)
		return n, nil
	}
	rate := t.rate(&g)
	may := members
	if late := slices.IndexFunc(members, func(r *row) bool { return r.Since.After(g.Clear) }); late >= 0 {
		may = members[:late]
	}
	of := map[string][]*row{}
	for _, r := range may {
		of[r.Owner] = append(of[r.Owner], r)
	}
	n = g.Allow(rate, t.now, limit)
	going, last := groups.RoundRobin(slices.Sorted(maps.Keys(of)), of, g.Last, n)
	for _, r := range going {
		if _, err := t.write(r, job.Released(&r.Job, g.Why(), t.now), job.CauseClear, ""); err != nil {
			return 0, err
		}
	}
	g.Went(rate, len(going), last, len(going) < len(may), len(may) < len(members), t.now)
	t.putGroup(g)
	return len(going), nil
}

// payLines gives up to limit lines the places that groups leave them, and returns how many: see
// [groups.Group].
func (t *tx) payLines(limit int) (n int) {
	owed := slices.SortedFunc(maps.Keys(t.shutting),
		func(a, b name) int { return cmp.Or(t.shutting[a].Compare(t.shutting[b]), a.compare(b)) })
	for _, at := range owed[:min(len(owed), max(0, limit))] {
		drop(t, t.shutting, at)
		n++
		_, walks := t.walks[at]
		places := t.placesOf(at)
		enough := t.set(at) != nil && t.set(at).Most <= places
		if places > 0 && (enough || t.behind(at) == 0 && !walks) {
			for _, of := range slices.SortedFunc(maps.Keys(t.groups), name.compare) {
				if g := t.groups[of]; of.tenant == at.tenant && g.Block.Line == at.name && g.Places > 0 {
					g.Places = -1
					set(t, t.groups, of, g)
				}
			}
			places = t.placesOf(at)
		}
		_, shut := t.shut[at]
		switch {
		case places >= 0:
			if t.limit(at) == nil {
				t.owesWalk(at, 0)
				t.eff.Owed = true
			}
			set(t, t.shut, at, places)
		case shut:
			drop(t, t.shut, at)
			if _, limited := t.limits[at]; !limited {
				drop(t, t.walks, at)
			}
		}
		t.changed(at.tenant, at.name)
	}
	return n
}

// placesOf returns how many places groups leave a line; negative: none closes it.
func (s *State) placesOf(at name) int {
	places := -1
	for of, g := range s.groups {
		if of.tenant == at.tenant && g.Block.Line == at.name && g.Places >= 0 && (places < 0 || g.Places < places) {
			places = g.Places
		}
	}
	return places
}

// Tests implements [store.Groups].
func (s *Store) Tests(ctx context.Context, duty string, limit int) (store.Tests, error) {
	return ask(ctx, s, func(t *tx) (store.Tests, error) {
		a := store.Tests{Now: t.now}
		var others []groups.Group
		for at, g := range t.groups {
			switch {
			case g.Duty() != duty, g.Next.IsZero(), len(t.members(at)) == 0 && g.Places < 0:
			case !g.Next.After(t.now):
				a.Due = append(a.Due, copyOfGroup(g))
			default:
				others = append(others, copyOfGroup(g))
			}
		}
		byNext := func(a, b groups.Group) int {
			return cmp.Or(a.Next.Compare(b.Next), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Key, b.Key))
		}
		slices.SortFunc(a.Due, byNext)
		slices.SortFunc(others, byNext)
		a.Due = a.Due[:min(limit, len(a.Due))]
		asked := map[string]bool{}
		for i := range a.Due {
			asked[a.Due[i].Block.Probe()] = true
		}
		for _, g := range others {
			switch {
			case asked[g.Block.Probe()]:
				a.Due = append(a.Due, g)
			case a.Next.IsZero():
				a.Next = g.Next
			}
		}
		return a, nil
	})
}

// Tested implements [store.Groups].
func (s *Store) Tested(ctx context.Context, f job.Fence, found []groups.Test) (store.Effects, error) {
	return s.do(ctx, func(t *tx) error {
		if !t.stands(f) {
			return job.Errorf(job.Fenced, "%s is not held any more", f.Duty)
		}
		for i := range found {
			g, there := t.groups[name{found[i].Tenant, found[i].Key}]
			if !there {
				continue
			}
			if g.Duty() != f.Duty {
				return job.Errorf(job.Fenced, "group %s is tested by the holder of %s", g.Key, g.Duty())
			}
			if g.Record(&found[i], t.rate(&g), t.now) {
				t.putGroup(g)
				for _, r := range t.members(name{g.Tenant, g.Key}) {
					t.eff.Soon(g.Fails(r.Deadline()))
				}
			}
		}
		return nil
	})
}

// Steer implements [store.Groups].
func (s *Store) Steer(ctx context.Context, steer store.Steer) ([]error, store.Effects, error) {
	return call(ctx, s, func(t *tx) ([]error, error) {
		if steer.Group != "" {
			at := name{steer.Tenant, steer.Group}
			g, there := t.groups[at]
			if !there || len(t.members(at)) == 0 && g.Places < 0 {
				return nil, store.NoGroup(steer.Group)
			}
			g.Act(steer.Want, steer.By, t.rate(&g), t.now)
			t.putGroup(g)
			return nil, nil
		}
		answers := make([]error, len(steer.Jobs))
		for i, id := range steer.Jobs {
			r := t.jobs[id]
			if r == nil || r.Tenant != steer.Tenant {
				answers[i] = store.NoJob(id)
				continue
			}
			c, err := groups.Change(&r.Job, steer.Want, steer.By, t.now)
			switch {
			case err != nil:
				answers[i] = err
			case steer.Want == groups.TryNow:
				g := t.groups[r.group()]
				g.Act(steer.Want, steer.By, t.rate(&g), t.now)
				t.putGroup(g)
			default:
				if _, err := t.write(r, c, job.CauseWish, steer.By); err != nil {
					return nil, err
				}
			}
		}
		return answers, nil
	})
}

// Groups implements [store.Groups].
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) ([]groups.Group, error) {
	return ask(ctx, s, func(t *tx) (all []groups.Group, err error) {
		for _, at := range slices.SortedFunc(maps.Keys(t.groups), name.compare) {
			if at.tenant != q.Tenant || at.name <= q.After || q.Key != "" && at.name != q.Key ||
				len(all) == store.Clamp(q.Limit, 100, 1000) {
				continue
			}
			g := copyOfGroup(t.groups[at])
			members := t.members(at)
			if g.Jobs = len(members); g.Jobs > 0 {
				g.Oldest = members[0].Since
			}
			if g.Places >= 0 {
				g.Behind = t.behind(name{at.tenant, g.Block.Line})
			}
			if g.Jobs+g.Behind > 0 && (q.Line == "" || g.Places >= 0 && g.Block.Line == q.Line) {
				all = append(all, g)
			}
		}
		return all, nil
	})
}

// trimGroups removes up to limit groups that have had no jobs for a while, and in whose line nobody
// waits.
func (t *tx) trimGroups(limit int) {
	for _, at := range slices.SortedFunc(maps.Keys(t.groups), name.compare) {
		g := t.groups[at]
		line := name{at.tenant, g.Block.Line}
		if len(t.members(at)) > 0 || g.Places >= 0 && t.behind(line) > 0 || !g.Idle(t.now) || limit == 0 {
			continue
		}
		limit--
		drop(t, t.groups, at)
		if g.Places >= 0 {
			t.oweLine(line)
		}
	}
}

// copyOfGroup returns a deep copy of a group.
func copyOfGroup(g groups.Group) groups.Group {
	g.Block.Params, g.Block.Policy.Stages = maps.Clone(g.Block.Params), slices.Clone(g.Block.Policy.Stages)
	return g
}
