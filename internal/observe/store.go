package observe

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// Store returns s, measured. Jobs that are submitted in a traced request keep its trace.
func (o *Observer) Store(s store.Store) store.Store { return &measured{next: s, o: o} }

// measured is a store whose calls are measured. It has every method itself: what is added to the
// contract is measured too.
type measured struct {
	next store.Store
	o    *Observer
}

var _ store.Store = (*measured)(nil)

// call makes one call. jobs counts what it was about, once it has been answered.
func call[T any](ctx context.Context, m *measured, operation string, f func() (T, error), jobs func(T) int) (T, error) {
	begun := time.Now()
	v, err := f()
	took, n := time.Since(begun), jobs(v)
	m.o.metrics.calls.WithLabelValues(operation, result(err)).Observe(took.Seconds())
	m.o.metrics.jobs.WithLabelValues(operation).Observe(float64(n))
	if m.o.isSlow(took) {
		m.o.log.WarnContext(ctx, "slow call of the database", slog.String("operation", operation), slog.Int("jobs", n),
			slog.Duration("took", took), slog.String("result", result(err)))
	}
	return v, err
}

// found makes a call that looks for something. Where it is to be there, and is not, the call is
// measured as one that did not find it.
func found[T any](ctx context.Context, m *measured, operation string, there bool, f func() ([]T, error),
	jobs func([]T) int,
) (all []T, err error) {
	_, _ = call(ctx, m, operation, func() ([]T, error) {
		if all, err = f(); err == nil && there && len(all) == 0 {
			return nil, errNotFound
		}
		return all, err
	}, jobs)
	return all, err
}

var errNotFound = job.Errorf(job.NotFound, "it is not there")

// result is ok, or the kind of an error.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "given up"
	}
	return string(job.KindOf(err))
}

func fixed[T any](n int) func(T) int { return func(T) int { return n } }
func length[E any](all []E) int      { return len(all) }

type none = struct{}

func (m *measured) Submit(ctx context.Context, s store.Submission) (a []store.Submitted, eff store.Effects, err error) {
	s.Jobs = m.o.traced(ctx, s.Jobs)
	a, err = call(ctx, m, "submit", func() ([]store.Submitted, error) {
		a, eff,
			err = m.next.Submit(ctx, s)
		return a, err
	},
		fixed[[]store.Submitted](len(s.Jobs)))
	return a, eff, err
}

func (m *measured) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	jobs, err := call(ctx, m, "claim", func() ([]job.Job, error) { return m.next.Claim(ctx, c) }, length)
	m.claimed(jobs)
	return jobs, err
}

// claimed counts what a claim answered.
func (m *measured) claimed(jobs []job.Job) {
	m.o.metrics.claimed.Add(float64(len(jobs)))
	for i := range jobs {
		if jobs[i].Intended() {
			m.o.metrics.launches.Inc()
		}
	}
}

func (m *measured) Apply(ctx context.Context, changes []job.Change, along *store.Claim) (a []store.Applied,
	jobs []job.Job, eff store.Effects, err error,
) {
	a, err = call(ctx, m, "apply", func() ([]store.Applied, error) {
		a, jobs, eff, err = m.next.Apply(ctx, changes, along)
		return a, err
	}, fixed[[]store.Applied](len(changes)))
	m.applied(changes, a)
	m.claimed(jobs)
	m.passed(&eff)
	return a, jobs, eff, err
}

// applied counts what changes came to.
func (m *measured) applied(changes []job.Change, a []store.Applied) {
	for i, answer := range a {
		m.o.metrics.changes.WithLabelValues(string(answer.Outcome)).Inc()
		if answer.Outcome != store.OK && answer.Outcome != store.Diverted {
			continue
		}
		if changes[i].Set.Intent {
			m.o.metrics.launches.Inc()
		}
		if s := answer.Now.Place.State; s.Terminal() {
			m.o.metrics.ended.WithLabelValues(string(s)).Inc()
		}
	}
}

// passed counts what became of blocked jobs.
func (m *measured) passed(eff *store.Effects) {
	for _, p := range eff.Past {
		code := string(p.Code)
		switch p.What {
		case store.IsReblocked:
			m.o.metrics.reblocked.WithLabelValues(code).Inc()
		case store.IsBlocked:
			m.o.metrics.blocked.WithLabelValues(code).Inc()
		case store.HasFailed:
			m.o.metrics.failed.WithLabelValues(code).Inc()
		case store.IsReleased:
			m.o.metrics.released.WithLabelValues(code).Inc()
			m.o.metrics.waited.WithLabelValues(code).Observe(p.Waited.Seconds())
		}
	}
}

