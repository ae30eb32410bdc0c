package pawl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
)

// A Task declares a kind of job whose arguments are A and whose result is R. Both are written as
// JSON. Only Kind is required. A declaration never changes: the code that enqueues and the code
// that handles share it. The database keeps it for jobs that come in other ways: see
// [Task.Declare].
type Task[A, R any] struct {
	// Kind is its name in the database: up to 64 of A-Z a-z 0-9 . _ -.
	Kind string

	// Queue is where its jobs wait; "default" by default.
	Queue string

	// Unique says which jobs are equal, and what becomes of a job while there is an equal one:
	// [UntilStart], [UntilDone], [WhileRunning]. By default no two jobs are equal.
	Unique Unique

	// Order puts jobs in order: [InOrder]. By default there is none.
	Order Order

	// Limits are keys of limits. A job takes a turn of each before it runs. A limit of all jobs of
	// the kind has the key kind/KIND. [service.Service.SetLimit] sets limits.
	Limits []string

	// Retry says how often a job is tried, and how long it waits between; by default ten times,
	// with exponential backoff from 1 s to 1 h, each wait a random part of that.
	Retry *job.RetryPolicy

	// Timeout is how long one run may take; 0: as long as it likes. See [ErrTimedOut].
	Timeout time.Duration

	// Stall is how long a run may go on without [Job.Heartbeat], [Job.Progress] or
	// [Job.Checkpoint]; 0: as long as it likes. See [ErrStalled].
	Stall time.Duration

	// Slots is how many of its jobs run at once, in all processes together: the limit kind/KIND. 0
	// leaves that limit as it is.
	Slots int

	// Schema is a JSON Schema (2020-12) of A. Jobs whose arguments do not meet it are refused, also
	// those that come from elsewhere. Nil leaves it as people have set it.
	Schema json.RawMessage

	// Keep is how long its jobs are kept after their end, by the state in which they end. For a state
	// that it does not have the retention of the tenant holds.
	Keep map[job.State]time.Duration

	// Index names arguments, up to four, by which an index finds the jobs: image, or user.id for a
	// field in a field. Without one, all jobs of a filter's window are looked at.
	Index []string

	// Revision is raised with a change of the declaration, so that a process of an older build does
	// not take the change back: see [Task.Declare].
	Revision int

	// Version is the version of A that this build writes; 0 stands for 1. A job whose arguments have
	// a newer version than its process knows is BLOCKED until a process that knows it is there, for
	// a week at most.
	Version int

	// Migrate brings arguments of older versions up to date: the function of version n makes
	// arguments of version n+1.
	Migrate map[int]func(args json.RawMessage) (json.RawMessage, error)
}

// Unique says which jobs of a kind are equal. Equality is that of JSON values: 1, 1.0 and 1e0 are
// equal, and the order of fields does not count.
type Unique struct{ u *job.Unique }

// UntilStart makes jobs equal that have the same values in these fields of their arguments; without
// fields, in all of them. A dot leads into a field. While an equal job waits to run for the first
// time, [Task.Enqueue] returns that job.
func UntilStart(fields ...string) Unique { return unique(job.UntilStart, fields) }

// UntilDone is [UntilStart] while an equal job has not ended.
func UntilDone(fields ...string) Unique { return unique(job.UntilDone, fields) }

// WhileRunning accepts equal jobs, and never runs two of them at once.
func WhileRunning(fields ...string) Unique { return unique(job.WhileRunning, fields) }

// Alone returns u, which must be of [UntilStart], so that equal jobs never run at once either: one
// may be in the queue while an equal one runs.
func (u Unique) Alone() Unique {
	both := *u.u
	both.Alone = true
	return Unique{&both}
}

func unique(until job.UniqueMode, fields []string) Unique {
	return Unique{&job.Unique{Args: fields, Until: until}}
}

// Order says which jobs go one after the other.
type Order struct{ o *job.Order }

// InOrder makes jobs whose arguments have the same fields go one after the other, in the order of
// their submission. A job that fails and is tried again holds the others up.
func InOrder(fields ...string) Order { return Order{&job.Order{Args: fields}} }

