package sim

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// A link is the store as a process reaches it. What is read under a lock of the process takes no
// time: in a bubble time stands still while somebody waits for a lock.
type link struct {
	store.Store
	p *process
}

// effects are an answer with what follows of it.
type effects[T any] struct {
	answer T
	eff    store.Effects
}

// over makes a call of the store. What it came to is noted at the moment in which the store has
// committed it.
func over[T any](ctx context.Context, l *link, what string, arg any, call func(context.Context) (T, error)) (T, error) {
	return through(ctx, l.p, "store."+what, func(ctx context.Context) (T, error) {
		if l.p.w.is(&l.p.w.away) {
			var none T
			return none, errLost
		}
		v, err := call(ctx)
		if err != nil {
			l.p.w.note(l.p.name, "%s %s: %v", what, brief(arg), err)
		} else if said := brief(v); said != "" {
			l.p.w.note(l.p.name, "%s %s: %s", what, brief(arg), said)
		}
		return v, err
	})
}

// with is over for calls that have effects.
func with[T any](ctx context.Context, l *link, what string, arg any,
	call func(context.Context) (T, store.Effects, error),
) (T, store.Effects, error) {
	e, err := over(ctx, l, what, arg, func(ctx context.Context) (effects[T], error) {
		v, eff, err := call(ctx)
		eff.Due = l.later(eff.Due)
		return effects[T]{v, eff}, err
	})
	return e.answer, e.eff, err
}

// later returns a moment of which all processes hear, a little later for each: they must not all
// wake at once, for who would come first then is nothing that a seed decides.
func (l *link) later(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(l.p.late)
}

// now is over for calls that take no time.
func now[T any](ctx context.Context, l *link, call func(context.Context) (T, error)) (none T, _ error) {
	switch {
	case l.p.dead():
		return none, errDead
	case l.p.w.is(&l.p.w.away):
		return none, errLost
	}
	return call(ctx)
}

// brief says what is worth to be noted of an argument or an answer; empty: nothing.
func brief(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case nil, struct{}, store.Renewal, store.Tests, map[job.Lane]store.Demand:
	case effects[store.Recounted]:
		if v.answer != (store.Recounted{}) {
			fmt.Fprintf(&b, "%+v", v.answer)
		}
	case effects[int]:
		if v.answer > 0 {
			fmt.Fprintf(&b, "%d", v.answer)
		}
	case effects[[]store.Applied]:
		for _, a := range v.answer {
			fmt.Fprintf(&b, "%s at %s epoch %d n %d; ", a.Outcome, a.Now.Place, a.Now.Epoch, a.Now.N)
		}
	case effects[[]store.Submitted]:
		fmt.Fprintf(&b, "%v", v.answer)
	case effects[[]store.Wished]:
		fmt.Fprintf(&b, "%v", v.answer)
	case effects[[]error]:
		for _, err := range v.answer {
			fmt.Fprintf(&b, "%v; ", err)
		}
	case effects[struct{}]:
		b.WriteString("done")
	case []job.Change:
		for _, c := range v {
			fmt.Fprintf(&b, "%s: %s epoch %d n %d to %s/%s %s; ", c.Job, c.From.Place, c.From.Epoch, c.From.N,
				c.Last().State, c.To, c.Last().Code)
		}
	case []job.Job:
		for _, j := range v {
			fmt.Fprintf(&b, "%s %s epoch %d; ", j.ID, j.Place, j.Epoch)
		}
	case store.Claim:
		fmt.Fprintf(&b, "%s for %s", v.ID, v.Session)
	case store.Submission:
		for _, n := range v.Jobs {
			fmt.Fprintf(&b, "%s ", n.Job.ID)
		}
		fmt.Fprintf(&b, "key %q", v.Key)
	case store.Wish:
		fmt.Fprintf(&b, "%s %v", v.Wish, v.Jobs)
	case store.Session:
		b.WriteString(v.ID.String())
	default:
		fmt.Fprint(&b, v)
	}
	return b.String()
}

