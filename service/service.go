// Package service is all that can be asked of jobs: [Service] submits them, carries out wishes,
// reads, follows and runs. The library, package pawl, and the faces, such as package api, do all
// their work through it.
//
// Whoever puts a process together hands a store and a broker in:
//
//	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
//	svc := service.New(service.Config{Store: st, Broker: &local.Broker{}})
//	ids, err := svc.Submit(ctx, service.Request{Spec: job.Spec{Command: []string{"true"}}})
//	err = svc.Run(ctx)
package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service/internal/feed"
	"github.com/pawl-jobs/pawl/store"
)

// Config configures a service. Store and Broker are required. The zero value of every other field
// works.
type Config struct {
	Store  store.Store
	Broker broker.Broker
	// Tenant is the tenant whose jobs the service submits and reads; "default" by default. If the
	// name is not one that [job.CheckTenant] takes, [Service.Submit] and [Service.Run] return an
	// error of kind Invalid.
	Tenant string
	// Principal is the user in whose name the service acts; "pawl" by default.
	Principal string
	// Machine is the id of the machine whose programs this process runs; empty: it runs only tasks.
	Machine string
	// Kinds are further kinds of job, beside the tasks that [Handle] registers.
	Kinds map[string]engine.Kind
	// Peer returns a process of another machine, which has the files of the jobs that belong there.
	// Nil: such files cannot be had, and asking for them is an error of kind Unavailable.
	Peer func(PeerAsk) Peer
	// CheckSystem tries all that jobs need of a system. The error is of kind Unavailable if this
	// process is not on the machine that reaches it. Nil: this process reaches none.
	CheckSystem func(context.Context, *job.System) (job.SystemCheck, error)
	// ListSystem lists a folder of a system, with up to limit entries. Nil: this process reaches no
	// system.
	ListSystem func(ctx context.Context, tenant, system, path string, limit int) (job.Listing, error)
	// Served reports whether some process runs the jobs of the store now, for [View.Why]. Nil: some
	// process does.
	Served func(context.Context) bool
	// Queues are the only queues whose jobs this process runs; empty: all queues that exist.
	Queues []string
	// Testers find out whether a block has cleared, by the names that [Block] may give.
	// [recovery.Enabled] comes with the service, and [HandleTester] registers more. Package
	// recovery/testers has testers that reach out into the world.
	Testers map[string]recovery.Tester
	// TestTimeout is how long one test may take; 30 s by default.
	TestTimeout time.Duration
	// Tested is told of each test that this process makes; nil: nobody is told.
	Tested func(tester string, o recovery.Outcome)
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
	engine.Options
}

// A Service submits jobs, carries out wishes, reads, and runs ready jobs. The API and the command
// line do all their work through it. Its methods are safe for concurrent use, but Run runs once at
// a time.
type Service struct {
	cfg Config
	*core
}

// A core is the part that the services of different principals share in a process.
type core struct {
	engine    *engine.Engine
	desk      *claims.Desk
	principal string // the service's own
	docs      documents
	sessions  sessions
	feed      *feed.Feed
	outputs   printed.Outputs // what running programs say of their progress
}

