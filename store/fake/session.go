package fake

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Sessions implements [store.Reader].
func (s *Store) Sessions(ctx context.Context) ([]store.SessionInfo, error) {
	return ask(ctx, s, func(t *tx) (all []store.SessionInfo, err error) {
		for _, i := range t.sessions {
			if !t.kept(i) {
				continue
			}
			i.Process, i.Used, i.Live = processOf(i.Process), maps.Clone(i.Used), t.alive(i.ID)
			if held := t.held(i.ID); len(held) > 0 {
				r := slices.MinFunc(held,
					func(a, b *row) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.seq, b.seq)) })
				i.Held, i.Oldest = len(held), store.HeldJob{Job: r.ID, Tenant: r.Tenant, Since: r.Since}
			}
			all = append(all, i)
		}
		slices.SortFunc(all, func(a, b session) int {
			return cmp.Or(b.Started.Compare(a.Started),
				bytes.Compare(b.ID[:], a.ID[:]))
		})
		return all, nil
	})
}

// kept reports whether a session is still known: for a while after its end, and longer where it is
// the last of its machine.
func (t *tx) kept(i session) bool {
	switch since := t.now.Sub(i.Ended); {
	case i.Ended.IsZero() || since < store.SessionKept:
		return true
	case since >= store.MachineKept || i.Process.Machine == "":
		return false
	}
	for _, o := range t.sessions {
		later := o.Ended.IsZero() || cmp.Or(o.Ended.Compare(i.Ended), bytes.Compare(o.ID[:], i.ID[:])) > 0
		if o.Process.Machine == i.Process.Machine && later {
			return false
		}
	}
	return true
}

// claimants returns the sessions that may claim, in order.
func (t *tx) claimants() (all []session) {
	for _, i := range t.sessions {
		if t.alive(i.ID) && i.Mode == store.Work {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b session) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all
}

// Unattended implements [store.Reader].
func (s *Store) Unattended(ctx context.Context) (store.Unattended, error) {
	return ask(ctx, s, func(t *tx) (store.Unattended, error) {
		return store.Unattended{Unserved: t.unserved(), Unwatched: t.unwatched()}, nil
	})
}

func (t *tx) unserved() (found []store.Unserved) {
	live := t.claimants()
	served := func(r *row) bool {
		return slices.ContainsFunc(live, func(i session) bool {
			return i.Process.Serves(job.QueueKind{Queue: r.Queue, Kind: r.Kind}, r.Machine) &&
				i.Process.ServesTenant(r.Tenant)
		})
	}
	type line struct {
		job.QueueKind
		machine string
	}
	seen := map[line]int{}
	for _, at := range t.spots(job.Ready) { // the lanes of a queue and kind stand together
		l := line{job.QueueKind{Queue: at.queue, Kind: at.kind}, at.machine}
		for _, r := range t.at[at] {
			if seen[l]++; seen[l] > store.MostUnserved || len(seen) > store.MostUnserved {
				break
			}
			if served(r) {
				continue
			}
			if n := len(found); n == 0 || found[n-1].QueueKind != l.QueueKind || found[n-1].Machine != l.machine {
				found = append(found, store.Unserved{QueueKind: l.QueueKind, Machine: l.machine, Since: r.Since})
			}
			u := &found[len(found)-1]
			u.Jobs++
			if r.Since.Before(u.Since) {
				u.Since = r.Since
			}
		}
	}
	return found
}

func (t *tx) unwatched() (found []store.Unwatched) {
	watches := slices.DeleteFunc(t.spots(job.Monitor), func(at spot) bool { return at.watch == "" })
	for _, at := range watches[:min(len(watches), store.MostUnserved)] {
		if !t.alive(t.duties[job.WatchDuty(at.watch)].holder) {
			found = append(found, store.Unwatched{Watch: at.watch, Jobs: min(len(t.at[at]), store.MostUnserved)})
		}
	}
	return found
}

// Demand implements [store.Reader].
func (s *Store) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	return ask(ctx, s, func(t *tx) (map[job.Lane]store.Demand, error) {
		var claimants []store.Claimant
		slots := map[job.Lane]int{}
		for _, i := range t.claimants() {
			a := store.Claimant{ID: i.ID, Process: i.Process, Held: map[job.Lane]int{}}
			for _, r := range t.held(i.ID) {
				a.Held[r.Lane]++
			}
			for lane, n := range i.Process.Slots {
				slots[lane] += n
			}
			claimants = append(claimants, a)
		}
		var ready []store.ReadyIn
		for _, lane := range job.Lanes {
			for _, at := range spotsOf(&c, lane) {
				l, most := store.ReadyIn{
					QueueKind: job.QueueKind{Queue: at.queue, Kind: at.kind}, Machine: at.machine,
					Lane: lane,
				}, max(1, slots[lane])
				for _, r := range t.at[at] {
					if l.Jobs < most && ofTenant(c.Tenants, r) {
						l.Jobs++
					}
				}
				ready = append(ready, l)
			}
		}
		return store.Demands(c, ready, claimants), nil
	})
}
