package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestServerCrashes has one of the server's processes crash, after which the server ends all others
// and recovers.
func TestServerCrashes(t *testing.T) {
	testenv.Aside(t)
	testenv.Postgres(t) // skips where there is none
	server, err := testenv.StartPostgres(t.Context())
	must(t, err)
	t.Cleanup(server.Stop)
	connect := func() (c *pgx.Conn, pid int) {
		c, err := pgx.Connect(t.Context(), server.DSN("postgres"))
		must(t, err)
		t.Cleanup(func() { _ = c.PgConn().Conn().Close() })
		return c, int(c.PgConn().PID())
	}
	_, crashes := connect()
	_, frozen := connect()
	other, _ := connect()
	said := &goesOn{pid: frozen}
	s := newStorm(options{db: "postgres", out: said}, t.TempDir())
	s.server = server
	must(t, syscall.Kill(frozen, syscall.SIGSTOP)) // the server waits for it, for five seconds at most, before it recovers
	must(t, syscall.Kill(crashes, syscall.SIGKILL))
	if _, err := other.Exec(t.Context(), "SELECT pg_sleep(60)"); err == nil {
		t.Fatal("a connection outlives the crash of another one")
	}
	must(t, s.admin(t.Context(), "postgres", "SELECT 1"))
	if !strings.Contains(said.text, "was terminated by signal 9") {
		t.Errorf("it is not told why the server recovers: %q", said.text)
	}
}

// goesOn keeps what a storm says, and lets a process go on once it has said something.
type goesOn struct {
	pid  int
	text string
}

func (g *goesOn) Write(b []byte) (int, error) {
	g.text += string(b)
	return len(b), syscall.Kill(g.pid, syscall.SIGCONT)
}