// New returns a service. It does no I/O.
func New(cfg Config) *Service {
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	if cfg.Principal == "" {
		cfg.Principal = "pawl"
	}
	if cfg.Served == nil {
		cfg.Served = func(context.Context) bool { return true }
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Kinds = maps.Clone(cfg.Kinds)
	if cfg.Kinds == nil {
		cfg.Kinds = map[string]engine.Kind{}
	}
	cfg.Testers = maps.Clone(cfg.Testers)
	if cfg.Testers == nil {
		cfg.Testers = map[string]recovery.Tester{}
	}
	s := &Service{cfg: cfg, core: &core{
		principal: cfg.Principal, docs: documents{store: cfg.Store},
		sessions: sessions{store: cfg.Store},
		feed:     feed.New(cfg.Store, cfg.Broker, cfg.Tenant, cfg.Log),
	}}
	s.cfg.Testers[recovery.Enabled] = recovery.IsEnabled(s.enabled)
	s.start()
	return s
}

// As returns a service that acts in the name of another principal. It shares everything else with
// s.
func (s *Service) As(principal string) *Service {
	other := *s
	other.cfg.Principal = principal
	return &other
}

// Principal returns the user in whose name the service acts.
func (s *Service) Principal() string { return s.cfg.Principal }

// Tenant returns the tenant whose jobs the service submits and reads.
func (s *Service) Tenant() string { return s.cfg.Tenant }

func (s *Service) start() {
	c := s.cfg
	tests := recovery.New(recovery.Config{
		Store: c.Store, Broker: c.Broker, Testers: c.Testers, Machine: c.Machine, Timeout: c.TestTimeout,
		Follow: func(ctx context.Context, eff store.Effects) { s.engine.Follow(ctx, eff) }, Probed: c.Tested,
		Log: c.Log,
	})
	c.Duties = append(slices.Clone(c.Duties), tests.Duties()...)
	if len(c.Only) == 0 {
		c.Duties = append(c.Duties, s.clock().Duty())
	}
	s.engine = engine.New(engine.Config{
		Store: c.Store, Broker: c.Broker, Kinds: c.Kinds, Queues: c.Queues, Machine: c.Machine,
		Blocks: s.blocks, Policy: s.policy, Heard: func(where []job.QueueKind) { s.desk.Heard(where) }, Log: c.Log,
		Options: c.Options,
	})
	s.desk = claims.New(claims.Config{
		Store: c.Store, Engine: s.engine, Tenant: c.Tenant, Queues: s.queueNames, Lease: c.Lease, Log: c.Log,
		Declared: s.declared,
	})
}

// Claims serves workers that are no processes of Pawl.
func (s *Service) Claims() *claims.Desk { return s.desk }

// queueNames returns the queues that exist.
func (s *Service) queueNames(ctx context.Context) ([]string, error) {
	known, err := s.docs.known(ctx, s.cfg.Tenant)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(known.queues)), nil
}

// Run runs jobs until ctx ends, and then stops in good order: see [engine.Engine.Run]. All handlers
// and testers must be registered before.
func (s *Service) Run(ctx context.Context) error {
	for _, name := range append([]string{s.cfg.Tenant}, s.cfg.Tenants...) {
		if err := job.CheckTenant(name); err != nil {
			return err
		}
	}
	following, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.followQueues(following) }()
	var hearing sync.WaitGroup
	hearing.Go(func() { s.hearProgress(following) })
	err := s.engine.Run(ctx)
	stop()
	hearing.Wait()
	return errors.Join(err, <-done)
}

// A Request is one job to be submitted.
type Request struct {
	// ID is the id of the job. A caller that makes it with [job.NewID] can repeat the call. Zero:
	// Submit makes it. Jobs of one call that are in order go by their ids, the oldest first.
	ID   job.ID
	Spec job.Spec
	// Given is the spec as its author wrote it, as JSON, and stands in place of Spec. Nil: it is
	// made from Spec.
	Given json.RawMessage
	// After are the jobs that must end first.
	After []store.After
	// Unique are further unique keys. While another job holds one of them, Submit answers with that
	// job.
	Unique []store.Unique
	// Trace is the trace of the submission, as a W3C traceparent; empty: none.
	Trace string
}

// A Submission is jobs that are submitted together, all or none.
type Submission struct {
	Jobs []Request
	// Key is an idempotency key. A submission that is repeated with the same key and jobs within
	// [store.KeepKey] is answered with the same jobs. Empty: each call submits new jobs.
	Key string
	// List says that the author wrote a list: the path of each problem begins with jobs[i], even if
	// the list has one job. With several jobs it always does.
	List bool
	// Tx is a transaction of the caller that the jobs are inserted in; nil: the store begins one.
	Tx Tx
	// MayOwn reports whether the caller may submit jobs for an owner that a spec names; nil: for
	// every owner.
	MayOwn func(owner string) bool

	advance *store.Advance // of the schedule whose jobs these are
}

// A Tx is a transaction of the caller, in the database of the jobs.
type Tx interface {
	// Submit inserts jobs. Workers are told once it commits.
	Submit(ctx context.Context, sub store.Submission) ([]store.Submitted, error)
	// Finish decides that a worker's job ends with a result. The error is of kind Fenced if the
	// worker does not have the job in this epoch, or somebody has canceled it.
	Finish(ctx context.Context, tenant string, id job.ID, epoch int64, result json.RawMessage) error
	// Rollback ends it, unless it has ended.
	Rollback(ctx context.Context)
}

// Lease is how long this process may be silent before it counts as dead.
func (s *Service) Lease() time.Duration { return cmp.Or(s.cfg.Lease, engine.DefaultLease) }

