package main

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

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	fileshttp "github.com/pawl-jobs/pawl/files/http"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/crashstore"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/observe"
	"github.com/pawl-jobs/pawl/internal/outward"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/recovery/testers"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A node is everything that runs in one process on a data folder. All wiring of the embedded service is here.
type node struct {
	*pawl.Service
	dir    string
	folder *folder.Folder // nil: it is only read
	store  countingStore
	bus    broker.Broker
	shared bool // the database is one of many processes, which may share the folder too
	host   *hostlocal.Host
	app    *app.Kind
	eyes   *app.Watcher   // of this machine; it looks while this process watches
	peers  *auth.Peers    // knows processes of other machines; nil: the database has one process
	free   []func() error // what close calls, the last one first
}

// nodeOptions are what commands vary.
type nodeOptions struct {
	db      string       // the database that many processes share; empty: that of the folder
	schema  string       // in it; empty: the usual one
	secrets []string     // files of the service outside of the folder that no job takes as an input; empty ones are none
	listen  string       // the database for the connection that listens, where db leads through a pooler; empty: db
	pooled  bool         // db leads through a pooler in transaction mode
	migrate bool         // bring the schema of db up to date
	roles   []store.Role // empty: all but the API
	slots   map[job.Lane]int
	only    []job.ID      // the jobs to run; empty: all
	jobs    int           // how many programs run at once while this process has the folder; 0: as its limit says
	queues  []string      // whose jobs to run; empty: of all
	kinds   []string      // which to run; empty: all
	tenants []string      // whose jobs to run; empty: of all
	address func() string // where other processes reach the API of this one; nil: nowhere
	peerCA  string        // file with the authorities of the certificates of other processes; empty: those of the system
	lease   time.Duration
	grace   time.Duration
	testers map[string][]string                               // programs that find out whether what blocks jobs has cleared, by name
	patient time.Duration                                     // how long a test may take; 0: as is usual
	web     outward.Rule                                      // from where inputs may be fetched by http; empty: from all
	webSize int64                                             // bytes of the largest such input; 0: as package files/http has it
	memory  time.Duration                                     // for how long jobs that were cleaned are remembered; 0: as is usual
	log     io.Writer                                         // for what operators should know; stderr by default
	observe *observe.Observer                                 // looks on, and has a log of its own; nil: nobody
	logger  *slog.Logger                                      // in place of log
	environ func(context.Context, *job.Job) map[string]string // what programs get beside what their jobs say
	change  func(*pawl.Config)                                // what a benchmark has otherwise; nil: nothing

	unlimited bool // a folder that is new gets no limit; see setTurns
}

// addition is what a build for tests adds to every node; see storm.go.
var addition struct {
	configure func(*pawl.Config)
	handle    func(*pawl.Service)
}

// dataDir returns the folder of --dir, of PAWL_DIR, or the default one, as an absolute path.
func dataDir(cmd *cobra.Command) (string, error) {
	dir, err := cmd.Flags().GetString("dir")
	if err != nil {
		return "", err
	}
	if dir == "" {
		dir = os.Getenv("PAWL_DIR")
	}
	if dir == "" {
		return usualDir()
	}
	return filepath.Abs(dir)
}

// usualDir is the data folder where none is named.
func usualDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", &usageError{fmt.Errorf("no home folder to keep data in: %w; name a folder with --dir", err)}
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Abs(filepath.Join(state, "pawl"))
}

