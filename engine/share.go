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
	// shareWait is how long jobs are left to other processes before they are looked at again: their
	// share, or jobs that they have locked. Each further wait is twice as long.
	shareWait = 5 * time.Millisecond
	// maxLooks is how often a share is left to others: 155 ms in all. Jobs that are still there
	// belong to a process that is slow or has died, so they go to any free slot. After such a wait
	// in vain, fewLooks are enough for the next vainPeriod: 15 ms. That ends when others take their
	// jobs in time again.
	maxLooks, fewLooks = 5, 2
	vainPeriod         = 5 * time.Second
	// plentiful is how long an answer that there is work for all is believed. Jobs that end faster
	// need no shares.
	plentiful = 50 * time.Millisecond
)

// sharing keeps a process from taking all of a few ready jobs while others have free slots too.
// Jobs may be long: they would wait here while the others have nothing to do. A process that is
// alone does not ask. The loop of claims uses it.
type sharing struct {
	s     *session
	asked time.Time        // when there was work for all
	over  <-chan time.Time // when to look at what was left to others; nil: nothing was left
	// again is how often that was done in a row. Jobs that get ready later do not reset it: no job
	// waits longer.
	again int
	vain  time.Time // when a wait for others was in vain
	knows bool      // the claim under way asks for jobs that were seen to be ready

	passed passedOver
}

// cut lowers the slots of a claim to this session's share of the ready jobs. It leaves out lanes
// without ready jobs. Asking again does not raise the share.
func (h *sharing) cut(ctx context.Context, c store.Claim) (map[job.Lane]int, error) {
	h.knows = false
	if h.again == maxLooks {
		h.vain = time.Now()
	}
	waited := h.again == maxLooks || h.again == fewLooks && time.Since(h.vain) < vainPeriod
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
		h.over = time.After(shareWait << h.again)
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

// got compares what a claim asked for with what it got. If it got less than was ready, others have
// taken or locked the rest. If no process looked before, one looks when the answer that there is
// work for all is too old.
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
		h.passed.look(shareWait, h.s.e.every())
	default:
		h.passed.look(max(shareWait, plentiful-time.Since(h.asked)), h.s.e.every())
	}
}

// passedOver makes the loop look again for ready jobs that a claim may have passed over. A claim
// skips jobs that others have locked. They may let go of some without a word: a claim locks the
// first jobs of several queues and kinds, and takes the best of them.
type passedOver struct {
	over  <-chan time.Time // when to look; nil: nothing was passed over
	again int              // how often that was done in a row
}

// look makes the loop look after some time. Each further time in a row is twice as long, up to
// most.
func (p *passedOver) look(after, most time.Duration) {
	if p.over == nil {
		p.over = time.After(min(after<<min(p.again, 20), most))
	}
}

// none says that a claim passed over nothing. An earlier one may have, in another lane.
func (p *passedOver) none() {
	if p.over == nil {
		p.again = 0
	}
}

// waited is told that over has come.
func (p *passedOver) waited() { p.over, p.again = nil, p.again+1 }

// share returns how many ready jobs of a lane a session may take. If there is enough for the slots
// of all sessions, it may take any number.
//
// Otherwise the jobs are dealt so that all sessions use the same part of their slots, as water
// finds its level. A session above the level takes none. The others take whole jobs up to it. The
// rest from rounding goes, one each, to the sessions that come first once nobody lacks a whole job.
// So the shares stay the same while they are taken. Jobs that run alone are not dealt: no session
// tells of that slot.
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
