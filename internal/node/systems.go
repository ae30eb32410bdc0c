package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// systems are the systems that this process reaches, on other machines and in schedulers. It keeps
// one connection to each machine, however many jobs run there. It implements [app.Remote].
type systems struct {
	rows    store.Resources
	rates   store.Reserver // of dials; nil: there are none
	machine string         // the id of the data folder
	reached reached
	dir     string // the data folder
	log     *slog.Logger
	// of which systems the log tells, by name; nil: of all
	concerns func(name string) bool

	tenant  string // whose systems this process watches
	watcher func(*app.System) *app.Watcher

	mu   sync.Mutex
	open map[string]*system    // guarded by mu: by tenant and watch
	docs map[string]job.System // guarded by mu: of tenant, those that this process reaches, by watch
	// guarded by mu: closed when docs are others
	changed chan struct{}
	old     []*system // guarded by mu: systems whose documents have changed
}

// A system is one account that has been asked for.
type system struct {
	doc  job.System
	host machine
	own  string // a folder for it in the data folder, where the document names none

	gone  chan struct{} // closed when the document has changed
	turn  chan struct{} // a semaphore of 1: its holder may make ready
	ready *app.System   // nil: its folders are not known yet
}

// newSystems returns the systems of a data folder. It dials none of them.
func newSystems(rows store.Resources, machine, dir string, log *slog.Logger) *systems {
	return &systems{
		rows: rows, machine: machine, dir: dir, reached: reached{filepath.Join(dir, "reached")}, log: log,
		open: map[string]*system{}, docs: map[string]job.System{}, changed: make(chan struct{}),
	}
}

