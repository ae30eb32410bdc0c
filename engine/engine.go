// Package engine runs jobs. It is a handful of loops over the contracts of store and broker, one
// file each:
//
//   - session: keeps the lease of this process, hears wishes, and stops everything when the lease
//     is lost
//   - lostsession: tells the store that the process of a lost session lives
//   - claim: takes ready jobs for free slots
//   - hints: hears where jobs became ready, for this process and for workers that it serves
//   - share: leaves other processes their part, where fewer jobs are ready than slots are free
//   - step: runs the steps of one job
//   - moment: waits for the moment at which a program may begin or be launched, where that is under
//     a rate
//   - commit: sends the changes of all jobs to the store, many at a time
//   - clock: sleeps until the next job is due, pays debts, takes the jobs of dead sessions, and
//     sweeps
//   - retain: removes ended jobs that are kept no longer
//   - duty: runs what one process does for all, such as watching programs
//   - process: tells what this process is, and takes the mode in which it works
//   - trace: tells tracers of runs and steps
//
// No loop polls. A loop that loses its connection tries again with backoff. Any other error of a
// loop ends Run with that error.
//
// A process that is told to drain claims nothing more. Its duties go to other processes that want
// them, see [store.Leases]. If no other process wants a duty, the process keeps it, because the
// work of others would come to a halt without it.
//
// The package imports the contracts and never a backend.
package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Config configures an engine. Store and Broker are required. The zero value of every other field
// works.
type Config struct {
	Store  store.Store
	Broker broker.Broker
	// Kinds are the kinds of job that this process runs, by name.
	Kinds map[string]Kind
	// Queues are the queues that this process serves until [Engine.Serve] names others; "default"
	// by default.
	Queues []string
	// Machine is the id of the machine that this process runs on; empty: it runs no jobs that
	// belong to a machine.
	Machine string
	// Blocks returns the block that keeps j from the next step, such as a system that is disabled;
	// nil: nothing does, or it is not known. The engine asks before a program is made ready or
	// launched, and before a task is run. A nil function blocks nothing.
	Blocks func(ctx context.Context, j *job.Job) *job.Block
	// Policy returns the policy by which j waits when b blocks it. A nil function takes the policy
	// of b.
	Policy func(j *job.Job, b *job.Block) job.Policy
	// Heard is told of the queues and kinds that have ready jobs, of those that [Engine.Listen]
	// named. It must not block. A nil function is not told.
	Heard func([]job.QueueKind)
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
	Options
}

// Options say which part of the work a process does, and how. The zero value works.
type Options struct {
	// Roles are the parts that this process plays. The default is [store.RoleWorker] and
	// [store.RoleRecovery], and also [store.RoleWatcher] if a duty has no role.
	//
	// Without RoleWorker it claims nothing, and Kinds says only what it knows of their jobs.
	// Without RoleRecovery it does not look after due times, dead sessions, forgotten jobs, and
	// ended jobs of no machine that are kept no longer: some other process must. With RoleWatcher
	// it removes the jobs of Machine that are kept no longer. [store.RoleAPI] changes nothing here:
	// it is for people to see.
	Roles []store.Role
	// Claims names the Kinds whose jobs this process runs; empty: all of them.
	Claims []string
	// Leaves reports whether the jobs of one of the Kinds are left to other processes for now. It is
	// called before each claim and must not block. A nil function leaves none.
	Leaves func(kind string) bool
	// Tenants are the only tenants whose jobs this process runs; empty: all tenants.
	Tenants []string
	// Duties are done by one process at a time. This process wants those that have no role or a
	// role that it plays, and does the ones that it gets.
	Duties []Duty
	// VaryingDuties returns duties that come and go while the process runs, such as the watches
	// over systems, and a channel that is closed when there are others. It is called at each
	// renewal and must not block. Nil: there are none.
	VaryingDuties func() ([]Duty, <-chan struct{})
	// Slots says how many jobs of each lane run at once; [DefaultSlots] by default. [job.LaneAlone]
	// always has one slot.
	Slots map[job.Lane]int
	// Only lists the only jobs that this process runs; empty: all jobs.
	Only []job.ID
	// Lease is how long the session lives after its last renewal; [DefaultLease] by default. It is
	// renewed three times in a lease.
	Lease time.Duration
	// Grace is how long running steps may go on after the context of Run has ended; 10 s by
	// default. A negative Grace gives them no time.
	Grace time.Duration
	// Sweep is how often one process searches the store for jobs that were forgotten; a minute by
	// default. A negative Sweep turns the search off.
	Sweep time.Duration
	// Version is the version of the build, for people.
	Version string
	// Reads says, by kind, which arguments this process can read, for the others.
	Reads map[string]store.Reads
	// Began is called whenever the session of this process has begun, beside its work, and ctx ends
	// with the session. Nil: nobody waits for that.
	Began func(ctx context.Context)
	// Address returns the URL at which other processes reach the API of this one. A nil function or
	// an empty URL says that they do not.
	Address func() string
	// Tracer is told of runs and steps; nil: nobody is.
	Tracer Tracer
}

