package store

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// An Ask asks for moments of a key that is under a rate.
type Ask struct {
	Key string
	N   int // how many moments, 1 to MaxAsked
	// Late is how much later than [job.Lateness] the moment may be used, up to MaxLate in whole
	// microseconds; N is 1 then. The moment after it comes later by as much: so within any time of
	// the length of the rate no more are used than it allows.
	Late time.Duration
	// Held is a moment that was given earlier and not used, and N is 1; zero: there is none. It is
	// answered as long as it holds ([job.Moment.Holds]), and another one after that.
	Held job.Moment
}

// Reserved is the answer to an Ask: the first moment, and the others, each Every after the one
// before.
type Reserved struct {
	First time.Time
	Every time.Duration
	Now   time.Time  // when they were given; only a moment that was held may be before
	Limit *job.Limit // the rate that decides; nil: there is none, and First is Now
	Rate  job.ID     // identifies the rate as it was set last
}

// Moment returns the i-th moment, from 0.
func (r *Reserved) Moment(i int) time.Time { return r.First.Add(time.Duration(i) * r.Every) }

// Next returns the moment after those that answer a.
func (r *Reserved) Next(a *Ask) time.Time { return r.Moment(a.N).Add(a.Late) }

// Moments says when the next moment of a key under a rate is free.
type Moments struct {
	Key   string
	Limit job.Limit     // that decides
	In    time.Duration // from now; 0: at once
}

const (
	// MaxAsked is how many moments one Ask may be for, and how many Asks one call may have.
	MaxAsked = 1000
	// MaxLate is the longest Ask.Late.
	MaxLate = time.Hour
)

// CheckAsks returns what is wrong with the asks of a call.
func CheckAsks(asks []Ask) error {
	if len(asks) > MaxAsked {
		return job.Errorf(job.Invalid, "%d asks for moments are too many: keep to %d", len(asks), MaxAsked)
	}
	for _, a := range asks {
		if a.N < 1 || a.N > MaxAsked || a.Held.Key != "" && a.N != 1 {
			return job.Errorf(job.Invalid,
				"%d moments of %s were asked for: give 1 to %d, and 1 for one that is held", a.N, a.Key, MaxAsked)
		}
		if a.Late != 0 && a.N != 1 || !isLate(a.Late) || !isLate(time.Duration(a.Held.Late)) {
			return job.Errorf(job.Invalid,
				"%d moments of %s were to be used up to %v later: give up to %v in whole microseconds, for one",
				a.N, a.Key, max(a.Late, time.Duration(a.Held.Late)), MaxLate)
		}
	}
	return nil
}

// isLate reports whether an Ask.Late is within its bounds.
func isLate(late time.Duration) bool {
	return late >= 0 && late <= MaxLate && late%time.Microsecond == 0
}
