package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func (h *handler) registerClaims() {
	op := func(id, path, summary, about string, b *body) operation {
		return operation{
			id: id, tag: "claims", method: http.MethodPost, path: "/v1/claims" + path, summary: summary, about: about, body: b,
			errors: []int{http.StatusConflict}, site: true,
		}
	}
	register(h, op("claim", "", "Claim tasks for a worker",
		"The first claim begins the session of the worker. If nothing is ready the call waits. Each call of the worker has "+
			"its secret in the header Pawl-Worker. 409 says that the session has ended: make a new secret.",
		bodyOf[claims.Ask](`{"worker": "mailer", "kinds": ["mail"], "slots": 4, "wait": "30s"}`)), h.claim)
	register(h, op("renew-claims", "/renew", "Say that a worker lives, and hear which tasks it must stop",
		"It is due three times in a lease.",
		bodyOf[renewBody](`{"jobs": [`+heldExample+`]}`)), h.renewClaims)
	end := op("end-claims", "/end", "End the session of a worker",
		"The tasks that it still holds go back as if they had never been claimed. It can be repeated.", nil)
	end.status = http.StatusNoContent
	register(h, end, h.endClaims)

	say := func(verb, summary, about string) operation {
		return op(verb+"-claims", "/"+verb, summary, strings.TrimSpace(about+" "+reportRule), nil)
	}
	report[claims.FinishReport](h, say("finish", "Say that tasks are done", ""), `"result": {"sent": 3}`)
	report[claims.FailReport](h, say("fail", "Say that tasks have failed",
		"They are tried again after a backoff while they have attempts left."),
		`"message": "mail server said 550", "final": true`)
	report[claims.CheckpointReport](h, say("checkpoint", "Keep state for the next run of tasks",
		"The claim of that run answers it."), `"checkpoint": {"page": 7}`)
	report[claims.ProgressReport](h, say("progress", "Say how far tasks have come", "Only the newest is kept."),
		`"done": 40, "total": 100`)
	report[claims.LogReport](h, say("log", "Write events into the histories of tasks",
		"A job may be there more than once. An event without key is written again by a call that is repeated."),
		`"name": "log", "message": "page 7 is empty", "key": "page-7"`)
	report[claims.SnoozeReport](h, say("snooze", "Let tasks run again later, in the same attempt", ""), `"delay": "5m"`)
	report[claims.BlockReport](h, say("block", "Let tasks wait for a condition that may clear by itself", ""),
		`"message": "the mail server is away", "tester": "tcp", "params": {"address": "mail:25"}`)
	report[claims.CancelReport](h, say("cancel", "Say that tasks are not wanted any more", ""),
		`"message": "the account is closed"`)
	report[claims.ReleaseReport](h, say("release", "Give tasks back as if they had never been claimed",
		"A worker that was told to stop a task says so."), "")
}

const (
	heldExample = `{"id": "01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", "epoch": 2}`
	reportRule  = "A report that is repeated is answered as it was the first time. 409 says in jobs which of them are " +
		"refused, as those of an epoch that is over; the others are written down."
)

// bodyOf is a body of a type.
func bodyOf[T any](value string) *body {
	return &body{schema: of[T], examples: map[string]example{"claim": {"as a worker sends it", value}}}
}

// claimed is the answer to a claim.
type claimed struct {
	// The id of the session of the worker; see pawl workers.
	Session job.ID `json:"session"`

	// How long the worker may be silent.
	Lease job.Duration `json:"lease"`

	// What an operator has told the worker: drain, it gets no more tasks; stop, it ends when it has
	// none any more; missing, it goes on.
	Mode store.Mode `json:"mode,omitempty" enum:"drain,stop"`

	// The tasks; none if the wait is over.
	Jobs []claims.Task `json:"jobs"`
}

type claimInput struct {
	// The secret of the worker: a random text of 32 to 256 bytes that it makes when it starts.
	Worker string `header:"Pawl-Worker" example:"5c1d0f6f5d2f4b0e9d6a0b5b8f4c7e21"`
}

type claimOutput struct{ Body claimed }

func (h *handler) claim(ctx context.Context, in *claimInput) (*claimOutput, error) {
	session, err := sessionOf(in.Worker)
	if err != nil {
		return nil, err
	}
	var b claims.Ask
	if err := strict(callOf(ctx).body, &b, `"kinds": ["mail"], "slots": 4`); err != nil {
		return nil, err
	}
	wait, done, err := h.poll(ctx, time.Duration(b.Wait))
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := serviceOf(ctx).Claims().Claim(ctx, wait, session, b)
	return &claimOutput{claimed{c.Session, job.Duration(c.Lease), c.Mode, c.Jobs}}, err
}

// sessionOf returns the session of the worker that makes a call.
func sessionOf(secret string) (job.ID, error) {
	id, err := claims.SessionOf(secret)
	if err != nil {
		return id, invalid("Pawl-Worker", "", "is not the secret of a worker: "+err.Error(),
			"send it in the header Pawl-Worker of each call")
	}
	return id, nil
}

// renewBody is the heartbeat of a worker.
type renewBody struct {
	// The tasks that the worker has in its hands. Tasks that it does not name, although its session
	// holds them, were claimed by a call whose answer was lost: they go back. If it is left out
	// nothing is said of them.
	Jobs []claims.Held `json:"jobs,omitempty"`

	// As in the claim.
	Lease job.Duration `json:"lease,omitempty" example:"30s"`

	// How long to wait until there is something to stop, or a mode is told; a quarter of the lease at
	// most. A worker that stops a task does not wait.
	Wait job.Duration `json:"wait,omitempty" example:"5s"`
}

