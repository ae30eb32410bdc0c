package workers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// servesVariable has the database of a process that a test starts: it serves the API until it is
// killed, or its standard input ends.
const servesVariable = "PAWL_TEST_SERVES"

func TestMain(m *testing.M) {
	if at := os.Getenv(servesVariable); at != "" {
		if err := serve(at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// open opens a database by its folder or DSN.
func open(ctx context.Context, at string) (store.Store, broker.Broker, func() error, error) {
	if !strings.Contains(at, "=") && !strings.Contains(at, "://") {
		st, err := sqlite.Open(ctx, at, sqlite.Options{})
		if err != nil {
			return nil, nil, nil, err
		}
		return st, &local.Broker{}, st.Close, nil
	}
	log := slog.New(slog.DiscardHandler)
	bus, err := pgnotify.Open(ctx, pgnotify.Config{DSN: at, Log: log})
	if err != nil {
		return nil, nil, nil, err
	}
	st, err := postgres.Open(ctx, at, postgres.Options{Conns: 4, Readers: 1, Renewals: bus.Do, Log: log})
	if err != nil {
		bus.Close()
		return nil, nil, nil, err
	}
	return st, bus, func() error { defer bus.Close(); return st.Close() }, nil
}

// serve serves a database.
func serve(at string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	st, bus, closed, err := open(ctx, at)
	if err != nil {
		return err
	}
	svc := service.New(service.Config{
		Store: st, Broker: bus, Log: slog.New(slog.DiscardHandler), Options: engine.Options{Lease: time.Second},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: api.New(api.Config{Service: svc, Stopping: ctx.Done()})}
	go server.Serve(l)
	fmt.Println("http://" + l.Addr().String())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err = svc.Run(ctx)
	return errors.Join(err, server.Close(), closed())
}

// A site is a database with the processes that serve it.
type site struct {
	*testing.T
	at string
}

// each runs a test on each database.
func each(t *testing.T, f func(*site)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(&site{t, t.TempDir()})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t).Database(t)
		m, err := postgres.NewMigrator(dsn, "")
		if err == nil {
			err = errors.Join(m.Up(t.Context()), m.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		f(&site{t, dsn})
	})
}

// many reports whether several processes can serve the database at once.
func (s *site) many() bool { return strings.Contains(s.at, "=") || strings.Contains(s.at, "://") }

// A server is a process that serves the API.
type server struct {
	url string
	cmd *exec.Cmd
	end func()
}

// serve starts a process, which ends with the test.
func (s *site) serve() *server {
	s.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), servesVariable+"="+s.at)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := c.Start(); err != nil {
		s.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Fatalf("the server does not begin: %v", err)
	}
	sv := &server{url: strings.TrimSpace(line), cmd: c}
	ended := false
	sv.end = func() {
		if ended {
			return
		}
		ended = true
		in.Close()
		if err := c.Wait(); err != nil {
			s.Errorf("a server ended with %v", err)
		}
	}
	s.Cleanup(func() { sv.end() })
	return sv
}

// kill kills a server.
func (sv *server) kill(s *site) {
	s.Helper()
	if err := sv.cmd.Process.Kill(); err != nil {
		s.Fatal(err)
	}
	sv.cmd.Wait()
	sv.end = func() {}
}

// check looks at the database when all servers have ended.
func (s *site) check(servers ...*server) {
	s.Helper()
	for _, sv := range servers {
		sv.end()
	}
	st, _, closed, err := open(context.Background(), s.at)
	if err != nil {
		s.Fatal(err)
	}
	storetest.Check(s.T, st, "default")
	if err := closed(); err != nil {
		s.Error(err)
	}
}
