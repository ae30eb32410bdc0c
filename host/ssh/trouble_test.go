package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/ssh"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// isTrouble tests what an error says: its code, its kind, and words of it.
func isTrouble(t *testing.T, err error, code job.Code, words ...string) {
	t.Helper()
	var trouble *host.Trouble
	if !errors.As(err, &trouble) || trouble.Code != code || job.KindOf(err) != job.Unavailable {
		t.Errorf("%v (%T, kind %s), want the trouble %s", err, err, job.KindOf(err), code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func echo(t *testing.T, h *ssh.Host, word string) {
	t.Helper()
	out, code, err := h.Run(t.Context(), "echo "+word, nil)
	if err != nil || code != 0 || string(out) != word+"\n" {
		t.Fatalf("%q, %d, %v", out, code, err)
	}
}

func fingerprint(t *testing.T, line string) string {
	t.Helper()
	key, _, _, _, err := xssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return xssh.FingerprintSHA256(key)
}

func TestConfig(t *testing.T) {
	hop := connection.Hop{Address: "a", User: "u"}
	for what, c := range map[string]ssh.Config{
		"no id":      {Config: connection.Config{Hop: hop}},
		"no address": {Config: connection.Config{ID: "far", Hop: connection.Hop{User: "u"}}},
		"no user":    {Config: connection.Config{ID: "far", Hop: hop, Jump: []connection.Hop{{Address: "b"}}}},
		"a variable": {Config: connection.Config{ID: "far", Hop: hop}, Environ: []string{"a-b=c"}},
	} {
		if _, err := ssh.Open(c); job.KindOf(err) != job.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTroubles(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	stranger, err := testenv.NewSSHKey(path.Join(t.TempDir(), "stranger"))
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts there
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for what, tt := range map[string]struct {
		edit  func(*ssh.Config)
		code  job.Code
		words []string
	}{
		"no key is trusted": {
			func(c *ssh.Config) { c.HostKeys = nil }, job.HostKeyUnknown,
			[]string{"pawl systems trust far"},
		},
		"another key is trusted": {
			func(c *ssh.Config) { c.HostKeys = []string{stranger} }, job.HostKeyChanged,
			[]string{"pawl systems trust far", fingerprint(t, s.HostKey), fingerprint(t, stranger)},
		},
		"a wrong user": {func(c *ssh.Config) { c.User = "nobody" }, job.AuthenticationFailed, []string{"nobody@"}},
		"no identity": {
			func(c *ssh.Config) { c.Identities = []string{"/absent"} }, job.AuthenticationFailed,
			[]string{"/absent", "Tried: /absent not, for"},
		},
		"nobody listens": {func(c *ssh.Config) { c.Port = closed.Addr().(*net.TCPAddr).Port }, job.HostRefused, nil},
		"nobody answers": {func(c *ssh.Config) {
			c.Port, c.DialTimeout = silent.Addr().(*net.TCPAddr).Port, 300*time.Millisecond
		}, job.ConnectionTimeout, []string{"300ms"}},
		"no such name": {func(c *ssh.Config) { c.Address = "far.invalid" }, job.HostUnknown, []string{"far.invalid"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := config(s)
			tt.edit(&c)
			h := open(t, c)
			_, err := h.Boot(t.Context())
			isTrouble(t, err, tt.code, tt.words...)
			_, err = h.Files().Stat(t.Context(), s.Work)
			isTrouble(t, err, tt.code, tt.words...)
		})
	}
	t.Run("no session", func(t *testing.T) {
		s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"MaxSessions 0"}})
		_, err := open(t, config(s)).Boot(t.Context())
		isTrouble(t, err, job.ChannelRefused)
	})
	t.Run("no shell", func(t *testing.T) {
		s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"ForceCommand echo This account has no shell."}})
		_, err := open(t, config(s)).Boot(t.Context())
		isTrouble(t, err, job.ShellBroken, `"This account has no shell."`)
	})
	t.Run("no shell, and an error says why", func(t *testing.T) {
		s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"ForceCommand echo No logins today. >&2"}})
		_, err := open(t, config(s)).Boot(t.Context())
		isTrouble(t, err, job.ShellBroken, "No logins today.")
		if _, err := exec.LookPath("ssh"); err != nil {
			t.Skip(err)
		}
		m := masterOf(t, s)
		login(t, m)
		_, err = open(t, through(m)).Boot(t.Context())
		isTrouble(t, err, job.ShellBroken, "No logins today.")
	})
	t.Run("a shell that ends", func(t *testing.T) {
		s := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"}) // its login files print something
		h := open(t, config(s))
		echo(t, h, "here")
		// As dash does where it gets no process.
		_, _, err := h.Run(t.Context(), "echo 'Cannot fork' >&2; kill -9 $$", nil)
		isTrouble(t, err, job.ShellBroken, `has said only "Cannot fork`)
	})
	t.Run("a shell that does not begin", func(t *testing.T) {
		s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"ForceCommand printf 'Your code: '; exec sleep 1000"}})
		c := config(s)
		var err error
		for c.Answer = time.Second; ; c.Answer *= 2 { // a busy machine takes longer to begin it
			_, err = open(t, c).Boot(t.Context())
			if c.Answer > time.Minute || strings.Contains(fmt.Sprint(err), "code") {
				break
			}
		}
		isTrouble(t, err, job.ShellBroken, "not answered within "+c.Answer.String(), `"Your code:"`)
	})
	t.Run("closed", func(t *testing.T) {
		h := open(t, config(s))
		echo(t, h, "here")
		h.Close()
		h.Close()
		if _, err := h.Boot(t.Context()); job.KindOf(err) != job.Closed {
			t.Error(err)
		}
	})
}

