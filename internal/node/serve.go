package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/internal/ingress"
	"github.com/pawl-jobs/pawl/internal/observe"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A serving is one call of pawl serve.
type serving struct {
	dir    string
	out    io.Writer
	reread func() (*config.Loaded, error)
	more   More

	config  atomic.Pointer[config.Loaded]
	log     *slog.Logger
	level   slog.LevelVar
	observe *observe.Observer
	node    *Node
	keys    *auth.Keys
	pair    *ingress.Pair // nil: this process speaks no TLS
	flush   func()        // of traces
	url     string        // how others reach it; empty: not at all
	inward  string        // how processes of other machines do; empty: not at all

	hangup   chan os.Signal                      // SIGHUP
	stopping chan struct{}                       // closed when streams are to end
	doors    [doors]atomic.Pointer[http.Handler] // the API as it is served at each
}

// Serve serves the API of a data folder and runs its jobs, until ctx ends or a process tells it to
// stop. What people read goes to out, the log to stderr. reread reads the configuration anew. The
// process has more than pawl has where that is given.
func Serve(
	ctx context.Context, out, stderr io.Writer, dir string, cfg *config.Loaded, reread func() (*config.Loaded, error),
	more More,
) error {
	s := &serving{dir: dir, out: out, reread: reread, more: more}
	s.config.Store(cfg)
	return s.run(ctx, stderr)
}

// run serves until a signal ends it, or something fails for good.
func (s *serving) run(ctx context.Context, stderr io.Writer) (err error) {
	cfg := s.config.Load()
	s.stopping = make(chan struct{})
	s.hangup = make(chan os.Signal, 1)
	signal.Notify(s.hangup, syscall.SIGHUP)
	defer signal.Stop(s.hangup)
	s.level.Set(cfg.Log.Level)
	s.log = observe.NewLog(stderr, cfg.Log.Format, &s.level)
	if err := Begin(ctx, func() error { return s.prepare(ctx) }); err != nil {
		return err
	}
	defer s.flush()
	defer func() { err = errors.Join(err, s.node.Close()) }()
	return s.serve(ctx)
}

// Begin calls f, and leaves it behind when ctx ends: whatever hangs there, such as a name server,
// keeps nobody from ending the process.
func Begin(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return job.Errorf(job.Unavailable, "told to stop before it had begun")
	}
}

// prepare opens everything that takes no callers.
func (s *serving) prepare(ctx context.Context) (err error) {
	cfg := s.config.Load()
	if cfg.TLS.Cert != "" {
		if s.pair, err = ingress.OpenPair(cfg.TLS.Cert, cfg.TLS.Key, s.tellPair); err != nil {
			return err
		}
	}
	traces, flush, err := s.traces(ctx)
	if err != nil {
		return err
	}
	s.flush = flush
	s.observe = observe.New(observe.Config{Log: s.log, Slow: cfg.Log.Slow, Traces: traces, Version: Version})
	s.node, err = OpenSoon(ctx, s.dir, s.options(), func() error {
		_, err := Reach(ctx, s.dir)
		return err
	})
	if err == nil {
		if s.keys, err = auth.Open(s.dir); err != nil {
			s.node.Close()
		}
	}
	if err != nil {
		flush()
		return err
	}
	s.keys.Principal, s.keys.Find = UserName(), s.node.Job
	return nil
}

func (s *serving) options() Options {
	cfg := s.config.Load()
	return Options{
		More: s.more,
		Options: engine.Options{
			Roles: rolesOf(cfg.Roles), Claims: cfg.Kinds, Tenants: cfg.Tenants,
			Slots: map[job.Lane]int{
				job.LaneFinish: cfg.Slots.Finish, job.LaneLaunch: cfg.Slots.Launch, job.LanePrepare: cfg.Slots.Prepare,
				job.LaneTask: cfg.Slots.Task,
			},
			Lease: cfg.Lease, Grace: noneIfZero(cfg.Grace), Address: func() string { return s.inward },
		},
		DB: SharedDatabase(&cfg.Config), Migrate: cfg.DBMigrate, Secrets: []string{cfg.TLS.Key, cfg.File},
		Queues: cfg.Queues, PeerCA: cfg.Peer.CA, Web: egress.Rule(cfg.HTTPInputs), WebSize: int64(cfg.HTTPSize),
		Testers: cfg.Testers, Patient: cfg.TestTimeout, Memory: cfg.Remember,
		Logger: s.log, Observe: s.observe, Environ: s.environ,
	}
}

// SharedDatabase is the database that is configured for many processes.
func SharedDatabase(cfg *config.Config) DatabaseConfig {
	return DatabaseConfig{
		DSN: string(cfg.DB), Schema: cfg.DBSchema, Listen: string(cfg.DBListen), Pooled: cfg.DBPooled,
	}
}

func rolesOf(names []string) []store.Role {
	roles := make([]store.Role, len(names))
	for i, n := range names {
		roles[i] = store.Role(n)
	}
	return roles
}

