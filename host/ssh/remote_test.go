package ssh

import (
	"testing"

	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// What SFTP cannot do, or not at once, its files have the shell do.
func TestShellOfFiles(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "csh"})
	h, err := Open(Config{Config: connection.Config{
		ID:         "far",
		Hop:        connection.Hop{Address: s.Host, Port: s.Port, User: s.User, HostKeys: []string{s.HostKey}},
		Identities: []string{s.Key},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	out, err := h.remote.files.Shell(t.Context(), `cat; cd; echo "it's $PWD"; echo not >&2; exit 3`)
	if err != nil || out != "it's "+s.Home+"\n" {
		t.Errorf("%q, %v", out, err)
	}
}