// What is given is data, whatever it has in it.
func TestRun(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"})
	c := config(s)
	c.Environ = []string{"ADDED=it's $HOME"}
	h := open(t, c)
	every := make([]byte, 0, 1<<16)
	for len(every) < cap(every) {
		every = append(every, byte(len(every)), byte(len(every)>>8))
	}
	for script, want := range map[string]struct {
		in, out string
		code    int
	}{
		"cat":                                {in: string(every), out: string(every)},
		"cat; exit 3":                        {in: `\n\0101 '$(id)'` + "\r\n\n", out: `\n\0101 '$(id)'` + "\r\n\n", code: 3},
		"cd /; exit 7":                       {code: 7},
		"kill -9 $(exec sh -c 'echo $PPID')": {code: 137},
		"echo (":                             {code: 2},
		`printf %s "$ADDED"`:                 {out: "it's $HOME"},
		"exec 2>&1; no-such-command":         {code: 127, out: "/bin/sh: 1: eval: no-such-command: not found\n"},
	} {
		out, code, err := h.Run(t.Context(), script, []byte(want.in))
		if err != nil || code != want.code || want.code != 127 && string(out) != want.out {
			t.Errorf("%s: %d bytes, %d, %v; want %d bytes, %d", script, len(out), code, err, len(want.out), want.code)
		}
	}
	if _, _, err := h.Run(t.Context(), "echo \x00", nil); job.KindOf(err) != job.Invalid {
		t.Error(err)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			in := strings.Repeat(string(rune('a'+i%26)), i*10)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%10 == 0 { // whose answer nobody waits for
				cancel()
			}
			out, _, err := h.Run(ctx, "cat", []byte(in))
			if i%10 == 0 {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			} else if string(out) != in || err != nil {
				t.Errorf("%q, %v; want %q", out, err, in)
			}
		})
	}
	all.Wait()
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A request that hangs holds up the others for a while. Then there is another shell, and what hung
// is killed, also where the connection passes no signals on.
func TestRequestThatHangs(t *testing.T) {
	for what, with := range map[string]func(*testing.T, *testenv.SSH) ssh.Config{
		"native": func(_ *testing.T, s *testenv.SSH) ssh.Config { return config(s) },
		"openssh": func(t *testing.T, s *testenv.SSH) ssh.Config {
			m := masterOf(t, s)
			login(t, m)
			return through(m)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := testenv.SSHD(t, testenv.SSHOptions{})
			c := with(t, s)
			c.Answer = 2 * time.Second
			h := open(t, c)
			_, _, err := h.Run(t.Context(),
				"cd "+s.Work+"; echo $$ >shell; echo 'echo $$ >pid; exec sleep 1000' | sh", nil)
			isTrouble(t, err, job.ShellBroken, "2s")
			for _, name := range []string{"shell", "pid"} {
				hosttest.Until(t, "what hung is gone", func() bool {
					_, code, err := h.Run(t.Context(), "[ -e /proc/$(cat "+s.Work+"/"+name+")/exe ]", nil)
					return err == nil && code != 0
				})
			}
		})
	}
}

