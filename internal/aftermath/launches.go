package aftermath

import (
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Launches returns the intents to launch a program, by its job's history, which the change to RUNNING follows: who recorded them
// looked once more whether their moment had passed, and launched, whenever the program began. One whose process died after it was
// recorded may have missed its moment, and was not launched.
func Launches(history []store.Event) (intents []job.Event) {
	var intent job.Event
	for _, e := range history {
		if e.Sub > 0 {
			continue
		}
		if e.State == job.Running && intent.Message == job.Launching {
			intents = append(intents, intent)
		}
		intent = e.Event
	}
	return intents
}

// TooMany returns the first of some events that a rate would not have let go, since no time of its length holds more than it allows; and
// after what time it came so many others; nil: there is none.
func TooMany(rate *job.Limit, events []job.Event) (*job.Event, time.Duration) {
	events = slices.SortedFunc(slices.Values(events), func(a, b job.Event) int { return a.At.Compare(b.At) })
	for i := rate.Most; i < len(events); i++ {
		if after := events[i].At.Sub(events[i-rate.Most].At); after < time.Duration(rate.Per) {
			return &events[i], after
		}
	}
	return nil, 0
}
