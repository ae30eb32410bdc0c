package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func TestSSHD(t *testing.T) {
	for _, shell := range []string{"sh", "dash", "bash", "csh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			s := SSHD(t, SSHOptions{Shell: shell, MaxSessions: 1})
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Fatal(err)
			}
			c := s.dial(t)
			session, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.NewSession(); err == nil {
				t.Error("the server grants two sessions, one was asked for")
			}
			out, err := session.Output("id -un; echo $SHELL $HOME")
			if err != nil {
				t.Fatal(err, s.Log())
			}
			if got, want := string(out), s.User+"\n"+path+" "+s.Home+"\n"; !strings.HasSuffix(got, want) {
				t.Errorf("it says %q, want %q at its end", got, want)
			}

			s.Stop()
			if _, err := c.NewSession(); err != nil {
				t.Errorf("a connection has not outlived the listener: %v", err)
			}
			s.Start(t)
			c = s.dial(t)
			if n := s.Connections(); n != 1 {
				t.Errorf("there are %d connections, want 1", n)
			}
			s.Cut()
			_ = c.Wait() // returns, for the connection is cut
			old := s.HostKey
			if s.ReplaceHostKey(t) == old {
				t.Error("the host key is the same")
			}
			s.dial(t)
		})
	}
}

// dial connects to the server, and holds it to its host key.
func (s *SSH) dial(t *testing.T) *ssh.Client {
	t.Helper()
	text, err := os.ReadFile(s.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", s.Addr(), &ssh.ClientConfig{
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(host),
	})
	if err != nil {
		t.Fatalf("%v; sshd said:\n%s", err, s.Log())
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