// Follow tells workers of what a call to the store has done, for who calls the store itself.
func (s *Service) Follow(ctx context.Context, eff store.Effects) { s.engine.Follow(ctx, eff) }

// Submit accepts jobs, all or none, and returns once they are durable. The answers are in the order
// of the requests. An error of kind Invalid names every problem of every request; with several
// requests the path of a problem begins with jobs[i].
func (s *Service) Submit(ctx context.Context, reqs ...Request) ([]store.Submitted, error) {
	return s.SubmitAll(ctx, Submission{Jobs: reqs})
}

// SubmitAll is Submit with options for all jobs together. The error is of kind Conflict if a key is
// repeated with other jobs or one of its jobs was deleted, and of kind Denied if
// [Submission.MayOwn] refuses an owner.
func (s *Service) SubmitAll(ctx context.Context, sub Submission) ([]store.Submitted, error) {
	specs, jobs, err := s.prepareAll(ctx, &sub)
	if err != nil {
		return nil, err
	}
	return s.submit(ctx, &sub, specs, jobs)
}

// submit submits prepared jobs.
func (s *Service) submit(ctx context.Context, sub *Submission, specs []job.Spec, jobs []store.New) (
	[]store.Submitted, error,
) {
	queues, err := s.checkDocuments(ctx, specs, jobs)
	if err != nil {
		return nil, err
	}
	rows := store.Submission{
		Tenant: s.cfg.Tenant, By: s.cfg.Principal, Key: sub.Key, Jobs: jobs, Queues: queues, Advance: sub.advance,
	}
	var answers []store.Submitted
	var eff store.Effects
	if sub.Tx != nil {
		answers, err = sub.Tx.Submit(ctx, rows)
	} else {
		answers, eff, err = s.cfg.Store.Submit(ctx, rows)
	}
	if err != nil {
		return nil, sub.refused(err, jobs)
	}
	s.engine.Follow(ctx, eff)
	for _, a := range answers {
		if a.Place == (job.Place{}) {
			return nil, job.Errorf(job.Conflict, "job %s, which was submitted under this idempotency key, has "+
				"been deleted: use a new key to submit its request once more", a.ID)
		}
	}
	return answers, nil
}

// refused returns what speaks against all jobs of a call that failed for what speaks against one of
// them.
func (sub *Submission) refused(err error, jobs []store.New) error {
	refusals := make([]error, len(jobs))
	for i := range jobs {
		refusals[i] = jobs[i].Refusal
	}
	if !slices.ContainsFunc(refusals, func(r error) bool { return r != nil && errors.Is(err, r) }) {
		return err
	}
	return sub.problems(refusals)
}

// Check reports everything that is wrong with a spec, as Submit would. Its error is a
// [job.SpecError].
func (s *Service) Check(spec *job.Spec) error {
	wrong := &job.SpecError{}
	if err := spec.Validate(); err != nil && !errors.As(err, &wrong) {
		return err
	}
	kind := spec.Kind
	if kind == "" {
		kind = job.KindApp // only a program's kind goes without saying
	}
	if c, ok := s.cfg.Kinds[kind].(engine.Checker); ok {
		form := len(wrong.Problems)
		for _, p := range c.Check(s.cfg.Tenant, spec) {
			if !slices.ContainsFunc(wrong.Problems[:form], func(of job.Problem) bool { return of.Path == p.Path }) {
				wrong.Problems = append(wrong.Problems, p)
			}
		}
	}
	if len(wrong.Problems) > 0 {
		return wrong
	}
	return nil
}

// prepareAll reads and checks each spec, once, and makes the rows that Submit inserts.
func (s *Service) prepareAll(ctx context.Context, sub *Submission) ([]job.Spec, []store.New, error) {
	if err := job.CheckTenant(s.cfg.Tenant); err != nil {
		return nil, nil, err
	}
	if err := job.CheckKey(sub.Key); err != nil {
		return nil, nil, err
	}
	specs, errs := make([]job.Spec, len(sub.Jobs)), make([]error, len(sub.Jobs))
	denied, found := make([]error, len(sub.Jobs)), 0
	for i := range sub.Jobs {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		specs[i], errs[i] = s.read(&sub.Jobs[i])
		var wrong *job.SpecError
		if errors.As(errs[i], &wrong) {
			found += len(wrong.Problems)
		}
		if found >= job.MaxProblems {
			return nil, nil, sub.problems(errs)
		}
		if owner := specs[i].Owner; owner != "" && sub.MayOwn != nil && !sub.MayOwn(owner) {
			denied[i] = job.Errorf(job.Denied, "%w",
				place("owner", owner, "is not you", "leave it out, or let that user submit the job"))
		}
	}
	jobs, err := s.rows(ctx, sub, specs, errs)
	if err == nil {
		err = sub.problems(denied)
	}
	return specs, jobs, err
}

