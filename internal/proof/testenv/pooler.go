package testenv

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Pooler starts a PgBouncer in transaction mode before a server, with so many connections to each
// database for each role, and returns the DSN of a database through it. It knows the superuser, and
// takes every other role to have one password. It ends with the test.
func (s *Server) Pooler(tb testing.TB, conns int, password string) func(dsn string) string {
	tb.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil { // not in everybody's PATH
			missing(tb, fmt.Errorf("PgBouncer is %w: install it (Debian: pgbouncer)", ErrMissing))
		}
	}
	dir, err := os.MkdirTemp(s.dir, "pooler-") //nolint:usetesting // it is the server user's, who cannot enter the test's
	if err != nil {
		tb.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	users, config := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	for name, text := range map[string]string{
		users: fmt.Sprintf("%q %q\n", "postgres", s.password),
		config: fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = "+
			"127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
			"auth_type = plain\nauth_file = %s\nauth_user = postgres\nauth_query = SELECT rolname, '%s' FROM "+
			"pg_roles WHERE rolname = $1\npool_mode = transaction\ndefault_pool_size = %d\nserver_idle_timeout = "+
			"5\nmax_client_conn = 500\n", s.port, port, users, password, conns),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if s.as != nil {
		for _, name := range []string{dir, users, config} {
			if err := os.Chown(name, int(s.as.Uid), int(s.as.Gid)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	cmd := exec.CommandContext(context.Background(), bin, config)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: s.as}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := startChild(ctx, cmd, "process up")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.end(syscall.SIGINT) })
	return func(dsn string) string {
		u, err := url.Parse(dsn)
		if err != nil {
			tb.Fatal(err)
		}
		u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		return u.String()
	}
}