// DefaultSlots is how many jobs of each lane run at once unless [Options.Slots] says otherwise. A
// step of a program waits most of the time: for the disk, the database, or a machine far away. The
// more steps wait together, the fewer commits, round trips and shells they need. On PostgreSQL 50
// programs a second went through a lane with 4 slots, however idle the machine was. Over SSH 64
// slots bring about 1.5 times as many programs through as 16 do (pawl bench ssh --only launch). A
// scheduler takes as many launches together as there are, so their lane is wider.
var DefaultSlots = map[job.Lane]int{job.LaneFinish: 64, job.LaneLaunch: 512, job.LanePrepare: 64, job.LaneTask: 50}

// A Kind runs the jobs of one kind. Its methods are called by many goroutines at once, but one job
// has one step at a time.
type Kind interface {
	// Step does one step of a job and says what follows. The engine calls it again and again until
	// the job leaves this process. A step may run more than once: after a crash the same step runs
	// again, here or elsewhere, and finds what it had done before.
	//
	// ctx ends, with a cause, when the step must stop: [ErrCanceled], [ErrPaused], [ErrInterrupted]
	// or [ErrLeaseLost]. A step that stops for it returns [Back].
	//
	// A job that was claimed with a wish on it comes here only while a launch of it may still run.
	// The step then ends that launch.
	Step(ctx context.Context, r *Run) Outcome
}

// A Checker is a kind that knows more about specs than package job. A spec that it does not take is
// refused at the submission.
type Checker interface {
	// Check reports what is wrong with a spec of its kind, for a job of a tenant. Package job may
	// find other problems in the same spec.
	Check(tenant string, s *job.Spec) []job.Problem
	// Target returns the folder for the results of j, a job with the spec s; empty: it asks for
	// none. Jobs that are submitted together need different folders. Macros that are not known yet
	// stay as they are.
	Target(j *job.Job, s *job.Spec) string
}

// A Keeper is a kind whose jobs have files.
type Keeper interface {
	// Files says where the files of j are. The error is of kind NotFound if j has no files, or none
	// yet.
	Files(j *job.Job) (Files, error)
	// Progress says how far the present step of j has come in this process; false: there is nothing
	// to say. A step of an earlier epoch says nothing, even if it still goes on.
	Progress(j *job.Job) (job.Progress, bool)
}

// A Remover is a kind that keeps files which must go when their job is deleted.
type Remover interface {
	// Remove deletes the files of a job that has ended from Pawl's own folders. It may be called
	// again after an error.
	Remove(ctx context.Context, j *job.Job) error
}

// Files says where the files of a job are. All names are absolute in FS.
type Files struct {
	FolderFS  files.FS // has Folder
	Folder    string   // the job's folder; it may be gone; empty: it is, or it is out of reach
	ResultsFS files.FS // has Results
	Results   string   // the folder of its archive; empty: it has none
	// Stdout and Stderr are the names of the output of the present attempt, in Folder and later in
	// Results.
	Stdout string
	Stderr string
	// Archived are the names in Results that belong to the job, because the folder may hold files
	// of others. Nil: all of them do.
	Archived []string
}

