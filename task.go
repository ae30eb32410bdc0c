package pawl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A Task declares a kind of job whose arguments are A and whose result is R. Both are written as
// JSON, arguments up to 1 MiB. Only Kind is required:
//
//	var Thumbnail = pawl.Task[Resize, Thumb]{
//		Kind:   "thumbnail",
//		Unique: pawl.UntilStart("image"), // by the names in JSON
//		Order:  pawl.InOrder("user.id"),
//		Retry: &job.RetryPolicy{
//			MaxAttempts: 5, Backoff: job.Backoff{Base: job.Duration(time.Minute), Jitter: true},
//		},
//		Timeout: 10 * time.Minute,
//		Keep:    map[job.State]time.Duration{job.Finished: 24 * time.Hour},
//		Index:   []string{"image"},
//	}
//
// The code that enqueues and the code that handles share the declaration. Nothing registers it:
// [Task.Enqueue] works without, also in a process that handles nothing. The database keeps it for
// jobs that come in other ways: see [Task.Declare].
//
// What is wrong with a declaration, such as a field in Unique that A does not have, is an error of
// kind [job.Invalid] of Declare and [Service.Run], and of Enqueue where it would count for the job.
type Task[A, R any] struct {
	// Kind is its name in the database: up to 64 of A-Z a-z 0-9 . _ -.
	Kind string

	// Queue is where its jobs wait; "default" by default. [Service.Run] and [Task.Declare] make
	// it if it is not there. Before that Enqueue refuses the jobs.
	Queue string

	// Unique says which jobs are equal, and what becomes of a job while there is an equal one:
	// [UntilStart], [UntilDone], [WhileRunning]. By default no two jobs are equal.
	Unique Unique

	// Order puts jobs in order: [InOrder]. By default there is none.
	Order Order

	// Limits are keys of limits. A job takes a turn of each before it runs. A field in braces stands
	// for its value: account/{account}, where a limit of account/* holds for each account by itself.
	// A limit of all jobs of the kind has the key kind/KIND. [service.Service.SetLimit] of
	// [Service.Jobs] sets limits; a key that has none holds nobody up.
	Limits []string

	// Retry says how often a job is tried, and how long it waits between; by default ten times,
	// with exponential backoff from 1 s to 1 h, each wait a random part of that. 1 to 1,000 attempts.
	Retry *job.RetryPolicy

	// Timeout is how long one run may take; 0: as long as it likes. Then its context ends with
	// [ErrTimedOut], and an error that it returns is a failed attempt. A result counts.
	Timeout time.Duration

	// Stall is how long a run may go on without [Job.Heartbeat], [Job.Progress] or
	// [Job.Checkpoint]; 0: as long as it likes. Then its context ends with [ErrStalled], and an error
	// that it returns is a failed attempt.
	Stall time.Duration

	// Slots is how many of its jobs run at once, in all processes together, up to 1,000,000: the
	// limit kind/KIND. 0 leaves that limit as it is; there is none at first.
	Slots int

	// Schema is a JSON Schema (2020-12) of A. Jobs whose arguments do not meet it are refused, also
	// those that come from elsewhere. Nil leaves it as people have set it.
	Schema json.RawMessage

	// Keep is how long its jobs are kept after their end, from 1 h to ten years, by the state in which
	// they end: [job.Finished], [job.Failed] or [job.Canceled]. For a state that it does not have the
	// retention of the tenant holds, and without one they are kept for ever.
	Keep map[job.State]time.Duration

	// Index names arguments, up to four, by which an index finds the jobs: image, or user.id for a
	// field in a field. A filter says args.image=cat.png. Without an index, all jobs of the filter's
	// window are looked at.
	Index []string

	// Revision is raised with a change of the declaration, or of a schedule of the task, so that a
	// process of an older build does not take the change back: see [Task.Declare].
	Revision int

	// Version is the version of A that this build writes; 0 stands for 1. A job whose arguments have
	// a newer version than its process knows, or which this cannot read, is BLOCKED until a process
	// is there that can, for a week at most.
	Version int

	// Migrate brings arguments of older versions up to date: the function of version n makes
	// arguments of version n+1. Arguments of a version that has none are read as they are.
	Migrate map[int]func(args json.RawMessage) (json.RawMessage, error)
}

// Unique says which jobs of a kind are equal. Equality is that of JSON values: 1, 1.0 and 1e0 are
// equal, and the order of fields does not count. Fields have their names in JSON, and a dot leads
// into a field: user.id. Without fields, jobs are equal if all their arguments are.
type Unique struct{ u *job.Unique }

// UntilStart makes jobs equal that have the same values in these fields of their arguments. While
// an equal job waits to run for the first time, [Task.Enqueue] returns that job, and the arguments
// of the call are dropped. [Handle.Existed] tells.
func UntilStart(fields ...string) Unique { return unique(job.UntilStart, fields) }

