package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
		bodyOf[claimBody](`{"worker": "mailer", "kinds": ["mail"], "slots": 4, "wait": "30s"}`)), h.claim)
	register(h, op("renew-claims", "/renew", "Say that a worker lives, and hear which tasks it must stop",
		"It is due three times in a lease.",
		bodyOf[renewBody](`{"jobs": [`+heldExample+`]}`)), h.renewClaims)
	end := op("end-claims", "/end", "End the session of a worker",
		"The tasks that it still holds go back as if they had never been claimed. It can be repeated.", nil)
	end.status = http.StatusNoContent
	register(h, end, h.endClaims)

	report(h, op("finish-claims", "/finish", "Say that tasks are done", reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "result": {"sent": 3}}`,
		func(in *finishItem) (claims.Report, error) {
			return claims.Finish(claims.Held{ID: in.ID, Epoch: in.Epoch}, in.Result)
		})
	report(h, op("fail-claims", "/fail", "Say that tasks have failed",
		"They are tried again after a backoff while they have attempts left. "+reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "message": "mail server said 550", "final": true}`, failReport)
	report(h, op("checkpoint-claims", "/checkpoint", "Keep state for the next run of tasks",
		"The claim of that run answers it. "+reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "checkpoint": {"page": 7}}`, checkpointReport)
	report(h, op("progress-claims", "/progress", "Say how far tasks have come", "Only the newest is kept. "+reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "done": 40, "total": 100}`,
		func(in *progressItem) (claims.Report, error) {
			return claims.Progress(claims.Held{ID: in.ID, Epoch: in.Epoch}, job.Progress{What: in.What, Done: in.Done, Total: in.Total})
		})
	report(h, op("log-claims", "/log", "Write events into the histories of tasks",
		"A job may be there more than once. A call that is repeated writes them again. "+reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "name": "log", "message": "page 7 is empty"}`,
		func(in *logItem) (claims.Report, error) {
			return claims.Log(claims.Held{ID: in.ID, Epoch: in.Epoch}, job.CustomEvent{Name: in.Name, Message: in.Message, Data: in.Data})
		})
	report(h, op("snooze-claims", "/snooze", "Let tasks run again later, in the same attempt", reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "delay": "5m"}`, snoozeReport)
	report(h, op("block-claims", "/block", "Let tasks wait for a condition that may clear by itself", reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "message": "the mail server is away", "tester": "tcp", "params": `+
			`{"address": "mail:25"}}`, blockReport)
	report(h, op("cancel-claims", "/cancel", "Say that tasks are not wanted any more", reportRule, nil),
		heldExample[:len(heldExample)-1]+`, "message": "the account is closed"}`,
		func(in *cancelItem) (claims.Report, error) {
			return claims.Cancel(claims.Held{ID: in.ID, Epoch: in.Epoch}, in.Message)
		})
	report(h, op("release-claims", "/release", "Give tasks back as if they had never been claimed",
		"A worker that was told to stop a task says so. "+reportRule, nil), heldExample,
		func(in *heldItem) (claims.Report, error) {
			return claims.Release(claims.Held{ID: in.ID, Epoch: in.Epoch}), nil
		})
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

// claimBody asks for jobs.
type claimBody struct {
	// An id for the call, made by the caller. A call that is repeated with the same id answers the
	// same jobs.
	ID job.ID `json:"id,omitzero"`

	// A name for the worker, for people.
	Worker string `json:"worker,omitempty" maxLength:"64" example:"mailer"`

	// The machine that the worker runs on, for people.
	Host string `json:"host,omitempty" maxLength:"255"`

	// The id of its process there, for people.
	PID int `json:"pid,omitempty" minimum:"0"`

	// The version of the worker, for people.
	Version string `json:"version,omitempty" maxLength:"64"`

	// The kinds of task that the worker handles.
	Kinds []string `json:"kinds" minItems:"1" maxItems:"100" example:"[\"mail\"]"`

	// The only queues from which it takes tasks; all by default.
	Queues []string `json:"queues,omitempty" example:"[\"default\"]"`

	// How many tasks it has room for now.
	Slots int `json:"slots" minimum:"1" maximum:"1000" example:"4"`

	// How long the worker may be silent before its tasks go to others, 1s to 1h; that of the service
	// by default.
	Lease job.Duration `json:"lease,omitempty" example:"30s"`

	// How long to wait if no task is ready; half a lease at most.
	Wait job.Duration `json:"wait,omitempty" example:"30s"`
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
	var b claimBody
	if err := strict(callOf(ctx).body, &b, `"kinds": ["mail"], "slots": 4`); err != nil {
		return nil, err
	}
	if err := forPeople(&b); err != nil {
		return nil, err
	}
	if b.Wait > 0 {
		release, err := h.stream()
		if err != nil {
			return nil, err
		}
		defer release()
	}
	wait, cancel := h.waiting(ctx, time.Duration(b.Wait))
	defer cancel()
	c, err := serviceOf(ctx).Claims().Claim(ctx, wait, session, claims.Ask{
		ID: b.ID, Worker: claims.Worker{Name: b.Worker, Host: b.Host, PID: b.PID, Version: b.Version},
		Kinds: b.Kinds, Queues: b.Queues, Slots: b.Slots, Lease: time.Duration(b.Lease),
	})
	return &claimOutput{claimed{c.Session, job.Duration(c.Lease), c.Mode, c.Jobs}}, err
}

// forPeople checks what a worker tells of itself.
func forPeople(b *claimBody) error {
	if b.Worker == "" {
		b.Worker = "worker"
	}
	for _, f := range []struct {
		path, text string
		most       int
	}{{"worker", b.Worker, 64}, {"host", b.Host, 255}, {"version", b.Version, 64}} {
		if len(f.text) > f.most || notText(f.text) {
			return invalid(f.path, f.text, "is too long, or is no text", "keep it to "+itoa(f.most)+" bytes")
		}
	}
	return nil
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
	r, err := serviceOf(ctx).Claims().Renew(ctx, session, time.Duration(b.Lease), b.Jobs)
	return &renewOutput{renewed{job.Duration(r.Lease), r.Mode, r.Jobs}}, err
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

// reported is the answer to a report of which all was written down.
type reported struct {
	// What became of each task of the request, in its order.
	Jobs []claims.Answer `json:"jobs"`
}

type reportOutput struct{ Body reported }

// report registers an operation that takes reports.
func report[T any](h *handler, op operation, item string, read func(*T) (claims.Report, error)) {
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
			if reports[i], err = read(&b.Jobs[i]); err != nil {
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
	return fmt.Sprintf("%d of %d tasks are refused, the first of them because %s", len(e.problems), len(e.answers), e.first)
}

func (e *reportError) Unwrap() error { return e.first }

// refusedOf returns the error of a report of which something was refused.
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

// heldItem is a task alone.
type heldItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`
}

