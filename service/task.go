package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/store"
)

// The causes with which the context of a handler ends; see [context.Cause].
var (
	ErrCanceled    = engine.ErrCanceled
	ErrPaused      = engine.ErrPaused
	ErrInterrupted = engine.ErrInterrupted
	ErrLeaseLost   = engine.ErrLeaseLost
	ErrTimedOut    = errors.New("the handler took longer than it may")
)

// A Task is one job in the hands of a handler.
type Task[A any] struct {
	// Job is the row as it was when the attempt began.
	Job job.Job
	// Args are the arguments of the spec, read from JSON.
	Args A

	s *Service
}

// AddEvent writes an event into the history of the job, where clients that follow the job see it.
// It is refused once the process has lost the job.
func (t *Task[A]) AddEvent(ctx context.Context, n job.CustomEvent) error {
	_, err := t.s.addEvent(ctx, store.NewEvent{Job: t.Job.ID, Cause: job.CauseJob, Epoch: t.Job.Epoch, CustomEvent: n})
	return err
}

// Handle registers the handler of a kind of task. It must be called before [Service.Run].
//
// The handler's result is kept with the job, as JSON. An error fails the attempt: the job is tried
// again after a backoff while it has attempts left, unless [Permanent] made the error. An error of
// [Block] makes the job wait.
//
// The handler runs at least once: after a crash of its process it is called again. It should return
// soon after its context has ended. An error that it returns then does not count as a failed
// attempt, unless its time was over: see [TimeLimit]. It must not leave its goroutine changed, such
// as locked to a thread, because the next job may run there.
func Handle[A, R any](s *Service, kind string, handler func(context.Context, *Task[A]) (R, error),
	options ...HandleOption,
) {
	var how handling
	for _, o := range options {
		o(&how)
	}
	s.cfg.Kinds[kind] = taskKind(func(ctx context.Context, r *engine.Run) engine.Outcome {
		t := &Task[A]{Job: r.Job, s: s}
		spec := struct {
			Args *A `json:"args"`
		}{&t.Args}
		if err := json.Unmarshal(r.Job.Request, &spec); err != nil {
			return engine.Fail(job.Entry{
				Code:    job.InvalidDefinition,
				Message: fmt.Sprintf("args do not fit kind %s: %v", kind, err),
			})
		}
		ctx, cancel := how.limited(ctx)
		defer cancel()
		out, err := handler(ctx, t)
		var p *permanent
		switch b := job.Blocking(err); {
		case b != nil:
			if err := b.Check(); err != nil {
				return engine.Fail(job.Entry{
					Code:    job.TaskFailed,
					Message: "the handler found a condition for which no job can wait: " + err.Error(),
				})
			}
			return engine.Block(b)
		case errors.As(err, &p):
			return engine.Fail(job.Entry{Code: job.TaskFailed, Message: err.Error()})
		case err != nil && errors.Is(context.Cause(ctx), ErrTimedOut):
			return engine.Retry(job.Entry{
				Code: job.TimeLimit, Message: fmt.Sprintf(
					"the handler was told to stop after %s, which is all that kind %s gives it: %v", how.limit,
					kind, err),
			})
		case err != nil:
			return engine.Retry(job.Entry{Code: job.TaskFailed, Message: err.Error()})
		}
		result, err := json.Marshal(out)
		if err != nil {
			return engine.Fail(job.Entry{Code: job.TaskFailed, Message: "result is not JSON: " + err.Error()})
		}
		if string(result) == "null" || string(result) == "{}" {
			result = nil
		}
		return engine.Done(result)
	})
	s.start()
}

// A HandleOption says more about how the tasks of a kind run.
type HandleOption func(*handling)

// TimeLimit gives each attempt this much time; by default there is no limit. When it is over, the
// context of the handler ends with [ErrTimedOut]. If the handler then returns an error, the attempt
// fails with the code TIME_LIMIT, and the job is tried again as after any error. If it returns a
// result, the result counts.
func TimeLimit(d time.Duration) HandleOption { return func(h *handling) { h.limit = d } }

type handling struct {
	limit time.Duration // of an attempt; 0: none
}

func (h *handling) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, h.limit, ErrTimedOut)
}

type taskKind func(context.Context, *engine.Run) engine.Outcome

func (f taskKind) Step(ctx context.Context, r *engine.Run) engine.Outcome { return f(ctx, r) }

// Block returns the error of a handler that met a condition which may clear by itself. The job
// becomes BLOCKED until a tester, asked with params, says that the condition has cleared. Then the
// handler is called again, in the same attempt. All jobs with the same tester and params are tested
// together.
//
// condition says what happened, for people, such as "the payment service is away". tester is
// [TesterEnabled], a name in [Config.Testers], or "go/NAME" for the function that [HandleTester]
// registered as NAME. The name of a tester has up to 64 bytes. There are up to [job.MaxParams]
// parameters of up to 1,024 bytes each, name and value together. Otherwise the job fails.
func Block(condition, tester string, params map[string]string) error {
	return &job.Block{Code: job.TaskBlocked, Message: condition, Tester: tester, Params: params}
}

// HandleTester registers a function that finds out whether a condition has cleared. Jobs that
// [Block] has blocked with "go/" and its name wait until it returns nil. Its error says for people
// why they still wait. It must be called before [Service.Run].
//
// The function is called in one of the processes that have registered it, once for all jobs with
// the same parameters. It should return soon after its context has ended.
func HandleTester(s *Service, name string, test func(ctx context.Context, params map[string]string) error) {
	HandleTesterOf(s, name, recovery.Func(test))
}

// HandleTesterOf is HandleTester for a tester that says more, such as how many jobs may go on.
func HandleTesterOf(s *Service, name string, t recovery.Tester) {
	s.cfg.Testers[recovery.FuncPrefix+name] = t
	s.start()
}

// Permanent marks an error that another attempt would not mend: the job ends as FAILED at once.
// Permanent of nil is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

// NewTask returns the spec of a task. It panics if args cannot be written as JSON, which is a
// defect of the caller.
func NewTask(kind string, args any) job.Spec {
	b, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("pawl: arguments of %s: %v", kind, err))
	}
	return job.Spec{Kind: kind, Args: b}
}