// The shell whose environment programs get is one of a login.
func TestShell(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "csh"})
	login := path.Join(s.Work, "login")
	text := "#!/bin/sh\necho noise\nLOADED=yes exec /bin/sh \"$@\"\n"
	if err := os.WriteFile(login, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	c := config(s)
	c.Shell = []string{login, "-e"}
	h := open(t, c)
	env, err := h.Environ(t.Context())
	if err != nil || !strings.Contains(strings.Join(env, "\n"), "LOADED=yes") {
		t.Errorf("%q, %v", env, err)
	}
	c.Shell = []string{"/absent"}
	_, err = open(t, c).Boot(t.Context())
	isTrouble(t, err, job.ShellBroken)
}

// Programs find what a login finds: where the shell looks for its own tools is no matter of theirs.
func TestPath(t *testing.T) {
	for _, shell := range []string{"dash", "bash", "csh"} {
		s := testenv.SSHD(t, testenv.SSHOptions{Shell: shell})
		out, err := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-i", s.Key, "-p", strconv.Itoa(s.Port), "-o", "BatchMode=yes",
			"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", s.User+"@"+s.Host, `/bin/sh -c 'echo PATH=$PATH'`).Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		env, err := open(t, config(s)).Environ(t.Context())
		if want := lines[len(lines)-1]; err != nil || !slices.Contains(env, want) {
			t.Errorf("%s: %q, %v, want %s", shell, env, err, want)
		}
	}
}

// What login files print does no harm, also if it does not end its line.
func TestNoise(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{
		`ForceCommand printf '\033]0;a title\007'; eval "$SSH_ORIGINAL_COMMAND"`,
	}})
	c := config(s)
	c.Answer = 10 * time.Second
	h := open(t, c)
	echo(t, h, "here")
	if _, err := h.Files().Stat(t.Context(), s.Work); err != nil {
		t.Error(err)
	}
	events, err := h.Watch(t.Context(), s.Work)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path.Join(s.Work, "news"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e, ok := <-events; !ok || e.Name != "news" {
		t.Errorf("%v, %t", e, ok)
	}
}

// A server that is gone is a trouble, and its return needs nobody's help. What ran runs on.
func TestServerGone(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	h := open(t, config(s))
	p, err := h.Start(t.Context(), host.Command{
		Argv: []string{"/bin/sleep", "1000"}, Dir: s.Work, Stdout: s.Work + "/out", Stderr: s.Work + "/err",
	})
	if err != nil {
		t.Fatal(err)
	}
	events, err := h.Watch(t.Context(), s.Work)
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for range events { // its end is told
	}
	hosttest.Until(t, "the trouble is known", func() bool {
		_, err := h.Alive(t.Context(), []host.Process{p})
		return err != nil && errors.As(err, new(*host.Trouble))
	})
	_, err = h.Alive(t.Context(), []host.Process{p})
	isTrouble(t, err, job.HostRefused)
	s.Start(t)
	alive, err := h.Alive(t.Context(), []host.Process{p})
	if err != nil || !alive[0] {
		t.Errorf("%v, %v", alive, err)
	}
	if _, err := h.Files().Stat(t.Context(), s.Work+"/out"); err != nil {
		t.Error(err)
	}
	s.ReplaceHostKey(t)
	hosttest.Until(t, "the other key is seen", func() bool {
		_, _, err = h.Run(t.Context(), "true", nil)
		var trouble *host.Trouble
		return errors.As(err, &trouble) && trouble.Code == job.HostKeyChanged
	})
	c := config(s)
	h = open(t, c)
	if err := h.Signal(t.Context(), []host.Process{p}, 9); err != nil {
		t.Error(err)
	}
	s.Authorize(t)
	_, err = open(t, c).Boot(t.Context())
	isTrouble(t, err, job.AuthenticationFailed)
}

