package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/store"
)

// A Resource is a document that says how something is set up: a queue, a system, a kind of task,
// how long blocked jobs wait, or how long ended jobs are kept.
type Resource[T any] struct {
	Doc     T         `json:"doc"`
	Version int64     `json:"version"` // raised by each change; 0: it is there without a document
	Updated time.Time `json:"updated,omitzero"`

	// Next is when a schedule is due next. Trouble is why its jobs could not be submitted the last
	// time. Other documents have neither.
	Next    time.Time `json:"next,omitzero"`
	Trouble string    `json:"trouble,omitempty"`
}

// A resourceKind knows the documents of one kind.
type resourceKind[T any] struct {
	kind    string
	parse   func([]byte) (T, error)
	name    func(*T) string
	disable func(*T, bool)
	builtin T // there without a document
	// limits returns the limits that a document asks for; nil: it asks for none.
	limits func(*T) []job.Limit

	// of schedules alone
	check func(context.Context, *Service, *T) error // more than parse
	plan  func(before, now *T) store.Plan
	next  func(*T, *store.Resource) time.Time
}

var (
	queues = resourceKind[job.Queue]{
		kind: job.KindQueue, parse: job.ParseQueue,
		builtin: job.Queue{Name: job.DefaultQueue, Description: "where jobs wait that name no queue"},
		name:    func(q *job.Queue) string { return q.Name }, disable: func(q *job.Queue, v bool) { q.Disabled = v },
	}
	systems = resourceKind[job.System]{
		kind: job.KindSystem, parse: job.ParseSystem,
		builtin: job.System{
			Name: job.SystemLocal, Description: "the machine on which the service runs",
			Host: job.Host{Kind: job.SystemLocal},
		},
		limits: (*job.System).Limits,
		name:   func(s *job.System) string { return s.Name }, disable: func(s *job.System, v bool) { s.Disabled = v },
	}
	policies = resourceKind[job.RecoveryPolicy]{
		kind: job.KindPolicy, parse: job.ParsePolicy,
		name: func(p *job.RecoveryPolicy) string { return p.Name }, disable: func(p *job.RecoveryPolicy, v bool) {
			p.Disabled = v
		},
	}
	retentions = resourceKind[job.Retention]{
		kind: job.KindRetention, parse: job.ParseRetention,
		builtin: job.Retention{Name: job.DefaultRetention, Description: "all jobs are kept"},
		name:    func(r *job.Retention) string { return r.Name }, disable: func(r *job.Retention, v bool) {
			r.Disabled = v
		},
	}
)

// Resources applies, reads and removes the documents of one kind.
type Resources[T any] struct {
	s    *Service
	kind *resourceKind[T]
}

// Queues returns the documents of queues.
func (s *Service) Queues() Resources[job.Queue] { return Resources[job.Queue]{s, &queues} }

// Systems returns the documents of systems.
func (s *Service) Systems() Resources[job.System] { return Resources[job.System]{s, &systems} }

// CheckSystem tries all that jobs need of a system, from this process: to reach its host, its
// folder, and a program there. The error is of kind NotFound if there is no such system, and of
// kind Unavailable if another machine reaches it.
func (s *Service) CheckSystem(ctx context.Context, name string) (job.SystemCheck, error) {
	r, err := s.Systems().Resource(ctx, name)
	if err != nil {
		return job.SystemCheck{}, err
	}
	if s.cfg.CheckSystem == nil {
		return job.SystemCheck{}, job.Errorf(job.Unavailable, "this process reaches no systems: ask one that runs programs")
	}
	return s.cfg.CheckSystem(ctx, &r.Doc)
}

