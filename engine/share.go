package engine

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

const (
	// patience is for how long jobs are left to the processes whose share they are, or that have locked them, before they are
	// looked at again. What has not been taken after that is left by one that is slow, or has died: it goes to whoever has a
	// slot.
	patience = 5 * time.Millisecond
	// plentiful is for how long it is believed that there is work for all. Jobs that end faster than that need no shares.
	plentiful = 50 * time.Millisecond
)

// sharing keeps a process from taking all of the few jobs that are ready when others have free slots too: jobs may be long,
// and would wait for each other here while others do nothing. And it has jobs looked at again that a claim did not get: one
// passes over what others have locked, and they may let go of some and tell nobody. Alone, a process does not ask. It is used
// by the loop that claims.
type sharing struct {
	s     *session
	asked time.Time        // when there was found to be work for all
	trust bool             // that is believed in this look
	left  bool             // this look left jobs to others
	over  <-chan time.Time // when to look after what was left or passed over; nil: nothing was
	again int              // how often that was done in a row
}

// cut begins a look: it lowers the slots for a claim to what is this session's share of the ready jobs, and leaves out lanes
// without any. What a claim may take does not grow by asking again.
func (h *sharing) cut(ctx context.Context, c store.Claim) (map[job.Lane]int, error) {
	h.left, h.trust = false, time.Since(h.asked) < plentiful
	if !h.shared(c) || h.trust {
		return c.Slots, nil
	}
	demands, err := retry(ctx, h.s.e, "demand", func() (map[job.Lane]store.Demand, error) { return h.s.e.cfg.Store.Demand(ctx, c) })
	if err != nil {
		return nil, err
	}
	slots, short := maps.Clone(c.Slots), false
	for lane, d := range demands {
		n := share(d, h.s.id)
		if h.again >= 2 {
			n = d.Ready
		}
		if n < slots[lane] {
			slots[lane], short, h.left = n, true, h.left || n < d.Ready
		}
	}
	if !short {
		h.asked = time.Now()
	}
	maps.DeleteFunc(slots, func(_ job.Lane, n int) bool { return n <= 0 })
	return slots, nil
}

// shared reports whether others may claim the same jobs.
func (h *sharing) shared(c store.Claim) bool { return h.s.shares.Load() && len(c.Jobs) == 0 }

// got ends a look, by what a claim asked for and got. Less than was there to be had: others have taken it, or hold it
// locked. Where it was only believed to be there, that ends when the belief does.
func (h *sharing) got(c store.Claim, got map[job.Lane]int) {
	passed := false
	for lane, n := range c.Slots {
		passed = passed || got[lane] < n
	}
	switch {
	case h.over != nil: // it is looked after anyway
	case !h.shared(c) || !h.left && !passed:
		h.again = 0
	case h.trust:
		h.over = time.After(plentiful - time.Since(h.asked))
	default:
		h.asked = time.Time{}
		h.over = time.After(min(patience<<min(max(0, h.again-1), 20), h.s.e.every()))
	}
}

// waited is told that over has come.
func (h *sharing) waited() { h.over, h.again = nil, h.again+1 }

// share returns how many ready jobs of a lane a session may take. If there is enough for the slots of all, it may take any
// number. Otherwise the jobs are dealt so that the slots of all are in use to the same part, as water finds its level: a
// session that is above the level takes none, the others whole jobs up to it. What is left over by rounding goes, one each,
// to whoever comes once nobody lacks whole ones. So the same shares come out while they are taken. Jobs that run alone are not
// dealt: no session tells of that slot.
func share(d store.Demand, me job.ID) int {
	if d.Ready == 0 {
		return 0
	}
	sessions := slices.SortedFunc(slices.Values(d.Sessions), func(a, b store.Serving) int { return cmp.Compare(a.Held*b.Slots, b.Held*a.Slots) })
	// The level is jobs/slots of those that are below it.
	jobs, slots, below := d.Ready, 0, 0
	for _, s := range sessions {
		if slots > 0 && s.Held*slots >= jobs*s.Slots {
			break
		}
		jobs, slots, below = jobs+s.Held, slots+s.Slots, below+1
	}
	if jobs >= slots {
		return math.MaxInt
	}
	mine, others, among := 0, 0, false // how many are lacking
	for _, s := range sessions[:below] {
		lack := max(0, jobs*s.Slots/slots-s.Held)
		if s.ID == me {
			mine, among = lack, true
		} else {
			others += lack
		}
	}
	if among && others == 0 && mine < d.Ready {
		mine++
	}
	return mine
}
