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
	// patience is for how long jobs are left to the processes whose share they are, or that have
	// locked them, before they are looked at again; each further time for twice as long.
	patience = 5 * time.Millisecond
	// looks is how often that is done for a share: within 155 ms. What is left then is left by one
	// that is slow, or has died: it goes to whoever has a slot. So that nobody is waited for in
	// vain again and again, fewLooks do for the time resigned after that, within 15 ms, or until
	// others have come in time.
	looks, fewLooks = 5, 2
	resigned        = 5 * time.Second
	// plentiful is for how long it is believed that there is work for all. Jobs that end faster
	// than that need no shares.
	plentiful = 50 * time.Millisecond
)

// sharing keeps a process from taking all of the few jobs that are ready when others have free
// slots too: jobs may be long, and would wait for each other here while others do nothing. Alone, a
// process does not ask. It is used by the loop that claims.
type sharing struct {
	s     *session
	asked time.Time        // when there was found to be work for all
	over  <-chan time.Time // when to look after what was left to others; nil: nothing was left
	// how often that was done in a row. What is ready later does not begin anew: no job waits for
	// longer
	again int
	vain  time.Time // when others had been waited for in vain
	knows bool      // the slots for the claim under way are for jobs that were seen to be ready

	passed passed
}

// cut lowers the slots for a claim to what is this session's share of the ready jobs, and leaves
// out lanes without any. What a claim may take does not grow by asking again.
func (h *sharing) cut(ctx context.Context, c store.Claim) (map[job.Lane]int, error) {
	h.knows = false
	if h.again == looks {
		h.vain = time.Now()
	}
	waited := h.again == looks || h.again == fewLooks && time.Since(h.vain) < resigned
	if waited || !h.s.shares.Load() || len(c.Jobs) > 0 || time.Since(h.asked) < plentiful {
		h.again = 0
		return c.Slots, nil
	}
	demands, err := retry(ctx, h.s.e, "demand",
		func() (map[job.Lane]store.Demand, error) { return h.s.e.cfg.Store.Demand(ctx, c) })
	if err != nil {
		return nil, err
	}
	h.knows = true
	slots, enough, few, left := maps.Clone(c.Slots), false, false, false
	for lane, d := range demands {
		if n := share(d, h.s.id); n < slots[lane] {
			slots[lane], few, left = n, few || d.Ready > 0, left || n < d.Ready
		} else {
			enough = true
		}
	}
	switch {
	case enough && !few:
		h.asked, h.again = time.Now(), 0
	case h.over != nil: // something was left before, maybe in a lane that was not looked at now
	case left:
		h.over = time.After(patience << h.again)
	default:
		if h.again > 0 {
			h.vain = time.Time{}
		}
		h.again = 0
	}
	maps.DeleteFunc(slots, func(_ job.Lane, n int) bool { return n <= 0 })
	return slots, nil
}

// waited is told that over has come.
func (h *sharing) waited() { h.over, h.again = nil, h.again+1 }

// got notes what a claim asked for and got. Less than was seen to be ready: others have taken it,
// or keep it locked. Where nobody looked, that is to be seen when it is not believed any more that
// there is work for all.
func (h *sharing) got(c store.Claim, got map[job.Lane]int) {
	less := false
	for lane, n := range c.Slots {
		less = less || got[lane] < n
	}
	switch {
	case !less || !h.s.shares.Load() || len(c.Jobs) > 0:
		h.passed.none()
	case h.knows:
		h.asked = time.Time{}
		h.passed.look(patience, h.s.e.every())
	default:
		h.passed.look(max(patience, plentiful-time.Since(h.asked)), h.s.e.every())
	}
}

// passed has ready jobs looked at again that a claim may have passed over. It does so with those
// that others have locked, and they may let go of some and tell nobody: a claim locks the heads of
// several lines, and takes the best of them.
type passed struct {
	over  <-chan time.Time // when to look; nil: nothing was passed over
	again int              // how often that was done in a row
}

// look has them looked at after some time, and after twice that when it is not the first time, but
// after most at the latest.
func (p *passed) look(after, most time.Duration) {
	if p.over == nil {
		p.over = time.After(min(after<<min(p.again, 20), most))
	}
}

// none is told of a claim that passed over nothing. One under way before it may have, in another
// lane.
func (p *passed) none() {
	if p.over == nil {
		p.again = 0
	}
}

// waited is told that over has come.
func (p *passed) waited() { p.over, p.again = nil, p.again+1 }

// share returns how many ready jobs of a lane a session may take. If there is enough for the slots
// of all, it may take any number. Otherwise the jobs are dealt so that the slots of all are in use
// to the same part, as water finds its level: a session that is above the level takes none, the
// others whole jobs up to it. What is left over by rounding goes, one each, to whoever comes once
// nobody lacks whole ones. So the same shares come out while they are taken. Jobs that run alone
// are not dealt: no session tells of that slot.
func share(d store.Demand, me job.ID) int {
	if d.Ready == 0 {
		return 0
	}
	sessions := slices.SortedFunc(slices.Values(d.Sessions),
		func(a, b store.Serving) int { return cmp.Compare(a.Held*b.Slots, b.Held*a.Slots) })
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
