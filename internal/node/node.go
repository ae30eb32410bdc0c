// Package node puts a service together from its parts and serves it: it opens a data folder or a
// database, and makes of store, broker, host, runner and files the process that runs jobs, behind
// the folder's socket and the addresses of pawl serve. It is the only code of the product that
// knows backends.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/observe"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/recovery/testers"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// Version is that of this Pawl. The main function sets it.
var Version = "dev"

// A Node is everything that runs in one process on a data folder. All wiring of the embedded
// service is here.
type Node struct {
	*service.Service
	Dir    string
	folder *folder.Folder // nil: it is only read
	Store  CountingStore
	Bus    broker.Broker
	shared bool // the database is one of many processes, which may share the folder too
	host   machine
	App    *app.Kind
	eyes   *app.Watcher   // of this machine; it looks while this process watches
	far    *systems       // on other machines
	peers  *auth.Peers    // knows processes of other machines; nil: the database has one process
	key    *peerKey       // of the tokens for them
	free   []func() error // what close calls, the last one first
}

// More is what a program adds to pawl where it puts a process together, such as a kind of task of
// its own. Pawl itself adds nothing.
type More struct {
	Store  func(store.Store) store.Store // returns the store with something around it; nil: nothing is
	Change func(*service.Config)         // changes how the service is configured; nil: nothing is changed
	Handle func(*service.Service)        // adds handlers to the service before it runs; nil: there are none
}

// Options are what commands vary.
type Options struct {
	More
	engine.Options                // without roles: all but the API
	DB             DatabaseConfig // the database that many processes share; without DSN: that of the folder
	Migrate        bool           // bring the schema of DB up to date
	// files of the service outside of the folder that no job takes as an input; empty ones are none
	Secrets []string
	Jobs    int      // how many programs run at once while this process has the folder; 0: as its limit says
	Queues  []string // whose jobs to run; empty: of all
	// file with the authorities of the certificates of other processes; empty: those of the system
	PeerCA string
	// programs that find out whether what blocks jobs has cleared, by name
	Testers map[string][]string
	Patient time.Duration // how long a test may take; 0: as is usual
	Web     egress.Rule   // from where inputs may be fetched by http; empty: from all
	WebSize int64         // bytes of the largest such input; 0: as package files/http has it
	// for how long jobs that were cleaned are remembered; 0: as is usual
	Memory time.Duration
	// how often all programs are looked at, for ends that nobody told of; 0: as is usual
	Look time.Duration
	Log  io.Writer // for what operators should know; stderr by default
	// of which systems the log tells, by name; nil: of all. Several goroutines call it.
	Concerns func(system string) bool
	Observe  *observe.Observer                                 // looks on, and has a log of its own; nil: nobody
	Logger   *slog.Logger                                      // in place of Log
	Environ  func(context.Context, *job.Job) map[string]string // what programs get beside what their jobs say

	Unlimited bool // a folder that is new gets no limit; see setTurns
}

// UsualDir is the data folder where none is named.
func UsualDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", job.Errorf(job.Invalid, "no home folder to keep data in: %w; name a folder with --dir", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Abs(filepath.Join(state, "pawl"))
}

// openingTime is how long a process may have a folder before it can be asked.
const openingTime = 3 * time.Second