func (m *measured) Wish(ctx context.Context, w store.Wish) (a []store.Wished, eff store.Effects, err error) {
	a, err = call(ctx, m, "wish", func() ([]store.Wished, error) { a, eff, err = m.next.Wish(ctx, w); return a, err },
		fixed[[]store.Wished](len(w.Jobs)))
	return a, eff, err
}

func (m *measured) Annotate(ctx context.Context, a store.Annotation) ([]error, error) {
	return call(ctx, m, "annotate", func() ([]error, error) { return m.next.Annotate(ctx, a) },
		fixed[[]error](len(a.Jobs)))
}

func (m *measured) AddEvent(ctx context.Context, n store.NewEvent) (e store.Event, eff store.Effects, err error) {
	e, err = call(ctx, m, "add_event", func() (store.Event, error) {
		e, eff,
			err = m.next.AddEvent(ctx, n)
		return e, err
	}, fixed[store.Event](1))
	return e, eff, err
}

func (m *measured) Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error) {
	return call(ctx, m, "remove", func() ([]error, error) { return m.next.Remove(ctx, tenant, ids) },
		fixed[[]error](len(ids)))
}

// bounded makes a call that moves up to limit rows.
func (m *measured) bounded(ctx context.Context, operation string,
	f func(context.Context, int) (int, store.Effects, error), limit int,
) (n int, eff store.Effects, err error) {
	n, err = call(ctx, m, operation, func() (int, error) { n, eff, err = f(ctx, limit); return n, err },
		func(n int) int { return n })
	m.passed(&eff)
	return n, eff, err
}

func (m *measured) Due(ctx context.Context, limit int) (int, store.Effects, error) {
	return m.bounded(ctx, "due", m.next.Due, limit)
}

func (m *measured) Pay(ctx context.Context, limit int) (int, store.Effects, error) {
	return m.bounded(ctx, "pay", m.next.Pay, limit)
}

func (m *measured) Expire(ctx context.Context, limit int) (int, store.Effects, error) {
	n, eff, err := m.bounded(ctx, "expire", m.next.Expire, limit)
	m.o.metrics.expired.Add(float64(n))
	return n, eff, err
}

func (m *measured) Recount(ctx context.Context, limit int) (n store.Recounted, eff store.Effects, err error) {
	n, err = call(ctx, m, "recount", func() (store.Recounted, error) {
		n, eff,
			err = m.next.Recount(ctx, limit)
		return n, err
	},
		func(n store.Recounted) int { return n.Needs + n.Turns + n.Lines })
	return n, eff, err
}

func (m *measured) Begin(ctx context.Context, s store.Session) error {
	sent := time.Now()
	_, err := call(ctx, m, "begin", func() (none, error) { return none{}, m.next.Begin(ctx, s) }, fixed[none](0))
	if err == nil {
		m.o.metrics.sessions.Inc()
		m.o.session.began(s.ID, sent, s.Lease)
		m.o.session.beginning.Do(func() { close(m.o.session.begun) })
	}
	return err
}

func (m *measured) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	sent := time.Now()
	a, err := call(ctx, m, "renew", func() (store.Renewal, error) { return m.next.Renew(ctx, r) },
		func(a store.Renewal) int { return a.Held })
	m.o.metrics.renewals.WithLabelValues(result(err)).Inc()
	if err == nil {
		m.o.session.renewed(sent, r.Lease)
	}
	return a, err
}

func (m *measured) End(ctx context.Context, id job.ID) (store.Effects, error) {
	m.o.session.ended(id)
	return call(ctx, m, "end", func() (store.Effects, error) { return m.next.End(ctx, id) }, fixed[store.Effects](0))
}

func (m *measured) SetMode(ctx context.Context, id job.ID, c store.Mode) (store.Effects, error) {
	return call(ctx, m, "set_mode", func() (store.Effects, error) { return m.next.SetMode(ctx, id, c) },
		fixed[store.Effects](0))
}

func (m *measured) Sessions(ctx context.Context) ([]store.SessionInfo, error) {
	return call(ctx, m, "sessions", func() ([]store.SessionInfo, error) { return m.next.Sessions(ctx) },
		fixed[[]store.SessionInfo](0))
}

func (m *measured) Unattended(ctx context.Context) (store.Unattended, error) {
	return call(ctx, m, "unattended", func() (store.Unattended, error) { return m.next.Unattended(ctx) },
		fixed[store.Unattended](0))
}

func (m *measured) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	return call(ctx, m, "demand", func() (map[job.Lane]store.Demand, error) { return m.next.Demand(ctx, c) },
		fixed[map[job.Lane]store.Demand](0))
}

func (m *measured) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	return call(ctx, m, "clear", func() (store.Effects, error) { return m.next.Clear(ctx, lost) },
		fixed[store.Effects](len(lost)))
}

