package process

import (
	"os"
	"testing"

	"github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

// The runner does not care where its host is.
func TestOverSSH(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	h, err := ssh.Open(ssh.Config{Config: connection.Config{
		ID:         "far",
		Hop:        connection.Hop{Address: s.Host, Port: s.Port, User: s.User, HostKeys: []string{s.HostKey}},
		Identities: []string{s.Key},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	runnertest.Run(t, func(t *testing.T) runnertest.Bench {
		dir, err := os.MkdirTemp(s.Work, "bench-") //nolint:usetesting // in a folder of the account there
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, s.UID, s.GID); err != nil {
			t.Fatal(err)
		}
		spool, work := dir+"/it's ends", dir+"/work"
		if err := h.Files().Mkdir(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), Config{Host: h, Spool: spool})
		if err != nil {
			t.Fatal(err)
		}
		return runnertest.Bench{Runner: r, Host: h, Work: work, Spool: spool, Lives: lives(r)}
	})
}