// The causes with which the context of a step ends.
var (
	ErrCanceled    = errors.New("the job was canceled")
	ErrPaused      = errors.New("the job was paused")
	ErrInterrupted = errors.New("the process is stopping")
	ErrLeaseLost   = errors.New("the process lost its lease: another may have the job now")
)

// An Engine runs jobs. [New] makes one. Its methods are safe for concurrent use, but Run runs once
// at a time.
type Engine struct {
	cfg     Config
	kinds   []string // those that it claims
	served  atomic.Pointer[served]
	ears    atomic.Pointer[ears]
	told    atomic.Pointer[store.Mode]  // what this process was told to do; it outlasts a session
	hint    flag                        // there may be work to claim
	ordered flag                        // told has changed
	owed    flag                        // there is something to pay
	later   flag                        // there is something to pay that may wait
	dead    flag                        // the lease of another session may have run out
	alarm   *alarm                      // when the next job is due
	removed map[job.State]*atomic.Int64 // jobs that were kept no longer
	repair  atomic.Int64                // how often something was found that no wake-up told of
	ahead   atomic.Int64                // by how many nanoseconds the database's clock is ahead of this process's

	dueing, paying atomic.Bool // clock and payer are at work, not asleep
	pays           atomic.Bool // there is a payer
}

// New returns an engine. It does no I/O; [Engine.Run] starts the engine.
func New(cfg Config) *Engine {
	if len(cfg.Queues) == 0 {
		cfg.Queues = []string{job.DefaultQueue}
	}
	if cfg.Slots == nil {
		cfg.Slots = DefaultSlots
	}
	cfg.Slots = maps.Clone(cfg.Slots)
	cfg.Slots[job.LaneAlone] = 1
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Grace == 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Sweep == 0 {
		cfg.Sweep = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = untraced{}
	}
	if cfg.Roles == nil {
		cfg.Roles = []store.Role{store.RoleWorker, store.RoleRecovery}
		if slices.ContainsFunc(cfg.Duties, func(d Duty) bool { return len(d.Roles) == 0 }) {
			cfg.Roles = append(cfg.Roles, store.RoleWatcher)
		}
	}
	cfg.Duties = slices.DeleteFunc(slices.Clone(cfg.Duties), func(d Duty) bool {
		return len(d.Roles) > 0 && !slices.ContainsFunc(d.Roles,
			func(r store.Role) bool { return slices.Contains(cfg.Roles, r) })
	})
	e := &Engine{
		hint: newFlag(), ordered: newFlag(), owed: newFlag(), later: newFlag(), dead: newFlag(),
		alarm: newAlarm(), removed: newRemoved(),
	}
	if slices.Contains(cfg.Roles, store.RoleRecovery) && cfg.Sweep > 0 {
		cfg.Duties = append(cfg.Duties, Duty{Name: sweepDuty, Run: e.sweep})
	}
	cfg.Duties = append(cfg.Duties, e.retainers(&cfg)...)
	e.cfg = cfg
	if e.plays(store.RoleWorker) {
		e.kinds = slices.Sorted(maps.Keys(cfg.Kinds))
		if len(cfg.Claims) > 0 {
			e.kinds = slices.DeleteFunc(e.kinds, func(kind string) bool { return !slices.Contains(cfg.Claims, kind) })
		}
	}
	e.ears.Store(&ears{replaced: make(chan struct{})})
	e.Serve(cfg.Queues...)
	return e
}

// served are the queues that an engine serves, and with its kinds the queues and kinds.
type served struct {
	queues     []string
	queueKinds []job.QueueKind
	replaced   chan struct{} // closed when the engine serves other queues
}

// Serve makes e serve these queues and no others, from its next claim on. It may be called at any
// time.
func (e *Engine) Serve(queues ...string) {
	sv := &served{queues: slices.Compact(slices.Sorted(slices.Values(queues))), replaced: make(chan struct{})}
	if old := e.served.Load(); old != nil && slices.Equal(old.queues, sv.queues) {
		return
	}
	for _, q := range sv.queues {
		for _, k := range e.kinds {
			sv.queueKinds = append(sv.queueKinds, job.QueueKind{Queue: q, Kind: k})
		}
	}
	if old := e.served.Swap(sv); old != nil {
		close(old.replaced)
	}
	e.hint.set()
}