// OpenSoon is [Open]. Where another process has the folder and reach finds that it cannot be asked,
// it has begun just now, or it is a command that is nearly done: OpenSoon tries for some seconds.
func OpenSoon(ctx context.Context, dir string, o Options, reach func() error) (*Node, error) {
	for began := time.Now(); ; {
		n, err := Open(ctx, dir, o)
		if job.KindOf(err) != job.Locked || folder.Away(err) != nil || reach() == nil || time.Since(began) > openingTime {
			return n, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Open opens the folder for running jobs.
func Open(ctx context.Context, dir string, o Options) (_ *Node, err error) {
	if o.Log == nil {
		o.Log = live.NewWriter(os.Stderr)
	}
	if len(o.Roles) == 0 {
		o.Roles = []store.Role{store.RoleWorker, store.RoleRecovery, store.RoleWatcher}
	}
	n := &Node{Dir: dir}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	log := o.Logger
	if log == nil {
		log = slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if n.folder, err = folder.Open(dir, func(said string) { log.Warn(said) }); err != nil {
		return nil, err
	}
	n.free = append(n.free, n.folder.Close)
	if err := n.openDatabase(ctx, &o, log); err != nil {
		return nil, err
	}
	machine, err := folder.Machine(dir)
	if err != nil {
		return nil, err
	}
	var launcher runner.Runner
	n.host, err = backends.host(machine, dir, nil, func(p host.Process) { backends.exited(launcher, p) })
	if err != nil {
		return nil, err
	}
	kind, err := programs(ctx, dir, n.host, log)
	if err != nil {
		return nil, err
	}
	launcher = kind.Local.Runner
	for _, name := range o.Secrets {
		if name == "" {
			continue
		}
		if name, err = filepath.Abs(name); err != nil {
			return nil, err
		}
		kind.Own = append(kind.Own, name)
	}
	kind.Log, kind.Environ, kind.Remember, kind.Look = log, o.Environ, o.Memory, o.Look
	rule := cmp.Or(o.Web, egress.All)
	var dial testers.Dial
	if rule != egress.All { // what is tested is what jobs needed
		dial = rule.Dialer().DialContext
	}
	if rule != egress.None {
		var free []func() error
		kind.Sources, free = openSources(rule, o.WebSize)
		n.free = append(n.free, free...)
	}
	o.Version = Version
	cfg := service.Config{
		Store: n.Store, Broker: n.Bus, Principal: UserName(), Machine: machine, Queues: o.Queues,
		Testers: testers.All(o.Testers, dial), TestTimeout: o.Patient, Log: log, Options: o.Options,
		CheckSystem: n.checkSystem,
	}
	if o.Store != nil {
		cfg.Store = o.Store(cfg.Store)
	}
	if o.Observe != nil {
		cfg.Store, cfg.Broker, cfg.Tracer = o.Observe.Store(cfg.Store), o.Observe.Broker(n.Bus), o.Observe
		cfg.Tested = func(tester string, found recovery.Outcome) { o.Observe.Tested(tester, string(found)) }
		kind.Ran = func(ctx context.Context, j *job.Job, e runner.End) {
			o.Observe.Ran(ctx, j, e.Began(), e.Ended, e.Code)
		}
	}
	far := newSystems(cfg.Store, machine, dir, log)
	n.free = append(n.free, far.Close)
	n.far, far.rates, far.tenant, far.concerns = far, cfg.Store, cmp.Or(cfg.Tenant, "default"), o.Concerns
	kind.Remote = far
	cfg.Testers[app.TesterConnection] = far
	cfg.Testers[app.TesterSpace] = space{cfg.Testers[app.TesterSpace], far}
	n.App = app.New(kind)
	cfg.ListSystem = n.App.ListSystem
	far.watcher = func(y *app.System) *app.Watcher { return app.NewWatcher(n.App, y, cfg.Store, cfg.Broker) }
	n.eyes = app.NewWatcher(n.App, n.App.Local(), cfg.Store, cfg.Broker)
	cfg.Kinds = map[string]engine.Kind{job.KindApp: n.App}
	for _, k := range o.Claims {
		if cfg.Kinds[k] == nil {
			return nil, job.Errorf(job.Invalid,
				"pawl runs no jobs of kind %s, only of kind %s: start a program that has the handler", k, job.KindApp)
		}
	}
	if slices.Contains(o.Roles, store.RoleWatcher) {
		cfg.Duties = []engine.Duty{n.eyes.Duty()}
		cfg.VaryingDuties = far.duties
	}
	if n.shared {
		if n.peers, err = n.askPeers(&cfg, o.PeerCA); err != nil {
			return nil, err
		}
	}
	if o.Change != nil {
		o.Change(&cfg)
	}
	n.Service = service.New(cfg)
	if o.Handle != nil {
		o.Handle(n.Service)
	}
	if n.peers != nil {
		n.peers.Tenant = n.Tenant()
	}
	if o.Observe != nil {
		o.Observe.Repaired(n.Repaired)
		o.Observe.Removed(n.Removed)
		o.Observe.Stalled(func() (stalled map[job.Lane]int, left int) {
			stalled = map[job.Lane]int{}
			for _, s := range n.App.Stalled() {
				if s.Left {
					left++
				} else {
					stalled[job.LaneOf(s.State, true, 0)]++
				}
			}
			return stalled, left
		})
		o.Observe.Jobs(cfg.Store, n.Tenant())
	}
	return n, nil
}

// programs is how programs run on this machine, with their files in a data folder.
func programs(ctx context.Context, dir string, h host.Host, log *slog.Logger) (app.Config, error) {
	c := Places(dir)
	c.Local.Host = h
	var err error
	ends, past := filepath.Join(dir, "ends"), filepath.Join(dir, "past")
	c.Local.Runner, err = backends.runners[job.RunnerProcess](ctx, h, ends, past, log)
	return c, err
}

// Places says where the files of programs are in a data folder, which the service has for itself.
func Places(dir string) app.Config {
	return app.Config{
		Files: backends.files(dir), Own: []string{dir},
		Local:   app.System{Work: filepath.Join(dir, "work")},
		Archive: filepath.Join(dir, "archive"),
	}
}

// openSources opens where inputs with a URL come from, by scheme. free closes them.
func openSources(rule egress.Rule, most int64) (from map[string]files.Source, free []func() error) {
	from = map[string]files.Source{}
	for _, s := range backends.sources {
		opened, done := s.open(rule, most)
		free = append(free, done)
		for _, scheme := range s.schemes {
			from[scheme] = opened
		}
	}
	return from, free
}

// CheckingKind is the kind of programs of a data folder as far as it checks specs. Like a service
// with the usual settings it lets pass inputs from the web. It is not for fetching them.
func CheckingKind(dir string) *app.Kind {
	c := Places(dir)
	c.Sources, _ = openSources(egress.Public, 0) // nothing is open before the first request
	return app.New(c)
}

// LocalFiles are the files of this machine.
func LocalFiles() files.FS { return backends.files("") }

// Environ is what programs on this machine get of the environment of this process.
func Environ() []string { return backends.environ() }

// openDatabase opens the database and what carries wake-ups: those of the folder, which this
// process has alone then, or those that many processes share.
func (n *Node) openDatabase(ctx context.Context, o *Options, log *slog.Logger) error {
	if o.DB.DSN == "" {
		switch {
		case !folder.Shared(n.Dir):
		case Occupied(ctx, n.Dir):
			return job.Errorf(job.Locked, "data folder %s is in use by processes that share a database", n.Dir)
		default:
			return elsewhere(n.Dir)
		}
		if err := n.useDatabase(ctx, DatabaseConfig{Dir: n.Dir}); err != nil {
			return err
		}
		return n.setTurns(ctx, o)
	}
	lock, err := folder.Join(n.Dir)
	if err != nil {
		return err
	}
	n.free = append(n.free, lock.Close)
	shared := o.DB
	shared.Log = log
	if o.Migrate {
		if err := migrate(ctx, shared.direct(), shared.Schema); err != nil {
			return err
		}
	}
	if err := n.useDatabase(ctx, shared); err != nil {
		return err
	}
	n.shared = true
	return folder.Mark(n.Dir) // not before the database has answered: a slip in its name takes no folder
}

// useDatabase opens a database for as long as n is open.
func (n *Node) useDatabase(ctx context.Context, c DatabaseConfig) error {
	d, err := OpenDatabase(ctx, c)
	if err != nil {
		return err
	}
	n.free = append(n.free, d.Close)
	n.Store, n.Bus = d.Store, d.Bus
	return nil
}

// elsewhere is the error of a command that looks for jobs in a folder whose jobs are in a database
// that many share.
func elsewhere(dir string) error {
	return job.Errorf(job.Invalid, "the jobs of folder %s are in a database that many processes share, and none "+
		"of these runs on it: "+
		"start pawl serve or pawl worker there with --db, or name a server with --server", dir)
}

// Run runs jobs until ctx ends, or until the folder is not where it was: nobody would find what is
// written there.
func (n *Node) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	moved := make(chan error, 1)
	go func() {
		err := n.folder.Moved(ctx)
		if err != nil {
			stop(err)
		}
		moved <- err
	}()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		n.far.follow(ctx, n.Bus)
	}()
	err := n.Service.Run(ctx)
	stop(nil)
	<-followed
	if gone := <-moved; gone != nil {
		return gone
	}
	return err
}

// Close releases the folder and the database. Programs that run go on.
func (n *Node) Close() error {
	var err error
	if n.host != nil {
		err = n.host.Close()
	}
	for _, free := range slices.Backward(n.free) {
		err = errors.Join(err, free())
	}
	return err
}

// OpenReader opens the folder for reading, beside a process that may run jobs in it.
func OpenReader(ctx context.Context, dir string) (*Node, error) {
	if folder.Shared(dir) {
		return nil, elsewhere(dir)
	}
	n := &Node{Dir: dir}
	if err := n.useDatabase(ctx, DatabaseConfig{Dir: dir, ReadOnly: true}); err != nil {
		return nil, err
	}
	machine, err := folder.Machine(dir)
	// without its id it can be read
	if kind := job.KindOf(err); err != nil && kind != job.Corrupt && kind != job.Invalid {
		return nil, errors.Join(err, n.Close())
	}
	far := newSystems(n.Store, machine, dir, QuietLog)
	n.free = append(n.free, far.Close)
	n.Service = service.New(service.Config{
		Store: n.Store, Broker: n.Bus, Principal: UserName(), Machine: machine,
		Kinds:  map[string]engine.Kind{job.KindApp: app.New(app.Config{Files: LocalFiles(), Remote: far})},
		Served: func(ctx context.Context) bool { return Occupied(ctx, dir) },
	})
	return n, nil
}

// UserName is in whose name this process acts. A service manager, or a container, may set none of
// the variables.
func UserName() string {
	for _, v := range []string{"USER", "LOGNAME"} {
		if u := os.Getenv(v); u != "" {
			return u
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// OpenAsking opens a folder in which another process runs jobs, to ask its machine.
func OpenAsking(ctx context.Context, dir string) (*Node, error) {
	n, err := OpenReader(ctx, dir)
	if err != nil {
		return nil, err
	}
	machine, err := folder.Machine(dir)
	if err == nil {
		n.host, err = backends.host(machine, "", nil, nil)
	}
	var c app.Config
	if err == nil {
		c, err = programs(ctx, dir, n.host, QuietLog)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	n.App = app.New(c)
	return n, nil
}
