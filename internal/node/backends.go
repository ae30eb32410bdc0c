package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/files"
	fileshttp "github.com/pawl-jobs/pawl/files/http"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/host"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	hostssh "github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/runner/slurm"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// backends are what a service is put together from. This file alone knows them: another backend is
// a package below its contract, and a line here.
var backends = struct {
	// jobs of one data folder, and those that many processes share
	folder, shared func(context.Context, DatabaseConfig) (*Database, error)
	// files of this machine, for inputs and archives; host.Files is the same for the folders of
	// jobs
	files func(base string) files.FS
	// inputs that are no files of it, but have a URL
	sources []source
	// this machine; programs get env in addition
	host func(id, base string, env map[string]string, ended func(host.Process)) (machine, error)
	// another machine; where host.via is openssh, the login is what reaches it
	remote func(doc *job.System, by login, allow allow, log *slog.Logger) (machine, error)
	// the login of a person in a host, for what runs on this machine, by a socket
	login func(socket, host string) login
	// launch programs on a machine, by the name of the runner in documents of systems; spool gets
	// the messages of their ends, past the marks
	runners map[string]openRunner
	// tells such a runner of this machine that a child has ended
	exited func(runner.Runner, host.Process)
	// what they get of the environment of this process
	environ func() []string
}{
	folder:  openSQLite,
	shared:  openPostgres,
	files:   func(base string) files.FS { return fileslocal.FS{Base: base} },
	sources: []source{{[]string{"http", "https"}, openHTTP}},
	host:    openHost,
	remote:  openSSH,
	login:   func(socket, host string) login { return connection.Master{Socket: socket, Host: host} },
	runners: map[string]openRunner{job.RunnerProcess: openProcess, job.RunnerSlurm: openSlurm},
	exited:  func(r runner.Runner, p host.Process) { r.(*process.Runner).Exited(p) },
	environ: hostlocal.Environ,
}

// A Database is the store of the jobs, and the broker that carries wake-ups between processes.
type Database struct {
	Store    CountingStore
	Bus      broker.Broker
	closeBus func()
}

// Close closes both.
func (d *Database) Close() error {
	defer d.closeBus()
	return d.Store.Close()
}

// A CountingStore counts the statements that it has sent to its database.
type CountingStore interface {
	store.Store
	// Statements is how many statements were sent.
	Statements() int64
	// Schema is the version of the schema.
	Schema(ctx context.Context) (store.SchemaVersion, error)
}

// A DatabaseConfig says which database is meant.
type DatabaseConfig struct {
	Dir      string // the data folder whose own it is, where DSN is empty
	ReadOnly bool   // that one is only read
	DSN      string // one that many processes share
	Schema   string // in it; empty: the usual one
	Listen   string // for the connection that listens, where DSN leads through a pooler; empty: DSN
	Pooled   bool   // DSN leads through a pooler in transaction mode
	Log      *slog.Logger
}

// OpenDatabase opens a database.
func OpenDatabase(ctx context.Context, c DatabaseConfig) (*Database, error) {
	if c.DSN == "" {
		return backends.folder(ctx, c)
	}
	return backends.shared(ctx, c)
}

func openSQLite(ctx context.Context, c DatabaseConfig) (*Database, error) {
	st, err := sqlite.Open(ctx, c.Dir, sqlite.Options{ReadOnly: c.ReadOnly})
	if err != nil {
		return nil, err
	}
	bus := &local.Broker{}
	return &Database{Store: st, Bus: bus, closeBus: bus.Close}, nil
}

func openPostgres(ctx context.Context, c DatabaseConfig) (*Database, error) {
	listen := pgnotify.Config{DSN: c.direct(), Schema: c.Schema, Log: c.Log}
	if !c.Pooled || c.Listen != "" { // a pooler would refuse them
		listen.Params = postgres.Params()
	}
	bus, err := pgnotify.Open(ctx, listen)
	if err != nil {
		return nil, err
	}
	st, err := postgres.Open(ctx, c.DSN,
		postgres.Options{Schema: c.Schema, Pooled: c.Pooled, Log: c.Log, Renewals: bus.Do})
	if err != nil {
		bus.Close()
		return nil, err
	}
	return &Database{Store: st, Bus: bus, closeBus: bus.Close}, nil
}

// direct is the database by a connection of one's own.
func (c *DatabaseConfig) direct() string {
	if c.Listen != "" {
		return c.Listen
	}
	return c.DSN
}

// A Migrator moves the schema of a database that many processes share from version to version.
type Migrator interface {
	// Version is the version of the schema, and the one that this Pawl knows.
	Version(ctx context.Context) (store.SchemaVersion, error)
	// Up brings the schema to the version that this Pawl knows.
	Up(ctx context.Context) error
	// Down takes the schema back to a version.
	Down(ctx context.Context, to int64) error
	// Drop removes the schema, with all that is in it.
	Drop(ctx context.Context) error
	// Close closes the connection.
	Close() error
}

