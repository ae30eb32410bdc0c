package process

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

// The runner does not care where its host is, nor what the login shell is there and finds.
func TestOverSSH(t *testing.T) {
	testenv.Aside(t)
	shells := []string{"csh"} // what is least like /bin/sh
	if testenv.Long() {
		shells = append(shells, "sh", "dash", "bash", "fish")
	}
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, testenv.SSHOptions{Shell: shell, Lines: []string{"SetEnv PATH=/nowhere"}})
			overSSH(t, s, connection.Config{
				ID:         "far",
				Hop:        connection.Hop{Address: s.Host, Port: s.Port, User: s.User, HostKeys: []string{s.HostKey}},
				Identities: []string{s.Key},
			})
		})
	}
}

// Nor who has logged in there.
func TestOverMaster(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	m := connection.Master{
		Socket: filepath.Join(t.TempDir(), "far"), Host: "far", Options: []string{"-F", s.ClientConfig(t, "far")},
	}
	if err := m.Login(t.Context()).Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Logout(context.Background()) }) // it may have ended
	overSSH(t, s, connection.Config{ID: "far", Master: m})
}

func overSSH(t *testing.T, s *testenv.SSH, c connection.Config) {
	h, err := ssh.Open(ssh.Config{Config: c})
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
		b := runnertest.Bench{Runner: r, Host: h, Work: work, Spool: spool, Lives: lives(r)}
		if !testenv.Long() {
			b.Rounds = 16
		}
		return b
	})
}
