package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrMissing is in the chain of an error that says that this machine lacks a component.
var ErrMissing = errors.New("not installed here")

const (
	psqlTimeout    = time.Minute
	maxSocketPath  = 107 // bytes of a Unix socket's address, unix(7), less the closing zero
	postgresPrefix = "pawl-postgres-"

	// postgresReady is what the server logs when it takes connections, or only read-only
	// connections.
	postgresReady = "database system is ready to accept "
)

// Postgres returns the PostgreSQL server of this test process and starts it when it does not run
// yet. Tests share it: none may stop it or change its settings (a test that has to takes its own
// from [StartPostgres]). Each test asks it for a [Server.Database] of its own.
//
// It commits as production does, but for fsync: nobody takes the power away from it. So its files
// are in memory where there is room. A server of [StartPostgres] has fsync, and is on disk.
//
// The goroutine that waits for the server lives as long as the server, so a test that looks for
// leaked goroutines calls Postgres before it takes its first look.
//
// A short run starts none, and the test is skipped.
func Postgres(tb testing.TB) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: it starts PostgreSQL")
	}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	if servers.postgres == nil && servers.err == nil {
		servers.postgres, servers.err = startPostgres(context.Background(), &Server{unsynced: true})
	}
	if errors.Is(servers.err, ErrMissing) {
		missing(tb, servers.err)
	}
	if servers.err != nil {
		tb.Fatal(servers.err)
	}
	return servers.postgres
}

// A Server is a private PostgreSQL server. Its methods are safe for concurrent use, but for Start,
// Demote, Kill and Stop, which belong to whoever started it.
type Server struct {
	bin      string // folder of the server's programs
	dir      string // holds data and socket; mode 0700
	lock     *os.File
	as       *syscall.Credential // nil: as this process's user
	port     int
	password string
	made     atomic.Int64 // databases made so far
	faketime string       // a library that the server is started with; empty: it has the clock of the machine
	unsynced bool         // it does without fsync

	child *child

	mu    sync.Mutex
	admin *pgconn.PgConn // makes and drops databases; nil: nobody has asked yet
}

// StartPostgres starts a server of the caller's own, who must call [Server.Stop]. The error has
// [ErrMissing] in its chain when PostgreSQL is not installed: its programs are looked for in the
// folder that $PAWL_TEST_POSTGRES names, then in /usr/lib/postgresql/*/bin, the newest first, then
// in the PATH.
func StartPostgres(ctx context.Context) (*Server, error) { return startPostgres(ctx, &Server{}) }

// StartUnsynced starts a server like that of [Postgres] for a caller of its own. It lives through
// [Server.Kill] like others.
func StartUnsynced(ctx context.Context) (*Server, error) {
	return startPostgres(ctx, &Server{unsynced: true})
}

func startPostgres(ctx context.Context, s *Server) (_ *Server, err error) {
	if s.bin, err = postgresBin(); err != nil {
		return nil, err
	}
	s.password = rand.Text()
	if s.as, err = postgresUser(); err != nil {
		return nil, err
	}
	if err := s.initialize(ctx); err != nil {
		s.remove()
		return nil, fmt.Errorf("make a database cluster: %w", err)
	}
	// Between the moment a port is found free and the server's bind, another process can take it.
	for range 3 {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.Start(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

// Start starts the server again after [Server.Kill], on the same data and the same port. It returns
// when the server takes connections, that is after crash recovery.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		cmd := s.command(context.Background(), "postgres", "-D", s.data(), "-p", strconv.Itoa(s.port))
		cmd.Env = append(cmd.Env, s.faked()...)
		c, err := startChild(ctx, cmd, postgresReady)
		if err == nil {
			s.child = c
			return nil
		}
		// Connections outlive a killed postmaster for a moment, and it refuses to start beside
		// them.
		if !strings.Contains(err.Error(), "pre-existing shared memory block") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Demote restarts the server, after a crash, as a standby that nobody feeds: it answers, and takes
// no writes until somebody calls pg_promote() there.
func (s *Server) Demote(ctx context.Context) error {
	s.Kill()
	path := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if s.as != nil {
		if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return err
		}
	}
	return s.Start(ctx)
}

// Kill ends the server as a crash would, with SIGKILL. Its data stay.
func (s *Server) Kill() { s.child.end(syscall.SIGKILL) }

// Stop ends the server and removes its data. Connections that are still open are cut.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin != nil {
		_ = s.admin.Close(context.Background()) // the server ends it anyway
		s.admin = nil
	}
	s.child.end(syscall.SIGINT)
	s.remove()
}

