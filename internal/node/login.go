package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/pawl-jobs/pawl/job"
)

// logins is the folder in a data folder with the sockets of connections that people have opened.
const logins = "logins"

// loginOf returns the login of a system with via openssh. Its socket is named after all that says
// whose connection it is: where the name is that of another host by now, nobody is logged in.
func loginOf(dir, tenant string, doc *job.System) login {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", tenant, doc.Name, doc.Host.Address))
	return backends.login(filepath.Join(dir, logins, hex.EncodeToString(sum[:8])), doc.Host.Address)
}

// A Login is the connection to a system with via openssh, which a person opens.
type Login struct{ login }

// LoginOf returns the login of a system for what runs on the machine of a data folder.
func LoginOf(dir, tenant string, doc *job.System) *Login {
	return &Login{loginOf(dir, tenant, doc)}
}

// Open opens the connection. What the host asks goes to the terminal, or to these files.
func (l *Login) Open(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	release, err := l.Alone()
	if err != nil {
		return err
	}
	defer release()
	if l.Check(ctx) == nil {
		return nil // another login has just ended
	}
	cmd := l.Login(ctx)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	switch err = cmd.Run(); {
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
