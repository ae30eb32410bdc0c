package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		dsn := clocked(t)
		return open(t, dsn, postgres.Options{}), newClock(t, dsn)
	})
}

// open opens a store that is closed with the test.
func open(t *testing.T, dsn string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func migrate(t *testing.T, dsn, schema string) {
	t.Helper()
	m, err := postgres.NewMigrator(dsn, schema)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A clock is the clock of one database, which goes on by itself and can be moved forward.
type clock struct {
	t    *testing.T
	conn *pgx.Conn
}

// clocked makes a database for a test, with the schema and a clock that can be moved. It is a copy of one that all tests
// of this process share: a migration takes longer than most tests.
func clocked(t *testing.T) string {
	t.Helper()
	server := testenv.Postgres(t)
	template.once.Do(func() {
		const name = "clocked"
		server.Psql(t, "postgres", "-c", "create database "+name)
		migrate(t, server.DSN(name), "")
		server.Psql(t, name, "-c", `CREATE TABLE public.shift (by interval NOT NULL); INSERT INTO public.shift VALUES ('0');
			CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp() + (SELECT by FROM public.shift)'`)
		template.name = name
	})
	if template.name == "" {
		t.Fatal("the template of databases could not be made")
	}
	return server.Copy(t, template.name)
}

var template struct {
	once sync.Once
	name string
}

func newClock(t *testing.T, dsn string) *clock {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return &clock{t, conn}
}

func (c *clock) Advance(d time.Duration) {
	if _, err := c.conn.Exec(context.Background(), `UPDATE public.shift SET by = by + $1::interval`, d); err != nil {
		c.t.Error(err)
	}
}
