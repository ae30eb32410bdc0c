package pawl

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

// Why the context of a handler ended; see [context.Cause].
var (
	ErrCanceled    = engine.ErrCanceled
	ErrPaused      = engine.ErrPaused
	ErrInterrupted = engine.ErrInterrupted
	ErrLeaseLost   = engine.ErrLeaseLost
	ErrTimedOut    = errors.New("the handler took longer than it may")
)

// A Task is one job in the hands of a handler.
type Task[A any] struct {
	Job  job.Job
	Args A

	s *Service
}

// AddEvent writes an event into the history of the job, for whoever follows it. Once the process
// has lost the job, it is refused.
func (t *Task[A]) AddEvent(ctx context.Context, n job.CustomEvent) error {
	_, err := t.s.addEvent(ctx, store.NewEvent{Job: t.Job.ID, Cause: job.CauseJob, Epoch: t.Job.Epoch, CustomEvent: n})
	return err
}

// Handle registers the handler of a kind of task. It must be called before [Service.Run].
//
// The handler's result is kept with the job. An error fails the attempt; the job is tried again
// after a backoff while it has attempts left, unless the error was made by [Permanent]. The handler
// runs at least once: after a crash of its process it is called again. It should return soon after
// its context has ended; an error that it returns then counts for nothing, unless it ran out of
// time: see [TimeLimit]. It leaves its goroutine as it was: another job may be run there next.
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

// A HandleOption says more of how the tasks of a kind are run.
type HandleOption func(*handling)

// TimeLimit gives each attempt so much time; by default it has as much as it takes. When that is
// over, the handler's context ends with [ErrTimedOut]. An error that it returns then fails the
// attempt with code TIME_LIMIT, and the job is tried again as after any error; a result counts,
// though it is late.
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

// Block returns the error of a handler that met a condition which may clear by itself: the job is
// BLOCKED until the tester, asked with params, says that it has, and then the handler is called
// again, in the same attempt. All jobs that wait for the same are tested together. Condition says
// what it is, for people, such as "the payment service is away". The testers that there are, and
// their parameters, are [TesterEnabled], those of [Config.Testers], such as those of package
// recovery/testers, and as "go/NAME" the function that [HandleTester] registers as NAME. A tester's
// name has up to 64 bytes, and there are up to [job.MaxParams] parameters of up to 1,024 bytes,
// with their names; else the job fails.
func Block(condition, tester string, params map[string]string) error {
	return &job.Block{Code: job.TaskBlocked, Message: condition, Tester: tester, Params: params}
}

// HandleTester registers a function that finds out whether a condition has cleared: jobs that are
// blocked by "go/" and its name, see [Block], wait until it returns no error; its error says why
// not, for people. It must be called before [Service.Run], and is called in one of the processes
// that have registered it, for all jobs with the same parameters. It should return soon after its
// context has ended.
func HandleTester(s *Service, name string, test func(ctx context.Context, params map[string]string) error) {
	HandleTesterOf(s, name, recovery.Func(test))
}

// HandleTesterOf is HandleTester for a tester that has more to say, such as how many jobs may go.
func HandleTesterOf(s *Service, name string, t recovery.Tester) {
	s.cfg.Testers[recovery.FuncPrefix+name] = t
	s.start()
}

// Permanent marks an error after which trying again is of no use: the job ends as FAILED.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

// NewTask returns the spec of a task. It panics when args is not JSON, which is a defect of the
// caller.
func NewTask(kind string, args any) job.Spec {
	b, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("pawl: arguments of %s: %v", kind, err))
	}
	return job.Spec{Kind: kind, Args: b}
}