// serve listens and runs jobs. The folder is this process's own.
func (s *serving) serve(ctx context.Context) error {
	cfg := s.config.Load()
	var listeners [doors]net.Listener // nil: that door is closed
	defer func() {
		for _, l := range listeners {
			if l != nil {
				l.Close()
			}
		}
	}()
	if err := s.listen(ctx, &listeners); err != nil {
		return err
	}
	s.open()
	network, socket, err := ingress.Crowds()
	if err != nil {
		return err
	}
	ingress.KeepThreads()

	// Requests outlast ctx, which tells them to stop: they are answered first.
	serving, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	servers := s.servers(serving)
	failed := make(chan error, doors)
	for door, l := range listeners {
		if l != nil {
			crowd := network
			if door == doorSocket {
				crowd = socket
			}
			l = crowd.Join(servers[door], l)
			go func() { failed <- s.serveAt(door, servers[door], l) }()
		}
	}
	running, quit := context.WithCancel(serving)
	defer quit()
	ran := make(chan error, 1)
	go func() { ran <- s.node.Run(running) }()

	unsaid, err := s.sayWhere()
	if err != nil {
		quit()
		return errors.Join(fmt.Errorf("say where this process can be reached: %w", err), <-ran)
	}
	defer unsaid()
	begun := s.observe.Begun()
	for {
		select {
		case <-begun:
			begun = nil
			s.begun(listeners[doorNetwork])
		case <-s.hangup:
			s.reload()
		case <-ctx.Done():
			s.log.Info("stopping: requests and steps under way may end; programs go on", "grace", cfg.Grace)
			unsaid()
			s.drain(serving, servers)
			quit()
			return <-ran
		case err := <-failed:
			quit()
			return errors.Join(fmt.Errorf("serve: %w", err), <-ran)
		case err := <-ran:
			if err == nil { // it was told to
				s.log.Info("stopping: nothing is left of what ran; requests under way may end", "grace", cfg.Grace)
				unsaid()
				s.drain(serving, servers)
			}
			return err
		}
	}
}

// listen opens the doors of this process, and notes how others reach it. One that does not play the
// role of the API has no address for everybody.
func (s *serving) listen(ctx context.Context, listeners *[doors]net.Listener) (err error) {
	cfg := s.config.Load()
	if cfg.Plays(string(store.RoleAPI)) {
		if listeners[doorNetwork], err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen); err != nil {
			return job.Errorf(job.Invalid,
				"%w; choose another address with --listen, or --listen 127.0.0.1:0 for any port that is free", err)
		}
		s.url = baseURL(&cfg.Config, listeners[doorNetwork].Addr())
	}
	if cfg.Peer.Listen != "" {
		if listeners[doorPeers], err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Peer.Listen); err != nil {
			return job.Errorf(job.Invalid, "%w; choose another address with --peer-listen", err)
		}
	}
	s.inward = inwardURL(&cfg.Config, listeners[doorNetwork], listeners[doorPeers])
	if listeners[doorSocket], err = s.node.socket(ctx); err != nil {
		return fmt.Errorf("listen on the folder's socket: %w", err)
	}
	return nil
}

// begun tells that the process has its session.
func (s *serving) begun(network net.Listener) {
	switch {
	case !s.node.shared || s.inward == "":
	case Loopback(s.inward):
		s.log.Info("processes of other machines reach this one from this host only: set listen, peer.listen or peer.url",
			"at", s.inward)
	default:
		s.log.Info("processes of other machines reach this one", "at", s.inward)
	}
	if network == nil {
		roles := strings.Join(s.config.Load().Roles, ", ")
		fmt.Fprintf(s.out, "pawl works on the jobs of folder %s: %s\n", s.dir, roles)
		s.log.Info("working", "version", Version, "roles", roles, "folder", s.dir)
		return
	}
	s.welcome()
	s.log.Info("serving", "version", Version, "url", s.url, "listen", network.Addr(), "folder", s.dir)
}

// welcome says where the service is and how to begin. Its commands can be typed as they stand.
func (s *serving) welcome() {
	dir, token := "", phrase.Quoted(filepath.Join(s.dir, auth.TokenFile))
	if usual, err := UsualDir(); err != nil || usual != s.dir {
		dir = " --dir " + phrase.Quoted(s.dir)
	}
	fmt.Fprintf(s.out, `pawl serves the folder %[1]s at %[2]s

  a first job   echo 'command: [echo, hello]' | pawl submit - --wait%[3]s
  with curl     curl -H "Authorization: Bearer $(cat %[4]s)" --json '{"command": ["echo", "hello"]}' '%[2]s/v1/jobs?wait=30s'
  what happens  pawl watch%[3]s
  the API       %[2]s/docs

Log in with the token in %[4]s. Commands on this machine find it; on another one give them --server %[2]s and --token-file FILE.
Ctrl-C stops the service. Programs that run go on, and the next start looks after them.

`, s.dir, s.url, dir, token)
}