// Submit implements [store.Jobs].
func (l *link) Submit(ctx context.Context, s store.Submission) ([]store.Submitted, store.Effects, error) {
	return with(ctx, l, "submit", s, func(ctx context.Context) ([]store.Submitted, store.Effects, error) {
		return l.p.w.judge.submit(ctx, l, s)
	})
}

// Claim implements [store.Jobs].
func (l *link) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	return over(ctx, l, "claim", c, func(ctx context.Context) ([]job.Job, error) {
		return l.p.w.judge.claim(ctx, l, c)
	})
}

// Apply implements [store.Jobs].
func (l *link) Apply(ctx context.Context, cs []job.Change, along *store.Claim) (answers []store.Applied,
	jobs []job.Job, eff store.Effects, err error,
) {
	answers, eff, err = with(ctx, l, "apply", cs, func(ctx context.Context) ([]store.Applied, store.Effects, error) {
		answers, claimed, eff, err := l.p.w.judge.apply(ctx, l, cs, along)
		jobs = claimed
		return answers, eff, err
	})
	if err != nil {
		return nil, nil, eff, err
	}
	return answers, jobs, eff, err
}

// Wish implements [store.Jobs].
func (l *link) Wish(ctx context.Context, w store.Wish) ([]store.Wished, store.Effects, error) {
	return with(ctx, l, "wish", w, func(ctx context.Context) ([]store.Wished, store.Effects, error) {
		return commit(l.p.w.judge, func() ([]store.Wished, store.Effects, error) { return l.Store.Wish(ctx, w) })
	})
}

// AddEvent implements [store.Jobs].
func (l *link) AddEvent(ctx context.Context, n store.NewEvent) (store.Event, store.Effects, error) {
	return with(ctx, l, "event", n.Job, func(ctx context.Context) (store.Event, store.Effects, error) {
		return l.Store.AddEvent(ctx, n)
	})
}

// Remove implements [store.Jobs].
func (l *link) Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error) {
	return over(ctx, l, "remove", ids, func(ctx context.Context) ([]error, error) {
		return l.p.w.judge.remove(ctx, l, tenant, ids)
	})
}

// Due implements [store.Jobs].
func (l *link) Due(ctx context.Context, limit int) (int, store.Effects, error) {
	return with(ctx, l, "due", nil, func(ctx context.Context) (int, store.Effects, error) {
		return commit(l.p.w.judge, func() (int, store.Effects, error) { return l.Store.Due(ctx, limit) })
	})
}

// Pay implements [store.Jobs].
func (l *link) Pay(ctx context.Context, limit int) (int, store.Effects, error) {
	return with(ctx, l, "pay", nil, func(ctx context.Context) (int, store.Effects, error) {
		return l.p.w.judge.pay(ctx, l, limit)
	})
}

// Expire implements [store.Jobs].
func (l *link) Expire(ctx context.Context, limit int) (int, store.Effects, error) {
	return with(ctx, l, "expire", nil, func(ctx context.Context) (int, store.Effects, error) {
		return commit(l.p.w.judge, func() (int, store.Effects, error) { return l.Store.Expire(ctx, limit) })
	})
}

// Recount implements [store.Jobs].
func (l *link) Recount(ctx context.Context, limit int) (store.Recounted, store.Effects, error) {
	return with(ctx, l, "recount", nil, func(ctx context.Context) (store.Recounted, store.Effects, error) {
		return commit(l.p.w.judge, func() (store.Recounted, store.Effects, error) {
			return l.Store.Recount(ctx, limit)
		})
	})
}

// ChangeLimit implements [store.Limits].
func (l *link) ChangeLimit(ctx context.Context, tenant, key string, to *job.Limit) (store.Effects, error) {
	most, what, arg := math.MaxInt, "unlimit", any(key)
	if to != nil {
		most, what, arg = to.Most, "limit", *to
	}
	_, eff, err := with(ctx, l, what, arg, func(ctx context.Context) (struct{}, store.Effects, error) {
		eff, err := l.p.w.judge.limit(key, most,
			func() (store.Effects, error) { return l.Store.ChangeLimit(ctx, tenant, key, to) })
		return struct{}{}, eff, err
	})
	return eff, err
}