func (m *measured) List(ctx context.Context, q store.Query) (store.Page, error) {
	return call(ctx, m, "list", func() (store.Page, error) { return m.next.List(ctx, q) },
		func(p store.Page) int { return len(p.Jobs) })
}

func (m *measured) Count(ctx context.Context, tenant string, f job.Filter) (store.Counts, error) {
	return call(ctx, m, "count", func() (store.Counts, error) { return m.next.Count(ctx, tenant, f) },
		fixed[store.Counts](0))
}

func (m *measured) Events(ctx context.Context, q store.EventQuery) (store.Events, error) {
	return call(ctx, m, "events", func() (store.Events, error) { return m.next.Events(ctx, q) },
		func(e store.Events) int { return len(e.Events) })
}

func (m *measured) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	op := q.Operation()
	return found(ctx, m, op, op == "job", func() ([]job.Job, error) { return m.next.Find(ctx, q) }, length)
}

func (m *measured) Overdue(ctx context.Context, q store.OverdueQuery) (store.Overdue, error) {
	return call(ctx, m, "overdue", func() (store.Overdue, error) { return m.next.Overdue(ctx, q) },
		func(o store.Overdue) int { return len(o.Jobs) })
}

func (m *measured) Put(ctx context.Context, r store.Resource) (store.Resource, error) {
	return call(ctx, m, "put", func() (store.Resource, error) { return m.next.Put(ctx, r) }, fixed[store.Resource](0))
}

func (m *measured) Resources(ctx context.Context, q store.ResourceQuery) ([]store.Resource, error) {
	op := q.Operation()
	return found(ctx, m, op, op == "resource", func() ([]store.Resource, error) { return m.next.Resources(ctx, q) },
		fixed[[]store.Resource](0))
}

func (m *measured) Delete(ctx context.Context, tenant, kind, name string, version int64) error {
	_, err := call(ctx, m, "delete", func() (none, error) {
		return none{}, m.next.Delete(ctx, tenant, kind, name, version)
	}, fixed[none](0))
	return err
}

func (m *measured) ChangeLimit(ctx context.Context, tenant, key string, to *job.Limit) (store.Effects, error) {
	what := "set_limit"
	if to == nil {
		what = "remove_limit"
	}
	return call(ctx, m, what, func() (store.Effects, error) { return m.next.ChangeLimit(ctx, tenant, key, to) },
		fixed[store.Effects](1))
}

func (m *measured) Tests(ctx context.Context, duty string, limit int) (store.Tests, error) {
	return call(ctx, m, "tests", func() (store.Tests, error) { return m.next.Tests(ctx, duty, limit) },
		func(t store.Tests) int { return len(t.Due) })
}

func (m *measured) Tested(ctx context.Context, f job.Fence, found []groups.Test) (store.Effects, error) {
	return call(ctx, m, "tested", func() (store.Effects, error) { return m.next.Tested(ctx, f, found) },
		fixed[store.Effects](len(found)))
}

func (m *measured) Steer(ctx context.Context, s store.Steer) (answers []error, eff store.Effects, err error) {
	answers, err = call(ctx, m, "steer",
		func() ([]error, error) { answers, eff, err = m.next.Steer(ctx, s); return answers, err },
		fixed[[]error](max(1, len(s.Jobs))))
	m.passed(&eff)
	return answers, eff, err
}

func (m *measured) Groups(ctx context.Context, q store.GroupQuery) ([]groups.Group, error) {
	return call(ctx, m, "groups", func() ([]groups.Group, error) { return m.next.Groups(ctx, q) }, length)
}

func (m *measured) Limits(ctx context.Context, tenant string) ([]job.Limit, error) {
	return call(ctx, m, "limits", func() ([]job.Limit, error) { return m.next.Limits(ctx, tenant) },
		fixed[[]job.Limit](0))
}

func (m *measured) Behind(ctx context.Context, j *job.Job, limit int) (int, error) {
	return call(ctx, m, "behind", func() (int, error) { return m.next.Behind(ctx, j, limit) }, fixed[int](1))
}

func (m *measured) Turns(ctx context.Context, q store.TurnQuery) ([]store.Turns, error) {
	return call(ctx, m, "turns", func() ([]store.Turns, error) { return m.next.Turns(ctx, q) }, fixed[[]store.Turns](0))
}

func (m *measured) Reserve(ctx context.Context, tenant string, asks []store.Ask) ([]store.Reserved, error) {
	return call(ctx, m, "reserve", func() ([]store.Reserved, error) { return m.next.Reserve(ctx, tenant, asks) },
		length)
}

func (m *measured) Moments(ctx context.Context, q store.TurnQuery) ([]store.Moments, error) {
	return call(ctx, m, "moments", func() ([]store.Moments, error) { return m.next.Moments(ctx, q) },
		fixed[[]store.Moments](0))
}

func (m *measured) Close() error { return m.next.Close() }
