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

func Test(t *testing.T) {
	servers := map[string]testenv.SSHOptions{
		"sh":                              {},
		"bash, two sessions":              {Shell: "bash", MaxSessions: 2},
		"csh, a session, alone":           {Shell: "csh", MaxSessions: 1, MaxStartups: "1"},
		"fish, a PATH that leads nowhere": {Shell: "fish", Lines: []string{"SetEnv PATH=/nowhere"}},
	}
	if testenv.Long() {
		servers["dash"] = testenv.SSHOptions{Shell: "dash"} // which sh mostly is
	}
	for name, o := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, o)
			h := open(t, config(s))
			hosttest.Run(t, func(t *testing.T) (host.Host, string) {
				dir := path.Join(s.Work, rand.Text())
				if err := h.Files().Mkdir(t.Context(), dir); err != nil {
					t.Fatal(err)
				}
				return h, dir
			}, hosttest.Polls, hosttest.Plain)
		})
	}
}