// ListSystem lists a folder of a system, with up to limit entries; [job.MaxListed] is the most. It
// lists what jobs can take as an input. The error is of kind NotFound if there is no such system or
// folder, of kind Invalid if jobs cannot name it, and of kind Unavailable if this process does not
// reach it.
func (s *Service) ListSystem(ctx context.Context, name, path string, limit int) (job.Listing, error) {
	if _, err := s.Systems().Resource(ctx, name); err != nil {
		return job.Listing{}, err
	}
	if limit < 1 || limit > job.MaxListed {
		return job.Listing{}, place("limit", strconv.Itoa(limit), "is out of range", "give 1 to "+strconv.Itoa(job.MaxListed))
	}
	if s.cfg.ListSystem == nil {
		return job.Listing{}, job.Errorf(job.Unavailable, "this process reaches no systems: ask one that runs programs")
	}
	return s.cfg.ListSystem(ctx, s.cfg.Tenant, name, path, limit)
}

// Retentions returns the documents that say how long ended jobs are kept. There is one, named
// [job.DefaultRetention].
func (s *Service) Retentions() Resources[job.Retention] {
	return Resources[job.Retention]{s, &retentions}
}

// Policies returns the documents that say how long blocked jobs wait, and how often their
// conditions are tested.
func (s *Service) Policies() Resources[job.RecoveryPolicy] {
	return Resources[job.RecoveryPolicy]{s, &policies}
}

// AnyVersion stands for whatever version a document has.
const AnyVersion = store.AnyVersion

// Apply writes a document in place of the one with its name. created says that there was none.
// version is the version of the present document, 0 if there must be none, or [AnyVersion]. The
// error is of kind Conflict if another version is there, and of kind Invalid if the document is
// wrong.
func (r Resources[T]) Apply(ctx context.Context, doc []byte, version int64) (res Resource[T], created bool, err error) {
	value, err := r.kind.parse(doc)
	if err == nil && r.kind.check != nil {
		err = r.kind.check(ctx, r.s, &value)
	}
	if err != nil {
		return res, false, err
	}
	return r.put(ctx, value, version)
}

func (r Resources[T]) put(ctx context.Context, value T, version int64) (res Resource[T], created bool, err error) {
	text, err := job.Encode(value)
	if err != nil {
		return res, false, err
	}
	st := r.s.cfg.Store
	row := store.Resource{Tenant: r.s.cfg.Tenant, Kind: r.kind.kind, Name: r.kind.name(&value), Doc: text}
	for {
		old, err := store.FindResource(ctx, st, row.Tenant, row.Kind, row.Name)
		if err != nil && job.KindOf(err) != job.NotFound {
			return res, false, err
		}
		if row.Version = version; version == AnyVersion {
			row.Version = old.Version
		}
		if r.kind.plan != nil {
			row.Plan = r.kind.planFor(&old, &value)
		}
		put, err := st.Put(ctx, row)
		if errors.Is(err, store.ErrVersion) && version == AnyVersion {
			continue // somebody wrote meanwhile
		}
		if err != nil {
			return res, false, err
		}
		r.s.changed(ctx, r.kind.kind)
		r.s.mayBeEnabled(ctx, r.kind.kind, row.Name)
		if res, err = r.kind.read(put); err == nil {
			err = r.bound(ctx, old, put)
		}
		return res, row.Version == 0, err
	}
}

// Resource returns one document. The error is of kind NotFound if there is none.
func (r Resources[T]) Resource(ctx context.Context, name string) (Resource[T], error) {
	row, err := store.FindResource(ctx, r.s.cfg.Store, r.s.cfg.Tenant, r.kind.kind, name)
	if job.KindOf(err) == job.NotFound && name == r.kind.name(&r.kind.builtin) {
		return Resource[T]{Doc: r.kind.builtin}, nil
	}
	if err != nil {
		return Resource[T]{}, err
	}
	return r.kind.read(row)
}

// List returns all documents, sorted by name. What is there without a document comes first.
func (r Resources[T]) List(ctx context.Context) ([]Resource[T], error) {
	return r.kind.all(ctx, r.s.cfg.Store, r.s.cfg.Tenant)
}

// Disable disables what a document is about, or enables it again. It does not touch the rest of the
// document. version is as in [Resources.Apply].
func (r Resources[T]) Disable(ctx context.Context, name string, disabled bool, version int64) (Resource[T], error) {
	for {
		res, err := r.Resource(ctx, name)
		if err == nil && version != AnyVersion && version != res.Version {
			err = store.OtherVersion(r.kind.kind, name, version)
		}
		if err != nil {
			return res, err
		}
		r.kind.disable(&res.Doc, disabled)
		put, _, err := r.put(ctx, res.Doc, res.Version)
		if !errors.Is(err, store.ErrVersion) {
			return put, err
		}
	}
}

