package pgnotify_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/brokertest"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Stopping(m)) }

func TestBroker(t *testing.T) {
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	schemas := make(chan int, 1)
	schemas <- 0
	brokertest.Run(t, func(t *testing.T) (broker.Broker, broker.Broker) {
		n := <-schemas
		schemas <- n + 1
		schema := fmt.Sprint("of test ", n)
		create(t, dsn, schema)
		cfg := pgnotify.Config{DSN: dsn, Schema: schema}
		return open(t, cfg), open(t, cfg)
	})
}

// create makes a schema with what a broker needs.
func create(t *testing.T, dsn, schema string) {
	t.Helper()
	name := pgx.Identifier{schema}.Sanitize()
	execute(t, dsn, "CREATE SCHEMA "+name+"; SET search_path = "+name+"; "+pgnotify.Schema)
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
	return b
}

var line = job.Line{Queue: "red", Kind: "paint"}