// System implements [app.Remote].
func (s *systems) System(ctx context.Context, tenant, watch string) (*app.System, error) {
	y, err := s.find(ctx, tenant, watch)
	if err != nil {
		return nil, err
	}
	select {
	case y.turn <- struct{}{}:
		defer func() { <-y.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if y.ready == nil {
		ready, err := y.prepare(ctx, watch, s.logOf(y.doc.Name))
		if err != nil {
			return nil, fmt.Errorf("system %s: %w", y.doc.Name, s.reached.judge(tenant, &y.doc, err))
		}
		y.ready = ready
		if err := s.reached.note(tenant, &y.doc); err != nil {
			s.log.Warn("it is not kept that a system was reached", "system", y.doc.Name, "error", err)
		}
	}
	return y.ready, nil
}

// Document implements [app.Remote].
func (s *systems) Document(ctx context.Context, tenant, name string) (doc job.System, err error) {
	if name == job.SystemLocal {
		return job.System{Name: name}, nil
	}
	row, err := store.FindResource(ctx, s.rows, tenant, job.KindSystem, name)
	if err == nil {
		err = json.Unmarshal(row.Doc, &doc)
	}
	return doc, err
}

// find returns a system as its document is now.
func (s *systems) find(ctx context.Context, tenant, watch string) (*system, error) {
	doc, err := s.document(ctx, tenant, watch)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tenant + "\x00" + watch
	y := s.open[key]
	if y != nil && y.same(&doc) {
		return y, nil
	}
	h, err := s.dials(tenant, &doc)
	if err != nil {
		return nil, err
	}
	if y != nil {
		s.replace(y)
	}
	y = &system{doc: doc, host: h, own: s.own(&doc), gone: make(chan struct{}), turn: make(chan struct{}, 1)}
	s.open[key] = y
	return y, nil
}

// own returns the folder of a system in the data folder.
func (s *systems) own(doc *job.System) string { return filepath.Join(s.dir, "systems", doc.Name) }

// dials returns the machine of a system. Another one is dialed at its rate.
func (s *systems) dials(tenant string, doc *job.System) (machine, error) {
	if doc.Host.Kind != job.HostSSH {
		return backends.host(doc.Watch(s.machine), s.dir, doc.Env, nil)
	}
	allow := func(ctx context.Context) error {
		if s.rates == nil {
			return nil
		}
		return store.Await(ctx, s.rates, tenant, job.RateOf(job.RateDials, doc.Name), func(at time.Time) {
			s.log.Info("a connection waits for the rate of dials", "system", doc.Name, "until", at)
		})
	}
	return backends.remote(doc, loginOf(s.dir, tenant, doc), allow, s.logOf(doc.Name))
}

// replace puts a system aside whose document has changed. Its watch begins anew. Steps that use it
// go on with it: its connection closes when it has nothing to do. s.mu is held.
func (s *systems) replace(y *system) {
	close(y.gone)
	s.old = append(s.old, y)
}

// document returns the document of a system.
func (s *systems) document(ctx context.Context, tenant, watch string) (doc job.System, err error) {
	if tenant == s.tenant {
		s.mu.Lock()
		doc, known := s.docs[watch]
		s.mu.Unlock()
		if known {
			return doc, nil
		}
	}
	name, _, _ := strings.Cut(watch, "/")
	row, err := store.FindResource(ctx, s.rows, tenant, job.KindSystem, name)
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal(row.Doc, &doc); err != nil {
		return doc, job.Errorf(job.Corrupt, "system %s: %w", name, err)
	}
	switch {
	case doc.Watch(s.machine) != watch || !doc.Apart():
		return doc, job.Errorf(job.NotFound, "system %s is another account now: its jobs are on %s", name, watch)
	case !s.reaches(&doc):
		return doc, job.Errorf(job.Unavailable, "system %s is reached from machine %s alone", name, doc.Host.From)
	}
	return doc, nil
}

// same reports whether a document says nothing else of how programs run.
func (y *system) same(doc *job.System) bool {
	was, is := y.doc, *doc
	for _, d := range []*job.System{&was, &is} {
		d.Disabled, d.Description, d.Most, d.Files, d.Partitions, d.Options = false, "", nil, nil, nil, nil
	}
	return reflect.DeepEqual(was, is)
}

// reaches reports whether this process holds what reaches a system.
func (s *systems) reaches(doc *job.System) bool {
	if doc.Host.Kind != job.HostSSH {
		return doc.Apart()
	}
	return doc.Host.Keys == job.KeysEverywhere || doc.Host.From == s.machine
}

// prepare finds the folders of the system on its machine and makes them.
func (y *system) prepare(ctx context.Context, watch string, log *slog.Logger) (*app.System, error) {
	env, err := y.host.Environ(ctx)
	if err != nil {
		return nil, err
	}
	work := y.own
	if y.doc.Work != "" {
		if work, err = y.doc.Folder(env); err != nil {
			return nil, err
		}
	}
	sys := &app.System{
		Watch: watch, Host: y.host, Work: path.Join(work, "work"), Shell: y.doc.Shell, Profile: y.doc.Profile,
		Complete: y.doc.Complete,
	}
	if err := y.host.Files().Mkdir(ctx, sys.Work); err != nil {
		return nil, err
	}
	ends, past := "ends", "past"
	if y.doc.Scheduled() { // those of processes are others: the document may change
		ends, past = y.doc.Runner+"-ends", y.doc.Runner+"-past"
	}
	sys.Runner, err = backends.runners[y.doc.Starts()](ctx, y.host, path.Join(work, ends), path.Join(work, past), log)
	if err != nil {
		return nil, err
	}
	return sys, nil
}

// retry has the next request to a system dial, though a login was refused.
func (s *systems) retry(tenant, watch string) {
	s.mu.Lock()
	y := s.open[tenant+"\x00"+watch]
	s.mu.Unlock()
	if y == nil {
		return
	}
	if far, ok := y.host.(interface{ Forget() }); ok {
		far.Forget()
	}
}

// Test implements [recovery.Tester]: it asks the machine of a system, and its scheduler.
func (s *systems) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	s.retry(q.Tenant, q.Params[app.ParamWatch]) // what is told is how it is now
	ask := maps.Clone(q.Params)
	delete(ask, app.ParamWatch)
	y, err := s.System(ctx, q.Tenant, q.Params[app.ParamWatch])
	if err == nil {
		_, err = y.Host.Files().Stat(ctx, y.Work)
	}
	if err == nil {
		if t, ok := y.Runner.(runner.Tested); ok {
			err = t.Test(ctx, ask)
		}
	}
	if err != nil {
		return recovery.Answer{}, err
	}
	a := recovery.Answer{Clear: true, Says: q.Params[app.ParamWatch] + " answers"}
	if len(ask) > 0 {
		a.May, a.Says = 10, q.Params[app.ParamWatch]+" takes jobs" // it does not say how many
	}
	return a, nil
}

// Private implements [recovery.Private]: each tenant has documents of its own.
func (s *systems) Private() {}

// duties returns the watches over the systems that this process reaches, and a channel that is
// closed when they are others.
func (s *systems) duties() (all []engine.Duty, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for watch := range s.docs {
		all = append(all, engine.Duty{
			Name: job.WatchDuty(watch),
			Run:  func(ctx context.Context, held *engine.Held) error { return s.look(ctx, watch, held) },
		})
	}
	return all, s.changed
}

// look looks after the programs of a watch until ctx ends. While their machine cannot be reached,
// or the document of the system makes no sense, it tries again each second, and tells so once.
func (s *systems) look(ctx context.Context, watch string, held *engine.Held) error {
	told := false
	name, _, _ := strings.Cut(watch, "/")
	log := s.logOf(name)
	for ctx.Err() == nil {
		y, err := s.find(ctx, s.tenant, watch)
		if err == nil {
			err = s.lookWhile(ctx, y, watch, held, &told)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		held.Silent(err)
		if errors.Is(err, fs.ErrNotExist) { // its folders were removed: the next use makes them again
			y.turn <- struct{}{}
			y.ready = nil
			<-y.turn
		}
		if !told && log.Enabled(ctx, slog.LevelWarn) {
			told = true
			log.Warn("the programs of a system cannot be watched; trying again", "watch", watch, "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// lookWhile looks on as long as the document of the system stays the same.
func (s *systems) lookWhile(ctx context.Context, y *system, watch string, held *engine.Held, told *bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-y.gone:
			stop()
		case <-ctx.Done():
		}
	}()
	sys, err := s.System(ctx, s.tenant, watch)
	if err == nil {
		*told = false
		err = s.watcher(sys).Duty().Run(ctx, held)
	}
	if ctx.Err() != nil {
		return nil // the document has changed: that is no trouble
	}
	return err
}

// follow reads the documents of systems whenever one has changed, until ctx ends.
func (s *systems) follow(ctx context.Context, bus broker.Broker) {
	for ctx.Err() == nil {
		news, err := bus.Subscribe(ctx, engine.ResourceTopic)
		if err == nil {
			err = s.read(ctx, news)
			news.Close()
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.log.Warn("systems not read", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (s *systems) read(ctx context.Context, news broker.Subscription) error {
	for {
		rows, err := s.rows.Resources(ctx, store.ResourceQuery{Tenant: s.tenant, Kind: job.KindSystem})
		if err != nil {
			return err
		}
		docs := map[string]job.System{}
		for _, row := range rows {
			var doc job.System
			if json.Unmarshal(row.Doc, &doc) == nil && s.reaches(&doc) {
				docs[doc.Watch(s.machine)] = doc
			}
		}
		s.mu.Lock()
		s.docs = docs
		for key, y := range s.open {
			tenant, watch, _ := strings.Cut(key, "\x00")
			if doc, known := docs[watch]; tenant == s.tenant && known && !y.same(&doc) {
				s.replace(y)
				delete(s.open, key)
			}
		}
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		select {
		case <-news.Messages():
		case <-news.Lost():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Close ends the connections. Programs run on.
func (s *systems) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, y := range slices.AppendSeq(s.old, maps.Values(s.open)) {
		err = errors.Join(err, y.host.Close())
	}
	clear(s.open)
	s.old = nil
	return err
}
