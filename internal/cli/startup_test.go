package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

// What lies in the spool and is no message is removed, and keeps no message from being heard.
func TestJunkInTheSpool(t *testing.T) {
	p := startServe(t, t.TempDir(), nil)
	spool := filepath.Join(p.dir, "ends")
	makers := map[string]func(name string) error{
		"a-folder": func(name string) error { return os.MkdirAll(filepath.Join(name, "below"), 0o700) },
		"a-pipe":   func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a-link":   func(name string) error { return os.Symlink("/", name) },
		"huge": func(name string) error {
			return errors.Join(os.WriteFile(name, nil, 0o600),
				os.Truncate(name, 1<<40))
		},
	}
	for name, make := range makers {
		if err := make(filepath.Join(spool, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name := range makers {
		p.await("no message of an end is removed\" name=" + name)
	}
	p.becomes(p.submit(`{"command":["true"]}`), job.Finished)
	for name := range makers {
		if _, err := os.Lstat(filepath.Join(spool, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

// A database that takes connections and never answers keeps nobody from stopping the service.
func TestStopWhileStarting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("pawl", "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--db", "postgres://ada@"+
		l.Addr().String()+"/jobs")
	cmd.Env = own(t)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept() // it waits for an answer now
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != term.ExitBroken ||
		!strings.Contains(said.String(), "told to stop before it had begun") {
		t.Errorf("it ends with %v: %s", err, &said)
	}
}

// A data folder that is moved away is not made anew.
func TestMovedFolder(t *testing.T) {
	p := startServe(t, filepath.Join(t.TempDir(), "data"), nil)
	p.becomes(p.submit(`{"command":["true"]}`), job.Finished)
	running := p.submit(`{"command":["sleep","1"]}`)
	p.becomes(running, job.Running)
	if err := os.Rename(p.dir, p.dir+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != term.ExitBroken || !strings.Contains(p.log.String(), "was moved away") {
		t.Errorf("exit code %d: %s", code, p.log)
	}
	if _, err := os.Lstat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made anew: %v", err)
	}
}

// A folder that has had programs and has lost its machine is not given another one.
func TestLostMachine(t *testing.T) {
	p := startServe(t, t.TempDir(), nil)
	p.becomes(p.submit(`{"command":["true"]}`), job.Finished)
	p.signal(syscall.SIGTERM)
	p.end()
	if err := os.Remove(filepath.Join(p.dir, "machine")); err != nil {
		t.Fatal(err)
	}
	said, code := ran(t, []string{"pawl"}, "serve", "--dir", p.dir, "--listen", "127.0.0.1:0")
	if code != term.ExitBroken || !strings.Contains(said, "machine is missing") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if said, code := ran(t, []string{"pawl"}, "list", "--dir", p.dir); code != term.ExitOK {
		t.Errorf("it can be read no more: %d, %s", code, said)
	}
}
