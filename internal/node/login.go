package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/pawl-jobs/pawl/job"
)

// logins is the folder in a data folder with the sockets of connections that people have opened.
const logins = "logins"

// loginOf returns the login of a system with via openssh. Its socket is named after all that says
// whose connection it is: where the system of that name is another host by now, nobody is logged
// in.
func loginOf(dir, tenant string, doc *job.System) login {
	return backends.login(filepath.Join(dir, logins, loginName(tenant, doc)), doc.Host.Address)
}

func loginName(tenant string, doc *job.System) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", tenant, doc.Name, doc.Host.Address))
	return hex.EncodeToString(sum[:8])
}

// A Login is the connection to a system with via openssh, which a person opens.
type Login struct {
	login
	dir  string
	name string // of its socket
}

// LoginOf returns the login of a system for what runs on the machine of a data folder.
func LoginOf(dir, tenant string, doc *job.System) *Login {
	return &Login{loginOf(dir, tenant, doc), dir, loginName(tenant, doc)}
}

// Open opens the connection. What the host asks goes to the terminal, or to these files.
func (l *Login) Open(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	if err := os.Mkdir(filepath.Join(l.dir, logins), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return job.Errorf(job.Unavailable, "a folder for the connection: %w", err)
	}
	// Two masters at once would leave one in the background that nobody finds.
	lock, err := os.OpenFile(filepath.Join(l.dir, logins, "lock-"+l.name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return job.Errorf(job.Unavailable, "the lock of the connection: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return job.Errorf(job.Conflict, "another login is under way: finish it, or end it, and then try again (%w)", err)
	}
	if l.Check(ctx) == nil {
		return nil // it has just ended
	}
	cmd := l.Login(ctx)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return job.Errorf(job.Invalid, "the ssh program is not there: install the OpenSSH client, or put it in PATH")
	case err != nil:
		return job.Errorf(job.Denied, "ssh has not logged in, see above (%w)", err)
	}
	if err := l.Check(ctx); err != nil {
		return job.Errorf(job.Unavailable, "ssh has logged in, but does not share its connection: %w", err)
	}
	return nil
}