// By returns o in another order: due, the time before which a job does not start, or a field of the
// arguments, such as args.version, the least first.
func (o Order) By(what string) Order {
	other := *o.o
	other.By = what
	return Order{&other}
}

// Passing returns o with jobs that go on while the one before them is in trouble.
func (o Order) Passing() Order {
	other := *o.o
	other.Failing = job.OrderPass
	return Order{&other}
}

// Handle registers the handler of the task in a service. It must be called before [Service.Run].
//
// The handler's result is kept with the job. An error fails the attempt. The handler runs at least
// once: after a crash of its process it is called again. It should return soon after its context
// has ended; [context.Cause] says why that was, such as [ErrCanceled]. An error that it returns
// then does not count as a failed attempt, unless its time was over.
func (t Task[A, R]) Handle(s *Service, handler func(context.Context, *Job[A]) (R, error)) {
	options := []service.HandleOption{
		service.TimeLimit(t.Timeout), service.Stall(t.Stall), service.Around(s.around...),
	}
	s.kinds = append(slices.DeleteFunc(s.kinds, func(k kinds.Kind) bool { return k.Name == t.Kind }), t.kind())
	version := max(t.Version, 1)
	s.knowVersions(t.Kind, version)
	s.jobs.Handle(t.Kind, func(ctx context.Context, run *service.TaskRun) (any, error) {
		j := &Job[A]{TaskRun: run}
		if err := t.read(run, version, &j.Args); err != nil {
			return nil, err
		}
		return handler(ctx, j)
	}, options...)
}

// Enqueue submits a job of the task and returns once it is durable. While there is an equal job, as
// Unique says, it returns that job. See [EnqueueOption] for times, priorities and transactions.
func (t Task[A, R]) Enqueue(ctx context.Context, s *Service, args A, options ...EnqueueOption) (*Handle[R], error) {
	hs, err := t.EnqueueAll(ctx, s, []A{args}, options...)
	if err != nil {
		return nil, err
	}
	return hs[0], nil
}

// EnqueueAll submits a job for each of args, all or none, in one transaction. The options are those
// of every job.
func (t Task[A, R]) EnqueueAll(ctx context.Context, s *Service, args []A, options ...EnqueueOption) (
	[]*Handle[R], error,
) {
	reqs := make([]service.Request, len(args))
	var e Enqueueing
	for i := range args {
		spec, err := t.spec(args[i])
		if err != nil {
			return nil, err
		}
		e.Spec = &spec
		for _, set := range options {
			set(&e)
		}
		reqs[i] = service.Request{ID: job.NewID(), Spec: spec, Trace: e.Trace}
	}
	sub := service.Submission{Jobs: reqs, Key: e.Key, Tx: e.Tx}
	answers, err := s.jobs.SubmitAll(ctx, sub)
	if err != nil {
		return nil, err
	}
	hs := make([]*Handle[R], len(answers))
	for i, a := range answers {
		hs[i] = &Handle[R]{ID: a.ID, Existed: a.ID != reqs[i].ID, s: s}
	}
	return hs, nil
}

// spec returns the spec of a job.
func (t *Task[A, R]) spec(args A) (job.Spec, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return job.Spec{}, job.Errorf(job.Invalid, "arguments of %s: %w", t.Kind, err)
	}
	spec := job.Spec{
		Kind: t.Kind, Queue: t.Queue, Args: text, Unique: t.Unique.u, Order: t.Order.o, Limits: slices.Clone(t.Limits),
		Retry: t.Retry,
	}
	if t.Version > 1 {
		spec.ArgsVersion = t.Version
	}
	return spec, nil
}