// Log returns the end of what the server has logged since it was started.
func (s *Server) Log() string { return s.child.log.String() }

// Addr is where the server listens, such as "127.0.0.1:40123": for a proxy that stands before it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN is the connection URL of a database of this server, as its superuser, over TCP.
func (s *Server) DSN(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     s.Addr(),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Socket is the connection URL of a database of this server, as its superuser, over the socket in
// its folder: for whoever runs beside it, and wants to measure the database and not the network.
func (s *Server) Socket(database string) string {
	at := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}}
	return (&url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/" + database,
		RawQuery: at.Encode(),
	}).String()
}

// Database makes an empty database for one test and returns its DSN. The database is dropped when
// the test ends, together with the connections that are still open on it.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", s.made.Add(1))
	s.CreateDatabase(tb, name, "")
	tb.Cleanup(func() { s.do(tb, "drop database "+name+" with (force)") })
	return s.DSN(name)
}

// CreateDatabase makes a database that is not dropped when the test ends: a copy of another one,
// whose name is template, or an empty one.
func (s *Server) CreateDatabase(tb testing.TB, name, template string) {
	tb.Helper()
	statement := "create database " + name
	if template != "" {
		statement += " template " + template
	}
	if s.unsynced && majorVersion(s.bin) >= 15 {
		statement += " strategy file_copy" // where nothing waits for the disk, that takes a tenth of the time
	}
	s.do(tb, statement)
}

// do runs a statement as the superuser. Its connection is kept: to start psql takes longer than to
// copy a database.
func (s *Server) do(tb testing.TB, statement string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), psqlTimeout) // a cleanup runs when the test's context is over
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range 2 { // the server may have been killed meanwhile, and started again
		if s.admin == nil || s.admin.IsClosed() {
			s.admin, err = pgconn.Connect(ctx, s.Socket("postgres"))
		}
		if err == nil {
			_, err = s.admin.Exec(ctx, statement).ReadAll()
		}
		if err == nil || s.admin == nil || !s.admin.IsClosed() {
			break
		}
	}
	if err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// Psql runs psql on a database, given by its name or its DSN, with args such as "-c", "select 1".
// It returns what psql printed: rows one a line, columns parted by "|", no headings. An error in
// the SQL fails the test.
func (s *Server) Psql(tb testing.TB, database string, args ...string) string {
	tb.Helper()
	// Not the test's context: that is over when a cleanup runs.
	out, err := s.psql(context.Background(), database, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func (s *Server) psql(ctx context.Context, database string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, psqlTimeout)
	defer cancel()
	return s.Client(ctx, "psql", append([]string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database},
		args...)...)
}

