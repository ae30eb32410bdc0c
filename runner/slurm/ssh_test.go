package slurm

import (
	"os"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

// The runner does not care where the commands of Slurm are. Only the long tests run the whole suite
// over SSH too: systems_slurm of package cli has both ways each time.
func TestOverSSH(t *testing.T) {
	if !testenv.Long() {
		t.Skip("the suite runs here over SSH in the long tests alone")
	}
	s, far := testenv.Slurm(t), testenv.SSHD(t, testenv.SSHOptions{})
	h, err := ssh.Open(ssh.Config{Config: connection.Config{
		ID:         "far",
		Hop:        connection.Hop{Address: far.Host, Port: far.Port, User: far.User, HostKeys: []string{far.HostKey}},
		Identities: []string{far.Key},
	}, Environ: s.Env()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	runnertest.Run(t, func(t *testing.T) runnertest.Bench {
		t.Parallel()
		dir, err := os.MkdirTemp(far.Work, "bench-") //nolint:usetesting // in a folder of the account there
		if err == nil {
			err = os.Chown(dir, far.UID, far.GID)
		}
		if err != nil {
			t.Fatal(err)
		}
		spool, work := dir+"/it's ends", dir+"/work"
		if err := h.Files().Mkdir(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), Config{
			Host: h, Spool: spool, Interval: 100 * time.Millisecond, Soon: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		r.queue.Unseen = 0 // all is on this machine
		return runnertest.Bench{Runner: r, Host: h, Work: work, Spool: spool, Lives: lives(r), Rounds: 8}
	})
}
