package bed

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

// An SSHD is a private OpenSSH server on the loopback address, with keys of its own. It lets in the
// account of this process, whose login files count for nothing: its home folder is an empty one.
type SSHD struct {
	Port    int
	User    string
	Key     string // the private key file that User logs in with
	HostKey string // the public key of the server, as in known_hosts

	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// StartSSHD starts a server with its files in dir, which it makes. It ends with this process. Where
// there is no sshd the error is a usage error that says how to get one.
func StartSSHD(ctx context.Context, dir string) (*SSHD, error) {
	bin, err := exec.LookPath("sshd")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/sshd"); err != nil { // not in the PATH of most people
			return nil, term.Usagef("sshd is missing, and a private SSH server is what is measured: " +
				"install it (Debian: apt install openssh-server)")
		}
	}
	u, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("the account of this process: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	s := &SSHD{User: u.Username, Key: filepath.Join(dir, "id"), dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o755); err != nil {
		return nil, err
	}
	if s.HostKey, err = newKey(filepath.Join(dir, "host")); err != nil {
		return nil, err
	}
	public, err := newKey(s.Key)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "authorized_keys"), []byte(public+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "known_hosts"), []byte("* "+s.HostKey+"\n"), 0o644),
	); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 { // sshd wants it
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return nil, err
		}
	}
	// Between the moment a port is found free and the server's bind, another process can take it.
	for range 3 {
		if err = s.start(ctx, bin); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("start %s: %w", bin, err)
}

// start starts the server on a free port. How many sessions and logins it grants is left as it
// comes.
func (s *SSHD) start(ctx context.Context, bin string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	sftp := "internal-sftp"
	for _, name := range []string{"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"} {
		if _, err := os.Stat(name); err == nil {
			sftp = name // as most systems have it
		}
	}
	config := strings.Join([]string{
		"Port " + strconv.Itoa(s.Port), "ListenAddress 127.0.0.1", "HostKey " + s.dir + "/host", "PidFile none",
		"AuthorizedKeysFile " + s.dir + "/authorized_keys", "StrictModes no", "UsePAM no", "UseDNS no", "PrintMotd no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitUserRC no",
		"SetEnv HOME=" + s.dir + "/home", "LogLevel VERBOSE", "Subsystem sftp " + sftp, "",
	}, "\n")
	file := filepath.Join(s.dir, "sshd_config")
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), os.RemoveAll(s.log())); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), bin, "-D", "-E", s.log(), "-f", file)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is for the benchmark
	dieWithParent(cmd.SysProcAttr)
	said, started, done := &bytes.Buffer{}, make(chan error, 1), make(chan struct{})
	cmd.Stderr, cmd.WaitDelay = said, 50*time.Millisecond // connections outlive the listener
	go func() {
		// The kernel counts as the parent the thread that forked, so that thread has to live as
		// long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is seen in its log
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.done = cmd, done
	for {
		if text, _ := os.ReadFile(s.log()); bytes.Contains(text, []byte("Server listening")) {
			return nil
		}
		select {
		case <-done:
			text, _ := os.ReadFile(s.log())
			return fmt.Errorf("it ended at once: %s%s", said, text)
		default:
		}
		if err := bench.Wait(ctx, 5*time.Millisecond); err != nil {
			return errors.Join(err, s.Close())
		}
	}
}

func (s *SSHD) log() string { return filepath.Join(s.dir, "log") }

// Close ends the server. It can be called again.
func (s *SSHD) Close() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	return nil
}

// System returns the document of a system that the server serves, with its folders in work. port is
// that of the server, or of something before it.
func (s *SSHD) System(name, work string, port int) *job.System {
	return &job.System{
		Name: name, Work: work, Runner: job.RunnerProcess,
		Host: job.Host{
			Kind: job.HostSSH, Via: job.ViaNative, Address: "127.0.0.1", Port: port, User: s.User,
			Identities: []string{s.Key}, Keys: job.KeysEverywhere, HostKeys: []string{s.HostKey},
		},
	}
}

// Dial makes a connection of golang.org/x/crypto/ssh, for what Pawl is compared with.
func (s *SSHD) Dial() (*ssh.Client, error) {
	text, err := os.ReadFile(s.Key)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, err
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey))
	if err != nil {
		return nil, err
	}
	return ssh.Dial("tcp", s.Addr(), &ssh.ClientConfig{
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(host),
	})
}

// Addr is where the server listens.
func (s *SSHD) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// ClientOptions are what the programs of OpenSSH need to log in.
func (s *SSHD) ClientOptions() []string {
	return []string{
		"-F", "/dev/null", "-i", s.Key, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + filepath.Join(s.dir, "known_hosts"),
	}
}

// Logins returns how many connections have logged in so far, by what the server has logged.
func (s *SSHD) Logins() (int, error) {
	text, err := os.ReadFile(s.log())
	return bytes.Count(text, []byte("\nAccepted publickey for ")), err
}

var (
	sessionLine = regexp.MustCompile(`^(Starting|Close) session: .* port (\d+) id (\d+)$`)
	goneLine    = regexp.MustCompile(`^(?:Disconnected from|Connection closed by|Received disconnect from) .* port (\d+)\b`)
)

// Sessions returns how many sessions are open now, by what the server has logged.
func (s *SSHD) Sessions() (int, error) {
	text, err := os.ReadFile(s.log())
	return openSessions(string(text)), err
}

func openSessions(log string) int {
	open := map[string]map[string]bool{} // ids, by the port of the client
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if m := goneLine.FindStringSubmatch(line); m != nil {
			delete(open, m[1])
			continue
		}
		m := sessionLine.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[1] == "Close":
			delete(open[m[2]], m[3])
		default:
			if open[m[2]] == nil {
				open[m[2]] = map[string]bool{}
			}
			open[m[2]][m[3]] = true
		}
	}
	n := 0
	for _, ids := range open {
		n += len(ids)
	}
	return n
}

// newKey makes a key, writes it to a file, and returns its public half, as in authorized_keys.
func newKey(file string) (string, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return "", err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
		os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}