// openNode opens the folder for running jobs.
func openNode(ctx context.Context, dir string, o nodeOptions) (_ *node, err error) {
	if o.log == nil {
		o.log = live.NewWriter(os.Stderr)
	}
	if len(o.roles) == 0 {
		o.roles = []store.Role{store.RoleWorker, store.RoleRecovery, store.RoleWatcher}
	}
	n := &node{dir: dir}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	log := o.logger
	if log == nil {
		log = slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
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
	n.host, err = hostlocal.Open(hostlocal.Config{ID: machine, Base: dir, OnExit: func(e hostlocal.Exit) { n.eyes.Exited(e.Process) }})
	if err != nil {
		return nil, err
	}
	kind, err := programs(ctx, dir, n.host)
	if err != nil {
		return nil, err
	}
	for _, name := range o.secrets {
		if name == "" {
			continue
		}
		if name, err = filepath.Abs(name); err != nil {
			return nil, err
		}
		kind.Own = append(kind.Own, name)
	}
	kind.Log, kind.Environ, kind.Remember = log, o.environ, o.memory
	rule := cmp.Or(o.web, outward.All)
	var dial testers.Dial
	if rule != outward.All { // what is tested is what jobs needed
		dial = rule.Dialer().DialContext
	}
	if rule != outward.None {
		web := fileshttp.New(fileshttp.Config{Rule: rule, Most: o.webSize})
		n.free = append(n.free, web.Close)
		kind.Sources = map[string]files.Source{"http": web, "https": web}
	}
	service := pawl.Config{
		Store: n.store, Broker: n.bus, Principal: userName(), Machine: machine,
		Roles: o.roles, Slots: o.slots, Only: o.only, Queues: o.queues, Claims: o.kinds, Tenants: o.tenants,
		Testers: testers.All(o.testers, dial), TestTimeout: o.patient,
		Version: version, Address: o.address, Lease: o.lease, Grace: o.grace, Log: log,
	}
	if os.Getenv(crash.Variable) != "" {
		service.Store = crashstore.Wrap(service.Store)
	}
	if o.observe != nil {
		service.Store, service.Broker, service.Tracer = o.observe.Store(service.Store), o.observe.Broker(n.bus), o.observe
		service.Tested = func(tester string, found recovery.Outcome) { o.observe.Tested(tester, string(found)) }
		kind.Ran = func(ctx context.Context, j *job.Job, e runner.End) { o.observe.Ran(ctx, j, e.Began(), e.Ended, e.Code) }
	}
	n.app = app.New(kind)
	n.eyes = app.NewWatcher(n.app, service.Store, service.Broker)
	service.Kinds = map[string]engine.Kind{job.KindApp: n.app}
	for _, k := range o.kinds {
		if service.Kinds[k] == nil {
			return nil, job.Errorf(job.Invalid, "kind %s is none that pawl runs, which is %s: a program with its handler runs its jobs", k, job.KindApp)
		}
	}
	if slices.Contains(o.roles, store.RoleWatcher) {
		service.Duties = []engine.Duty{n.eyes.Duty()}
	}
	if n.shared {
		if n.peers, err = n.askPeers(&service, o.peerCA); err != nil {
			return nil, err
		}
	}
	if addition.configure != nil {
		addition.configure(&service)
	}
	if o.change != nil {
		o.change(&service)
	}
	n.Service = pawl.New(service)
	if addition.handle != nil {
		addition.handle(n.Service)
	}
	if n.peers != nil {
		n.peers.Tenant = n.Tenant()
	}
	if o.observe != nil {
		o.observe.Repaired(n.Repaired)
		o.observe.Removed(n.Removed)
		o.observe.Standing(func() (standing map[job.Lane]int, left int) {
			standing = map[job.Lane]int{}
			for _, s := range n.app.Standing() {
				if s.Left {
					left++
				} else {
					standing[job.LaneOf(s.State, true, 0)]++
				}
			}
			return standing, left
		})
		o.observe.Jobs(service.Store, n.Tenant())
	}
	return n, nil
}

// programs is how programs run on this machine, with their files in a data folder.
func programs(ctx context.Context, dir string, h *hostlocal.Host) (app.Config, error) {
	c := places(dir)
	c.Host = h
	var err error
	c.Runner, err = process.Open(ctx, process.Config{Host: h, Spool: c.Spool, Past: filepath.Join(dir, "past")})
	return c, err
}

// places says where the files of programs are in a data folder, all of which is the service's own.
func places(dir string) app.Config {
	return app.Config{
		Files: fileslocal.FS{Base: dir}, Own: []string{dir},
		Work: filepath.Join(dir, "work"), Archive: filepath.Join(dir, "archive"), Spool: filepath.Join(dir, "ends"),
	}
}

// openDatabase opens the database and what carries wake-ups: those of the folder, which this process has alone then, or those
// that many processes share.
func (n *node) openDatabase(ctx context.Context, o *nodeOptions, log *slog.Logger) error {
	if o.db == "" {
		switch {
		case !folder.Shared(n.dir):
		case occupied(ctx, n.dir):
			return job.Errorf(job.Locked, "data folder %s is in use by processes that share a database", n.dir)
		default:
			return elsewhere(n.dir)
		}
		st, err := sqlite.Open(ctx, n.dir, sqlite.Options{})
		if err != nil {
			return err
		}
		n.free = append(n.free, st.Close)
		n.store, n.bus = st, &local.Broker{}
		return n.setTurns(ctx, o)
	}
	lock, err := folder.Join(n.dir)
	if err != nil {
		return err
	}
	n.free = append(n.free, lock.Close)
	direct := cmp.Or(o.listen, o.db)
	if o.migrate {
		if err := migrate(ctx, direct, o.schema); err != nil {
			return err
		}
	}
	listen := pgnotify.Config{DSN: direct, Schema: o.schema, Log: log}
	if !o.pooled || o.listen != "" { // a pooler would refuse them
		listen.Params = postgres.Params()
	}
	bus, err := pgnotify.Open(ctx, listen)
	if err != nil {
		return err
	}
	n.free = append(n.free, func() error { bus.Close(); return nil })
	st, err := postgres.Open(ctx, o.db, postgres.Options{Schema: o.schema, Pooled: o.pooled, Log: log, Renewals: bus.Do})
	if err != nil {
		return err
	}
	n.free = append(n.free, st.Close)
	n.store, n.bus, n.shared = st, bus, true
	return folder.Mark(n.dir) // not before the database has answered: a slip in its name takes no folder
}

// elsewhere is the error of a command that looks for jobs in a folder whose jobs are in a database that many share.
func elsewhere(dir string) error {
	return job.Errorf(job.Invalid, "the jobs of folder %s are in a database that many processes share, and none of these runs on it: "+
		"start pawl serve or pawl worker there with --db, or name a server with --server", dir)
}

// migrate brings the schema of a shared database up to date.
func migrate(ctx context.Context, db, schema string) error {
	m, err := postgres.NewMigrator(db, schema)
	if err != nil {
		return err
	}
	return errors.Join(m.Up(ctx), m.Close())
}

// Run runs jobs until ctx ends, or until the folder is not where it was: nobody would find what is written there.
func (n *node) Run(ctx context.Context) error {
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
	err := n.Service.Run(ctx)
	stop(nil)
	if gone := <-moved; gone != nil {
		return gone
	}
	return err
}

// close releases the folder and the database. Programs that run go on.
func (n *node) close() error {
	var err error
	if n.host != nil {
		err = n.host.Close()
	}
	for _, free := range slices.Backward(n.free) {
		err = errors.Join(err, free())
	}
	return err
}

// openReader opens the folder for reading, beside a process that may run jobs in it.
func openReader(ctx context.Context, dir string) (*node, error) {
	if folder.Shared(dir) {
		return nil, elsewhere(dir)
	}
	st, err := sqlite.Open(ctx, dir, sqlite.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	machine, err := folder.Machine(dir)
	if kind := job.KindOf(err); err != nil && kind != job.Corrupt && kind != job.Invalid { // without its id it can be read
		return nil, errors.Join(err, st.Close())
	}
	// To find files takes neither host nor runner.
	files := app.New(app.Config{Files: fileslocal.FS{}})
	return &node{dir: dir, store: st, free: []func() error{st.Close}, Service: pawl.New(pawl.Config{
		Store: st, Broker: &local.Broker{}, Principal: userName(), Machine: machine,
		Kinds:  map[string]engine.Kind{job.KindApp: files},
		Served: func(ctx context.Context) bool { return occupied(ctx, dir) },
	})}, nil
}

// userName is in whose name this process acts. A service manager, or a container, may set none of the variables.
func userName() string {
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