// Tests implements [store.Groups].
func (l *link) Tests(ctx context.Context, duty string, limit int) (store.Tests, error) {
	return over(ctx, l, "tests", duty, func(ctx context.Context) (store.Tests, error) {
		a, err := l.Store.Tests(ctx, duty, limit)
		a.Next = l.later(a.Next)
		return a, err
	})
}

// Tested implements [store.Groups].
func (l *link) Tested(ctx context.Context, f job.Fence, found []groups.Test) (store.Effects, error) {
	_, eff, err := with(ctx, l, "tested", found, func(ctx context.Context) (struct{}, store.Effects, error) {
		eff, err := l.p.w.judge.test(ctx, l, f, found)
		return struct{}{}, eff, err
	})
	return eff, err
}

// Steer implements [store.Groups].
func (l *link) Steer(ctx context.Context, s store.Steer) ([]error, store.Effects, error) {
	return with(ctx, l, "steer", s, func(ctx context.Context) ([]error, store.Effects, error) {
		return l.p.w.judge.steer(ctx, l, s)
	})
}

// Groups implements [store.Groups].
func (l *link) Groups(ctx context.Context, q store.GroupQuery) ([]groups.Group, error) {
	return now(ctx, l, func(ctx context.Context) ([]groups.Group, error) { return l.Store.Groups(ctx, q) })
}

// Begin implements [store.Leases].
func (l *link) Begin(ctx context.Context, s store.Session) error {
	_, err := over(ctx, l, "begin", s, func(ctx context.Context) (effects[struct{}], error) {
		l.p.w.judge.begin(l.p, s.ID)
		return effects[struct{}]{}, l.Store.Begin(ctx, s)
	})
	return err
}

// Renew implements [store.Leases].
func (l *link) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	return over(ctx, l, "renew", r.Session,
		func(ctx context.Context) (store.Renewal, error) { return l.p.w.judge.renew(ctx, l, r) })
}

// End implements [store.Leases].
func (l *link) End(ctx context.Context, id job.ID) (store.Effects, error) {
	_, eff, err := with(ctx, l, "end", id, func(ctx context.Context) (struct{}, store.Effects, error) {
		eff, err := l.Store.End(ctx, id)
		return struct{}{}, eff, err
	})
	return eff, err
}

// Clear implements [store.Leases].
func (l *link) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	_, eff, err := with(ctx, l, "clear", lost, func(ctx context.Context) (struct{}, store.Effects, error) {
		eff, err := l.Store.Clear(ctx, lost)
		return struct{}{}, eff, err
	})
	return eff, err
}

// Find implements [store.Reader].
func (l *link) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	find := func(ctx context.Context) ([]job.Job, error) { return l.Store.Find(ctx, q) }
	switch what := q.Operation(); what {
	case "job":
		return now(ctx, l, find)
	case "held":
		return over(ctx, l, what, q.Session, find)
	case "watched":
		return over(ctx, l, what, q.Watch, find)
	default:
		return over(ctx, l, what, nil, find)
	}
}

// Demand implements [store.Reader].
func (l *link) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	return over(ctx, l, "demand", nil, func(ctx context.Context) (map[job.Lane]store.Demand, error) {
		return l.Store.Demand(ctx, c)
	})
}

// Overdue implements [store.Reader].
func (l *link) Overdue(ctx context.Context, q store.OverdueQuery) (store.Overdue, error) {
	return now(ctx, l, func(ctx context.Context) (store.Overdue, error) { return l.Store.Overdue(ctx, q) })
}

// Events implements [store.Reader].
func (l *link) Events(ctx context.Context, q store.EventQuery) (store.Events, error) {
	return now(ctx, l, func(ctx context.Context) (store.Events, error) { return l.Store.Events(ctx, q) })
}

// Resources implements [store.Resources].
func (l *link) Resources(ctx context.Context, q store.ResourceQuery) ([]store.Resource, error) {
	return now(ctx, l, func(ctx context.Context) ([]store.Resource, error) { return l.Store.Resources(ctx, q) })
}
