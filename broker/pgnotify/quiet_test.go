package pgnotify

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A listener is told nothing as long as many new transactions are under way. Those that stay open
// count once.
func TestQuiet(t *testing.T) {
	dsn := testenv.Postgres(t).Database(t)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	conn := connect()
	var tellers []*pgx.Conn
	for range 2 * many {
		tellers = append(tellers, connect())
	}
	exec := func(conns []*pgx.Conn, sql string, args ...any) {
		t.Helper()
		for _, c := range conns {
			if _, err := c.Exec(t.Context(), sql, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := func(conns []*pgx.Conn) {
		t.Helper()
		exec(conns, "BEGIN")
		exec(conns, "SELECT pg_advisory_xact_lock_shared("+untoldLock+")", "pawl")
	}
	q := quiet{schema: "pawl"}
	if err := q.begin(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	later := func(told bool, when string) {
		t.Helper()
		q.began, q.next = time.Now().Add(-looking), time.Time{}
		if q.told {
			q.seen = often
		}
		if _, err := q.step(t.Context(), conn); err != nil || q.told != told {
			t.Fatalf("%s: told %t, %v", when, q.told, err)
		}
	}
	some, others := tellers[:many], tellers[many:]
	later(true, "nothing is under way")
	begin(some[1:])
	later(true, "some are under way")
	begin(some[:1])
	later(true, "one more began")
	exec(some, "COMMIT")
	begin(some)
	later(false, "as many new ones are under way")
	later(true, "they stay open")
	later(true, "they stay open, and others tell often")
	begin(others)
	later(false, "as many began beside them")
	exec(some, "COMMIT")
	begin(some)
	later(false, "as many began again")
	exec(tellers, "COMMIT")
	later(true, "nothing is under way any more")
}