// Run runs jobs until ctx ends. Then it stops in good order: it claims nothing more, running steps
// may go on for the time of Grace, and unfinished jobs go back to their queues as if nothing had
// happened.
//
// Told to stop by [store.Stop], it claims nothing more and ends when it holds no job. Run returns
// nil after it has stopped in good order, and otherwise the error that ended it.
func (e *Engine) Run(ctx context.Context) error {
	e.told.Store(nil) // what an earlier Run was told
	var steps, losses sync.WaitGroup
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer losses.Wait()
	defer stop()
	for {
		s := newSession(ctx, e, &steps)
		err := e.live(ctx, s)
		lost := errors.Is(err, errLost)
		if lost {
			losses.Go(func() { s.reportAlive(running) })
		}
		switch {
		case !lost:
			return err
		case ctx.Err() != nil:
			e.cfg.Log.Warn("session lost while stopping", "error", err)
			return nil // its steps were told to stop, and others have the jobs
		}
		e.cfg.Log.Warn("session lost; beginning a new one", "error", err)
	}
}

// errLost ends the loops of a session that is no longer alive.
var errLost = errors.New("session lost")

// live runs the loops for the life of one session.
func (e *Engine) live(ctx context.Context, s *session) error {
	defer s.cancel(nil)
	if err := s.begin(ctx); err != nil {
		if ctx.Err() != nil {
			s.end(ctx) // the answer may be all that was lost
		}
		return ended(ctx, err)
	}
	e.dueing.Store(true)
	e.paying.Store(true)
	e.pays.Store(true)
	defer e.pays.Store(false)
	// The loops outlast ctx: it stops the claims, and the rest once all work is done or given back.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	g, loops := errgroup.WithContext(work)
	defer context.AfterFunc(loops, func() { s.cancel(ErrLeaseLost) })() // steps hear of it before the loops have ended
	g.Go(func() error { return s.renewals(loops) })
	if e.cfg.Began != nil {
		g.Go(func() error { e.cfg.Began(loops); return nil })
	}
	g.Go(func() error { return s.commit.run(loops) })
	g.Go(func() error { return e.payer(loops) }) // of the debts that this process makes
	if e.plays(store.RoleRecovery) {
		g.Go(func() error { return e.clock(loops) })
		g.Go(func() error { return e.expirer(loops) })
	}
	g.Go(func() error { return e.hints(loops) })
	g.Go(func() error { return s.duties.watch(loops) })
	g.Go(func() error {
		claims, cancel := context.WithCancel(loops)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		if err := s.claims(claims); err != nil || loops.Err() != nil {
			return err
		}
		s.drain(loops)
		stop(errStopped)
		return nil
	})
	_ = g.Wait() // whichever loop noticed first: the cause is what ended them
	err := context.Cause(loops)
	s.cancel(ErrLeaseLost)
	s.duties.stop()
	lost := errors.Is(err, errLost)
	switch {
	case lost && ctx.Err() == nil:
		return err // the next session does not wait for steps that do not stop
	case errors.Is(err, errStopped):
		err = nil
	default:
		s.settle(context.Background())
	}
	if !lost {
		s.end(ctx)
		e.payLast(ctx)
	}
	return err
}

var errStopped = errors.New("stopped")

