package ssh_test

import (
	"crypto/rand"
	"path"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Stopping(m)) }

func config(s *testenv.SSH) ssh.Config {
	return ssh.Config{Config: connection.Config{
		ID:         "far",
		Hop:        connection.Hop{Address: s.Host, Port: s.Port, User: s.User, HostKeys: []string{s.HostKey}},
		Identities: []string{s.Key},
	}}
}

func open(t *testing.T, c ssh.Config) *ssh.Host {
	t.Helper()
	h, err := ssh.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// Test tests a host whole where it has least, and the login shells: what is said to them is
// little, and then /bin/sh is spoken to.
func Test(t *testing.T) {
	every := testenv.Every()
	for name, server := range map[string]struct {
		testenv.SSHOptions
		whole bool
	}{
		"sh":                              {whole: true},
		"csh, a session, alone":           {testenv.SSHOptions{Shell: "csh", MaxSessions: 1, MaxStartups: "1"}, every},
		"bash, two sessions":              {testenv.SSHOptions{Shell: "bash", MaxSessions: 2}, testenv.Long()},
		"dash":                            {testenv.SSHOptions{Shell: "dash"}, testenv.Long()},
		"fish, a PATH that leads nowhere": {testenv.SSHOptions{Shell: "fish", Lines: []string{"SetEnv PATH=/nowhere"}}, testenv.Long()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, server.SSHOptions)
			h := open(t, config(s))
			traits := []hosttest.Trait{hosttest.Polls, hosttest.Plain}
			if !server.whole {
				traits = append(traits, hosttest.Brief)
			}
			hosttest.Run(t, folders(h, s), traits...)
		})
	}
}

// folders makes an empty folder on a host for each test.
func folders(h *ssh.Host, s *testenv.SSH) func(t *testing.T) (host.Host, string) {
	return func(t *testing.T) (host.Host, string) {
		dir := path.Join(s.Work, rand.Text())
		if err := h.Files().Mkdir(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		return h, dir
	}
}