// UntilDone is [UntilStart] while an equal job has not ended.
func UntilDone(fields ...string) Unique { return unique(job.UntilDone, fields) }

// WhileRunning accepts equal jobs, and never runs two of them at once.
func WhileRunning(fields ...string) Unique { return unique(job.WhileRunning, fields) }

// Alone returns u, which must be of [UntilStart], so that equal jobs never run at once either: one
// may be in the queue while an equal one runs.
func (u Unique) Alone() Unique {
	if u.u == nil {
		panic("pawl: Alone of no Unique: write pawl.UntilStart(...).Alone()")
	}
	both := *u.u
	both.Alone = true
	return Unique{&both}
}

func unique(until job.UniqueMode, fields []string) Unique {
	return Unique{&job.Unique{Args: fields, Until: until}}
}

// Order says which jobs go one after the other.
type Order struct{ o *job.Order }

// InOrder makes jobs that have the same values in these fields of their arguments go one after the
// other, in the order of their submission. At least one field is needed; they have their names in
// JSON, and a dot leads into a field. A job that fails and is tried again holds the others up. One
// that has ended does not, in whatever state.
func InOrder(fields ...string) Order { return Order{&job.Order{Args: fields}} }

// By returns o in another order: due, the time before which a job does not start, or a field of the
// arguments, such as args.version, the least first.
func (o Order) By(what string) Order {
	o.must("By")
	other := *o.o
	other.By = what
	return Order{&other}
}

// Passing returns o with jobs that go on while the one before them is in trouble.
func (o Order) Passing() Order {
	o.must("Passing")
	other := *o.o
	other.Failing = job.OrderPass
	return Order{&other}
}

// must panics if o is none.
func (o Order) must(method string) {
	if o.o == nil {
		panic("pawl: " + method + " of no Order: write pawl.InOrder(...)." + method)
	}
}

// Handle registers the handler of the task in a service, before [Service.Run]. It panics if the
// service runs, or has a handler of this kind.
//
// The handler's result is kept with the job, as JSON. An error fails the attempt, and so does a
// panic; [Fail], [Snooze], [Block] and [Cancel] make errors that say something else. The handler
// runs at least once: after a crash of its process it is called again. It should return soon after
// its context has ended; [context.Cause] says why that was, such as [ErrCanceled]. An error that it
// returns then does not count as a failed attempt, unless its time was over. Handlers run side by
// side, in a process up to [Slots] of them.
func (t Task[A, R]) Handle(s *Service, handler func(context.Context, *Job[A]) (R, error)) {
	switch has := func(k kinds.Kind) bool { return k.Name == t.Kind }; {
	case handler == nil:
		panic("pawl: Handle of task " + t.Kind + ": the handler is nil")
	case s.running.Load() != nil:
		panic("pawl: Handle of task " + t.Kind + " after Run: register handlers before Run")
	case slices.ContainsFunc(s.kinds, has):
		panic("pawl: task " + t.Kind + " has a handler already: call Handle once, and give each declaration its own Kind")
	}
	s.declared = append(s.declared, t.check)
	options := []service.HandleOption{
		service.TimeLimit(t.Timeout), service.Stall(t.Stall), service.Around(s.around...),
		service.Unseen(s.hear...),
	}
	s.kinds = append(s.kinds, t.kind())
	reads := store.Reads{Version: max(t.Version, 1), Build: buildOf(reflect.TypeFor[A](), max(t.Version, 1))}
	s.reads[t.Kind] = reads
	service.HandleTesterOf(s.jobs, unread, reader{s})
	s.jobs.Handle(t.Kind, func(ctx context.Context, run *service.TaskRun) (any, error) {
		deadline, _ := ctx.Deadline()
		j := &Job[A]{TaskRun: run, s: s, deadline: deadline}
		if err := t.read(&run.Job, reads, &j.Args); err != nil {
			s.leave(ctx, &run.Job, err)
			return nil, err
		}
		result, err := handler(ctx, j)
		return result, s.known(err)
	}, options...)
}

// Enqueue submits a job of the task and returns once it is durable, or, with postgres.In or
// sqlite.In, once it is part of the caller's transaction. While there is an equal job, as Unique
// says, it returns that job, and [Handle.Existed] is true. No process need run for it.
//
// See [EnqueueOption] for times, priorities, keys and transactions. The error is of kind
// [job.Invalid] if something is wrong with the task, the arguments or an option; [job.Unavailable]
// if the database cannot be reached: with [WithKey] or [WithID] the call can be repeated.
func (t Task[A, R]) Enqueue(ctx context.Context, s *Service, args A, options ...EnqueueOption) (*Handle[R], error) {
	hs, err := t.EnqueueAll(ctx, s, []A{args}, options...)
	if err != nil {
		return nil, err
	}
	return hs[0], nil
}