// read returns the spec of a request. Its error names everything that is wrong with it.
func (s *Service) read(r *Request) (job.Spec, error) {
	if r.Given != nil {
		return job.ReadSpec(r.Given, s.Check)
	}
	spec := r.Spec
	return spec, s.Check(&spec)
}

// rows makes the rows of jobs whose specs are checked. errs are what is wrong with specs; it adds
// what is wrong with one beside the others.
func (s *Service) rows(ctx context.Context, sub *Submission, specs []job.Spec, errs []error) ([]store.New, error) {
	jobs := make([]store.New, len(specs))
	var keys ownKeys
	for i := range jobs {
		if errs[i] == nil {
			errs[i] = s.row(ctx, &jobs[i], &sub.Jobs[i], specs[i], sub.Key != "", &keys)
		}
	}
	first := map[string]int{} // of the jobs with an external id
	for i := range jobs {
		name := jobs[i].Job.ExternalID
		if name == "" || errs[i] != nil {
			continue
		}
		if other, known := first[name]; known && jobs[other].Fingerprint != jobs[i].Fingerprint {
			errs[i] = &job.SpecError{Problems: []job.Problem{{
				Path: "external_id", Value: name,
				What:   fmt.Sprintf("is that of jobs[%d], which is another request", other),
				Remedy: "give each job its own",
			}}}
		} else if !known {
			first[name] = i
		}
	}
	s.separate(specs, jobs, errs)
	return jobs, sub.problems(errs)
}

// separate refuses a job that would put its results into the folder of an earlier one.
func (s *Service) separate(specs []job.Spec, jobs []store.New, errs []error) {
	first := map[string]int{}
	for i := range jobs {
		c, ok := s.cfg.Kinds[jobs[i].Job.Kind].(engine.Checker)
		if !ok || errs[i] != nil {
			continue
		}
		j := jobs[i].Job
		j.Tenant = s.cfg.Tenant
		to := c.Target(&j, &specs[i])
		other, taken := first[to]
		switch {
		case to == "":
		case !taken:
			first[to] = i
		case !sameJob(&jobs[other], &jobs[i]) && !job.MayShare(&specs[other], &specs[i]):
			errs[i] = &job.SpecError{Problems: []job.Problem{job.SharedTarget(to,
				fmt.Sprintf("jobs[%d] (%s)", other, jobs[other].Job.Name))}}
		}
	}
}

// sameJob reports whether two requests make one job.
func sameJob(a, b *store.New) bool {
	return a.Job.ID == b.Job.ID || slices.ContainsFunc(a.Unique,
		func(u store.Unique) bool { return slices.Contains(b.Unique, u) })
}

// problems returns what is wrong with the jobs: the problems of all specs, with the kind of the
// first one, or else the first error. In a list the path of a problem begins with its job.
func (sub *Submission) problems(errs []error) error {
	var all job.SpecError
	var kind job.ErrorKind
	var other error
	for i, err := range errs {
		var wrong *job.SpecError
		switch {
		case err == nil:
		case len(errs) == 1 && !sub.List:
			return err
		case errors.As(err, &wrong):
			kind = cmp.Or(kind, job.KindOf(err))
			for _, p := range wrong.Problems {
				p.Path = fmt.Sprintf("jobs[%d].%s", i, p.Path)
				all.Add(p)
			}
		case other == nil:
			other = job.Errorf(job.KindOf(err), "job %d of %d: %w", i+1, len(errs), err)
		}
	}
	if all.Problems == nil {
		return other
	}
	return job.Errorf(kind, "%w", &all)
}

