package ssh

import (
	"context"
	"os"
	"testing"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// What SFTP cannot do, or not at once, its files have the shell do.
func TestShellOfFiles(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "csh"})
	h := openHost(t, s)
	out, err := h.remote.files.Shell(t.Context(), `cat; cd; echo "it's $PWD"; echo not >&2; exit 3`)
	if err != nil || out != "it's "+s.Home+"\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func openHost(t *testing.T, s *testenv.SSH) *Host {
	t.Helper()
	h, err := Open(Config{Config: connection.Config{
		ID:         "far",
		Hop:        connection.Hop{Address: s.Host, Port: s.Port, User: s.User, HostKeys: []string{s.HostKey}},
		Identities: []string{s.Key},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// Where the tools that read processes cannot run, or are killed, as without memory, nobody is taken
// for dead.
func TestToolsThatDoNotRun(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	h := openHost(t, s)
	p, err := h.Start(t.Context(), host.Command{
		Argv: []string{"/bin/sleep", "1000"}, Dir: s.Work, Stdout: s.Work + "/out", Stderr: s.Work + "/err",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Signal(context.WithoutCancel(t.Context()), []host.Process{p}, 9) })
	killed := s.Work + "/killed"
	if err := os.WriteFile(killed, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	family := host.Family{Leader: p}
	for _, tool := range []string{"/nosuch", killed} {
		if _, err := h.tell(t.Context(), "pawl_head="+tool); err != nil {
			t.Fatal(err)
		}
		if alive, err := h.Alive(t.Context(), []host.Process{p}); err == nil {
			t.Errorf("with %s it is alive: %v", tool, alive)
		}
		if all, err := h.Members(t.Context(), []host.Family{family}); err == nil {
			t.Errorf("with %s it is %v", tool, all)
		}
	}
	if _, err := h.tell(t.Context(), `pawl_head=$(pawl_tool head)`); err != nil {
		t.Fatal(err)
	}
	if alive, err := h.Alive(t.Context(), []host.Process{p}); err != nil || !alive[0] {
		t.Errorf("it is alive: %v, %v", alive, err)
	}
}
