package checks

import (
	"iter"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Span is a time in which a job did what a rate is of: no earlier than From, and no later than
// To.
type Span struct {
	Job      job.ID
	From, To time.Time
}

// Launches returns the intents to launch a program, by its job's history, which the change to
// RUNNING follows: who recorded them looked once more whether their moment had passed, and
// launched, whenever the program began. One whose process died after it was recorded may have
// missed its moment, and was not launched.
func Launches(history []store.Event) (all []Span) {
	for e, next := range changes(history) {
		if e.Message == job.Launching && next.State == job.Running {
			all = append(all, Span{e.Job, e.At, e.At})
		}
	}
	return all
}

// Starts returns when a job began with an attempt: between the claim of it, and the change with
// which the first step came to its end. One that was sent to wait for its moment, or whose process
// died, may not have begun.
func Starts(history []store.Event) (all []Span) {
	for e, next := range changes(history) {
		if e.Cause == job.CauseClaim && e.State == job.ProcessingInputs && next.State == job.StagingInputs {
			all = append(all, Span{e.Job, e.At, next.At})
		}
	}
	return all
}

// changes returns each change of a history, with the one after it.
func changes(history []store.Event) iter.Seq2[*job.Event, *job.Event] {
	return func(yield func(e, next *job.Event) bool) {
		var e *job.Event
		for i := range history {
			next := &history[i].Event
			if next.Sub > 0 {
				continue
			}
			if e != nil && !yield(e, next) {
				return
			}
			e = next
		}
	}
}

// TooMany returns the first of some spans that a rate would not have let go, since no time of its
// length holds more than it allows; and within which time it lies with so many others; nil: there
// is none.
func TooMany(rate *job.Limit, spans []Span) (first *Span, within time.Duration) {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return a.To.Compare(b.To) })
	for i := range spans {
		s := &spans[i]
		begin := s.To.Add(-time.Duration(rate.Per))
		if !s.From.After(begin) {
			continue
		}
		from := s.From
		for n, j := 1, i-1; j >= 0 && spans[j].To.After(begin); j-- {
			if !spans[j].From.After(begin) {
				continue
			}
			if from = earlier(from, spans[j].From); n == rate.Most {
				return s, s.To.Sub(from)
			}
			n++
		}
	}
	return nil, 0
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
