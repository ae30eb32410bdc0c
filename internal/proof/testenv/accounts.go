package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Accounted starts a Slurm for one test that keeps accounts: slurmdbd writes them into a MariaDB of
// its own. A short run starts none, and the test is skipped.
func Accounted(tb testing.TB) *Scheduler {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: it starts Slurm")
	}
	s, err := start(&Scheduler{accounts: true})
	if errors.Is(err, ErrMissing) {
		missing(tb, err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Forget has slurmctld forget all jobs, as it does by itself with each one some minutes after its
// end. None may be queued or run.
func (s *Scheduler) Forget(tb testing.TB) {
	tb.Helper()
	s.StopController() // what it has told slurmdbd is committed then
	for _, name := range []string{"job_state", "job_state.old"} {
		if err := os.RemoveAll(filepath.Join(s.dir, "state", name)); err != nil {
			tb.Fatal(err)
		}
	}
	s.StartController(tb)
}

// StopAccounts ends slurmdbd: sacct fails until StartAccounts.
func (s *Scheduler) StopAccounts() {
	last := len(s.books) - 1
	s.books[last].end(syscall.SIGTERM)
	s.books = s.books[:last]
}

// StartAccounts starts slurmdbd again.
func (s *Scheduler) StartAccounts(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := s.startDaemon(ctx); err != nil {
		tb.Fatal(err)
	}
}

const slurmdbdConf = `AuthType=auth/munge
AuthInfo=socket=$DIR/munge/sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$DBD
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$SQL
StorageUser=slurm
StoragePass=$PASS
StorageLoc=accounts
PidFile=$DIR/slurmdbd.pid
`

// openAccounts starts a database and slurmdbd, and adds the cluster to its accounts.
func (s *Scheduler) openAccounts(ctx context.Context) error {
	for _, name := range []string{"/usr/sbin/slurmdbd", "mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is %w: install it (Debian: slurmdbd, mariadb-server)", name, ErrMissing)
		}
	}
	mysql, err := user.Lookup("mysql")
	if err != nil {
		return fmt.Errorf("the user mysql is %w: install the package mariadb-server", ErrMissing)
	}
	uid, _ := strconv.Atoi(mysql.Uid)
	gid, _ := strconv.Atoi(mysql.Gid)
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	db, first := filepath.Join(s.dir, "db"), filepath.Join(s.dir, "first.sql")
	sql := "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'private';\nGRANT ALL ON *.* TO slurm@'127.0.0.1';\n"
	if err := os.WriteFile(first, []byte(sql), 0o644); err != nil {
		return err
	}
	for range 3 { // as with the ports of slurmctld
		if err = s.accountPorts(); err != nil {
			return err
		}
		if err = os.RemoveAll(db); err == nil {
			err = os.Mkdir(db, 0o700)
		}
		if err == nil {
			err = os.Chown(db, uid, gid)
		}
		if err != nil {
			return err
		}
		install := exec.CommandContext(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+db, "--skip-test-db",
			"--auth-root-authentication-method=normal", "--skip-name-resolve")
		// Temporary tables of two servers can have the same name.
		install.SysProcAttr, install.Env = as, append(os.Environ(), "TMPDIR="+db)
		if out, err := install.CombinedOutput(); err != nil {
			return fmt.Errorf("make a database: %w: %s", err, out)
		}
		server := exec.Command("mariadbd", "--no-defaults", "--datadir="+db, "--socket="+db+"/sock", "--port="+s.ports[0],
			"--bind-address=127.0.0.1", "--pid-file="+db+"/pid", "--tmpdir="+db, "--skip-name-resolve", "--init-file="+first,
			"--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900")
		server.SysProcAttr = &syscall.SysProcAttr{Credential: as.Credential}
		var c *child
		if c, err = startChild(ctx, server, "ready for connections"); err != nil {
			continue
		}
		s.books = append(s.books, c)
		if err = s.startDaemon(ctx); err == nil {
			break
		}
		c.end(syscall.SIGKILL)
		s.books = nil
	}
	if err != nil {
		return err
	}
	said := ""
	if !Until(ctx, func() bool {
		said, err = s.Do(ctx, "sacctmgr", "-i", "add", "cluster", "pawl-test")
		return err == nil
	}) {
		return fmt.Errorf("sacctmgr: %s", said)
	}
	return nil
}

// accountPorts chooses free ports for the database and slurmdbd, and writes the configuration of
// the latter.
func (s *Scheduler) accountPorts() error {
	for i := range s.ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.ports[i] = strconv.Itoa(port)
	}
	if err := s.configure(); err != nil { // slurmdbd looks for its file beside it
		return err
	}
	text := strings.NewReplacer("$DIR", s.dir, "$SQL", s.ports[0], "$DBD", s.ports[1], "$PASS", "private").Replace(slurmdbdConf)
	return os.WriteFile(filepath.Join(s.dir, "slurmdbd.conf"), []byte(text), 0o600)
}

func (s *Scheduler) startDaemon(ctx context.Context) error {
	cmd := exec.Command("/usr/sbin/slurmdbd", "-D")
	cmd.Env = environ("SLURM_", s.Env()...)
	c, err := startChild(ctx, cmd, "started")
	if err == nil {
		s.books = append(s.books, c)
	}
	return err
}
