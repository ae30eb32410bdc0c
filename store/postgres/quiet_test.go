package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A connection costs no round trip before a call, however long it was idle, unless the server has
// closed it; then the call goes over another one.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	s, err := connect(dsn, Options{Conns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admin, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	var pid int
	ask := func() error {
		return s.call(t.Context(), "acme", func(t *tx) error {
			return t.commit(read("SELECT pg_backend_pid()", func(r *reader) error { pid = r.int(); return nil }))
		})
	}
	for range 3 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		idle := pgxpool.ShouldPingParams{Conn: conn.Conn(), IdleDuration: time.Hour}
		if s.pool.Config().ShouldPing(t.Context(), idle) || s.readers.Config().ShouldPing(t.Context(), idle) {
			t.Error("a sound connection is asked before it is used")
		}
		before := pid
		var ended bool
		if err := admin.QueryRow(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pid).Scan(&ended); err != nil || !ended {
			t.Fatalf("%t, %v", ended, err)
		}
		for end := time.Now().Add(time.Minute); !shouldPing(t.Context(), idle); {
			if time.Now().After(end) {
				t.Fatal("that the server has closed the connection is not seen")
			}
		}
		conn.Release()
		if err := ask(); err != nil || pid == before {
			t.Errorf("a call after the server closed the connection: %v", err)
		}
	}
}

// TestQuietWhileRead looks at a connection on which somebody waits for an answer, as the driver may
// in the background.
func TestQuietWhileRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	reading, read := make(chan struct{}), make(chan error, 1)
	go func() {
		close(reading)
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	<-reading
	for range 1000 { // it begins to wait at one of them at the latest
		if !quiet(c) {
			t.Fatal("nothing has come in")
		}
		runtime.Gosched()
	}
	server.Close()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if quiet(c) {
		t.Error("the end has come in")
	}
	c.Close()
}
