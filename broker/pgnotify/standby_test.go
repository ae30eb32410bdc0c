package pgnotify_test

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// TestStandby has the server become a standby under brokers, where nobody can listen or notify.
func TestStandby(t *testing.T) {
	t.Parallel()
	testenv.Postgres(t) // skips where there is none
	server, err := testenv.StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	dsn := server.DSN("postgres")
	one, two := pair(t, dsn)
	r, w := io.Pipe()
	refused, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		tried := sync.OnceFunc(func() { close(refused) })
		for log := bufio.NewScanner(r); log.Scan(); {
			switch text := log.Text(); {
			case strings.Contains(text, "messages are lost"):
				t.Error(text)
			case strings.Contains(text, "wake-ups not sent; trying again") && strings.Contains(text, "recovery"):
				tried()
			}
		}
	}()
	t.Cleanup(func() {
		w.Close()
		<-read
	})
	pooled := open(t, pgnotify.Config{DSN: dsn, Pool: pool(t, dsn, nil), Log: slog.New(slog.NewTextHandler(w, nil))})
	announce(t, two, line)
	wait(t, two, line)
	s := subscribe(t, two, "news")

	if err := server.Demote(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = pgnotify.Open(t.Context(), pgnotify.Config{DSN: dsn})
	kind(t, err, job.Unavailable)
	announce(t, one, line)
	announce(t, pooled, line)
	publish(t, pooled, "news", strings.Repeat("x", 5000))
	<-refused

	server.Psql(t, "postgres", "-c", "select pg_promote()")
	listenerLost(t, two, s.Lost())
	hears(t, one, two)
	hears(t, pooled, two)
}
