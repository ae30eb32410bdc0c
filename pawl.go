// Package pawl runs background tasks that must not be lost. A task that was accepted is never lost
// and never run by two processes at once. It is always moving, or waiting for something that can be
// named.
//
// # Declare, handle, enqueue
//
// A [Task] is declared once, as a value. The code that enqueues and the code that handles share it:
//
//	var Thumbnail = pawl.Task[Resize, Thumb]{Kind: "thumbnail", Unique: pawl.UntilStart("image")}
//
// A [Service] is where its jobs are: in a folder, for a program of one process
// ([github.com/pawl-jobs/pawl/sqlite.At]), or in a PostgreSQL database that any number of processes
// share ([github.com/pawl-jobs/pawl/postgres.At]). One that runs handlers calls Run:
//
//	svc, err := pawl.Open(ctx, sqlite.At("data"))
//	defer svc.Close()
//	Thumbnail.Handle(svc, func(ctx context.Context, j *pawl.Job[Resize]) (Thumb, error) {
//		return shrink(ctx, j.Args.Image)
//	})
//	err = svc.Run(ctx) // until ctx ends: in a program with more to do, go svc.Run(ctx)
//
// Any process that has opened the same database enqueues, and may wait for the result:
//
//	h, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png"}, pawl.WithPriority(2))
//	thumb, err := h.Wait(ctx)
//
// # In a transaction
//
// A job can be enqueued in the transaction of the program that makes it necessary. It is there if
// that commits, and was never there if it does not:
//
//	_, err = tx.Exec(ctx, "INSERT INTO images (name) VALUES ($1)", "cat.png")
//	h, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png"}, postgres.In(tx))
//	err = tx.Commit(ctx)
//
// postgres.In is for pgx, postgres.InSQL for database/sql; in a folder it is sqlite.In within
// sqlite.WithTx. [Job.FinishIn] ends a job in a transaction of its handler: what that writes counts
// exactly once.
//
// # What a handler may say
//
// A handler runs at least once for each job. Its result counts once. After an error or a panic the
// job is tried again, with backoff, up to ten times; [Task] sets Retry, Timeout and Stall. These
// errors say otherwise:
//
//	return none, pawl.Fail(err)                              // no attempt would mend it: FAILED
//	return none, pawl.Snooze(time.Hour)                      // call me later, in the same attempt
//	return none, pawl.Block("the shop is away", "shop", nil) // once the Tester "shop" finds it back
//	return none, pawl.Cancel("the invoice is paid")          // not wanted any more: CANCELED
//
// When a process dies, another one takes its jobs, within a lease (15 s), and that costs them no
// attempt. [Job.Checkpoint] keeps how far a long run has come, for the next one:
//
//	var at struct{ Next int }
//	_, err := j.Restore(&at)
//	for at.Next < len(j.Args.Pages) {
//		// … a page …
//		at.Next++
//		err = j.Checkpoint(ctx, at)
//		j.Progress(int64(at.Next), int64(len(j.Args.Pages)), "pages") // for people
//	}
//
// [Around] puts middleware around every handler, and [OnError] hears of each failure.
//
// # On a clock
//
// Each due time of a schedule has one job, whatever number of processes there is:
//
//	monday := pawl.Cron("0 9 * * MON").In("Europe/Berlin")
//	err = Report.Schedule(ctx, svc, "weekly", monday, Week{Team: "red"})
//	times, err := svc.Jobs().NextDue(ctx, "weekly", 3)
//
// # Reading and acting
//
// [Service.Jobs] lists and shows jobs, cancels and pauses them, and has limits, queues and
// recovery:
//
//	filter, err := job.ParseFilter("kind=thumbnail state=RUNNING args.image=cat.png", time.Now())
//	page, err := svc.Jobs().Views(ctx, store.Query{Filter: filter, Limit: 20})
//	view, err := svc.Jobs().View(ctx, h.ID) // view.State, view.Why, view.Progress
//	answers, err := svc.Jobs().Cancel(ctx, h.ID) // answers[0].Err
//
// # Errors and tests
//
// [job.KindOf] tells the kind of an error: [job.Invalid], [job.NotFound], [job.Conflict],
// [job.Unavailable] and others. Package [github.com/pawl-jobs/pawl/pawltest] tests a program that
// uses Pawl, in memory and in virtual time.
package pawl

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A Source opens the database of a service. Packages sqlite and postgres make sources.
type Source func(ctx context.Context, log *slog.Logger) (*Database, error)

// A Database has the jobs of a service.
type Database struct {
	Store  store.Store
	Broker broker.Broker
	Close  func() error // closes both
}