// ended returns nil for an error that only says that ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// Follow acts on the effects of a committed call: it wakes the processes that must hear of them.
// All code that writes to the store calls it, also while the engine does not run. It is safe for
// concurrent use.
func (e *Engine) Follow(ctx context.Context, eff store.Effects) {
	e.news(ctx)
	if len(eff.Ready) > 0 {
		e.tell(e.cfg.Broker.Announce(ctx, eff.Ready...))
	}
	if eff.Owed {
		e.owed.set()
	} else if eff.Later {
		e.later.set()
	}
	if (eff.Owed || eff.Later) && !e.pays.Load() {
		e.payHere(ctx)
	}
	if !eff.Due.IsZero() {
		e.alarm.set(e.local(eff.Due))
	}
	if eff.Tests {
		e.tell(e.cfg.Broker.Publish(ctx, TestsTopic, nil))
	}
	for _, s := range eff.Held {
		e.tell(e.cfg.Broker.Publish(ctx, sessionTopic(s), nil))
	}
	for _, m := range eff.Watch {
		e.tell(e.cfg.Broker.Publish(ctx, WatchTopic(m), nil))
	}
}

// DefaultLease is the lease of a process that names none.
const DefaultLease = 15 * time.Second

// TestsTopic is the topic of messages that say: a group of blocked jobs is to be tested, maybe
// earlier than planned. A message is empty.
const TestsTopic = "tests"

// NewsTopic is the topic of messages that say: the history has grown. A message is empty.
const NewsTopic = "news"

func (e *Engine) news(ctx context.Context) { e.tell(e.cfg.Broker.Publish(ctx, NewsTopic, nil)) }

// tell logs that a wake-up was not sent. It costs a delay and nothing else.
func (e *Engine) tell(err error) {
	if err != nil {
		e.cfg.Log.Warn("wake-up not sent", "error", err)
	}
}

// policy returns the policy by which j waits when b blocks it.
func (e *Engine) policy(j *job.Job, b *job.Block) job.Policy {
	if e.cfg.Policy == nil {
		return b.Policy
	}
	return e.cfg.Policy(j, b)
}

func sessionTopic(id job.ID) string { return "session/" + id.String() }

// Told subscribes to what is told a session of a worker elsewhere: a wish for one of its jobs, or a
// command. A message is empty.
func (e *Engine) Told(ctx context.Context, session job.ID) (broker.Subscription, error) {
	return e.cfg.Broker.Subscribe(ctx, sessionTopic(session))
}

// gateTopic is the topic on which a message says that jobs have come to the gate in a transaction
// of others, whose process pays nothing and sets no alarm. A message is empty. The function
// pawl.enqueue of PostgreSQL sends it.
const gateTopic = "gate"

// begunTopic is the topic on which a message says that a session has begun.
const begunTopic = "begun"

// WatchTopic is the topic of messages that tell the holder of a watch to look at its jobs in
// custody monitor. A message is empty.
func WatchTopic(watch string) string { return "watch/" + watch }

// Repaired returns how often the sweep of this process found something that no wake-up had told of.
// More than 0 is a defect.
func (e *Engine) Repaired() int64 { return e.repair.Load() }

func (e *Engine) repaired(what string) {
	e.repair.Add(1)
	e.cfg.Log.Warn("found what no wake-up told of", "what", what)
}

func retry[T any](ctx context.Context, e *Engine, what string, f func() (T, error)) (T, error) {
	return Try(ctx, e.cfg.Log, what, f)
}

// Try calls f until it succeeds, and waits longer after each error of kind Unavailable. It returns
// any other error at once, and the cause of ctx when ctx ends. what names the call for people.
func Try[T any](ctx context.Context, log *slog.Logger, what string, f func() (T, error)) (T, error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		v, err := f()
		switch {
		case err == nil:
			return v, nil
		case ctx.Err() != nil:
			return v, context.Cause(ctx)
		case job.KindOf(err) != job.Unavailable:
			return v, fmt.Errorf("%s: %w", what, err)
		}
		log.Warn("trying again", "call", what, "in", wait, "error", err)
		select {
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-time.After(wait/2 + time.Duration(chance()*float64(wait/2))):
		}
	}
}

// chance returns a random number in [0, 1). It comes from crypto/rand, because a simulation can
// seed that.
func chance() float64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// A flag is set by many goroutines and taken by one. Set twice before it is taken, it counts once.
type flag chan struct{}

func newFlag() flag { return make(flag, 1) }

func (f flag) set() {
	select {
	case f <- struct{}{}:
	default:
	}
}
