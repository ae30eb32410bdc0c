// Package engine runs jobs: it is a handful of loops over the contracts of store and broker, one
// file each.
//
//   - session: keeps the lease of this process, hears wishes, and stops everything when the lease is lost
//   - lost: says of a session that was lost that its process lives
//   - claim: takes as many ready jobs as there are free slots
//   - share: leaves to other processes their part, where there are fewer ready jobs than free slots
//   - step: runs the steps of one job
//   - moment: asks for the moments at which programs begin and are launched, where that is under a rate, and waits for them
//   - commit: hands the changes of all of them to the store, many at a time
//   - clock: sleeps until the earliest due time; pays what changes owe to other jobs; takes the jobs of sessions that
//     died; sweeps
//   - retain: removes the jobs that have ended and are kept no longer
//   - duty: what one process does for all, such as watching programs
//   - process: what it tells of itself, and the commands that it is told
//   - trace: what it tells tracers
//
// A process that is told to drain claims nothing more; its duties go to others that want them, see
// [store.Leases]. They stay with it where nobody else does, because then the work of others would
// come to a halt.
//
// No loop polls. A loop that meets a lost connection tries again with backoff; any other error of
// its own ends Run with that error. It imports the contracts and never a backend.
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

// Config configures an engine. Store and Broker are required; the zero value of everything else
// works.
type Config struct {
	Store  store.Store
	Broker broker.Broker
	// Kinds are the kinds of job that this process runs, by name.
	Kinds map[string]Kind
	// Queues that this process serves, until [Engine.Serve] names others; "default" by default.
	Queues []string
	// Machine is the machine this process runs on; empty: it runs no jobs that belong to a machine.
	Machine string
	// Blocks says what keeps a job from being made ready or launched, or a task from being run,
	// which is no trouble of its own: its system is disabled. Nil: nothing does. It is asked before
	// each such step, and says nothing where that is not known.
	Blocks func(ctx context.Context, j *job.Job) *job.Block
	// Policy returns the policy by which a job waits that is blocked, where it is not that of the
	// block itself; nil: it always is.
	Policy func(j *job.Job, b *job.Block) job.Policy
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
	Options
}

// Options say which part of the work a process does, and how. The zero value works.
type Options struct {
	// Roles are the parts that this process plays. Without [store.RoleWorker] it claims nothing;
	// its kinds then say only what it knows of their jobs. Without [store.RoleRecovery] it looks
	// neither after time nor after dead sessions, nor for what was forgotten, nor for jobs of no
	// machine that are kept no longer: some process must. With [store.RoleWatcher] it looks for
	// those of its machine; else that role is for people, as [store.RoleAPI] is. By default it plays
	// the first two, and with duties that are for no role the third.
	Roles []store.Role
	// Claims names those of Kinds whose jobs this process runs; empty: all.
	Claims []string
	// Tenants are the only ones whose jobs this process runs; empty: all.
	Tenants []string
	// Duties are done by one process at a time; this one does those that it gets, of those that are
	// for a role it plays.
	Duties []Duty
	// Slots says how many jobs run at once in each lane; [DefaultSlots] by default. [job.LaneAlone]
	// has one slot, always.
	Slots map[job.Lane]int
	// Only, when there are any, are the only jobs that this process runs.
	Only []job.ID
	// Lease is how long the session outlives its last renewal, which comes three times as often; 15
	// s by default.
	Lease time.Duration
	// Grace is how long running steps may go on after Run's context has ended; 10 s by default,
	// negative: none.
	Grace time.Duration
	// Sweep is how often the store is searched for jobs that were forgotten, by one process for
	// all; a minute by default, and never if it is negative.
	Sweep time.Duration
	// Version of the build, for people.
	Version string
	// Address returns the URL at which other processes reach the API of this one; nil, or empty:
	// they do not.
	Address func() string
	// Tracer looks on while jobs are run; nil: nobody.
	Tracer Tracer
}

// DefaultSlots is the number of jobs of each lane that run at once, unless configured. A step of a
// program waits for the disk and the database for most of its time, and the more of them wait
// together, the fewer commits they need: with 4 slots, about 50 programs a second went through a
// lane on PostgreSQL, however idle the machine was.
var DefaultSlots = map[job.Lane]int{job.LaneFinish: 16, job.LaneLaunch: 16, job.LanePrepare: 16, job.LaneTask: 50}

// A Kind runs the jobs of one kind.
type Kind interface {
	// Step does one step of a job and says what follows. It is called again and again until the job
	// leaves this process's custody, and must be re-entrant: after a crash the same step runs
	// again, here or elsewhere, and finds what it had already done. ctx ends, with a cause, when
	// the step should stop: [ErrCanceled], [ErrPaused], [ErrInterrupted], [ErrLeaseLost]. A step
	// that stops for it returns [Back].
	//
	// A job that was claimed with a wish on it comes here only while a launch of it may still run;
	// the step then ends that launch.
	Step(ctx context.Context, r *Run) Outcome
}

// A Checker is a kind that knows more of a spec than package job: what it takes is refused when it
// is submitted.
type Checker interface {
	// Check reports what is wrong with a spec of its kind, for a job of a tenant. The spec may be
	// wrong otherwise, too.
	Check(tenant string, s *job.Spec) []job.Problem
	// Target returns the folder that j, a job with the spec s, asks for to put its results in;
	// empty: none. Of jobs that are submitted together each needs its own. What is not known yet
	// stands for itself in it.
	Target(j *job.Job, s *job.Spec) string
}

