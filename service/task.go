package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/claims"
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
	ErrStalled     = errors.New("the handler did not say in time that it goes on")
)

// A Handler runs a task. Its result is kept with the job, as JSON.
type Handler func(ctx context.Context, t *TaskRun) (result any, err error)

// A Task is one job in the hands of a handler, with its arguments.
type Task[A any] struct {
	*TaskRun
	Args A
}

// A TaskRun is one job in the hands of a handler. Its methods are safe for concurrent use. They
// write nothing once the process has lost the job.
type TaskRun struct {
	// Job is the row as it was when this run began.
	Job job.Job

	s    *Service
	run  *engine.Run
	beat func() // says that the handler goes on

	mu      sync.Mutex
	work    claims.Work // guarded by mu
	told    time.Time   // guarded by mu: when the store was told of progress
	waiting bool        // guarded by mu: progress waits to be told
	over    bool        // guarded by mu: the handler has returned
	// deciding are the transactions in which the handler has decided how the job ends; guarded by mu.
	deciding []Tx
}

// AddEvent writes an event into the history of the job, unless the process has lost the job.
func (t *TaskRun) AddEvent(ctx context.Context, n job.CustomEvent) error {
	if err := t.silent(); err != nil {
		return err
	}
	_, err := t.s.addEvent(ctx, store.NewEvent{Job: t.Job.ID, Cause: job.CauseJob, Epoch: t.Job.Epoch, CustomEvent: n})
	return err
}

// silent returns why the handler has nothing more to say; nil: it may say something.
func (t *TaskRun) silent() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet()
}

// quiet is silent, with mu held.
func (t *TaskRun) quiet() error {
	switch {
	case t.over:
		return errReturned
	case len(t.deciding) > 0:
		return errDeciding
	}
	return nil
}

// progressEvery is how often the store is told of progress.
const progressEvery = time.Second

// Progress tells people how far the handler has come. Only the newest is kept. The store is told
// once a second at most. Counts below 0 are 0. Like [TaskRun.Heartbeat] it says that the handler
// goes on.
func (t *TaskRun) Progress(p job.Progress) {
	t.beat()
	p.What, p.Done, p.Total = job.Text(job.Shorten(p.What, job.MaxWhat)), max(p.Done, 0), max(p.Total, 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.work.Progress, t.work.Epoch = &p, t.Job.Epoch
	if t.quiet() != nil || t.waiting {
		return
	}
	if wait := progressEvery - time.Since(t.told); wait > 0 {
		t.waiting = true
		time.AfterFunc(wait, t.tell)
		return
	}
	t.report(func(error) {})
}

// tell tells the store of progress that has waited.
func (t *TaskRun) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting = false; t.quiet() == nil {
		t.report(func(error) {})
	}
}

// report hands what is kept to the committer. It is called with mu held.
func (t *TaskRun) report(answered func(error)) {
	b, err := json.Marshal(t.work)
	if err != nil {
		panic(err) // plain data
	}
	t.told = time.Now()
	t.run.Report(b, answered)
}

