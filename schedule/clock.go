package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

const (
	// lateness is how late a due time may be without being missed: the duty moves from a process that
	// died to another one within that time.
	lateness = time.Minute
	// lookAgain bounds how long nobody looks: a process may die before it tells of a document. Whoever
	// applied that had no answer, and applies it again.
	lookAgain = time.Hour
	// tryAgain is the time after which jobs are submitted again that were refused.
	tryAgain = 30 * time.Second
	// tooEarly is the time after which it looks again if the database's clock is behind.
	tooEarly = 10 * time.Millisecond
	// maxLook is how many schedules one look takes.
	maxLook = 100
)

// A Clock submits the jobs of schedules when they are due. One process does it for all, but nothing
// depends on that: a due time is advanced in the transaction that inserts its jobs.
type Clock struct {
	Store  store.Store
	Broker broker.Broker
	Log    *slog.Logger
	// Now is the time on the database's clock, as far as this process knows.
	Now func() time.Time
	// Lease is how long a process may be silent before it counts as dead.
	Lease time.Duration
	// Submit submits the jobs of a due time with the advance.
	Submit func(ctx context.Context, tenant string, due Due, advance *store.Advance) error
}

// Due are the jobs of one due time.
type Due struct {
	Schedule *job.Schedule
	At       time.Time
	Specs    []json.RawMessage
}

// Duty is the duty of the clock.
func (c *Clock) Duty() engine.Duty {
	return engine.Duty{Name: "clock", Roles: []store.Role{store.RoleRecovery}, Run: c.run}
}

func (c *Clock) run(ctx context.Context, _ *engine.Held) error {
	news, err := c.Broker.Subscribe(ctx, engine.ResourceTopic)
	if err != nil {
		return err
	}
	defer func() { news.Close() }()
	for {
		next, err := c.look(ctx)
		if err != nil {
			return err
		}
		wait := lookAgain
		if !next.IsZero() {
			wait = min(wait, max(next.Sub(c.Now()), 0))
		}
		timer := time.NewTimer(wait)
		for waits := true; waits; {
			select {
			case kind := <-news.Messages():
				waits = string(kind) != job.KindSchedule
			case <-news.Lost():
				timer.Stop()
				return job.Errorf(job.Unavailable, "the news of documents is lost")
			case <-timer.C:
				waits = false
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
		}
		timer.Stop()
	}
}

// look deals with all schedules whose time has come. It returns when the next one is due.
func (c *Clock) look(ctx context.Context) (next time.Time, err error) {
	for {
		found, err := c.Store.Resources(ctx, store.ResourceQuery{Kind: job.KindSchedule, Next: maxLook})
		if err != nil {
			return next, err
		}
		next = time.Time{}
		earlier := func(at time.Time) {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		rest := len(found) == maxLook
		for i := range found {
			if found[i].Next.After(c.Now()) {
				earlier(found[i].Next)
				rest = false
				break
			}
			at, err := c.due(ctx, &found[i])
			if err != nil {
				return next, err
			}
			earlier(at)
		}
		if !rest {
			return next, nil
		}
	}
}

// due submits what is due of one schedule. It returns when it is looked at next.
func (c *Clock) due(ctx context.Context, r *store.Resource) (next time.Time, err error) {
	doc, err := Parse(r.Doc)
	if err != nil {
		// This version cannot read it. It stays as it is until somebody applies it again.
		return c.refused(ctx, r, nil, time.Time{}, err)
	}
	times, err := TimesOf(&doc)
	if err != nil {
		return c.refused(ctx, r, nil, time.Time{}, err)
	}
	now := c.Now()
	due, missed := c.choose(&doc, times, r.Through, now)
	for _, at := range due {
		to := c.advance(r, times, at, "")
		specs, err := doc.Due(at)
		if err == nil {
			err = c.Submit(ctx, r.Tenant, Due{&doc, at, specs}, to)
		}
		if err != nil {
			return c.failed(ctx, r, &doc, at, now, err)
		}
		r.Through, r.Next = to.Through, to.Next
	}
	if len(due) > 0 {
		return r.Next, nil
	}
	to := c.advance(r, times, missed, r.Trouble)
	if missed.IsZero() {
		to.Through, to.Next = r.Through, times.After(r.Through)
	}
	return c.record(ctx, r, to)
}

// choose returns the due times after through whose jobs are submitted now, oldest first. If there
// are none, missed is the newest one that was missed; zero: there is none.
func (c *Clock) choose(doc *job.Schedule, times Times, through, now time.Time) (due []time.Time, missed time.Time) {
	n := 1
	if doc.CatchUp == job.CatchUpAll {
		n = job.MostCaughtUp
	}
	due, more := times.Newest(through, now, n)
	if len(due) == 0 {
		return nil, time.Time{}
	}
	newest := due[len(due)-1]
	if more && doc.CatchUp == job.CatchUpAll {
		c.Log.Warn("a schedule missed more due times than are caught up", "schedule", doc.Name, "submitted", n)
	}
	if doc.CatchUp == job.CatchUpNone && now.Sub(newest) > max(lateness, 4*c.Lease) {
		return nil, newest
	}
	return due, time.Time{}
}

// advance returns the advance of r to a due time.
func (c *Clock) advance(r *store.Resource, times Times, at time.Time, trouble string) *store.Advance {
	to := &store.Advance{
		Kind: r.Kind, Name: r.Name, Version: r.Version, From: r.Through, Through: at, Trouble: trouble,
	}
	if !at.IsZero() {
		to.Next = times.After(at)
	}
	return to
}

// record makes an advance without jobs.
func (c *Clock) record(ctx context.Context, r *store.Resource, to *store.Advance) (next time.Time, err error) {
	_, _, err = c.Store.Submit(ctx, store.Submission{Tenant: r.Tenant, Advance: to})
	if job.KindOf(err) == job.Fenced {
		return c.Now().Add(tooEarly), nil // it was changed meanwhile, or the time has not quite come
	}
	return to.Next, err
}

// failed deals with an error of a submission for the due time at. A refusal is told in the
// schedule.
func (c *Clock) failed(ctx context.Context, r *store.Resource, doc *job.Schedule, at, now time.Time, err error) (
	time.Time, error,
) {
	switch kind := job.KindOf(err); {
	case kind == job.Fenced:
		return c.Now().Add(tooEarly), nil
	case kind == job.Unavailable, kind == job.Closed, kind == job.Corrupt, ctx.Err() != nil,
		errors.Is(err, context.Canceled):
		return time.Time{}, err
	}
	return c.refused(ctx, r, doc, at, err)
}

// refused records why the jobs of a due time were not submitted. They are submitted again after a
// while, or given up if they need not be caught up. A schedule without doc rests.
func (c *Clock) refused(ctx context.Context, r *store.Resource, doc *job.Schedule, at time.Time, why error) (
	time.Time, error,
) {
	trouble := job.Shorten(job.Text(why.Error()), maxTrouble)
	c.Log.Warn("a schedule cannot submit its jobs", "schedule", r.Name, "tenant", r.Tenant, "due", at, "error", trouble)
	to := &store.Advance{
		Kind: r.Kind, Name: r.Name, Version: r.Version, From: r.Through, Through: r.Through, Trouble: trouble,
	}
	if doc != nil {
		to.Next = c.Now().Add(tryAgain)
	}
	return c.record(ctx, r, to)
}

// maxTrouble is how many bytes of an error a schedule tells.
const maxTrouble = 1024
