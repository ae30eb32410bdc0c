package bench

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/service"
)

// An idle service sends its database one statement for each renewal, and two for each sweep: 12 a
// minute with a lease of 15 seconds, and 14 in the process that sweeps. They are counted at the
// server.
func TestIdleStatements(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var there bool
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('shared_preload_libraries') LIKE '%pg_stat_statements%'").Scan(&there); err != nil {
		t.Fatal(err)
	}
	if !there {
		t.Skip("the server has no pg_stat_statements")
	}
	exec("CREATE EXTENSION pg_stat_statements")
	m := &Measurement{Dir: t.TempDir(), DB: dsn, Progress: io.Discard, Log: slog.New(slog.DiscardHandler)}
	const lease = 2 * time.Second
	svc, err := m.openBed(t.Context(), m.Dir, service.Config{
		Options: engine.Options{Lease: lease, Sweep: 4 * lease},
	}, func(*service.Service) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := svc.close(); err != nil {
			t.Error(err)
		}
	}()
	reset := func() {
		exec("SELECT pg_stat_statements_reset(0, (SELECT oid FROM pg_database WHERE datname = current_database()), 0)")
	}
	reset()
	for sent(t, svc, conn).renewals < 3 { // what the one job and the start left to do is done by then
	}
	reset()
	for {
		n := sent(t, svc, conn)
		if len(n.others) > 0 || n.recounts > n.sweeps+1 || n.sweeps > n.recounts+1 {
			t.Fatalf("%+v", n)
		}
		if n.renewals >= 12 && n.sweeps >= 1 {
			return
		}
	}
}

// An idleCount is how often a server was sent each statement of an idle service.
type idleCount struct {
	renewals, sweeps, recounts int64
	others                     []string
}

// sent counts, but for what it sends itself.
func sent(t *testing.T, svc *bed, conn *pgx.Conn) (n idleCount) {
	t.Helper()
	rows, err := conn.Query(svc.ctx, `SELECT calls, query FROM pg_stat_statements, pg_sleep(0.05)
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'`)
	if err != nil {
		t.Fatal(err)
	}
	var calls int64
	var text string
	_, err = pgx.ForEachRow(rows, []any{&calls, &text}, func() error {
		switch {
		case strings.Contains(text, "SET renewed_ago"):
			n.renewals += calls
		case strings.HasPrefix(text, "SELECT (SELECT min(j.due)"):
			n.sweeps += calls
		case strings.Contains(text, "j.needs <> (SELECT count(*)"):
			n.recounts += calls
		default:
			n.others = append(n.others, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