// Servers lock out who tries to log in too often. A login that was refused is tried again by
// whoever has a reason to.
func TestRefusedLoginsAreRare(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	c := config(s)
	dials := 0
	c.Allow = func(context.Context) error { dials++; return nil }
	s.Authorize(t)
	h := open(t, c)
	for range 20 {
		_, err := h.Boot(t.Context())
		isTrouble(t, err, job.AuthenticationFailed)
	}
	if dials != 1 {
		t.Errorf("%d dials", dials)
	}
	h.Forget()
	_, err := h.Boot(t.Context())
	isTrouble(t, err, job.AuthenticationFailed)
	if dials != 2 {
		t.Errorf("%d dials after one more was asked for", dials)
	}
}

// A proxy stands before a server, and can cut or hold what passes.
type proxy struct {
	net.Listener
	left atomic.Int64 // bytes that still pass to the server; below zero the connection is cut
	hold atomic.Bool  // nothing passes, and nobody is told
}

func newProxy(t *testing.T, to string) (*proxy, int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l}
	p.left.Store(1 << 40)
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		p.left.Store(-1)
		p.hold.Store(false)
		all.Wait()
	})
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			pass := func(to, from net.Conn, counts bool) {
				defer to.Close()
				defer from.Close()
				chunk := make([]byte, 4096)
				for {
					n, err := from.Read(chunk)
					if err != nil {
						return
					}
					if p.hold.Load() {
						continue
					}
					if counts {
						if left := p.left.Add(int64(-n)); left < 0 {
							to.Write(chunk[:max(0, int64(n)+left)])
							return
						}
					}
					if _, err := to.Write(chunk[:n]); err != nil {
						return
					}
				}
			}
			all.Go(func() { pass(far, near, true) })
			all.Go(func() { pass(near, far, false) })
		}
	})
	return p, l.Addr().(*net.TCPAddr).Port
}

// Wherever a connection is cut, a request runs whole or not at all.
func TestCut(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"})
	p, port := newProxy(t, s.Addr())
	c := config(s)
	c.Port = port
	h := open(t, c)
	// The first command and the last one are far apart, so that many cuts are between them.
	padding := strings.Repeat(": 'what is passed over'\n", 400)
	lost := 0
	for i := range 25 {
		shell, _, err := h.Run(t.Context(), "echo $$", nil)
		if err != nil {
			t.Fatal(err)
		}
		p.left.Store(int64(i * 700))
		name := path.Join(s.Work, "n"+string(rune('a'+i)))
		script := "echo begin >" + name + "\n" + padding + "echo end >>" + name + "\n"
		_, _, err = h.Run(t.Context(), script, nil)
		p.left.Store(1 << 40)
		if err != nil {
			lost++
			isTrouble(t, err, job.ConnectionLost)
		}
		hosttest.Until(t, "its shell is gone, or has run it", func() bool {
			// A zombie has no exe.
			_, code, gone := h.Run(t.Context(), "[ -e /proc/"+strings.TrimSpace(string(shell))+"/exe ]", nil)
			return gone == nil && (err == nil || code != 0)
		})
		text, _ := os.ReadFile(name)
		if got := string(text); got != "" && got != "begin\nend\n" || got == "" && err == nil {
			t.Fatalf("cut after %d bytes: half of the request has run: %q", i*700, got)
		}
	}
	if lost == 0 || lost == 25 {
		t.Errorf("%d of 25 requests were cut", lost)
	}
}

// A connection over which nothing comes any more is noticed, and the next request has a new one.
func TestHalfOpen(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	p, port := newProxy(t, s.Addr())
	c := config(s)
	c.Port, c.Keepalive = port, 3*time.Second // a busy server answers late
	h := open(t, c)
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
	p.hold.Store(false)
	echo(t, h, "after")
}

// A connection with nothing to do is closed, and comes back when it is needed.
func TestIdle(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	c := config(s)
	c.Keepalive, c.Idle, c.Answer, c.DialTimeout = 3*time.Second, time.Second, 3*time.Second, 3*time.Second
	h := open(t, c)
	echo(t, h, "before")
	hosttest.Until(t, "it is closed", func() bool { return s.Connections() == 0 })
	echo(t, h, "after")
}