// finishItem is a task with its result.
type finishItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What the task returns: any JSON.
	Result json.RawMessage `json:"result,omitempty"`
}

// failItem is a task that failed.
type failItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What went wrong, for people.
	Message string `json:"message,omitempty" maxLength:"4096"`

	// TASK_FAILED by default.
	Code job.Code `json:"code,omitempty" enum:"TASK_FAILED,TIME_LIMIT,TASK_STALLED,TASK_PANICKED,INVALID_DEFINITION"`

	// Another attempt would not help: the job fails, even if it has attempts left.
	Final bool `json:"final,omitempty"`

	// Evidence for finding the cause: any JSON, up to 16 KiB.
	Data json.RawMessage `json:"data,omitempty"`
}

func failReport(in *failItem) (claims.Report, error) {
	return claims.Fail(claims.Held{ID: in.ID, Epoch: in.Epoch}, in.Final, in.Code, in.Message, in.Data)
}

// checkpointItem is a task with its state.
type checkpointItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// The state for the next run: any JSON, up to 1 MiB.
	Checkpoint json.RawMessage `json:"checkpoint"`
}

func checkpointReport(in *checkpointItem) (claims.Report, error) {
	return claims.Checkpoint(claims.Held{ID: in.ID, Epoch: in.Epoch}, in.Checkpoint)
}

// progressItem is how far a task has come.
type progressItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// How much is done.
	Done int64 `json:"done"`

	// Of how much; missing: that is not known.
	Total int64 `json:"total,omitempty"`

	// What is done now, for people.
	What string `json:"what,omitempty" maxLength:"255" example:"sending"`
}

// logItem is an event of a task.
type logItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What kind of event it is, such as log. The name of a state is refused.
	Name string `json:"name" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"log"`

	// For people.
	Message string `json:"message,omitempty" maxLength:"4096"`

	// For programs: any JSON, up to 16 KiB.
	Data json.RawMessage `json:"data,omitempty"`
}

// snoozeItem is a task that runs again later.
type snoozeItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// How long it waits.
	Delay job.Duration `json:"delay" example:"5m"`

	// Why, for people.
	Message string `json:"message,omitempty" maxLength:"4096"`
}

func snoozeReport(in *snoozeItem) (claims.Report, error) {
	return claims.Snooze(claims.Held{ID: in.ID, Epoch: in.Epoch}, time.Duration(in.Delay), in.Message)
}

// blockItem is a task that waits for a condition.
type blockItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What happened, for people.
	Message string `json:"message" maxLength:"4096"`

	// The test that finds out whether the condition has cleared.
	Tester string `json:"tester" maxLength:"64" example:"tcp"`

	// What the test is asked with. All jobs with the same test and parameters are tested together.
	Params map[string]string `json:"params,omitempty"`
}

func blockReport(in *blockItem) (claims.Report, error) {
	return claims.Block(claims.Held{ID: in.ID, Epoch: in.Epoch}, in.Message, in.Tester, in.Params)
}

// cancelItem is a task that is not wanted any more.
type cancelItem struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// Why, for people.
	Message string `json:"message,omitempty" maxLength:"4096"`
}