// row makes n, the row that Submit inserts, of a request that was checked. Its kind adds to it.
func (s *Service) row(ctx context.Context, n *store.New, r *Request, spec job.Spec, keyed bool, keys *ownKeys) error {
	given := r.Given
	if given == nil {
		var err error
		if given, err = job.Encode(&spec); err != nil {
			return job.Errorf(job.Invalid, "spec: %w", err)
		}
	}
	n.Delay, n.After, n.Unique = time.Duration(spec.Delay), r.After, r.Unique
	if keyed || spec.ExternalID != "" {
		var err error
		if n.Fingerprint, err = job.Fingerprint(given); err != nil {
			return err
		}
	}
	kind, err := s.declared(ctx, spec.Kind)
	if err == nil {
		given, n.Refusal, err = kind.Complete(&spec, given)
	}
	if err != nil {
		return err
	}
	id := r.ID
	if id.IsZero() {
		id = job.NewID()
	}
	spec.Defaults(id, s.cfg.Principal)
	if n.Index, err = kind.Index(&spec); err != nil {
		return err
	}
	n.Job = job.Job{
		ID: id, Owner: spec.Owner, Kind: spec.Kind, Name: spec.Name, Queue: spec.Queue, Priority: *spec.Priority,
		MaxAttempts: spec.RetryPolicy().MaxAttempts, ExternalID: spec.ExternalID, Labels: spec.Labels,
		Due: spec.NotBefore, Request: given, Notes: spec.Notes, Trace: r.Trace,
	}
	if n.Refusal == nil {
		err = s.setKeys(&spec, n, keys)
	}
	return err
}

// setKeys sets the unique keys of a new job and the keys of its turns.
func (s *Service) setKeys(spec *job.Spec, n *store.New, keys *ownKeys) error {
	partition := ""
	if spec.Resources != nil {
		partition = spec.Resources.Partition
	}
	limits, err := spec.LimitKeys()
	if err != nil {
		return err
	}
	n.Job.Limits, n.Optional = limits, keys.of(&n.Job, spec.System, partition)
	if o := spec.Order; o != nil {
		rank, err := spec.Rank()
		if err != nil {
			return err
		}
		if n.Job.Order, err = spec.OrderKey(); err != nil {
			return err
		}
		n.Job.Rank = rank
		if n.Job.Ties |= job.TieLimited; o.Failing == job.OrderPass {
			n.Job.Ties |= job.TiePass
		}
	}
	u := spec.Unique
	if u == nil {
		return nil
	}
	if u.Alone || u.Until == job.WhileRunning {
		key, err := spec.RunningKey()
		if n.Job.Limits = append(n.Job.Limits, key); err != nil || !u.Alone {
			return err
		}
	}
	key, err := spec.UniqueKey()
	n.Unique = append(slices.Clone(n.Unique), store.Unique{Mode: cmp.Or(u.Until, job.UntilDone), Key: key})
	return err
}

// Job returns one job with all its fields. The error is of kind NotFound if the tenant has no such
// job.
func (s *Service) Job(ctx context.Context, id job.ID) (job.Job, error) {
	return store.FindJob(ctx, s.cfg.Store, s.cfg.Tenant, id)
}

// List returns a page of jobs, newest first: see [store.Reader.List].
func (s *Service) List(ctx context.Context, q store.Query) (store.Page, error) {
	q.Filter, q.Tenant = s.indexed(ctx, q.Filter), s.cfg.Tenant
	return s.cfg.Store.List(ctx, q)
}

// Count returns how many jobs a filter chooses, by state.
func (s *Service) Count(ctx context.Context, f job.Filter) (store.Counts, error) {
	return s.cfg.Store.Count(ctx, s.cfg.Tenant, s.indexed(ctx, f))
}

// Now returns the time on the database's clock. Until this process has renewed its lease once, it
// is the time of the process.
func (s *Service) Now() time.Time { return s.engine.Now() }

// Repaired returns how often the sweep of this process had to repair something. More than 0 is a
// defect.
func (s *Service) Repaired() int64 { return s.engine.Repaired() }

// Removed returns how many jobs this process has removed that ended in a state and were kept no
// longer.
func (s *Service) Removed(state job.State) int64 { return s.engine.Removed(state) }

// ownKeys are the keys under which the last job stands by itself: those of a call are mostly alike.
type ownKeys struct {
	last [4]string // what they come of
	keys []string
}

func (o *ownKeys) of(j *job.Job, system, partition string) []string {
	if last := [...]string{j.Owner, j.Kind, system, partition}; o.keys == nil || o.last != last {
		o.last, o.keys = last, j.Keys(system, partition)
	}
	return o.keys
}
