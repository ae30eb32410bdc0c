package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// TestOpenTransactionIsNamed: readiness names a transaction of others that enqueued and stays open,
// to the owner; everybody else learns that there is one.
func TestOpenTransactionIsNamed(t *testing.T) {
	dsn := testenv.Postgres(t).Database(t)
	n, err := Open(t.Context(), t.TempDir(), Options{DB: DatabaseConfig{DSN: dsn}, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	shop, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close(context.Background())
	for _, sql := range []string{
		`CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql AS
			$$ SELECT clock_timestamp() + interval '1 min' $$`, // it has been open for so long
		"SET application_name = 'shop'", "BEGIN", `SELECT pawl.enqueue('{"jobs": [{"kind": "mail"}]}')`,
	} {
		if _, err := shop.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s := &serving{node: n, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	check := func(names bool) (found *api.Check) {
		for _, c := range s.unattended(t.Context(), names) {
			if c.Name == "transactions" {
				found = &c
			}
		}
		return found
	}
	name := fmt.Sprintf(`pid %d of "shop", since `, shop.PgConn().PID())
	if c := check(true); c == nil || !c.Degraded || !strings.Contains(c.Err.Error(), name) {
		t.Errorf("the owner is told %+v, want %s", c, name)
	}
	if c := check(false); c == nil || !c.Degraded || strings.Contains(c.Err.Error(), "shop") {
		t.Errorf("everybody is told %+v", c)
	}
	if _, err := shop.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if c := check(true); c != nil {
		t.Errorf("after its commit the owner is told %+v", c)
	}
}

// A process that has the folder for a moment is waited for; one that can be asked is not.
func TestOpenSoon(t *testing.T) {
	dir := t.TempDir()
	first, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := OpenSoon(t.Context(), dir, Options{}, func() error { return nil }); job.KindOf(err) != job.Locked {
		t.Fatalf("beside a process that can be asked: %v, %v", n, err)
	}
	asked := 0
	second, err := OpenSoon(t.Context(), dir, Options{}, func() error {
		if asked++; asked == 2 {
			if err := first.Close(); err != nil {
				t.Error(err)
			}
		}
		return errors.New("nobody listens")
	})
	if err != nil || asked != 2 {
		t.Fatalf("asked %d times: %v", asked, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
