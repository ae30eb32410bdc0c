package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// What the server refuses is told with what to do about it.
func TestOpenRefused(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	name := "/" + parsed(t, dsn).Database
	for want, at := range map[string]string{
		"make it (createdb)":        strings.Replace(dsn, name, "/nosuch", 1),
		"look at role and password": strings.Replace(dsn, "//postgres:", "//postgres:not", 1),
		"pawl migrate":              dsn,
	} {
		if _, err := postgres.Open(t.Context(), at, postgres.Options{}); job.KindOf(err) != job.Unavailable ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if want == "pawl migrate" {
			continue
		}
		m, err := postgres.NewMigrator(at, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Up(t.Context()); job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("migrate: %v, want %s", err, want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A transaction of others that has enqueued a job is named when it has been open for too long, and
// no other one is.
func TestOpenTransactions(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	furnish(t, dsn)
	s := open(t, dsn, postgres.Options{})
	clock := newClock(t, dsn)
	begin := func(name, sql string) (pgx.Tx, int) {
		conn := connect(t, dsn)
		if _, err := conn.Exec(t.Context(), "SET application_name = '"+name+"'"); err != nil {
			t.Fatal(err)
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback(context.WithoutCancel(t.Context())) })
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return tx, int(conn.PgConn().PID())
	}
	named := func() []store.OpenTransaction {
		all, err := s.Unattended(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all.Open
	}
	begin("reader", "SELECT FROM pawl.jobs")
	begin("writer", "CREATE TABLE of_mine (n int)")
	tx, pid := begin("shop", `SELECT pawl.enqueue('{"jobs": [{"kind": "mail", "unique": {"key": "k"}},
		{"kind": "mail", "order": {"key": "o"}, "limits": ["l"], "labels": {"a": "b"}, "external_id": "x"}]}')`)
	if got := named(); len(got) != 0 {
		t.Errorf("young transactions are named: %+v", got)
	}
	clock.Advance(store.LongOpen + time.Second)
	got := named()
	if len(got) != 1 || got[0].PID != pid || got[0].Application != "shop" || got[0].Since.IsZero() {
		t.Errorf("%+v is named, want that of pid %d", got, pid)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := named(); len(got) != 0 {
		t.Errorf("after its commit %+v is named", got)
	}
}
