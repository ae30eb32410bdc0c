package store

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// An Ask asks for moments of a key that has a rate.
type Ask struct {
	Key string
	N   int // how many moments, 1 to MaxAsked
	// Late is how much later than [job.Lateness] the moment may be used, up to MaxLate and in whole
	// microseconds. N must be 1 then. The next moment comes later by the same time. So in any
	// period of the rate no more moments are used than it allows.
	Late time.Duration
	// Held is a moment that was given earlier and not used; zero: there is none. N must be 1 then.
	// It is returned as long as it holds ([job.Moment.Holds]); after that another one is.
	Held job.Moment
}

// Reserved is the answer to an Ask: the first moment, and how far apart the others are.
type Reserved struct {
	// First is the first moment; the others follow it, Every apart.
	First time.Time
	Every time.Duration
	Now   time.Time  // when they were given; only a moment that was held can be earlier
	Limit *job.Limit // the rate that holds; nil: there is none, and First is Now
	Rate  job.ID     // changes each time the rate is set
}

// Moment returns moment i, counted from 0.
func (r *Reserved) Moment(i int) time.Time { return r.First.Add(time.Duration(i) * r.Every) }

// Next returns the moment after those of ask a.
func (r *Reserved) Next(a *Ask) time.Time { return r.Moment(a.N).Add(a.Late) }

// Moments says when the next moment of a key with a rate is free.
type Moments struct {
	Key    string
	Limit  job.Limit     // the rate that holds
	FreeIn time.Duration // how long until the next moment is free; 0: it is free now
}

const (
	// MaxAsked is the most moments of one Ask, and the most Asks of one call.
	MaxAsked = 1000
	// MaxLate is the longest [Ask].Late.
	MaxLate = time.Hour
)

// CheckAsks returns an error of kind [job.Invalid] if the asks of a call are wrong, or nil.
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
				"%d moments of %s that may be used up to %v late: ask for one, up to %v late, in whole microseconds",
				a.N, a.Key, max(a.Late, time.Duration(a.Held.Late)), MaxLate)
		}
	}
	return nil
}

// isLate reports whether an Ask.Late is within its bounds.
func isLate(late time.Duration) bool {
	return late >= 0 && late <= MaxLate && late%time.Microsecond == 0
}

// A Reserver gives moments, as [Store] does.
type Reserver interface {
	Reserve(ctx context.Context, tenant string, asks []Ask) ([]Reserved, error)
}

// Await waits for a moment of a key. It returns at once if the key has no rate. It calls far, once,
// if the moment is far off.
func Await(ctx context.Context, r Reserver, tenant, key string, far func(at time.Time)) error {
	ask := Ask{Key: key, N: 1}
	for {
		all, err := r.Reserve(ctx, tenant, []Ask{ask})
		if err != nil {
			return err
		}
		given := all[0]
		wait := given.First.Sub(given.Now)
		near := wait <= job.MaxSlotWait
		if !near && ask.Held.At.IsZero() {
			far(given.First)
		}
		if wait > 0 {
			select {
			case <-time.After(min(wait, job.MaxSlotWait)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if near {
			return nil
		}
		ask.Held = job.Moment{Key: key, At: given.First, Rate: given.Rate}
	}
}