// read reads the arguments of a job. Those of an older version are brought up to date first.
func (t *Task[A, R]) read(run *service.TaskRun, version int, args *A) error {
	var spec struct {
		Args    json.RawMessage `json:"args"`
		Version int             `json:"args_version"`
	}
	if err := json.Unmarshal(run.Job.Request, &spec); err != nil {
		return err
	}
	has := cmp.Or(spec.Version, 1)
	if has > version {
		return newerArgs(t.Kind, has, version)
	}
	for ; has < version; has++ {
		migrate := t.Migrate[has]
		if migrate == nil {
			continue // A reads both
		}
		newer, err := migrate(spec.Args)
		if err != nil {
			return Fail(fmt.Errorf("arguments of version %d: %w", has, err))
		}
		spec.Args = newer
	}
	if spec.Args == nil {
		return nil
	}
	if err := json.Unmarshal(spec.Args, args); err != nil {
		return service.ArgsError(t.Kind, err)
	}
	return nil
}

// An EnqueueOption says more about one call of Enqueue: [At], [After], [WithPriority], [WithKey],
// [WithID], [WithLabel], postgres.In, sqlite.In.
type EnqueueOption func(*Enqueueing)

// Enqueueing is what options of Enqueue change.
type Enqueueing struct {
	Spec  *job.Spec // of one job
	Key   string    // an idempotency key; empty: none
	Trace string    // a W3C traceparent; empty: none
	Tx    service.Tx
}

// At does not run the job before t.
func At(t time.Time) EnqueueOption { return func(e *Enqueueing) { e.Spec.NotBefore = t } }

// After does not run the job before d has passed, by the clock of the database.
func After(d time.Duration) EnqueueOption {
	return func(e *Enqueueing) { e.Spec.Delay = job.Duration(d) }
}

// WithPriority gives the job a priority: 0 goes first, 9 last, 5 by default.
func WithPriority(n int) EnqueueOption { return func(e *Enqueueing) { e.Spec.Priority = &n } }

// WithID gives the job a name of the caller's own. Another call with the same name and arguments
// returns the same job; with other arguments it is an error of kind Conflict.
func WithID(id string) EnqueueOption { return func(e *Enqueueing) { e.Spec.ExternalID = id } }

// WithKey makes the call one that can be repeated: within a day, another call with the same key and
// arguments returns the same jobs.
func WithKey(key string) EnqueueOption { return func(e *Enqueueing) { e.Key = key } }

// WithLabel gives the job a label, for filters.
func WithLabel(name, value string) EnqueueOption {
	return func(e *Enqueueing) {
		labels := map[string]string{name: value}
		for k, v := range e.Spec.Labels {
			if k != name {
				labels[k] = v
			}
		}
		e.Spec.Labels = labels
	}
}

// A Handle is a job that was enqueued.
type Handle[R any] struct {
	ID      job.ID
	Existed bool // it was there before: an equal job, or one of the same key or id
	s       *Service
}

// Wait waits until the job has ended and returns its result. The error is an [*Ended] if the job
// did not finish.
func (h *Handle[R]) Wait(ctx context.Context) (R, error) {
	var result R
	j, err := h.s.jobs.Wait(ctx, h.ID)
	if err != nil {
		return result, err
	}
	if j.State != job.Finished {
		return result, &Ended{ID: j.ID, State: j.State, Code: j.Code, Message: j.Message}
	}
	if j.Result == nil {
		return result, nil
	}
	if err := json.Unmarshal(j.Result, &result); err != nil {
		return result, fmt.Errorf("result of job %s: %w", j.ID, err)
	}
	return result, nil
}

// Job returns the job as it is now.
func (h *Handle[R]) Job(ctx context.Context) (job.Job, error) { return h.s.jobs.Job(ctx, h.ID) }

// Find returns the handle of a job of this task that was enqueued before, here or elsewhere.
func (t Task[A, R]) Find(s *Service, id job.ID) *Handle[R] {
	return &Handle[R]{ID: id, Existed: true, s: s}
}

// An Ended is the error of a job that did not finish. It is [ErrCanceled] if the job was canceled.
type Ended struct {
	ID      job.ID
	State   job.State // FAILED or CANCELED
	Code    job.Code
	Message string
}

func (e *Ended) Error() string {
	return fmt.Sprintf("job %s is %s (%s): %s", e.ID, e.State, e.Code, e.Message)
}

// Is reports whether target is ErrCanceled and the job was canceled.
func (e *Ended) Is(target error) bool { return target == ErrCanceled && e.State == job.Canceled }
