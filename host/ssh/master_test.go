package ssh_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// masterOf is the master of a server, in which nobody is logged in yet. The name of its socket is
// too long for a socket.
func masterOf(t *testing.T, s *testenv.SSH) connection.Master {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return connection.Master{
		Socket: filepath.Join(dir, "far"), Host: "far", Options: []string{"-F", s.ClientConfig(t, "far")},
	}
}

func login(t *testing.T, m connection.Master) {
	t.Helper()
	cmd := m.Login(t.Context())
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Logout(context.Background()) }) // it may have ended
}

func through(m connection.Master) ssh.Config {
	return ssh.Config{Config: connection.Config{ID: "lab/far", Master: m}}
}

func TestThroughMaster(t *testing.T) {
	for shell, whole := range map[string]bool{"bash": testenv.Long(), "csh": true} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, testenv.SSHOptions{Shell: shell})
			m := masterOf(t, s)
			login(t, m)
			h := open(t, through(m))
			traits := []hosttest.Trait{hosttest.Polls, hosttest.Plain}
			if !whole {
				traits = append(traits, hosttest.Brief)
			}
			hosttest.Run(t, folders(h, s), traits...)
			if n := s.Connections(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

func TestFilesThroughMaster(t *testing.T) {
	testenv.Aside(t)
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "csh"})
	m := masterOf(t, s)
	login(t, m)
	h := open(t, through(m))
	open := folders(h, s)
	at := func(t *testing.T) (files.FS, string) {
		_, dir := open(t)
		return h.Files(), dir
	}
	filestest.Run(t, at)
	filestest.RunRights(t, at, filestest.Rights{
		As:    func(_ *testing.T, f func()) { f() },
		Chmod: os.Chmod,
		Hold: func(t *testing.T, name string) {
			if os.Geteuid() != 0 {
				t.Skip("only root makes files for others")
			}
			if err := filepath.WalkDir(name, func(name string, _ os.DirEntry, err error) error {
				return errors.Join(err, os.Chown(name, 0, 0))
			}); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// Nothing connects but a login. Who is logged in is found, also after the connection was lost.
func TestMaster(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	m := masterOf(t, s)
	h := open(t, through(m))
	_, err := h.Boot(t.Context())
	isTrouble(t, err, job.LoginRequired, "nobody is logged in", "pawl systems login lab")
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
	for what, end := range map[string]func(){
		"logged out": func() {
			if err := m.Logout(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"the connection is cut": s.Cut,
		"the server is gone": func() {
			s.Kill()
			s.Start(t)
		},
		"the master is killed": func() { kill(t, m) },
	} {
		login(t, m)
		if err := m.Check(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		echo(t, h, "here")
		if _, err := h.Files().Stat(t.Context(), s.Work); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		events, err := h.Watch(t.Context(), s.Work)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		end()
		for range events { // its end is told
		}
		hosttest.Until(t, "the trouble is known", func() bool {
			_, _, err = h.Run(t.Context(), "true", nil)
			trouble, ok := errors.AsType[*host.Trouble](err)
			return ok && trouble.Code == job.LoginRequired
		})
		if err := m.Check(t.Context()); err == nil {
			t.Errorf("%s: the master is there", what)
		}
		hosttest.Until(t, "nothing is connected", func() bool { return s.Connections() == 0 })
	}
}

// A master that hears nothing more from its server ends, and all that waits for an answer with it.
func TestMasterHearsNothing(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	p, port := newProxy(t, s.Addr())
	m := masterOf(t, s)
	m.Options = append(m.Options, "-o", "Port="+strconv.Itoa(port),
		"-o", "HostKeyAlias=["+s.Host+"]:"+strconv.Itoa(s.Port), "-o", "ServerAliveInterval=3") // a busy server answers late
	login(t, m)
	h := open(t, through(m))
	echo(t, h, "before")
	events, err := h.Watch(t.Context(), s.Work)
	if err != nil {
		t.Fatal(err)
	}
	p.hold.Store(true)
	_, _, err = h.Run(t.Context(), "true", nil)
	isTrouble(t, err, job.ConnectionLost)
	for range events {
	}
	_, _, err = h.Run(t.Context(), "true", nil)
	isTrouble(t, err, job.LoginRequired, "nobody is logged in")
	p.hold.Store(false)
	login(t, m)
	echo(t, h, "after")
}

// kill kills the process of a master.
func kill(t *testing.T, m connection.Master) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, _ := os.ReadFile(name)
		if !strings.HasPrefix(string(text), "ssh") || !strings.Contains(string(text), m.Options[1]) {
			continue
		}
		pid := 0
		for _, c := range strings.Split(name, "/")[2] {
			pid = 10*pid + int(c-'0')
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("no master is there")
}

// A server that grants few sessions grants no other connection: nobody logs in but a person.
func TestMasterFewSessions(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{MaxSessions: 2})
	m := masterOf(t, s)
	login(t, m)
	h := open(t, through(m))
	echo(t, h, "one")
	if _, err := h.Files().List(t.Context(), s.Work); err != nil {
		t.Error(err)
	}
	_, err := h.Watch(t.Context(), s.Work)
	isTrouble(t, err, job.ChannelRefused)
	echo(t, h, "two")
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