// EnqueueAll submits a job for each of args, all or none, in one transaction. The options are those
// of every job. The handles are in the order of args. Where [Handle.Existed] is true, the job is
// one that was there before, or an earlier one of the same call.
func (t Task[A, R]) EnqueueAll(ctx context.Context, s *Service, args []A, options ...EnqueueOption) (
	[]*Handle[R], error,
) {
	if err := t.check(); err != nil {
		return nil, err
	}
	reqs := make([]service.Request, len(args))
	var e Enqueueing
	for i := range args {
		spec, err := t.spec(args[i])
		if err != nil {
			return nil, err
		}
		e.Spec = &spec
		if err := cmp.Or(apply("Enqueue of task "+t.Kind, &e, options), e.wrong); err != nil {
			return nil, err
		}
		reqs[i] = service.Request{ID: job.NewID(), Spec: spec, Trace: e.Trace}
	}
	tx, err := e.tx(s)
	if err != nil {
		return nil, err
	}
	sub := service.Submission{Jobs: reqs, Key: e.Key, Tx: tx}
	answers, err := s.jobs.SubmitAll(ctx, sub)
	if err != nil {
		return nil, t.refused(ctx, s, err)
	}
	hs := make([]*Handle[R], len(answers))
	for i, a := range answers {
		hs[i] = &Handle[R]{ID: a.ID, Existed: a.ID != reqs[i].ID, s: s, kind: t.Kind}
	}
	return hs, nil
}

// refused returns err, or what to do if the queue of the task is not there: a process that enqueues
// may well start before the first one that runs.
func (t *Task[A, R]) refused(ctx context.Context, s *Service, err error) error {
	if t.Queue == "" || job.KindOf(err) != job.Invalid {
		return err
	}
	if _, there := s.jobs.Queues().Resource(ctx, t.Queue); job.KindOf(there) != job.NotFound {
		return err
	}
	return job.Errorf(job.Invalid, "task %s: its queue %s is not there: Run makes it in a process that handles the task; "+
		"in another one, or before Run, call Declare of the task first", t.Kind, t.Queue)
}

// spec returns the spec of a job.
func (t *Task[A, R]) spec(args A) (job.Spec, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return job.Spec{}, job.Errorf(job.Invalid, "arguments of %s cannot be written as JSON: %w", t.Kind, err)
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
func (t *Task[A, R]) read(j *job.Job, reads store.Reads, args *A) error {
	var spec struct {
		Args    json.RawMessage `json:"args"`
		Version int             `json:"args_version"`
	}
	if err := json.Unmarshal(j.Request, &spec); err != nil {
		return err
	}
	has := cmp.Or(spec.Version, 1)
	if has > reads.Version {
		return newerArgs(j, has, reads.Version)
	}
	for from := has; from < reads.Version; from++ {
		migrate := t.Migrate[from]
		if migrate == nil {
			continue // A reads both
		}
		newer, err := brought(migrate, spec.Args)
		if err != nil {
			return unreadableArgs(j, has, reads.Build, fmt.Errorf("from version %d: %w", from, err))
		}
		spec.Args = newer
	}
	if spec.Args == nil {
		return nil
	}
	if err := json.Unmarshal(spec.Args, args); err != nil {
		return unreadableArgs(j, has, reads.Build, err)
	}
	return nil
}

// brought calls a function of Migrate. If it panics, that is an error like another.
func brought(migrate func(json.RawMessage) (json.RawMessage, error), args json.RawMessage) (
	newer json.RawMessage, err error,
) {
	defer func() {
		if p := recover(); p != nil {
			err = &service.PanicError{Value: p, Stack: string(debug.Stack())}
		}
	}()
	if newer, err = migrate(args); err == nil && newer == nil && args != nil {
		err = errors.New("the function returned no arguments")
	}
	return newer, err
}

// An EnqueueOption says more about one call of [Task.Enqueue] or [Task.EnqueueAll]:
//
//   - when: [At], [After], [WithPriority];
//   - repeated calls: [WithKey] for the call, [WithID] for the job;
//   - in a transaction of the caller: In and InSQL of [github.com/pawl-jobs/pawl/postgres], In of
//     [github.com/pawl-jobs/pawl/sqlite];
//   - for filters: [WithLabel].
type EnqueueOption func(*Enqueueing)

// Enqueueing is what options of Enqueue change.
type Enqueueing struct {
	Spec  *job.Spec // of one job
	Key   string    // an idempotency key; empty: none
	Trace string    // a W3C traceparent; empty: none
	// Tx returns the transaction of the caller, which must be one of the database of the service; nil:
	// there is none.
	Tx func(*Database) (Tx, error)

	wrong error // of an option
}

// A Tx is a transaction of the caller. Packages postgres and sqlite make them.
type Tx = service.Tx

// tx returns the transaction of the caller in the database of a service; nil: there is none.
func (e *Enqueueing) tx(s *Service) (Tx, error) {
	if e.Tx == nil {
		return nil, nil //nolint:nilnil // none is an answer
	}
	return e.Tx(s.db)
}

// At does not run the job before t, from 1970 to the beginning of 2200. A time that has passed is
// no wait.
func At(t time.Time) EnqueueOption { return func(e *Enqueueing) { e.Spec.NotBefore = t } }

// After does not run the job before d has passed, by the clock of the database; ten years at most.
func After(d time.Duration) EnqueueOption {
	return func(e *Enqueueing) { e.Spec.Delay = job.Duration(d) }
}

// WithPriority gives the job a priority: 0 goes first, 9 last, 5 by default.
func WithPriority(n int) EnqueueOption { return func(e *Enqueueing) { e.Spec.Priority = &n } }

// WithID gives the job a name of the caller's own, of 1 to 128 bytes, as long as the job is kept.
// Another call with the same name and arguments returns the same job; with other arguments it is an
// error of kind [job.Conflict].
func WithID(id string) EnqueueOption {
	return func(e *Enqueueing) {
		e.Spec.ExternalID = id
		e.refuse("WithID", id)
	}
}

// WithKey makes the call one that can be repeated: within a day, another call with the same key and
// arguments returns the same jobs; with other arguments it is an error of kind [job.Conflict]. In a
// transaction of PostgreSQL it is refused: give [WithID] there.
func WithKey(key string) EnqueueOption {
	return func(e *Enqueueing) {
		e.Key = key
		e.refuse("WithKey", key)
	}
}

// refuse keeps an error if the name that makes a call repeatable is empty: the call would be made
// without one, and a second one would make a second job.
func (e *Enqueueing) refuse(option, name string) {
	if name == "" {
		e.wrong = cmp.Or(e.wrong, job.Errorf(job.Invalid, `pawl.%s(""): give a name, or leave the option out`, option))
	}
}

// WithLabel gives the job a label, for filters: label.NAME=VALUE. Names have 1 to 63 characters A-Z
// a-z 0-9 . _ / -, values up to 255 characters. A job has up to 64.
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
	ID      job.ID // for [Task.Find], a URL or a log
	Existed bool   // it was there before: an equal job, or one of the same key or id
	s       *Service
	kind    string
	found   bool // by Find: the job may be of another kind
}

