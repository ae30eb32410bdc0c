package store

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// An Ask is for moments of a key.
type Ask struct {
	Key string
	N   int // 1 to MostAsked
	// Late is how much later than [job.Lateness] the moment may be used, up to MostLate in whole
	// microseconds; N is 1 then. The next one comes so much later: of Most + 1 moments that follow
	// each other, in this call or in others, the last is still Per after the latest use of the
	// first, whatever room those have that lie between, and its own is behind it.
	Late time.Duration
	// Held, if it is of the key, is asked for again, and N is 1. It is answered unless it has
	// passed by more than [job.Lateness] and what it has beyond that, or the rate has been set anew
	// since: another one takes its place then.
	Held job.Moment
}

// Reserved are the moments that were given: the first, and each Every after the one before.
type Reserved struct {
	First time.Time
	Every time.Duration
	Now   time.Time  // when they were given; First is not before it, but for one that was held
	Limit *job.Limit // the rate that decides; nil: there is none, and First is Now
	Rate  job.ID     // which one that is: it is another one whenever it is set, to whatever
}

// Moment returns the i-th moment, from 0.
func (r *Reserved) Moment(i int) time.Time { return r.First.Add(time.Duration(i) * r.Every) }

// Next returns the moment after those that a was given.
func (r *Reserved) Next(a *Ask) time.Time { return r.Moment(a.N).Add(a.Late) }

// Moments is when the next moment of a key under a rate is free.
type Moments struct {
	Key   string
	Limit job.Limit     // that decides
	In    time.Duration // from now; 0: at once
}

const (
	// MostAsked is how many moments are given at once, and how many keys are asked for in one call.
	MostAsked = 1000
	// Near is how far off a moment may be that is waited for in a slot. What is farther is asked
	// for again when it is near.
	Near = time.Second
	// MostLate is how much later than usual a moment may be used at most.
	MostLate = time.Hour
)

// Askable says what is wrong with a call of Reserve.
func Askable(asks []Ask) error {
	if len(asks) > MostAsked {
		return job.Errorf(job.Invalid, "%d asks for moments are too many: keep to %d", len(asks), MostAsked)
	}
	for _, a := range asks {
		if a.N < 1 || a.N > MostAsked || a.Held.Key != "" && a.N != 1 {
			return job.Errorf(job.Invalid,
				"%d moments of %s were asked for: give 1 to %d, and 1 for one that is held", a.N, a.Key, MostAsked)
		}
		if a.Late != 0 && a.N != 1 || !roomy(a.Late) || !roomy(time.Duration(a.Held.Late)) {
			return job.Errorf(job.Invalid,
				"%d moments of %s were to be used up to %v later: give up to %v in whole microseconds, for one",
				a.N, a.Key, max(a.Late, time.Duration(a.Held.Late)), MostLate)
		}
	}
	return nil
}

func roomy(late time.Duration) bool {
	return late >= 0 && late <= MostLate && late%time.Microsecond == 0
}

// Holds reports whether a moment that is held stands at the time now, under a rate.
func (a *Ask) Holds(rate job.ID, now time.Time) bool {
	return a.Held.Key == a.Key && a.Held.Rate == rate && !rate.IsZero() &&
		!now.After(a.Held.At.Add(job.Lateness+time.Duration(a.Held.Late)))
}

// Free returns the first moment that is free at the time now, where next is the one after those
// that were given. Under a rate that was set anew since, those that are not near are not used any
// more, and no other one comes close to those that are.
func Free(next, now time.Time, anew bool, every time.Duration) time.Time {
	if last := now.Add(Near + every); anew && next.After(last) {
		next = last
	}
	if next.Before(now) {
		next = now
	}
	return next
}
