package sftp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// overSSH is the file system of a server's user, through a connection of its own.
func overSSH(t testing.TB, s *testenv.SSH) *FS {
	t.Helper()
	key, err := os.ReadFile(s.Key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ssh.Dial("tcp", s.Addr(), &ssh.ClientConfig{
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(known),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, inErr := session.StdinPipe()
	out, outErr := session.StdoutPipe()
	if err := errors.Join(inErr, outErr, session.RequestSubsystem("sftp")); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(out, &ending{in, session})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &FS{Client: func(context.Context) (*sftp.Client, error) { return c, nil }}
}

// ending ends a session when what it reads is closed.
type ending struct {
	io.Writer
	session *ssh.Session
}

func (e *ending) Close() error { return e.session.Close() }

// work is a folder of the server's user for one test.
func work(t *testing.T, s *testenv.SSH) string {
	t.Helper()
	dir, err := os.MkdirTemp(s.Work, "") //nolint:usetesting // it is below the folder of the server
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, s.UID, s.GID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFilesOverSSH: through sshd, with a login shell that prints before its SFTP server speaks, and
// with the server that sshd has in itself.
func TestFilesOverSSH(t *testing.T) {
	for name, o := range map[string]testenv.SSHOptions{
		"sftp-server":   {Shell: "bash"},
		"internal-sftp": {Lines: []string{"ForceCommand internal-sftp"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.SSHD(t, o)
			f := overSSH(t, s)
			open := func(t *testing.T) (files.FS, string) { return f, work(t, s) }
			filestest.Run(t, open)
			filestest.RunRights(t, open, filestest.Rights{
				As:    func(_ *testing.T, f func()) { f() },
				Chmod: os.Chmod,
				Hold:  func(t *testing.T, name string) { hold(t, name) },
			})
		})
	}
}

// TestFilesOverSSHCut: the end of a connection is not the end of a file.
func TestFilesOverSSHCut(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	dir := work(t, s)
	name := filepath.Join(dir, "f")
	const size = 20 << 20
	f := overSSH(t, s)
	if err := f.Put(t.Context(), name, io.LimitReader(&endless{}, size), files.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, cut := range map[string]func(c *sftp.Client){
		"the server is killed":   func(*sftp.Client) { s.Cut() },
		"the session was closed": func(c *sftp.Client) { c.Close() },
		"only the put is cut":    func(*sftp.Client) {},
	} {
		f := overSSH(t, s)
		c, err := f.Client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		cut(c)
		if err := f.Put(t.Context(), name, &endless{8 << 20, s.Cut}, files.PutOptions{}); job.KindOf(err) != job.Unavailable {
			t.Errorf("%s: put: %v, want kind unavailable", what, err)
		}
		if _, err := io.Copy(io.Discard, r); job.KindOf(err) != job.Unavailable || errors.Is(err, io.EOF) {
			t.Errorf("%s: read: %v, want kind unavailable", what, err)
		}
		if info, err := os.Stat(name); err != nil || info.Size() != size {
			t.Errorf("%s: the file: %v, %v", what, info, err)
		}
	}
}

// hold gives a folder and all in it to root.
func hold(t *testing.T, name string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes files for others")
	}
	err := filepath.WalkDir(name, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(name, 0, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
}