// Wait waits until the job has ended and returns its result. It may be called in any process. The
// error is an [*Ended] if the job did not finish. When ctx ends first it is that of ctx, and its
// cause if it has one. After [context.DeadlineExceeded] it says what the job waits for: if no
// process runs such jobs, that is for ever. The job goes on.
func (h *Handle[R]) Wait(ctx context.Context) (R, error) {
	var result R
	if h.found { // one of another kind is not waited for
		switch j, err := h.s.jobs.Job(ctx, h.ID); {
		case err != nil:
			return result, h.late(ctx, err)
		case j.Kind != h.kind:
			return result, job.Errorf(job.Invalid,
				"job %s is of kind %s, and is asked for as one of %s: use the task of its kind", j.ID, j.Kind, h.kind)
		}
	}
	j, err := h.s.jobs.Wait(ctx, h.ID)
	if err != nil {
		return result, h.late(ctx, err)
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

// maxLate is how long it takes at most to find out why a job has not ended.
const maxLate = time.Second

// late returns err, which is also that of ctx if that has ended, and with what the job waits for if
// time was up.
func (h *Handle[R]) late(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLate)
	defer cancel()
	v, failed := h.s.jobs.View(ctx, h.ID)
	if failed != nil {
		return err
	}
	if v.State.Terminal() { // before Wait saw it
		return fmt.Errorf("job %s has ended by now: it is %s: %s: %w", v.ID, v.State, v.Why, err)
	}
	return fmt.Errorf("job %s has not ended: it is %s: %s: %w", v.ID, v.State, v.Why, err)
}

// Job returns the job as it is now: its state, attempt, times and message.
func (h *Handle[R]) Job(ctx context.Context) (job.Job, error) { return h.s.jobs.Job(ctx, h.ID) }

// Find returns the handle of a job of this task that was enqueued before, here or elsewhere. It
// asks nobody: of a job that is not there, Wait and Job return an error of kind [job.NotFound], and
// of a job of another kind Wait returns one of kind [job.Invalid]. [job.ParseID] reads an id.
func (t Task[A, R]) Find(s *Service, id job.ID) *Handle[R] {
	return &Handle[R]{ID: id, Existed: true, s: s, kind: t.Kind, found: true}
}

// An Ended is the error of a job that did not finish. It is [ErrCanceled], by [errors.Is], if the
// job was canceled. Message is that of the last error of the handler.
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