// A Service enqueues tasks and runs them. Its methods are safe for concurrent use, but handlers and
// testers are registered before [Service.Run].
type Service struct {
	jobs   *service.Service
	db     *Database
	around []func(service.Handler) service.Handler
	hear   []func(ctx context.Context, t *service.TaskRun, err error)
	reads  map[string]store.Reads // what those tasks can read, by kind
	left   sync.Map               // by kind: until when its jobs are left to others (time.Time)
	kinds  []kinds.Kind           // of the tasks that have handlers
	log    *slog.Logger

	declared []func() error  // checks of those tasks
	testers  map[string]bool // by the names of Tester
	queues   []string
	running  atomic.Pointer[run]
	closed   atomic.Bool
}

// Open opens a service. The process runs no tasks before [Service.Run]. Close the service when it
// is done, after Run has returned. The error is of kind [job.Unavailable] if the database cannot be
// reached, [job.Locked] if another process has the folder, and [job.Newer] if a later version made
// the tables.
func Open(ctx context.Context, at Source, options ...Option) (*Service, error) {
	o := opening{log: slog.Default()}
	o.wrong = cmp.Or(apply("pawl.Open", &o, options), o.wrong)
	if at == nil {
		o.wrong = cmp.Or(o.wrong, job.Errorf(job.Invalid,
			`pawl.Open: the source is nil: give sqlite.At("data") or postgres.At("postgres://HOST/NAME")`))
	}
	if l := o.cfg.Lease; l != 0 && l < store.MinLease {
		o.wrong = cmp.Or(o.wrong, job.Errorf(job.Invalid, "lease (%s): is shorter than %s: give more, such as 15s",
			l, store.MinLease))
	}
	if o.wrong != nil {
		return nil, o.wrong
	}
	if o.hear == nil {
		o.hear = append(o.hear, logging(o.log))
		o.around = slices.Insert(o.around, 0, hearing(o.hear[0]))
	}
	db, err := at(ctx, o.log)
	if err != nil {
		return nil, err
	}
	s := &Service{
		db: db, around: o.around, hear: o.hear, reads: map[string]store.Reads{}, testers: map[string]bool{}, log: o.log,
		queues: o.cfg.Queues,
	}
	o.cfg.Store, o.cfg.Broker, o.cfg.Log = db.Store, db.Broker, o.log
	o.cfg.Reads, o.cfg.Began, o.cfg.Leaves = s.reads, s.tryUnread, s.leaves
	s.jobs = service.New(o.cfg)
	return s, nil
}

// An Option changes how a service is opened.
type Option func(*opening)

type opening struct {
	cfg    service.Config
	log    *slog.Logger
	around []func(service.Handler) service.Handler
	hear   []func(ctx context.Context, t *service.TaskRun, err error) // those of OnError
	wrong  error                                                      // what an option was given and cannot be
}

// apply applies the options of a call. One that is nil is an error.
func apply[T any, O ~func(*T)](call string, to *T, options []O) error {
	for _, set := range options {
		if set == nil {
			return job.Errorf(job.Invalid, "%s: an option is nil: leave it out", call)
		}
		set(to)
	}
	return nil
}

// refuse keeps an error if what an option was given is nil.
func (o *opening) refuse(option string, isNil bool) {
	if isNil {
		o.wrong = cmp.Or(o.wrong, job.Errorf(job.Invalid, "pawl.%s(nil): give one, or leave the option out", option))
	}
}

// Log is where the service says what operators should know, and which handlers fail; [slog.Default]
// by default.
func Log(l *slog.Logger) Option {
	return func(o *opening) {
		o.log = l
		o.refuse("Log", l == nil)
	}
}

// Tenant is the tenant whose jobs the service enqueues, reads and runs; "default" by default.
func Tenant(name string) Option {
	return func(o *opening) {
		o.cfg.Tenant, o.cfg.Tenants = name, []string{name}
		o.wrong = cmp.Or(o.wrong, job.CheckTenant(name))
	}
}

// Principal is the user in whose name the service acts; "pawl" by default.
func Principal(name string) Option {
	return func(o *opening) {
		o.cfg.Principal = name
		o.wrong = cmp.Or(o.wrong, job.CheckPrincipal(name))
	}
}

// Queues are the only queues whose jobs this process runs; all by default.
func Queues(names ...string) Option { return func(o *opening) { o.cfg.Queues = names } }

// Slots is how many tasks this process runs at once, from 1; 50 by default.
func Slots(n int) Option {
	return func(o *opening) {
		if n < 1 {
			o.wrong = job.Errorf(job.Invalid, "pawl.Slots(%d): give 1 or more; a process that runs no tasks does not call Run", n)
		}
		o.cfg.Slots = map[job.Lane]int{job.LaneTask: n}
	}
}

// Configure changes what else can be set, such as the lease: for how long a process may be silent
// before others take its jobs.
func Configure(change func(*service.Config)) Option {
	return func(o *opening) {
		if change == nil {
			o.refuse("Configure", true)
			return
		}
		change(&o.cfg)
	}
}

