package bed

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestOpenSessions(t *testing.T) {
	const log = `Server listening on 127.0.0.1 port 4000.
Connection from 127.0.0.1 port 51 on 127.0.0.1 port 4000 rdomain ""
Accepted publickey for ada from 127.0.0.1 port 51 ssh2: ED25519 SHA256:x
Starting session: command for ada from 127.0.0.1 port 51 id 0
Starting session: subsystem 'sftp' for ada from 127.0.0.1 port 51 id 1
Starting session: command for ada from 127.0.0.1 port 52 id 0
Close session: user ada from 127.0.0.1 port 51 id 0
Starting session: command for ada from 127.0.0.1 port 51 id 0
Connection closed by 127.0.0.1 port 52
`
	if n := openSessions(log); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	if n := openSessions(log + "Disconnected from user ada 127.0.0.1 port 51\r\n"); n != 0 {
		t.Errorf("%d sessions after all have gone", n)
	}
}

func TestSSHD(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts sshd")
	}
	testenv.Program(t, "/usr/sbin/sshd")
	dir := filepath.Join(t.TempDir(), "sshd")
	s, err := StartSSHD(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	client, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.Output(`echo "$HOME"`)
	if err != nil || string(out) != dir+"/home\n" {
		t.Errorf("it is at home in %q, want %s: %v", out, dir+"/home", err)
	}
	long, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := long.Start("sleep 1000"); err != nil {
		t.Fatal(err)
	}
	sessions := func(want int) {
		t.Helper()
		if !testenv.Until(t.Context(), func() bool { n, err := s.Sessions(); return err == nil && n == want }) {
			t.Fatalf("there are never %d sessions", want)
		}
	}
	sessions(1)
	if n, err := s.Logins(); err != nil || n != 1 {
		t.Errorf("%d logins, want 1: %v", n, err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	sessions(0)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Dial(); err == nil {
		t.Error("it still lets in")
	}
}

func TestSSHDIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := exec.LookPath("/usr/sbin/sshd"); err == nil {
		t.Skip("it is at its usual place here")
	}
	var usage *term.UsageError
	if _, err := StartSSHD(t.Context(), t.TempDir()); !errors.As(err, &usage) {
		t.Errorf("got %v", err)
	}
}

// TestDelay: what goes through a proxy is as it was.
func TestDelay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.Copy(c, c) // until the test ends
			c.Close()
		}
	}()
	d, err := StartDelay(l.Addr().String(), 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.Port)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("there and back")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 14)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "there and back" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}

// TestDelayTakesItsTime: each byte is held up for as long as every other, however many there are.
func TestDelayTakesItsTime(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		d := &Delay{delay: 50 * time.Millisecond}
		in, write := io.Pipe()
		read, out := io.Pipe()
		go d.carry(out, in)
		begin := time.Now()
		for i := range 3 {
			go func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				write.Write([]byte{byte(i)}) // it is read
			}()
		}
		for i := range 3 {
			var one [1]byte
			if _, err := io.ReadFull(read, one[:]); err != nil || one[0] != byte(i) {
				t.Fatalf("%v, %v: want %d", one, err, i)
			}
			if took, want := time.Since(begin), (50+time.Duration(i))*time.Millisecond; took != want {
				t.Errorf("byte %d comes after %v, want %v", i, took, want)
			}
		}
		write.Close()
		if _, err := read.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // a reader's own end
			t.Errorf("after the end: %v", err)
		}
		d.work.Wait()
	})
}