// Delete removes a document, and the limits that it asked for. version is as in [Resources.Apply].
// The error is of kind Conflict if another version is there and for a queue or system with jobs
// that have not ended, and of kind NotFound if there is no document.
func (r Resources[T]) Delete(ctx context.Context, name string, version int64) error {
	old, err := store.FindResource(ctx, r.s.cfg.Store, r.s.cfg.Tenant, r.kind.kind, name)
	if err == nil || job.KindOf(err) == job.NotFound {
		err = r.s.cfg.Store.Delete(ctx, r.s.cfg.Tenant, r.kind.kind, name, version)
	}
	if err != nil {
		return err
	}
	r.s.changed(ctx, r.kind.kind)
	r.s.mayBeEnabled(ctx, r.kind.kind, name)
	return r.bound(ctx, old, store.Resource{Name: name})
}

// bound sets the limits that a document asks for, and removes those that only the one before asked
// for. After a crash in between, the document is applied again. If somebody has written meanwhile,
// the limits are those of the newest document.
func (r Resources[T]) bound(ctx context.Context, old, now store.Resource) error {
	if r.kind.limits == nil {
		return nil
	}
	var asked, before []job.Limit
	if is, err := r.kind.read(now); err == nil {
		asked = r.kind.limits(&is.Doc)
	}
	if was, err := r.kind.read(old); err == nil {
		before = r.kind.limits(&was.Doc)
	}
	if len(asked)+len(before) == 0 {
		return nil
	}
	if err := r.limit(ctx, asked, before); err != nil {
		return err
	}
	newest, err := store.FindResource(ctx, r.s.cfg.Store, r.s.cfg.Tenant, r.kind.kind, now.Name)
	if job.KindOf(err) == job.NotFound {
		newest, err = store.Resource{Name: now.Name}, nil
	}
	if err != nil || newest.Version == now.Version && newest.Updated.Equal(now.Updated) {
		return err
	}
	return r.bound(ctx, now, newest)
}

// limit sets limits that are asked for, and removes those that only were before.
func (r Resources[T]) limit(ctx context.Context, asked, before []job.Limit) error {
	set, err := r.s.cfg.Store.Limits(ctx, r.s.cfg.Tenant)
	if err != nil {
		return err
	}
	at := func(all []job.Limit, key string) int {
		return slices.IndexFunc(all, func(l job.Limit) bool { return l.Key == key })
	}
	for _, l := range asked {
		most := l.Most
		if i := at(set, l.Key); i >= 0 { // the shares of owners are somebody else's
			l = set[i]
		}
		if l.Most = most; at(set, l.Key) >= 0 && set[at(set, l.Key)].Most == most {
			continue
		}
		if err := r.s.SetLimit(ctx, l); err != nil {
			return err
		}
	}
	for _, l := range before {
		if at(asked, l.Key) < 0 && at(set, l.Key) >= 0 {
			if err := r.s.RemoveLimit(ctx, l.Key); err != nil && job.KindOf(err) != job.NotFound {
				return err
			}
		}
	}
	return nil
}

func (k *resourceKind[T]) read(row store.Resource) (Resource[T], error) {
	r := Resource[T]{Version: row.Version, Updated: row.Updated, Trouble: row.Trouble}
	if err := json.Unmarshal(row.Doc, &r.Doc); err != nil {
		return r, job.Errorf(job.Corrupt, "%s %s: %w", row.Kind, row.Name, err)
	}
	if k.next != nil {
		r.Next = k.next(&r.Doc, &row)
	}
	return r, nil
}

// planFor says what becomes of the due times of old, which has no version if it is not there, when
// value takes its place.
func (k *resourceKind[T]) planFor(old *store.Resource, value *T) store.Plan {
	var before T
	if old.Version == 0 || json.Unmarshal(old.Doc, &before) != nil {
		return k.plan(nil, value)
	}
	return k.plan(&before, value)
}

