package groups

import (
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Bounds of [Group.Pace], and how often it grows by one.
const (
	slowest  = -6
	fastest  = 20
	paceStep = time.Second
)

// Rate returns the rate at which the jobs of a group go. limit is the limit that is set for
// [Group.RateKey] or its family; nil: none is, and 10 go within a second.
func Rate(limit *job.Limit) *job.Limit {
	if limit != nil {
		return limit
	}
	return &job.Limit{Key: job.RateReleases + "/*", Most: 10, Per: job.Duration(time.Second)}
}

// RateKey returns the key of the limit that is the rate of the group.
func (g *Group) RateKey() string { return job.RateReleases + "/" + g.Key }

// first returns when the first job goes of a group that is clear now: at once, but not before
// g.Free, and that not later than one gap from now.
func (g *Group) first(rate *job.Limit, now time.Time) time.Time {
	switch next := now.Add(g.gap(rate)); {
	case g.Free.After(next):
		return next
	case g.Free.After(now):
		return g.Free
	}
	return now
}

// FreeIn returns in how long the rate lets the next job go, whatever else it waits for; 0: at once.
func (g *Group) FreeIn(rate *job.Limit, now time.Time) time.Duration {
	if !g.At.IsZero() {
		return max(0, g.At.Sub(now))
	}
	cleared := *g
	cleared.Pace = min(g.Pace, 0)
	return cleared.first(rate, now).Sub(now)
}

// openLine gives the line as many places as jobs may go within a second; at the fastest pace it
// opens the line wholly.
func (g *Group) openLine(rate *job.Limit) {
	if g.Places >= 0 && g.May < 0 {
		if g.Places = int((paceStep + g.gap(rate) - 1) / g.gap(rate)); g.Places >= job.MaxTurns || g.Pace == fastest {
			g.Places = -1
		}
	}
}

// gap is the time between two jobs that go.
func (g *Group) gap(rate *job.Limit) time.Duration {
	if g.Pace < 0 {
		return rate.Every() << -g.Pace
	}
	return max(time.Microsecond, (rate.Every() >> g.Pace).Truncate(time.Microsecond))
}

// Allow returns how many jobs may go at the time now, at most limit. It raises the pace where that
// is due. Jobs that could have gone earlier do not all go at once: what was missed is lost.
func (g *Group) Allow(rate *job.Limit, now time.Time, limit int) int {
	if g.Clear.IsZero() {
		return 0
	}
	top := 0
	if g.Block.Line != "" {
		top = fastest
	}
	for g.Pace < top && !now.Before(g.PaceChanged.Add(paceStep)) {
		g.Pace, g.PaceChanged = g.Pace+1, g.PaceChanged.Add(paceStep)
	}
	g.openLine(rate)
	if g.At.IsZero() || now.Before(g.At) {
		return 0
	}
	if missed := now.Add(-job.Lateness); g.At.Before(missed) {
		g.At = missed
	}
	n := 1 + int(now.Sub(g.At)/g.gap(rate))
	if g.May >= 0 {
		n = min(n, g.May)
	}
	return min(n, limit)
}

// Went writes down that n jobs went after [Group.Allow], and the owner of the last one. more says
// whether more jobs may go, late whether jobs are there that joined after the test began: these
// need a new test.
func (g *Group) Went(rate *job.Limit, n int, last string, more, late bool, now time.Time) {
	if g.Clear.IsZero() {
		return
	}
	if n > 0 {
		g.Last, g.At = last, g.At.Add(time.Duration(n)*g.gap(rate))
		g.Free = g.At
		if g.May > 0 {
			g.May -= n
		}
	}
	switch {
	case more && g.May != 0:
	case more, late:
		g.testAgain(now)
	default: // all jobs of the group went: those in its line may go, too
		g.At, g.May = time.Time{}, -1
		g.openLine(rate)
	}
}

// Rerate writes down that the rate may have changed: the next job goes at most one gap from now. It
// reports whether that is earlier than before.
func (g *Group) Rerate(rate *job.Limit, now time.Time) bool {
	next := now.Add(g.gap(rate))
	if !g.At.After(next) {
		return false
	}
	g.At = next
	return true
}

// Wake returns when there is something to do for the group other than a test; zero: not before a
// job joins it or a test is over.
func (g *Group) Wake() time.Time {
	switch wake := g.At; {
	case !g.GivenUp.IsZero():
		return g.GivenUp
	case g.Clear.IsZero():
		return time.Time{}
	case g.Places >= 0 && g.May < 0 && (wake.IsZero() || g.PaceChanged.Add(paceStep).Before(wake)):
		return g.PaceChanged.Add(paceStep)
	default:
		return wake
	}
}

// RoundRobin returns the n jobs that go next, and the owner of the last of them. Owners take turns
// by name, from the one after last on. jobs has the jobs of each owner, the oldest first; owners
// are sorted.
func RoundRobin[J any](owners []string, jobs map[string][]J, last string, n int) (next []J, owner string) {
	owner = last
	first, _ := slices.BinarySearch(owners, last+"\x00")
	for round := 0; len(next) < n; round++ {
		before := len(next)
		for i := range owners {
			o := owners[(first+i)%len(owners)]
			if list := jobs[o]; round < len(list) && len(next) < n {
				next, owner = append(next, list[round]), o
			}
		}
		if len(next) == before {
			break
		}
	}
	return next, owner
}
