package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("TESTENV_CHILD") != "" {
		holdServer()
	}
	Main(m)
}

func TestPostgres(t *testing.T) {
	s := Postgres(t)

	t.Run("it answers over TCP and over its socket", func(t *testing.T) {
		for _, database := range []string{"postgres", s.DSN("postgres")} {
			if got := s.Psql(t, database, "-c", "select version()"); !strings.HasPrefix(got, "PostgreSQL ") {
				t.Errorf("select version() on %s = %q", database, got)
			}
		}
	})
	t.Run("it is shared", func(t *testing.T) {
		if Postgres(t) != s {
			t.Error("the second call started another server")
		}
	})
	t.Run("it commits as production does, but for fsync", func(t *testing.T) {
		for name, want := range map[string]string{
			"fsync": "off", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "1000",
			"server_encoding": "UTF8", "listen_addresses": "127.0.0.1",
		} {
			if got := s.Psql(t, "postgres", "-c", "show "+name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
	t.Run("it counts statements where it can", func(t *testing.T) {
		if !s.hasModule(t.Context(), "pg_stat_statements") {
			t.Skip("the contrib package is not installed here")
		}
		dsn := s.Database(t)
		s.Psql(t, dsn, "-c", "create extension pg_stat_statements", "-c", "select count(*) from pg_stat_statements")
	})
	t.Run("TCP without the password is refused", func(t *testing.T) {
		_, err := s.psql(t.Context(), strings.Replace(s.DSN("postgres"), s.password, "wrong", 1), "-c", "select 1")
		if err == nil || !strings.Contains(err.Error(), "password authentication failed") {
			t.Errorf("a wrong password was answered with %v", err)
		}
	})
}

func TestDatabase(t *testing.T) {
	s := Postgres(t)
	count := "select count(*) from pg_database where datname like 'test_%'"
	before := s.Psql(t, "postgres", "-c", count)

	t.Run("each is empty and apart", func(t *testing.T) {
		a, b := s.Database(t), s.Database(t)
		s.Psql(t, a, "-c", "create table seen (n int)")
		if got := s.Psql(t, b, "-c", "select to_regclass('seen') is null"); got != "t" {
			t.Error("one database shows the tables of another")
		}
		hold(t, s, a)
	})
	if after := s.Psql(t, "postgres", "-c", count); after != before {
		t.Errorf("%s test databases remain, want %s", after, before)
	}
}

// hold opens a connection to a database that is still open when the database is dropped.
func hold(t *testing.T, s *Server, dsn string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "psql"), "-X", "-A", "-t", "-d", dsn, "-c", "select 1", "-f", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "1\n" {
		t.Fatalf("psql printed %q, %v", line, err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
}

func TestKillDemoteAndStart(t *testing.T) {
	Aside(t)
	Postgres(t) // skips where there is none
	s, err := StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)

	if got := s.Psql(t, "postgres", "-c", "show fsync"); got != "on" {
		t.Errorf("fsync is %q", got)
	}
	s.Psql(t, "postgres", "-c", "create table kept as select 7 as n")
	s.Kill()
	if _, err := s.psql(t.Context(), "postgres", "-c", "select 1"); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Psql(t, "postgres", "-c", "select n from kept"); got != "7" {
		t.Errorf("after the crash the table holds %q, want 7", got)
	}

	if err := s.Demote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.psql(t.Context(), "postgres", "-c", "update kept set n = 8"); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a write on a standby: %v", err)
	}
	if got := s.Psql(t, "postgres", "-c", "select n from kept", "-c", "select pg_promote()", "-c", "update kept set n = 8"); got != "7\nt" {
		t.Errorf("the standby and its promotion answer %q", got)
	}

	s.Stop()
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("stop left %s: %v", s.dir, err)
	}
	s.Stop() // the second time is harmless
}

// A test process that is killed takes its server along, and the next one removes the server's
// folder.
func TestServerDiesWithItsProcess(t *testing.T) {
	Aside(t)
	Postgres(t) // skips where there is none
	tmp := t.TempDir()
	for dir := tmp; dir != "/" && strings.Contains(dir, "Test"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the server's user has to get through
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = environ("TMPDIR=", "TESTENV_CHILD=1", "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimSpace(line)
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	// The connection's end is the server's end: it waits for a start-up packet that never comes.
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server outlives its process")
	}
	if dirs := left(t, tmp); len(dirs) != 1 {
		t.Fatalf("the killed process left %q, want one folder", dirs)
	}
	sweep(tmp, postgresPrefix)
	if dirs := left(t, tmp); len(dirs) != 0 {
		t.Errorf("after the sweep there is %q", dirs)
	}
}

func left(t *testing.T, base string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(base, postgresPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// holdServer is the process that TestServerDiesWithItsProcess kills. It prints its server's address
// and waits.
func holdServer() {
	s, err := StartPostgres(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Addr())
	select {}
}

func TestSweepKeepsWhatIsInUse(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, postgresPrefix+"1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	sweep(base, postgresPrefix)
	if len(left(t, base)) != 1 {
		t.Fatal("a folder that is not locked yet was removed")
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sweep(base, postgresPrefix)
	if len(left(t, base)) != 1 {
		t.Fatal("a locked folder was removed")
	}
	lock.Close()
	sweep(base, postgresPrefix)
	if dirs := left(t, base); len(dirs) != 0 {
		t.Errorf("an abandoned folder remains: %q", dirs)
	}
}

func TestMissing(t *testing.T) {
	for _, tt := range []struct{ require, want string }{
		{"", "skipped"},
		{"1", "failed"},
	} {
		t.Run("PAWL_TEST_REQUIRE="+tt.require, func(t *testing.T) {
			t.Setenv("PAWL_TEST_REQUIRE", tt.require)
			tb := &recorder{TB: t}
			missing(tb, ErrMissing)
			if tb.outcome != tt.want {
				t.Errorf("the test was %s, want %s", tb.outcome, tt.want)
			}
		})
	}
}

// recorder notes how a test was ended, and lets it run on.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Skipf(string, ...any)  { r.outcome += "skipped" }
func (r *recorder) Fatalf(string, ...any) { r.outcome += "failed" }

func TestPostgresBin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PAWL_TEST_POSTGRES", dir)
	if bin, err := postgresBin(); !errors.Is(err, ErrMissing) {
		t.Errorf("an empty folder was taken: %q, %v", bin, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "postgres"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if bin, err := postgresBin(); bin != dir || err != nil {
		t.Errorf("postgresBin() = %q, %v; want %q", bin, err, dir)
	}
}

func TestFailedStartSaysWhy(t *testing.T) {
	Aside(t)
	Postgres(t) // skips where there is none
	s, err := StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Kill()
	l, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("a start on a taken port: %v", err)
	}
	l.Close()
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if pgid, err := syscall.Getpgid(s.child.cmd.Process.Pid); err != nil || pgid == syscall.Getpgrp() {
		t.Errorf("the server is in process group %d, the test's own (%v)", pgid, err)
	}
}