// renewed is the answer to a heartbeat.
type renewed struct {
	// How long the worker may be silent from now on.
	Lease job.Duration `json:"lease"`

	// What an operator has told the worker: drain, it gets no more tasks; stop, it ends when it has
	// none any more; missing, it goes on.
	Mode store.Mode `json:"mode,omitempty" enum:"drain,stop"`

	// The tasks of the request, in its order; those with stop must be stopped. If it named none, those
	// that must be stopped.
	Jobs []claims.Answer `json:"jobs"`
}

type renewOutput struct{ Body renewed }

func (h *handler) renewClaims(ctx context.Context, in *claimInput) (*renewOutput, error) {
	session, err := sessionOf(in.Worker)
	if err != nil {
		return nil, err
	}
	var b renewBody
	if err := strict(callOf(ctx).body, &b, `"jobs": [`+heldExample+`]`); err != nil {
		return nil, err
	}
	desk, r := serviceOf(ctx).Claims(), claims.Renewal{}
	if b.Wait != 0 {
		wait, done, pollErr := h.poll(ctx, time.Duration(b.Wait))
		if pollErr != nil {
			return nil, pollErr
		}
		defer done()
		r, err = desk.RenewWaiting(ctx, wait, session, time.Duration(b.Lease), b.Jobs)
	} else {
		r, err = desk.Renew(ctx, session, time.Duration(b.Lease), b.Jobs)
	}
	return &renewOutput{renewed{job.Duration(r.Lease), r.Mode, r.Jobs}}, err
}

// poll begins a call that may wait so long. Only so many wait at a time; 0 does not wait.
func (h *handler) poll(ctx context.Context, d time.Duration) (wait context.Context, done func(), err error) {
	if d < 0 {
		return nil, nil, invalid("wait", d.String(), "is negative", "give a duration such as 30s, or leave it out")
	}
	release := func() {}
	if d > 0 {
		if release, err = h.stream(); err != nil {
			return nil, nil, err
		}
	}
	wait, cancel := h.waiting(ctx, d)
	return wait, func() {
		cancel()
		release()
	}, nil
}

func (h *handler) endClaims(ctx context.Context, in *claimInput) (*struct{}, error) {
	session, err := sessionOf(in.Worker)
	if err != nil {
		return nil, err
	}
	return nil, serviceOf(ctx).Claims().End(ctx, session)
}

// reportBody is a report on tasks.
type reportBody[T any] struct {
	// The tasks, each once.
	Jobs []T `json:"jobs" minItems:"1" maxItems:"1000"`
}

// reported is the answer to a report that was written down whole.
type reported struct {
	// What became of each task of the request, in its order.
	Jobs []claims.Answer `json:"jobs"`
}

type reportOutput struct{ Body reported }

// report registers an operation that takes reports. more is what an example has beside id and
// epoch.
func report[T any, R interface {
	*T
	Report() (claims.Report, error)
}](h *handler, op operation, more string) {
	item := heldExample
	if more != "" {
		item = strings.TrimSuffix(item, "}") + ", " + more + "}"
	}
	op.body = bodyOf[reportBody[T]](`{"jobs": [` + item + `]}`)
	register(h, op, func(ctx context.Context, in *claimInput) (*reportOutput, error) {
		session, err := sessionOf(in.Worker)
		if err != nil {
			return nil, err
		}
		var b reportBody[T]
		if err := strict(callOf(ctx).body, &b, `"jobs": [`+item+`]`); err != nil {
			return nil, err
		}
		if len(b.Jobs) == 0 {
			return nil, invalid("jobs", "", "is missing", "name the tasks, such as "+item)
		}
		reports := make([]claims.Report, len(b.Jobs))
		for i := range b.Jobs {
			if reports[i], err = R(&b.Jobs[i]).Report(); err != nil {
				return nil, below(fmt.Sprintf("jobs[%d]", i), err)
			}
		}
		answers, err := serviceOf(ctx).Claims().Report(ctx, session, reports)
		if err != nil {
			return nil, err
		}
		return &reportOutput{reported{answers}}, refusedOf(answers)
	})
}

// A reportError says which tasks of a report were refused.
type reportError struct {
	problems []job.Problem
	answers  []claims.Answer
	first    error
}

func (e *reportError) Error() string {
	return fmt.Sprintf("%d of %d tasks are refused, the first of them because %s",
		len(e.problems), len(e.answers), e.first)
}

func (e *reportError) Unwrap() error { return e.first }

// refusedOf returns the error of a report that was refused in part.
func refusedOf(answers []claims.Answer) error {
	e := &reportError{answers: answers}
	for i := range answers {
		if err := answers[i].Err(); err != nil {
			e.problems = append(e.problems, job.Problem{
				Path: fmt.Sprintf("jobs[%d]", i), Value: answers[i].ID.String(), What: "is refused: " + err.Error(),
				Remedy: "stop this task",
			})
			if e.first == nil {
				e.first = err
			}
		}
	}
	if e.first == nil {
		return nil
	}
	return withStatus(http.StatusConflict, e)
}
