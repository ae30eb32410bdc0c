package store

import (
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// ReadyIn is how many jobs of a lane are ready in a queue and kind, for one machine or for none.
type ReadyIn struct {
	QueueKind job.QueueKind
	Machine   string
	Lane      job.Lane
	Jobs      int
}

// Claimant is a live session that was not told to drain or to stop.
type Claimant struct {
	ID      job.ID
	Process Process
	Held    map[job.Lane]int // how many jobs of each lane it holds
}

// Demands makes the answer of [Reader.Demand].
func Demands(c Claim, ready []ReadyIn, claimants []Claimant) map[job.Lane]Demand {
	all := map[job.Lane]Demand{}
	for lane, n := range c.Slots {
		if n > 0 {
			all[lane] = demand(lane, c, ready, claimants)
		}
	}
	return all
}

func demand(lane job.Lane, c Claim, ready []ReadyIn, claimants []Claimant) (d Demand) {
	for _, r := range ready {
		if r.Lane == lane {
			d.Ready += r.Jobs
		}
	}
	for _, s := range claimants {
		p := &s.Process
		serves := slices.ContainsFunc(ready,
			func(r ReadyIn) bool { return r.Lane == lane && r.Jobs > 0 && p.Serves(r.QueueKind, r.Machine) })
		tenants := len(c.Tenants) == 0 || slices.ContainsFunc(c.Tenants, p.ServesTenant)
		if serves && tenants && p.Slots[lane] > 0 {
			d.Sessions = append(d.Sessions, Serving{ID: s.ID, Slots: p.Slots[lane], Held: s.Held[lane]})
		}
	}
	return d
}