// Around puts middleware around every handler of the service. The first one is the outermost.
//
//	pawl.Around(func(next service.Handler) service.Handler {
//		return func(ctx context.Context, t *service.TaskRun) (any, error) {
//			start := time.Now()
//			out, err := next(ctx, t)
//			log.Println(t.Job.Kind, t.Job.ID, time.Since(start), err)
//			return out, err
//		}
//	})
//
// A panic of the handler comes out of next as a [*service.PanicError].
func Around(middleware ...func(service.Handler) service.Handler) Option {
	return func(o *opening) {
		for _, m := range middleware {
			o.refuse("Around", m == nil)
		}
		o.around = append(o.around, middleware...)
	}
}

// OnError calls f with each error, and each panic as a [*service.PanicError] with its stack, that a
// handler ended with or that came after it: of a result that is not JSON, or of middleware that
// panics. Nothing is told of handlers that were interrupted, canceled or paused, or that snooze,
// block or cancel. Without OnError the service logs such errors.
func OnError(f func(ctx context.Context, t *service.TaskRun, err error)) Option {
	return func(o *opening) {
		o.refuse("OnError", f == nil)
		o.hear = append(o.hear, f)
		o.around = append(o.around, hearing(f))
	}
}

// hearing is the middleware that calls f with each error.
func hearing(f func(ctx context.Context, t *service.TaskRun, err error)) func(service.Handler) service.Handler {
	return func(next service.Handler) service.Handler {
		return func(ctx context.Context, t *service.TaskRun) (any, error) {
			out, err := next(ctx, t)
			if err != nil && service.IsFailure(ctx, err) {
				f(ctx, t, err)
			}
			return out, err
		}
	}
}

// logging writes errors of handlers to a log, and the stack of a panic.
func logging(log *slog.Logger) func(ctx context.Context, t *service.TaskRun, err error) {
	return func(ctx context.Context, t *service.TaskRun, err error) {
		of := log.With("kind", t.Job.Kind, "job", t.Job.ID, "attempt", t.Job.Attempt, "of", t.Job.MaxAttempts,
			"error", err)
		if p, ok := errors.AsType[*service.PanicError](err); ok {
			of.ErrorContext(ctx, "a handler panicked", "stack", p.Stack)
		} else {
			of.WarnContext(ctx, "a handler failed")
		}
	}
}

// Jobs is the side of a service that reads and acts: it lists and shows jobs and follows their
// events, cancels, pauses and submits them again, and has limits, queues and recovery. See
// [service.Service.View], [service.Service.Find], [service.Service.Views], [service.Service.Count],
// [service.Service.Cancel], [service.Service.Pause], [service.Service.Resubmit],
// [service.Service.History] and [service.Service.Events]. All of it is of one tenant, but for
// [service.Service.Unattended], which looks for jobs of all.
func (s *Service) Jobs() *service.Service { return s.jobs }

// Database is where the jobs are.
func (s *Service) Database() *Database { return s.db }

// Run runs tasks until ctx ends or the service is closed, and then stops in good order and returns
// nil: handlers may go on for 10 s, then their contexts end, and unfinished jobs go back to their
// queues as if nothing had happened. A handler that does not return within a lease from then (15 s)
// is left behind. All handlers must be registered before. Their declarations are kept: see
// [Task.Declare].
//
// While the database cannot be reached, Run tries again. It returns an error of kind [job.Invalid]
// at once if a declaration is wrong, and of kind [job.Conflict] if the service runs already. A
// service that was closed does not run again: the error is of kind [job.Closed].
func (s *Service) Run(ctx context.Context) error {
	r := &run{ended: make(chan struct{})}
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	if !s.running.CompareAndSwap(nil, r) {
		return job.Errorf(job.Conflict, "the service runs already: call Run once")
	}
	defer func() {
		s.running.Store(nil)
		close(r.ended)
	}()
	if s.closed.Load() {
		return job.Errorf(job.Closed, "the service was closed: open another one with pawl.Open")
	}
	for _, check := range s.declared {
		if err := check(); err != nil {
			return err
		}
	}
	err := s.keepKinds(ctx)
	if ctx.Err() != nil {
		return nil // it was stopped before it had begun
	}
	if err != nil {
		return err
	}
	for _, name := range s.queues {
		if _, err := s.jobs.Queues().Resource(ctx, name); job.KindOf(err) == job.NotFound {
			s.log.Warn("a queue of pawl.Queues is not there: no jobs come from it", "queue", name)
		}
	}
	return s.jobs.Run(ctx)
}

// Close ends [Service.Run], in good order, and closes the database. Calls that wait, such as
// [Handle.Wait], and those that come later return an error of kind [job.Closed]. It is not for
// handlers: Run waits for them.
func (s *Service) Close() error {
	s.closed.Store(true)
	if r := s.running.Load(); r != nil {
		r.stop()
		<-r.ended
	}
	return s.db.Close()
}

// A run is a call of Run.
type run struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when it returns
}