// A Keeper is a kind whose jobs have files.
type Keeper interface {
	// Files tells where a job's files are. The error is NotFound while it has none, or keeps none.
	Files(j *job.Job) (Files, error)
	// Progress tells how far the step has come that this process does of j, as j stands; false
	// where there is nothing to tell. A step of an epoch that has passed tells nothing, though it
	// may go on.
	Progress(j *job.Job) (job.Progress, bool)
}

// A Remover is a kind that keeps files of jobs which go when the job is deleted.
type Remover interface {
	// Remove deletes the files of a job that has ended, in Pawl's own folders. It can be repeated.
	Remove(ctx context.Context, j *job.Job) error
}

// Files tell where a job's files are. All names are absolute in FS.
type Files struct {
	FS      files.FS
	Folder  string // the job's folder; it may be gone
	Results string // the folder of its archive; empty: none
	Stdout  string // names within Folder, and later within Results, of the present attempt
	Stderr  string
	// Archived are the names in Results that are the job's: the folder may hold others' files too.
	// Nil: all of them are.
	Archived []string
}

// Causes with which the context of a step ends.
var (
	ErrCanceled    = errors.New("the job was canceled")
	ErrPaused      = errors.New("the job was paused")
	ErrInterrupted = errors.New("the process is stopping")
	ErrLeaseLost   = errors.New("the process lost its lease: another may have the job now")
)

// Engine runs jobs. Make one with New.
type Engine struct {
	cfg     Config
	kinds   []string // that it claims
	served  atomic.Pointer[served]
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

// New returns an engine; Run starts it.
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
		cfg.Lease = 15 * time.Second
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
		cfg.Tracer = blind{}
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
	e.Serve(cfg.Queues...)
	return e
}

// served are the lines that an engine serves.
type served struct {
	queues     []string
	queueKinds []job.QueueKind
	replaced   chan struct{} // closed when others have taken their place
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

// Run runs jobs until ctx ends, and then stops in good order: nothing more is claimed, running
// steps may go on for the grace time, and what is not done by then goes back without a mark against
// it. Told to stop (see [store.Stop]), it claims nothing more, and ends when no job is left in its
// hands. It returns nil after that, and otherwise the error that ended it.
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
			losses.Go(func() { s.comeBack(running) })
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

// errLost ends the loops of a session that is not alive any more.
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
	g.Go(func() error { return s.commit.run(loops) })
	g.Go(func() error { return e.payer(loops) }) // of whatever this process commits
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

// Follow acts on what a committed call means for others. It may be called by anyone who writes to
// the store, whether the engine runs or not.
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

// TestsTopic is the topic on which a message says that a group of blocked jobs is to be tested,
// maybe earlier than was known.
const TestsTopic = "tests"

// NewsTopic is the topic on which a message says that the history has grown.
const NewsTopic = "news"

func (e *Engine) news(ctx context.Context) { e.tell(e.cfg.Broker.Publish(ctx, NewsTopic, nil)) }

// tell notes that a hint was lost: it costs a delay.
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

// begunTopic is the topic on which a message says that a session has begun.
const begunTopic = "begun"

// WatchTopic is the topic on which the watcher of a machine is told to look at the jobs in monitor.
func WatchTopic(machine string) string { return "watch/" + machine }

// Repaired returns how often something was found that no wake-up told of. Where nothing was broken
// it is 0.
func (e *Engine) Repaired() int64 { return e.repair.Load() }

func (e *Engine) repaired(what string) {
	e.repair.Add(1)
	e.cfg.Log.Warn("found what no wake-up told of", "what", what)
}

// hints turns announcements into the flag that the claim loop waits for.
func (e *Engine) hints(ctx context.Context) error {
	if len(e.kinds) == 0 {
		return nil
	}
	for ctx.Err() == nil {
		if err := e.hintsOf(ctx, e.served.Load()); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// hintsOf does so for some lines, until others take their place.
func (e *Engine) hintsOf(ctx context.Context, sv *served) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-sv.replaced:
			stop(errReplaced)
		case <-waiting.Done():
		}
	}()
	for {
		_, err := retry(waiting, e, "wait for work",
			func() ([]job.QueueKind, error) { return e.cfg.Broker.Wait(waiting, sv.queueKinds) })
		switch {
		case errors.Is(err, errReplaced):
			return nil
		case err != nil:
			return err
		}
		e.hint.set()
	}
}

var errReplaced = errors.New("other queues are served")

func retry[T any](ctx context.Context, e *Engine, what string, f func() (T, error)) (T, error) {
	return Try(ctx, e.cfg.Log, what, f)
}

// Try calls f, with backoff, until it succeeds, fails for a reason that will not go away by itself,
// or ctx ends: the error is its cause then. What is called is for people.
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

// chance returns a number in [0, 1). It is drawn from crypto/rand, for that is what a simulation
// can seed.
func chance() float64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// A flag is set by many and taken by one: setting it twice before it is taken counts once.
type flag chan struct{}

func newFlag() flag { return make(flag, 1) }

func (f flag) set() {
	select {
	case f <- struct{}{}:
	default:
	}
}