// Client runs a client program of PostgreSQL, such as pg_dump, as the server's superuser, and
// returns what it printed.
func (s *Server) Client(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Env = environ("PG",
		"PGHOST="+s.dir, "PGPORT="+strconv.Itoa(s.port), "PGUSER=postgres", "PGPASSWORD="+s.password)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command is a program of the server, to run as the server's user and no longer than ctx.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = environ("PG", "HOME="+s.dir, "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// initialize makes the folder and the cluster in it.
func (s *Server) initialize(ctx context.Context) error {
	base := os.TempDir()
	if dir, roomy := inMemory(); roomy && s.unsynced {
		base = dir
	}
	if len(base)+len(postgresPrefix)+len("1234567890/.s.PGSQL.65535") > maxSocketPath {
		base = "/tmp"
	}
	sweep(base, postgresPrefix)
	var err error
	if s.dir, err = os.MkdirTemp(base, postgresPrefix); err != nil {
		return err
	}
	if s.lock, err = lockDir(s.dir); err != nil {
		return err
	}
	if s.faketime != "" {
		if err := s.SetClock(0); err != nil {
			return err
		}
	}
	pwfile := filepath.Join(s.dir, "password")
	if err := os.WriteFile(pwfile, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	if s.as != nil {
		for _, path := range []string{pwfile, s.dir} {
			if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
				return err
			}
		}
	}

	// The socket is guarded by its folder. On TCP a password keeps other users of this machine from
	// what would otherwise be a superuser's, and so the server's user's, shell. MD5 is the quickest
	// to check: tests open thousands of connections.
	initdb := s.command(ctx, "initdb", "-D", s.data(), "-U", "postgres", "--pwfile", pwfile,
		"--auth-local=trust", "--auth-host=md5",
		"-E", "UTF8", "--locale=C.UTF-8", "--no-instructions", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}

	conf := `
listen_addresses = '127.0.0.1'
unix_socket_directories = '` + s.dir + `'
fsync = on
synchronous_commit = on
max_connections = 1000
logging_collector = off
lc_messages = 'C.UTF-8'
`
	if s.unsynced {
		conf += "fsync = off\nmax_wal_size = 256MB\n" +
			"dynamic_shared_memory_type = mmap\n" // one that is killed leaves nothing behind its folder
	}
	if s.hasModule(ctx, "pg_stat_statements") {
		conf += "shared_preload_libraries = 'pg_stat_statements'\n"
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(conf)
	return errors.Join(err, f.Close())
}

// hasModule reports whether the server can load a library of the contrib package, which some
// systems pack apart.
func (s *Server) hasModule(ctx context.Context, name string) bool {
	out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_config"), "--pkglibdir").Output()
	lib := strings.TrimSpace(string(out))
	if err != nil {
		lib = filepath.Join(filepath.Dir(s.bin), "lib") // Debian packs pg_config apart too
	}
	_, err = os.Stat(filepath.Join(lib, name+".so"))
	return err == nil
}

// remove removes the server's folder, and then gives up the lock that keeps others from doing so.
func (s *Server) remove() {
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // what remains is swept by a later run
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// sweep removes the folders with a prefix whose test process was killed.
func sweep(base, prefix string) {
	locks, _ := filepath.Glob(filepath.Join(base, prefix+"*", "lock")) // the pattern is well formed
	for _, path := range locks {
		f, err := os.Open(path)
		if err != nil {
			continue // of another user, or just removed
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path)) // what remains is swept by a later run
		}
		_ = f.Close()
	}
}

// lockDir marks dir as in use by this process, for as long as the file is open. The file gets its
// name when it is locked, so sweep never sees one that is about to be.
func lockDir(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "lock-")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return f, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, os.Rename(f.Name(), filepath.Join(dir, "lock"))
}

// postgresBin finds the folder of the server's programs.
func postgresBin() (string, error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	slices.SortFunc(dirs, func(a, b string) int {
		return majorVersion(b) - majorVersion(a)
	})
	if dir := os.Getenv("PAWL_TEST_POSTGRES"); dir != "" {
		dirs = []string{dir}
	} else if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if _, err := exec.LookPath(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("PostgreSQL is %w: install its server (Debian: postgresql-15), or name the folder of "+
		"its programs in PAWL_TEST_POSTGRES", ErrMissing)
}

// majorVersion is 15 for /usr/lib/postgresql/15/bin, and 0 for what is not a number.
func majorVersion(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

// postgresUser is the user to run the server as: nil for this process's own. PostgreSQL refuses to
// run as root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("the user postgres, whom PostgreSQL runs as because it refuses root, is %w: %w",
			ErrMissing, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the uid of postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the gid of postgres: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// freePort finds a TCP port of the loopback interface that nobody listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
