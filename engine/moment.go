package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// errLater ends a step because its job waits for a moment in the gate.
var errLater = errors.New("its moment is to come")

const (
	// wakeEarly is how long before its moment a job leaves the gate, so that it is claimed in time.
	wakeEarly = job.MaxSlotWait / 2
	// roomGrowth is the factor by which the room grows with each moment that was missed. However
	// slow a database answers, the room is large enough after a few misses, and then a moment is
	// used in time.
	roomGrowth = 4
)

// An appointment is a moment as this process's clock shows it.
type appointment struct {
	from time.Time     // not before this: counted from when the answer came
	till time.Time     // not after this: counted from when the question was sent; zero: no limit
	late time.Duration // how much later than usual that is
}

// wider returns the room to ask for after a moment with this much room was missed.
func wider(room time.Duration) time.Duration {
	return min(max(job.Lateness, roomGrowth*room), store.MaxLate)
}

// passed reports whether it is too late for the appointment.
func (a appointment) passed() bool {
	return !a.till.IsZero() && time.Now().After(a.till)
}

// Launch records the intent to launch the program, as [Run.Record] does. Under a rate it first
// waits for a moment. The caller launches at once. If the claim was the intent already, there is
// nothing to record. An error means that the step must stop and return [Back].
func (r *Run) Launch(ctx context.Context) error {
	if r.intent {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.made(job.Change{Set: job.Patch{Intent: true}})
		return nil
	}
	for late := time.Duration(0); ; {
		a, err := r.moment(ctx, job.RateLaunches, r.Job.Launch+1, late)
		if err != nil {
			return err
		}
		if err := r.Record(ctx, job.Entry{Message: job.Launching}, job.Patch{Intent: true}, nil); err != nil {
			return err
		}
		if !a.passed() {
			return nil
		}
		if err := r.Record(ctx, job.Entry{Message: "not launched: its moment had passed"}, job.Patch{Over: true},
			nil); err != nil {
			return err
		}
		late = wider(a.late)
	}
}

// moment waits for a moment under the rate what of the job's system. of is the number of the
// attempt or launch, late the room that it needs at least. An error means that the step must stop
// and return [Back].
func (r *Run) moment(ctx context.Context, what string, of int, late time.Duration) (appointment, error) {
	a := ask{Ask: store.Ask{Key: job.RateOf(what, r.system()), N: 1, Late: late}}
	if m := r.Job.Moment(); m.Key == a.Key && m.Of == of {
		a.Held, a.Late = m, max(late, time.Duration(m.Next))
	}
	for {
		g, err := r.s.asks.ask(ctx, r.s, r.Job.Tenant, &a)
		if err != nil && ctx.Err() == nil {
			r.s.e.cfg.Log.Error("a job was given no moment; asking again", "job", r.id, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(job.MaxSlotWait):
			}
		}
		if err != nil || g.Limit == nil {
			return appointment{}, err
		}
		room, next := a.Late, a.Late
		if a.Held.Rate == g.Rate {
			if a.Held.At.Equal(g.at) {
				room = time.Duration(a.Held.Late)
			} else { // it came back too late: the same may happen to this one
				next = wider(next)
			}
		}
		in := g.at.Sub(g.Now)
		if in > job.MaxSlotWait {
			r.wait(what, job.Moment{
				Key: a.Key, At: g.at, Rate: g.Rate, Of: of, Late: job.Duration(room),
				Next: job.Duration(next),
			}, g)
			return appointment{}, errLater
		}
		at := appointment{from: g.came.Add(in), till: g.sent.Add(in + job.Lateness + room), late: room}
		if !at.from.After(at.till) {
			select {
			case <-time.After(time.Until(at.from)):
			case <-ctx.Done():
				return appointment{}, context.Cause(ctx)
			}
			if !at.passed() {
				return at, nil
			}
		}
		a.Held, a.Late = job.Moment{}, max(next, wider(room))
	}
}

// system returns the name of the system on which the job runs.
func (r *Run) system() string {
	var spec struct {
		System string `json:"system"`
	}
	if json.Unmarshal(r.Job.Request, &spec) != nil || spec.System == "" {
		return job.SystemLocal
	}
	return spec.System
}

// wait makes the job wait for its moment in the gate. It keeps what it has.
func (r *Run) wait(what string, m job.Moment, g given) {
	doing := "to begin"
	if what == job.RateLaunches {
		doing = "to be launched"
	}
	c := job.Change{Job: r.id, To: job.Ready, Path: []job.Entry{{
		State: r.Job.State, Message: "waits for its moment " + doing + " on system " + r.system() + " (" +
			g.Limit.Terms() + ")",
	}}}
	c.Set.Delay = g.at.Sub(g.Now) - time.Since(g.came) - wakeEarly
	c.Work = r.Job.Keeping(m)
	r.later = &c
}

// asks are the questions of a process for moments. Questions that come while a call is under way go
// together in the next call.
type asks struct {
	turn  chan struct{} // its holder asks for all
	mu    sync.Mutex
	queue []*ask
}

// An ask is one question.
type ask struct {
	store.Ask
	tenant   string
	answered chan given // has room for the answer
}

// A given is the answer to an ask.
type given struct {
	store.Reserved
	at         time.Time
	sent, came time.Time // when the question was sent, and the answer came
	err        error
}

func newAsks() *asks { return &asks{turn: make(chan struct{}, 1)} }

// ask asks the store for one moment.
func (q *asks) ask(ctx context.Context, s *session, tenant string, a *ask) (given, error) {
	a.tenant, a.answered = tenant, make(chan given, 1)
	q.mu.Lock()
	q.queue = append(q.queue, a)
	q.mu.Unlock()
	for {
		select {
		case g := <-a.answered:
			return g, g.err
		case <-ctx.Done():
			return given{}, context.Cause(ctx)
		case q.turn <- struct{}{}:
			if g, ok := a.heard(); ok {
				<-q.turn
				return g, g.err
			}
			q.send(s, tenant)
			<-q.turn
		}
	}
}

// heard returns the answer, if it has come.
func (a *ask) heard() (g given, ok bool) {
	select {
	case g = <-a.answered:
		return g, true
	default:
		return g, false
	}
}

// send asks the store for the moments of a tenant, as many as one call takes.
func (q *asks) send(s *session, tenant string) {
	q.mu.Lock()
	var batch []*ask
	q.queue = slices.DeleteFunc(q.queue, func(a *ask) bool {
		if a.tenant != tenant || len(batch) == store.MaxAsked {
			return false
		}
		batch = append(batch, a)
		return true
	})
	q.mu.Unlock()
	all := make([]store.Ask, len(batch))
	for i, a := range batch {
		all[i] = a.Ask
	}
	var sent time.Time
	answers, err := retry(s.ctx, s.e, "reserve", func() ([]store.Reserved, error) {
		sent = time.Now()
		return s.e.cfg.Store.Reserve(s.ctx, tenant, all)
	})
	came := time.Now()
	for i, a := range batch {
		g := given{sent: sent, came: came, err: err}
		if err == nil {
			g.Reserved, g.at = answers[i], answers[i].First
		}
		a.answered <- g
	}
}