func (k *resourceKind[T]) all(ctx context.Context, st store.Store, tenant string) ([]Resource[T], error) {
	rows, err := st.Resources(ctx, store.ResourceQuery{Tenant: tenant, Kind: k.kind})
	if err != nil {
		return nil, err
	}
	list := []Resource[T]{}
	builtin := k.name(&k.builtin) // empty: there is none
	for _, row := range rows {
		r, err := k.read(row)
		if err != nil {
			return nil, err
		}
		if row.Name == builtin {
			builtin = ""
		}
		list = append(list, r)
	}
	if builtin != "" {
		list = append([]Resource[T]{{Doc: k.builtin}}, list...)
	}
	return list, nil
}

// documents remembers the documents that submissions and steps ask for. It knows a change by
// another process within keepDocuments.
type documents struct {
	store store.Store

	mu    sync.Mutex
	of    map[string]*known                     // guarded by mu: by tenant
	kinds map[string]map[string]*kinds.Declared // guarded by mu: by tenant and name
}

// A known is what is known of a tenant's documents. It is never changed.
type known struct {
	read     time.Time
	queues   map[string]job.Queue
	systems  map[string]job.System
	policies map[string]job.RecoveryPolicy
	kinds    map[string]*kinds.Declared
	disabled bool // some system is
}

const keepDocuments = time.Second

// known returns the documents of a tenant.
func (d *documents) known(ctx context.Context, tenant string) (*known, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.of[tenant]; k != nil && time.Since(k.read) < keepDocuments {
		return k, nil
	}
	k := &known{
		read: time.Now(), queues: map[string]job.Queue{}, systems: map[string]job.System{},
		policies: map[string]job.RecoveryPolicy{}, kinds: map[string]*kinds.Declared{},
	}
	qs, err1 := queues.all(ctx, d.store, tenant)
	ss, err2 := systems.all(ctx, d.store, tenant)
	ps, err3 := policies.all(ctx, d.store, tenant)
	ks, err4 := kindDocs.all(ctx, d.store, tenant)
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	for _, q := range qs {
		k.queues[q.Doc.Name] = q.Doc
	}
	for _, s := range ss {
		k.systems[s.Doc.Name] = s.Doc
		k.disabled = k.disabled || s.Doc.Disabled
	}
	for _, p := range ps {
		k.policies[p.Doc.Name] = p.Doc
	}
	for _, r := range ks {
		k.kinds[r.Doc.Name] = kinds.Declare(&r.Doc, r.Version, r.Updated, d.kinds[tenant][r.Doc.Name])
	}
	if d.of == nil {
		d.of, d.kinds = map[string]*known{}, map[string]map[string]*kinds.Declared{}
	}
	d.of[tenant], d.kinds[tenant] = k, k.kinds
	return k, nil
}

func (d *documents) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.of)
}

// changed tells every process that a document has changed.
func (s *Service) changed(ctx context.Context, kind string) {
	s.docs.forget()
	if err := s.cfg.Broker.Publish(context.WithoutCancel(ctx), engine.ResourceTopic, []byte(kind)); err != nil {
		s.cfg.Log.Warn("change of a document not told", "kind", kind, "error", err)
	}
}

