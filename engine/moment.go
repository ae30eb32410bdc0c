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

// errLater ends a step whose job is to wait for its moment in the gate.
var errLater = errors.New("its moment is to come")

const (
	// early is how long before its moment a job comes out of the gate: time to claim it.
	early = store.Near / 2
	// mostLate is how often a moment is asked for anew because it was missed. A database that takes too long to answer would keep
	// every job for ever: then a moment is as good as it can be told.
	mostLate = 3
)

// An appointment is a moment as this process's clock shows it.
type appointment struct {
	from time.Time // not before: by when the answer came
	till time.Time // not after: by when the question was sent; zero: at any time
}

// passed reports whether it is too late.
func (a appointment) passed() bool { return !a.till.IsZero() && time.Now().After(a.till) }

// Launch records the intent to launch the program, as [Run.Record] does, at a moment at which it may be launched. The launch
// follows at once. Where the claim was that intent, launches have no moments, and there is nothing to be recorded.
func (r *Run) Launch(ctx context.Context) error {
	if r.intent {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.made(job.Change{Set: job.Patch{Intent: true}})
		return nil
	}
	for try := 1; ; try++ {
		a, err := r.moment(ctx, job.RateLaunches, r.Job.Launch+1)
		if err != nil {
			return err
		}
		if err := r.Record(ctx, job.Entry{Message: job.Launching}, job.Patch{Intent: true}, nil); err != nil {
			return err
		}
		if !a.passed() || try == mostLate {
			return nil
		}
		if err := r.Record(ctx, job.Entry{Message: "not launched: its moment had passed"}, job.Patch{Over: true}, nil); err != nil {
			return err
		}
	}
}

// moment waits for a moment at which the job may do something on its system, for the of-th time. An error means that the step must
// stop and return [Back].
func (r *Run) moment(ctx context.Context, what string, of int) (appointment, error) {
	a := ask{Ask: store.Ask{Key: job.RateOf(what, r.system()), N: 1}}
	if m := r.Job.Moment(); m.Key == a.Key && m.Of == of {
		a.Held = m
	}
	for try := 1; ; try++ {
		g, err := r.s.asks.ask(ctx, r.s, r.Job.Tenant, &a)
		if err != nil && ctx.Err() == nil {
			r.s.e.cfg.Log.Error("a job was given no moment; asking again", "job", r.id, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(store.Near):
			}
		}
		if err != nil || g.Limit == nil {
			return appointment{}, err
		}
		in := g.at.Sub(g.Now)
		if in > store.Near {
			r.wait(what, of, a.Key, g)
			return appointment{}, errLater
		}
		at := appointment{from: g.came.Add(in), till: g.sent.Add(in + job.Lateness)}
		select {
		case <-time.After(time.Until(at.from)):
		case <-ctx.Done():
			return appointment{}, context.Cause(ctx)
		}
		if !at.passed() || try == mostLate {
			return at, nil
		}
		a.Held = job.Moment{}
	}
}

// system returns the system on which the job runs.
func (r *Run) system() string {
	var spec struct {
		System string `json:"system"`
	}
	if json.Unmarshal(r.Job.Request, &spec) != nil || spec.System == "" {
		return job.SystemLocal
	}
	return spec.System
}

// wait has the job wait for its moment in the gate, with all that it has.
func (r *Run) wait(what string, of int, key string, g given) {
	doing := "to begin"
	if what == job.RateLaunches {
		doing = "to be launched"
	}
	c := job.Change{Job: r.id, To: job.Ready, Path: []job.Entry{{
		State: r.Job.State, Message: "waits for its moment " + doing + " on system " + r.system() + " (" + g.Limit.Terms() + ")",
	}}}
	c.Set.Delay = g.at.Sub(g.Now) - time.Since(g.came) - early
	c.Work = r.Job.Keeping(job.Moment{Key: key, At: g.at, Rate: g.Rate, Of: of})
	r.later = &c
}

// asks are the questions for moments of a process. Those that come while one is under way go together with the next.
type asks struct {
	turn  chan struct{} // who has it asks for all
	mu    sync.Mutex
	queue []*ask
}

// An ask is one question.
type ask struct {
	store.Ask
	tenant   string
	answered chan given // has room for the answer
}

// A given moment.
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

// send sends what is asked for a tenant, as much as one call takes.
func (q *asks) send(s *session, tenant string) {
	q.mu.Lock()
	var batch []*ask
	q.queue = slices.DeleteFunc(q.queue, func(a *ask) bool {
		if a.tenant != tenant || len(batch) == store.MostAsked {
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
