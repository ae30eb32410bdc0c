package sim

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// Rates say how often programs begin and are launched, in a world that has some. They are what they
// are from its beginning, and are set anew from time to time: whoever waits for a moment is given
// another one then.
type rates struct {
	w                *world
	starts, launches job.Limit
}

// newRates returns those of a world: one of two has some; nil: it has none. They are drawn apart
// from all else.
func newRates(w *world) *rates {
	r := w.dice("rates", 0)
	if oneIn(r, 2) {
		return nil
	}
	rate := func(what string) job.Limit {
		return job.Limit{
			Key: job.RateOf(what, job.SystemLocal), Most: 1 + r.IntN(3),
			Per: job.Duration(between(r, time.Second, 5*time.Second).Truncate(time.Millisecond)),
		}
	}
	all := &rates{w: w, starts: rate(job.RateStarts), launches: rate(job.RateLaunches)}
	for _, l := range []job.Limit{all.starts, all.launches} {
		if _, err := store.SetLimit(context.Background(), w.store, tenant, l); err != nil {
			panic(err) // it is as it must be
		}
	}
	return all
}

// act sets rates anew as long as the storm lasts.
func (a *rates) act() {
	for n := 1; a != nil; n++ {
		r := a.w.dice("anew", n)
		time.Sleep(between(r, time.Second, time.Minute))
		if time.Since(a.w.began) > a.w.length {
			return
		}
		l := []job.Limit{a.starts, a.launches}[r.IntN(2)]
		_ = a.w.people.ask(r, "rate", func(ctx context.Context, s *service.Service) error { return s.SetLimit(ctx, l) })
	}
}

// check: no time of the length of a rate holds more than that lets go.
func (a *rates) check() {
	if a == nil {
		return
	}
	var starts, launches []checks.Span
	for _, p := range a.w.people.promised {
		history := a.w.history(p.id)
		starts, launches = append(starts, checks.Starts(history)...), append(launches, checks.Launches(history)...)
	}
	if s, within := checks.TooMany(&a.starts, starts); s != nil {
		a.w.breaks(s.Job, "job %s began by %v, and with it %d others within %v, %s", s.Job, s.To.Sub(a.w.zero),
			a.starts.Most, within, a.starts.Terms())
	}
	if s, within := checks.TooMany(&a.launches, launches); s != nil {
		a.w.breaks(s.Job, "job %s was launched at %v, and with it %d others within %v, %s", s.Job,
			s.To.Sub(a.w.zero), a.launches.Most, within, a.launches.Terms())
	}
}
