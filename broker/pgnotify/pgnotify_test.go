package pgnotify_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/brokertest"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Stopping(m)) }

func TestBroker(t *testing.T) {
	for _, test := range []struct {
		name   string
		pooled bool
	}{
		{"sending on the listener's connection", false},
		{"sending through a pool", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !test.pooled {
				testenv.Aside(t)
			}
			t.Parallel()
			dsn := testenv.Postgres(t).Database(t)
			var schemas atomic.Int64
			brokertest.Run(t, func(t *testing.T) (broker.Broker, broker.Broker) {
				cfg := pgnotify.Config{DSN: dsn, Schema: fmt.Sprint("of test ", schemas.Add(1))}
				create(t, dsn, cfg.Schema)
				if test.pooled {
					cfg.Pool = pool(t, dsn, nil)
				}
				return open(t, cfg), open(t, cfg)
			})
		})
	}
}

// pool opens a pool of few connections.
func pool(t *testing.T, dsn string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	cfg.ConnConfig.Tracer = tracer
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// create makes a schema with what a broker needs.
func create(t *testing.T, dsn, schema string) {
	t.Helper()
	name := pgx.Identifier{schema}.Sanitize()
	execute(t, dsn, "CREATE SCHEMA "+name+"; SET search_path = "+name+"; "+pgnotify.DDL)
}

// execute runs statements on a connection of their own.
func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, cfg pgnotify.Config) *pgnotify.Broker {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	b, err := pgnotify.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	// Once somebody waits, a broker looks for what nobody told. Two calls of Do have its loop
	// do that before the test begins.
	begun, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = b.Wait(begun, []job.QueueKind{{Queue: "nobody's", Kind: "nobody's"}})
	for range 2 {
		_ = b.Do(t.Context(), func(context.Context, *pgx.Conn) error { return nil })
	}
	return b
}

// pair is two brokers of one schema.
func pair(t *testing.T, dsn string) (one, two *pgnotify.Broker) {
	t.Helper()
	create(t, dsn, "pawl")
	return open(t, pgnotify.Config{DSN: dsn}), open(t, pgnotify.Config{DSN: dsn})
}

var line = job.QueueKind{Queue: "red", Kind: "paint"}

func announce(t *testing.T, b *pgnotify.Broker, lines ...job.QueueKind) {
	t.Helper()
	if err := b.Announce(t.Context(), lines...); err != nil {
		t.Fatal(err)
	}
}

// wait waits for some of lines, as long as it takes.
func wait(t *testing.T, b *pgnotify.Broker, lines ...job.QueueKind) []job.QueueKind {
	t.Helper()
	got, err := b.Wait(t.Context(), lines)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// gather waits until every one of lines was told: first for any, so that it has asked for all, and
// then for one after the other. Who waits for thousands looks at all of them each time one is told.
func gather(t *testing.T, b *pgnotify.Broker, lines ...job.QueueKind) {
	t.Helper()
	told := wait(t, b, lines...)
	for _, l := range lines {
		if !slices.Contains(told, l) {
			wait(t, b, l)
		}
	}
}

func publish(t *testing.T, b *pgnotify.Broker, topic, message string) {
	t.Helper()
	if err := b.Publish(t.Context(), topic, []byte(message)); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, b *pgnotify.Broker, topic string) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A server that is gone without a word is found out below TLS, too.
func TestStayAlive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	tcp := dialed.(*net.TCPConn)
	probes := func() (n int) {
		t.Helper()
		raw, err := tcp.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			n, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, c := range map[string]net.Conn{"TCP": tcp, "TLS": tls.Client(tcp, nil)} {
		if err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Count: 9}); err != nil {
			t.Fatal(err)
		}
		if err := pgnotify.StayAlive(c); err != nil || probes() != 3 {
			t.Errorf("%s: %d probes, %v", name, probes(), err)
		}
	}
}
