package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestStatements compares what a store says that it has sent with what the server was sent.
func TestStatements(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]postgres.Options{"direct": {}, "pooled": {Pooled: true}} {
		t.Run(name, func(t *testing.T) {
			if o.Pooled {
				testenv.Aside(t)
			}
			t.Parallel()
			dsn := clocked(t)
			s, count := open(t, dsn, o), newCounter(t, connect(t, dsn))
			session := begin(t, s, time.Minute)
			for what, f := range map[string]func() error{
				"submit": func() error { submit(t, s, newTasks(3)...); return nil },
				"renew": func() error {
					_, err := s.Renew(t.Context(), store.Renew{Session: session, Lease: time.Minute})
					return err
				},
				"due":       func() error { _, _, err := s.Due(t.Context(), 10); return err },
				"when due":  func() error { _, _, err := s.Due(t.Context(), 0); return err },
				"recount":   func() error { _, _, err := s.Recount(t.Context(), 10); return err },
				"expire":    func() error { _, _, err := s.Expire(t.Context(), 10); return err },
				"a refusal": func() error { _, err := store.FindJob(t.Context(), s, acme, job.NewID()); return noError(err) },
				"list":      func() error { _, err := s.List(t.Context(), store.Query{Tenant: acme}); return err },
				"events":    func() error { _, err := s.Events(t.Context(), store.EventQuery{Tenant: acme}); return err },
			} {
				count.reset()
				before := s.Statements()
				if err := f(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if got, want := s.Statements()-before, count.all(); got != want {
					t.Errorf("%s: %d statements are said to be sent, and %d were", what, got, want)
				}
			}
		})
	}
}

// TestIdleCalls counts the statements of the calls of an idle process.
func TestIdleCalls(t *testing.T) {
	t.Parallel()
	s := open(t, clocked(t), postgres.Options{})
	session := begin(t, s, time.Minute)
	for what, f := range map[string]func() error{
		"renew": func() error {
			_, err := s.Renew(t.Context(), store.Renew{Session: session, Lease: time.Minute, Duties: []string{"sweep"}})
			return err
		},
		"when due": func() error { _, _, err := s.Due(t.Context(), 0); return err },
		"recount":  func() error { _, _, err := s.Recount(t.Context(), 10); return err },
	} {
		before := s.Statements()
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := s.Statements() - before; n != 1 {
			t.Errorf("%s: %d statements", what, n)
		}
	}
}

// noError is the error that is not expected.
func noError(err error) error {
	if job.KindOf(err) == job.NotFound {
		return nil
	}
	return err
}

// A counter counts what a server was sent for one database, but by itself, and but the question
// whether it is a standby, which each new connection begins with.
type counter struct {
	t    *testing.T
	conn *pgx.Conn
}

func newCounter(t *testing.T, conn *pgx.Conn) *counter {
	t.Helper()
	if !value[bool](t, conn, "SELECT current_setting('shared_preload_libraries') LIKE '%pg_stat_statements%'") {
		t.Skip("the server has no pg_stat_statements")
	}
	must(t, conn, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	return &counter{t, conn}
}

func (c *counter) reset() {
	must(c.t, c.conn, "SELECT pg_stat_statements_reset(0, (SELECT oid FROM pg_database WHERE datname = current_database()), 0)")
}

func (c *counter) all() int64 {
	return value[int64](c.t, c.conn, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%' AND query <> 'select pg_is_in_recovery()'`)
}