// OpenMigrator opens the schema of a shared database.
func OpenMigrator(dsn, schema string) (Migrator, error) { return postgres.NewMigrator(dsn, schema) }

// migrate brings the schema of a shared database up to date.
func migrate(ctx context.Context, dsn, schema string) error {
	m, err := OpenMigrator(dsn, schema)
	if err != nil {
		return err
	}
	return errors.Join(m.Up(ctx), m.Close())
}

// PrintMigrations prints the SQL that brings the schema of a shared database from a version to the
// one that this Pawl knows.
func PrintMigrations(out io.Writer, schema string, from int64) error {
	return postgres.Print(out, schema, from)
}

// SchemaGrants is the SQL that makes a role with the rights that a service needs in a shared
// database.
func SchemaGrants(schema string) string { return postgres.Grants(schema) }

// FolderDatabase is the file in a data folder that has its database.
const FolderDatabase = sqlite.File

// FolderSchema is the schema of the database of a data folder.
func FolderSchema(ctx context.Context, dir string) (store.SchemaVersion, error) {
	return sqlite.Schema(ctx, dir)
}

// MigrateFolder brings the schema of the database of a data folder up to date.
func MigrateFolder(ctx context.Context, dir string) error {
	d, err := backends.folder(ctx, DatabaseConfig{Dir: dir})
	if err != nil {
		return err
	}
	return d.Close()
}

// A source is where inputs come from, under some schemes of URLs.
type source struct {
	schemes []string // in lower case
	// open opens it, without any request. It may go where rule lets it, and an input has at most so
	// many bytes; 0 stands for the most of the source. The function that it returns closes it.
	open func(rule egress.Rule, most int64) (files.Source, func() error)
}

func openHTTP(rule egress.Rule, most int64) (files.Source, func() error) {
	s := fileshttp.New(fileshttp.Config{Rule: rule, Most: most})
	return s, s.Close
}

// A machine is a host that is closed in the end.
type machine interface {
	host.Host
	Close() error
}

func openHost(id, base string, env map[string]string, ended func(host.Process)) (machine, error) {
	c := hostlocal.Config{ID: id, Base: base, Env: hostlocal.Environ()}
	for name, v := range env {
		c.Env = append(c.Env, name+"="+v)
	}
	if ended != nil {
		c.OnExit = func(e hostlocal.Exit) { ended(e.Process) }
	}
	h, err := hostlocal.Open(c)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// A login is a connection that a person opens, and that stays.
type login interface {
	// Alone keeps other logins away until release is called; Conflict while one is under way.
	Alone() (release func(), err error)
	// Check returns nil if it is open.
	Check(ctx context.Context) error
	// Login returns the command that opens it. It asks the person.
	Login(ctx context.Context) *exec.Cmd
	// Logout closes it.
	Logout(ctx context.Context) error
}

// allow returns when a machine may be dialed; nil: it may be at any time.
type allow func(ctx context.Context) error

// openSSH returns the machine of a system. It does not dial.
func openSSH(doc *job.System, by login, allow allow, log *slog.Logger) (machine, error) {
	at := &doc.Host
	c := hostssh.Config{Config: connection.Config{
		ID: doc.Watch(""), Hop: connection.Hop{Address: at.Address, Port: at.Port, User: at.User, HostKeys: at.HostKeys},
		Agent: os.Getenv("SSH_AUTH_SOCK"), Allow: allow, Log: log.With("system", doc.Name),
	}}
	for _, h := range at.Jump {
		c.Jump = append(c.Jump, connection.Hop{Address: h.Address, Port: h.Port, User: h.User, HostKeys: h.HostKeys})
	}
	for name, v := range doc.Env {
		c.Environ = append(c.Environ, name+"="+v)
	}
	if at.Via == job.ViaOpenSSH {
		c.Master = by.(connection.Master)
		return hostssh.Open(c)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	c.Identities = slices.Clone(at.Identities)
	for _, h := range at.Jump {
		c.Identities = append(c.Identities, h.Identities...)
	}
	for i, name := range c.Identities {
		if rest, ok := strings.CutPrefix(name, "~/"); ok {
			c.Identities[i] = filepath.Join(home, rest)
		}
	}
	if len(c.Identities) == 0 {
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			if name = filepath.Join(home, ".ssh", name); exists(name) {
				c.Identities = append(c.Identities, name)
			}
		}
	}
	return hostssh.Open(c)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

type openRunner func(ctx context.Context, h host.Host, spool, past string, log *slog.Logger) (runner.Runner, error)

func openSlurm(ctx context.Context, h host.Host, spool, past string, log *slog.Logger) (runner.Runner, error) {
	return slurm.Open(ctx, slurm.Config{Host: h, Spool: spool, Past: past, Log: log})
}

func openProcess(ctx context.Context, h host.Host, spool, past string, log *slog.Logger) (runner.Runner, error) {
	_, exits := h.(*hostlocal.Host)
	return process.Open(ctx, process.Config{Host: h, Spool: spool, Past: past, Exits: exits, Log: log})
}