// A server that grants few sessions gets more connections.
func TestFewSessions(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{MaxSessions: 2, MaxStartups: "1"})
	h := open(t, config(s))
	echo(t, h, "one")
	if _, err := h.Files().List(t.Context(), s.Work); err != nil {
		t.Error(err)
	}
	if _, err := h.Watch(t.Context(), s.Work); err != nil {
		t.Error(err)
	}
	if n := s.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A server that does not start what was asked for has the connection still, and what goes on there.
func TestNoSFTP(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{NoSFTP: true, Lines: []string{"LogLevel VERBOSE"}})
	h := open(t, config(s))
	echo(t, h, "before")
	for range 3 {
		_, err := h.Files().List(t.Context(), s.Work)
		isTrouble(t, err, job.ChannelRefused)
	}
	echo(t, h, "after")
	if n := strings.Count(s.Log(), "Accepted publickey"); n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}

// The way leads through another machine, and both prove their keys.
func TestJump(t *testing.T) {
	gate, s := testenv.SSHD(t, testenv.SSHOptions{}), testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"})
	key, err := os.ReadFile(s.Key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	gate.Authorize(t, string(key))
	c := config(s)
	c.Jump = []connection.Hop{{Address: gate.Host, Port: gate.Port, User: gate.User, HostKeys: []string{gate.HostKey}}}
	h := open(t, c)
	out, _, err := h.Run(t.Context(), "id -un", nil)
	if err != nil || string(out) != s.User+"\n" {
		t.Errorf("%q, %v", out, err)
	}
	if n := gate.Connections(); n != 1 {
		t.Errorf("%d connections to the gate", n)
	}
	c.Jump[0].HostKeys = []string{s.HostKey}
	_, err = open(t, c).Boot(t.Context())
	isTrouble(t, err, job.HostKeyChanged, gate.Addr())
	c = config(s)
	c.Jump = []connection.Hop{{Address: gate.Host, Port: gate.Port, User: gate.User, HostKeys: []string{gate.HostKey}}}
	s.Stop()
	_, err = open(t, c).Boot(t.Context())
	isTrouble(t, err, job.HostRefused, s.Addr())
}

// What watches a folder on the far side ends when its connection is gone.
func TestWatchEndsThere(t *testing.T) {
	for _, bell := range []bool{false, true} {
		t.Run(fmt.Sprintf("bell %t", bell), func(t *testing.T) { watchEndsThere(t, bell) })
	}
}

func watchEndsThere(t *testing.T, bell bool) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	h := open(t, config(s))
	if bell {
		if _, code, err := h.Run(t.Context(), "mkfifo "+s.Work+"/"+host.Bell, nil); err != nil || code != 0 {
			t.Fatal(code, err)
		}
	}
	if _, err := h.Watch(t.Context(), s.Work); err != nil {
		t.Fatal(err)
	}
	watchers := func() (n int) {
		all, _ := filepath.Glob("/proc/[0-9]*/cwd")
		for _, link := range all {
			if dir, err := os.Readlink(link); err == nil && dir == s.Work {
				n++
			}
		}
		return n
	}
	if watchers() == 0 {
		t.Fatal("nobody is in the folder")
	}
	s.Cut()
	hosttest.Until(t, "it has ended", func() bool { return watchers() == 0 })
}

// A program that a shell starts in the background would ignore SIGINT.
func TestSignalsAreNotIgnored(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	h := open(t, config(s))
	p, err := h.Start(t.Context(), host.Command{
		Argv: []string{"/bin/sh", "-c", "kill -INT $$; kill -QUIT $$; kill -HUP $$; echo it ignores them"},
		Dir:  s.Work, Stdout: s.Work + "/out", Stderr: s.Work + "/err",
	})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "it has ended", func() bool {
		alive, err := h.Alive(t.Context(), []host.Process{p})
		return err == nil && !alive[0]
	})
	if out, err := os.ReadFile(s.Work + "/out"); err != nil || len(out) > 0 {
		t.Errorf("%s%v", out, err)
	}
}