// followQueues makes the engine serve the queues that exist, until ctx ends.
func (s *Service) followQueues(ctx context.Context) error {
	if len(s.cfg.Queues) > 0 {
		return nil
	}
	for ctx.Err() == nil {
		news, err := s.cfg.Broker.Subscribe(ctx, engine.ResourceTopic)
		if err == nil {
			err = s.serveQueues(ctx, news.Messages(), news.Lost())
			news.Close()
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.cfg.Log.Warn("queues not read", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// serveQueues tells the engine of queues until the subscription is lost, ctx ends, or the queues
// cannot be read.
func (s *Service) serveQueues(ctx context.Context, news <-chan []byte, lost <-chan struct{}) error {
	for {
		s.docs.forget()
		known, err := s.docs.known(ctx, s.cfg.Tenant)
		if err != nil {
			return err
		}
		s.engine.Serve(slices.Collect(maps.Keys(known.queues))...)
		for waits := true; waits; {
			select {
			case kind := <-news:
				waits = string(kind) == job.KindSchedule
			case <-lost:
				return nil
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// checkDocuments sees to it that the queues, systems and recovery policies that jobs name are there
// and take them. What speaks against a job becomes its Refusal: a repeated call is answered all the
// same.
func (s *Service) checkDocuments(ctx context.Context, specs []job.Spec, jobs []store.New) (map[string]store.QueueCheck,
	error,
) {
	known, err := s.docs.known(ctx, s.cfg.Tenant)
	if err != nil {
		return nil, err
	}
	checks := map[string]store.QueueCheck{}
	for i := range jobs {
		name := jobs[i].Job.Queue
		q, there := known.queues[name]
		switch {
		case !there:
			jobs[i].Refusal = place("queue", name, "is unknown", "give one that pawl get queues lists, or make it")
		case q.Disabled:
			jobs[i].Refusal = disabled("queue", name)
		default:
			checks[name] = store.QueueCheck{Document: name != job.DefaultQueue, Most: q.MaxWaiting}
		}
		if jobs[i].Job.Program() && jobs[i].Refusal == nil {
			jobs[i].Refusal = s.toSystem(ctx, known.systems, &specs[i], &jobs[i])
		}
		if r := specs[i].Recovery; r != nil && r.Policy != "" && jobs[i].Refusal == nil {
			if _, there := known.policies[r.Policy]; !there {
				jobs[i].Refusal = place("recovery.policy", r.Policy, "is unknown",
					"give one that pawl get policies lists, or make it")
			}
		}
	}
	return checks, nil
}

func place(field, value, what, remedy string) error {
	return &job.SpecError{Problems: []job.Problem{{Path: field, Value: value, What: what, Remedy: remedy}}}
}

func disabled(field, name string) error {
	return job.Errorf(job.Conflict, "%w", place(field, name, "is disabled", "it takes no new jobs until it is enabled"))
}

// someMachine returns the machine that keeps the files of a job which every machine could run: this
// one, or else one that is there; empty: none is.
func (s *Service) someMachine(ctx context.Context) string {
	if s.cfg.Machine != "" {
		return s.cfg.Machine
	}
	all, _ := s.sessions.there(ctx) // whoever claims the job keeps them, if nothing is known
	for i := range all {
		if m := all[i].Process.Machine; all[i].Live && m != "" {
			return m
		}
	}
	return ""
}

// toSystem puts a job on the system that its spec names, or returns the reason why that does not
// take it. A disabled system takes it: the job waits until the system is enabled.
func (s *Service) toSystem(ctx context.Context, ss map[string]job.System, spec *job.Spec, n *store.New) error {
	j, name := &n.Job, spec.System
	if name == "" {
		name = job.SystemLocal
	}
	sys, known := ss[name]
	if !known {
		return place("system", name, "is unknown", "give one that pawl get systems lists, or make it")
	}
	if problems := sys.Refuse(spec.Resources); problems != nil {
		return &job.SpecError{Problems: problems}
	}
	switch {
	case sys.Host.Kind == job.HostSSH:
		j.Machine, j.Watch = sys.Host.From, sys.Watch("")
		if j.Machine == "" && spec.FilesHere() {
			j.Machine = s.someMachine(ctx)
		}
	case s.cfg.Machine == "":
		return job.Errorf(job.Invalid,
			"system local: this process runs no programs: submit only tasks, or set Config.Machine")
	case sys.Apart():
		j.Machine, j.Watch = s.cfg.Machine, sys.Watch(s.cfg.Machine)
	default:
		j.Machine, j.Watch = s.cfg.Machine, s.cfg.Machine
	}
	if problems := spec.RefuseLocations(ss, j.Machine); problems != nil {
		return &job.SpecError{Problems: problems}
	}
	if spec.Resources == nil || spec.Resources.Partition == "" {
		// Nothing but these keys says later in which partition it is.
		j.Limits = append(j.Limits, sys.PartitionKeys(j)...)
	}
	return nil
}