// Checkpoint keeps state, which is written as JSON, for the next run of the job: after a crash, an
// interruption or an error. It returns when that is durable. An error means that the handler must
// stop: the process has lost the job.
func (t *TaskRun) Checkpoint(ctx context.Context, state any) error {
	b, err := json.Marshal(state)
	if err != nil {
		return job.Errorf(job.Invalid, "checkpoint: %w", err)
	}
	if len(b) > job.MaxCheckpoint {
		return job.Errorf(job.Invalid, "a checkpoint of %d bytes: up to %d are kept; keep large state elsewhere, and its "+
			"name here", len(b), job.MaxCheckpoint)
	}
	if st, lends := t.s.cfg.Store.(interface{ Borrowed(context.Context) error }); lends {
		if err := st.Borrowed(ctx); err != nil {
			return err
		}
	}
	t.beat()
	answered := make(chan error, 1)
	t.mu.Lock()
	if err := t.quiet(); err != nil {
		t.mu.Unlock()
		return err
	}
	t.work.Checkpoint = b
	t.report(func(err error) { answered <- err })
	t.mu.Unlock()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Restore reads the state that [TaskRun.Checkpoint] kept last, in this run or an earlier one. found
// is false if there is none.
func (t *TaskRun) Restore(state any) (found bool, err error) {
	t.mu.Lock()
	kept := t.work.Checkpoint
	t.mu.Unlock()
	if kept == nil {
		return false, nil
	}
	if err := json.Unmarshal(kept, state); err != nil {
		return true, job.Errorf(job.Invalid, "the checkpoint of job %s: %w", t.Job.ID, err)
	}
	return true, nil
}

// Heartbeat says that the handler goes on, where [Stall] asks for that. It returns the cause for
// which the handler must stop, if there is one.
func (t *TaskRun) Heartbeat(ctx context.Context) error {
	t.beat()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Handle registers the handler of a kind of task. It must be called before [Service.Run].
//
// An error fails the attempt: the job is tried again after a backoff while it has attempts left,
// unless [Permanent] made the error. Errors of [Block], [Snooze] and [Cancel] do what they say.
//
// The handler runs at least once: after a crash of its process it is called again. It should return
// soon after its context has ended. An error that it returns then does not count as a failed
// attempt, unless its time was over: see [TimeLimit]. It must not leave its goroutine changed, such
// as locked to a thread, because the next job may run there.
func (s *Service) Handle(kind string, handler Handler, options ...HandleOption) {
	h := &handling{s: s, kind: kind, handler: handler}
	for _, o := range options {
		o(h)
	}
	s.cfg.Kinds[kind] = h
	s.start()
}

// Handle registers a handler whose arguments are read from JSON; see [Service.Handle]. Arguments
// that do not fit A fail the job.
func Handle[A, R any](s *Service, kind string, handler func(context.Context, *Task[A]) (R, error),
	options ...HandleOption,
) {
	s.Handle(kind, func(ctx context.Context, t *TaskRun) (any, error) {
		task := &Task[A]{TaskRun: t}
		if err := t.ReadArgs(&task.Args); err != nil {
			return nil, err
		}
		return handler(ctx, task)
	}, options...)
}

// ReadArgs reads the arguments of the job. Its error is of kind Invalid.
func (t *TaskRun) ReadArgs(args any) error {
	spec := struct {
		Args any `json:"args"`
	}{args}
	if err := json.Unmarshal(t.Job.Request, &spec); err != nil {
		return &argsError{t.Job.Kind, err}
	}
	return nil
}

// An argsError says that arguments cannot be read.
type argsError struct {
	kind string
	err  error
}

func (e *argsError) Error() string { return fmt.Sprintf("args do not fit kind %s: %v", e.kind, e.err) }
func (e *argsError) Unwrap() error { return e.err }

// A PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// caught returns h with an error in place of a panic.
func caught(h Handler) Handler {
	return func(ctx context.Context, t *TaskRun) (out any, err error) {
		defer func() {
			if p := recover(); p != nil {
				out, err = nil, &PanicError{p, string(debug.Stack())}
			}
		}()
		return h(ctx, t)
	}
}

// IsFailure reports whether a handler that ended with err has failed: it did not ask for another
// run, and nobody stopped it.
func IsFailure(ctx context.Context, err error) bool {
	switch cause := context.Cause(ctx); {
	case errors.As(err, new(*snooze)), errors.As(err, new(*cancel)), job.Blocking(err) != nil:
		return false
	case errors.Is(cause, ErrTimedOut), errors.Is(cause, ErrStalled):
		return true
	default:
		return cause == nil
	}
}

// A HandleOption says more about how the tasks of a kind run.
type HandleOption func(*handling)

// TimeLimit gives each run this much time; by default there is no limit. When it is over, the
// context of the handler ends with [ErrTimedOut]. If the handler then returns an error, the attempt
// fails with the code TIME_LIMIT, and the job is tried again as after any error. If it returns a
// result, the result counts.
func TimeLimit(d time.Duration) HandleOption { return func(h *handling) { h.limit = d } }

// Stall ends the context of a handler, with [ErrStalled], that has not called [TaskRun.Heartbeat],
// [TaskRun.Progress] or [TaskRun.Checkpoint] for so long. An error that it then returns fails the
// attempt with the code TASK_STALLED.
func Stall(d time.Duration) HandleOption { return func(h *handling) { h.stall = d } }

// Around puts f around the handler. The first one is the outermost.
func Around(f ...func(Handler) Handler) HandleOption {
	return func(h *handling) { h.around = append(h.around, f...) }
}

// Unseen has f called with each failure that no middleware of [Around] sees, because it comes after
// it: a panic of middleware, a result that is not JSON, a handler that ended its goroutine.
func Unseen(f ...func(ctx context.Context, t *TaskRun, err error)) HandleOption {
	return func(h *handling) { h.unseen = append(h.unseen, f...) }
}

// A handling is the kind of a task.
type handling struct {
	s       *Service
	kind    string
	handler Handler
	limit   time.Duration // of a run; 0: none
	stall   time.Duration // between two signs of life; 0: any
	around  []func(Handler) Handler
	unseen  []func(ctx context.Context, t *TaskRun, err error)
}

// errGoexit is the failure of a handler that called [runtime.Goexit], as testing's FailNow does.
var errGoexit = errors.New("the handler ended its goroutine")

// errNoHandler is the failure of a handler whose middleware is wrong.
var errNoHandler = errors.New("middleware of Around returned a nil handler: return next, or a function that calls it")

// Step implements [engine.Kind].
func (h *handling) Step(ctx context.Context, r *engine.Run) (o engine.Outcome) {
	if r.Job.Result != nil { // of a run that committed it and died
		return engine.Decided(r.Job.Result)
	}
	ctx, end := h.limited(ctx)
	defer end(nil)
	t := &TaskRun{Job: r.Job, s: h.s, run: r, work: claims.ReadWork(&r.Job), beat: func() {}}
	if h.stall > 0 {
		timer := time.AfterFunc(h.stall, func() { end(ErrStalled) })
		defer timer.Stop()
		t.beat = func() { timer.Reset(h.stall) }
	}
	defer h.remind(ctx, t)()
	unseen := errGoexit
	defer func() {
		if p := recover(); p != nil {
			panicked := &PanicError{p, string(debug.Stack())}
			o, unseen = engine.Panicked(p, panicked.Stack), panicked
		}
		if unseen == nil || !IsFailure(ctx, unseen) {
			return
		}
		for _, f := range h.unseen {
			f(ctx, t, unseen)
		}
	}()
	call := caught(h.handler)
	for i := range h.around {
		if call = h.around[len(h.around)-1-i](call); call == nil {
			unseen = errNoHandler
			return h.failed(ctx, unseen)
		}
	}
	out, err := call(ctx, t)
	o, unseen = h.outcome(ctx, t, out, err)
	return o
}

// outcome is that of a handler that has returned. unseen is a failure that its middleware has not
// seen.
func (h *handling) outcome(ctx context.Context, t *TaskRun, out any, err error) (o engine.Outcome, unseen error) {
	t.finish()
	if end := t.decided(ctx); end != nil {
		return *end, nil
	}
	if err == nil && len(t.deciding) > 0 {
		err = errors.New("the handler returned without an error, and the transaction of FinishIn has not committed: " +
			"commit it, and return what that returns")
		return h.failed(ctx, err), err
	}
	if b := job.Blocking(err); b != nil && b.Check() != nil {
		return failedFor(fmt.Errorf("the handler found a condition for which no job can wait: %w", b.Check()))
	}
	if err != nil {
		return h.failed(ctx, err), nil
	}
	result, err := json.Marshal(out)
	if err != nil {
		return failedFor(fmt.Errorf("result is not JSON: %w", err))
	}
	return engine.Decided(result), nil
}

// failedFor is the outcome of a run that no other attempt would mend, with its error.
func failedFor(err error) (engine.Outcome, error) {
	return engine.Fail(job.Entry{Code: job.TaskFailed, Message: err.Error()}), err
}

// remind warns each minute of a handler that goes on although its context has ended, until stop is
// called. Nobody else can give its job, its slot and its part of the lease away.
func (h *handling) remind(ctx context.Context, t *TaskRun) (stop func()) {
	over := make(chan struct{})
	ended := context.AfterFunc(ctx, func() {
		for begin := time.Now(); ; {
			select {
			case <-time.After(time.Minute):
				h.s.cfg.Log.WarnContext(ctx, "a handler goes on after the end of its context: it keeps its job and its slot "+
					"until it returns", "kind", h.kind, "job", t.Job.ID, "cause", context.Cause(ctx),
					"ended", time.Since(begin).Round(time.Second).String()+" ago")
			case <-over:
				return
			}
		}
	})
	return func() { ended(); close(over) }
}

// finish lets nothing be reported any more.
func (t *TaskRun) finish() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
}

// limited returns the context of a run, and what ends it.
func (h *handling) limited(run context.Context) (context.Context, context.CancelCauseFunc) {
	if h.limit <= 0 && h.stall <= 0 {
		return run, func(error) {}
	}
	ctx, end := context.WithCancelCause(run)
	if h.limit <= 0 {
		return bounded{ctx, run}, end
	}
	ctx, stop := context.WithTimeoutCause(ctx, h.limit, ErrTimedOut)
	return bounded{ctx, run}, func(cause error) { end(cause); stop() }
}

// A bounded context ends with that of its run, or before. The one of the run looks at the lease of
// the process when it is asked: after the process was frozen, it knows before it is told.
type bounded struct {
	context.Context
	run context.Context
}

func (c bounded) Err() error {
	if err := c.run.Err(); err != nil && c.Context.Err() == nil {
		return err
	}
	return c.Context.Err()
}

// failed is the outcome of a handler that returned an error.
func (h *handling) failed(ctx context.Context, err error) engine.Outcome {
	cause := context.Cause(ctx)
	var p *permanent
	var z *snooze
	var x *cancel
	var panicked *PanicError
	switch b := job.Blocking(err); {
	case b != nil:
		return engine.Block(b)
	case errors.As(err, &panicked):
		return engine.Panicked(panicked.Value, panicked.Stack)
	case errors.As(err, &z):
		return engine.Snooze(z.wait, job.Entry{Message: err.Error()})
	case errors.As(err, &x):
		return engine.Cancel(job.Entry{Message: err.Error()})
	case errors.As(err, new(*argsError)):
		return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
	case errors.As(err, &p):
		return engine.Fail(job.Entry{Code: job.TaskFailed, Message: err.Error()})
	case errors.Is(cause, ErrTimedOut):
		return engine.Retry(job.Entry{Code: job.TimeLimit, Message: fmt.Sprintf(
			"the handler was told to stop after %s, which is all that kind %s gives it%s", h.limit, h.kind, also(ctx, err))})
	case errors.Is(cause, ErrStalled):
		return engine.Retry(job.Entry{Code: job.TaskStalled, Message: fmt.Sprintf(
			"the handler was told to stop: for %s it did not say that it goes on%s", h.stall, also(ctx, err))})
	}
	return engine.Retry(job.Entry{Code: job.TaskFailed, Message: err.Error()})
}

// also is what a handler failed with that was told to stop, unless that is only what it was told.
func also(ctx context.Context, err error) string {
	if text := err.Error(); text != ctx.Err().Error() && text != context.Cause(ctx).Error() {
		return ": " + text
	}
	return ""
}

// Block returns the error of a handler that met a condition which may clear by itself. The job
// becomes BLOCKED until a tester, asked with params, says that the condition has cleared. Then the
// handler is called again, in the same attempt. All jobs with the same tester and params are tested
// together.
//
// condition says what happened, for people, such as "the payment service is away". tester is
// [recovery.Enabled], a name in [Config.Testers], or "go/NAME" for the function that [HandleTester]
// registered as NAME. The name of a tester has up to 64 bytes. There are up to [job.MaxParams]
// parameters of up to 1,024 bytes each, name and value together. Otherwise the job fails.
func Block(condition, tester string, params map[string]string) error {
	return &job.Block{Code: job.TaskBlocked, Message: condition, Tester: tester, Params: params}
}

// Snooze returns the error of a handler that wants to be called again after d, in the same attempt.
// Meanwhile the job is WAITING, and holds no turns.
func Snooze(d time.Duration) error { return &snooze{d} }

type snooze struct{ wait time.Duration }

func (z *snooze) Error() string { return "snoozed for " + z.wait.String() }

// Cancel returns the error of a handler whose job is not wanted any more, for people with the
// reason. The job ends as CANCELED, with the code CANCELED_BY_JOB.
func Cancel(reason string) error { return &cancel{reason} }

type cancel struct{ reason string }

func (c *cancel) Error() string { return c.reason }

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
