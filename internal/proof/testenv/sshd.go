package testenv

import (
	"bytes"
	"cmp"
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// SSHOptions says how a server of [SSHD] differs from a plain one.
type SSHOptions struct {
	// Shell is the login shell of the user: sh, dash, bash, csh or fish; default sh. It is looked up
	// in PATH.
	Shell string
	// MaxSessions is how many sessions the server grants each connection; default 200.
	MaxSessions int
	// MaxStartups is how many connections may be in their login at once, as in sshd_config(5), such
	// as "1" or "1:30:2"; default 100.
	MaxStartups string
	// Lines are added to its configuration. They come first, and sshd takes the first value it
	// reads.
	Lines []string
	// NoSFTP says that the server has no subsystem sftp.
	NoSFTP bool
	// Boots says that the server can be booted as a machine can, see [SSH.Reboot]. Only root can
	// make such a server: else the test is skipped.
	Boots bool
}

// SSH is a private OpenSSH server. One test owns it, and its methods are called one at a time.
type SSH struct {
	Host string // 127.0.0.1
	Port int
	User string // who logs in
	// UID and GID are those of User.
	UID, GID int
	// Key is the private key file that User logs in with; Key+".pub" is beside it.
	Key string
	// HostKey is the public key of the server: the type and the key, as in authorized_keys.
	HostKey string
	// Home is the home folder of User. All servers with the same login shell share it.
	Home string
	// Work is an empty folder that belongs to User. It is removed with the server.
	Work string

	dir    string
	config string
	child  *child
	left   []int  // processes of connections that outlived a listener
	boot   string // a file with the boot id that its sessions see; empty: that of this machine
}

// noise is what the login files of the users of SSHD print.
const noise = "echo 'Welcome to the cluster!'; echo 'Quota: 93 % used.' 1>&2\n"

// SSHD starts an OpenSSH server for one test, and stops it when the test ends. Its user cannot log
// in elsewhere. If the tests run as root, the user is pawl-test-SHELL, made when it is first asked
// for, and the login files of that user print noise. Else it is the user of the tests, with the
// login shell that user has.
func SSHD(tb testing.TB, o SSHOptions) *SSH {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: it starts sshd")
	}
	s, err := StartSSHD(o)
	if errors.Is(err, ErrMissing) {
		missing(tb, err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// StartSSHD starts a server of the caller's own, who must call [SSH.Close]. The error has
// [ErrMissing] in its chain if this machine lacks something that it needs.
func StartSSHD(o SSHOptions) (*SSH, error) {
	s := &SSH{Host: "127.0.0.1"}
	if err := s.open(o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *SSH) open(o SSHOptions) (err error) {
	bin, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		return fmt.Errorf("sshd is %w: install it (Debian: openssh-server)", ErrMissing)
	}
	if err := s.account(cmp.Or(o.Shell, "sh")); err != nil {
		return err
	}
	if _, err := exec.LookPath("unshare"); o.Boots && (err != nil || os.Getuid() != 0) {
		return fmt.Errorf("a machine that boots is %w: it needs root, and unshare of util-linux", ErrMissing)
	}
	if s.dir, err = os.MkdirTemp("", "pawl-sshd-"); err != nil {
		return err
	}
	s.Work, s.Key = filepath.Join(s.dir, "work"), filepath.Join(s.dir, "id")
	if err := errors.Join(os.Chmod(s.dir, 0o755), os.Mkdir(s.Work, 0o755), os.Chown(s.Work, s.UID, s.GID)); err != nil {
		return err
	}
	if s.HostKey, err = NewSSHKey(filepath.Join(s.dir, "host")); err != nil {
		return err
	}
	key, err := NewSSHKey(s.Key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "authorized_keys"), []byte(key+"\n"), 0o644); err != nil {
		return err
	}
	if o.Boots {
		s.boot = filepath.Join(s.dir, "boot_id")
		if err := s.newBoot(); err != nil {
			return err
		}
	}
	server := "internal-sftp"
	for _, name := range []string{"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"} {
		if _, err := os.Stat(name); err == nil {
			server = name // the login shell runs it, so noise of the login files comes before it
		}
	}
	sessions := o.MaxSessions
	if sessions == 0 {
		sessions = 200
	}
	sftp := "Subsystem sftp " + server
	if o.NoSFTP {
		sftp = ""
	}
	s.config = strings.Join(append(o.Lines,
		"ListenAddress 127.0.0.1", "HostKey "+s.dir+"/host", "PidFile none",
		"AuthorizedKeysFile "+s.dir+"/authorized_keys", "AllowUsers "+s.User, "StrictModes no", "UsePAM no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "UseDNS no", "PrintMotd no",
		"MaxSessions "+strconv.Itoa(sessions), "MaxStartups "+cmp.Or(o.MaxStartups, "100"),
		"AllowStreamLocalForwarding yes", sftp, ""), "\n")
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it
			return err
		}
	}
	// Between the moment a port is found free and the server's bind, another process can take it.
	for range 3 {
		if s.Port, err = freePort(); err != nil {
			return err
		}
		if err = s.start(bin); err == nil {
			return nil
		}
	}
	return fmt.Errorf("start sshd: %w", err)
}

// accounts makes the users one at a time within this process; a lock file does so beside others.
var accounts sync.Mutex

// account finds the user who logs in, and makes it if it is not there.
func (s *SSH) account(shell string) error {
	path, err := exec.LookPath(shell)
	if err != nil {
		return fmt.Errorf("the login shell %s is %w", shell, ErrMissing)
	}
	if os.Getuid() != 0 {
		u, err := user.Current()
		if err != nil {
			return err
		}
		if shell != "sh" {
			return fmt.Errorf("a user whose login shell is %s is %w: only root can make one", shell, ErrMissing)
		}
		return s.be(u)
	}
	accounts.Lock()
	defer accounts.Unlock()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "pawl-test-users.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	name := "pawl-test-" + shell
	u, err := user.Lookup(name)
	if err != nil {
		// A new account is locked, also for keys. The password '*' unlocks it and lets no password
		// in.
		for _, args := range [][]string{{"useradd", "-m", "-s", path, name}, {"usermod", "-p", "*", name}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
			}
		}
		if u, err = user.Lookup(name); err != nil {
			return err
		}
	}
	if err := s.be(u); err != nil {
		return err
	}
	config := filepath.Join(u.HomeDir, ".config", "fish") // fish itself writes there
	if err := errors.Join(os.MkdirAll(config, 0o755), os.Chown(filepath.Dir(config), s.UID, s.GID),
		os.Chown(config, s.UID, s.GID)); err != nil {
		return err
	}
	for _, file := range []string{".profile", ".bash_profile", ".bashrc", ".cshrc", ".config/fish/config.fish"} {
		text := noise
		if file == ".cshrc" {
			text = "echo 'Welcome to the cluster!'\n" // csh cannot redirect only its errors
		}
		at := filepath.Join(u.HomeDir, file)
		if had, _ := os.ReadFile(at); string(had) == text {
			continue
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *SSH) be(u *user.User) (err error) {
	s.User, s.Home = u.Username, u.HomeDir
	if s.UID, err = strconv.Atoi(u.Uid); err != nil {
		return err
	}
	s.GID, err = strconv.Atoi(u.Gid)
	return err
}

// Addr is where the server listens, such as "127.0.0.1:40123".
func (s *SSH) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// Start starts the server again after [SSH.Stop] or [SSH.Kill], on the same port.
func (s *SSH) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start("/usr/sbin/sshd"); err != nil {
		tb.Fatal(err)
	}
}

func (s *SSH) start(bin string) error {
	file := filepath.Join(s.dir, "config")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("Port %d\n%s", s.Port, s.config)), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	args := []string{bin, "-D", "-e", "-f", file}
	if s.boot != "" {
		args = append([]string{
			"unshare", "--mount", "--propagation", "private", "sh", "-c",
			`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, s.boot,
		}, args...)
	}
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.WaitDelay = 50 * time.Millisecond // connections outlive the listener, and hold the pipe of its log
	c, err := startChild(ctx, cmd, "Server listening on")
	if err != nil {
		return err
	}
	s.child = c
	return nil
}

// Stop ends the listener. Connections go on, and new ones are refused.
func (s *SSH) Stop() {
	s.left = append(s.left, s.connections()...)
	s.child.end(syscall.SIGTERM)
}

// Kill ends the listener and cuts all connections, as if the machine were gone. Programs that lead
// sessions of their own run on.
func (s *SSH) Kill() {
	_ = s.child.cmd.Process.Signal(syscall.SIGSTOP) // so that no connection comes after the look
	s.Cut()
	s.child.end(syscall.SIGKILL)
}

// Cut cuts all connections. The listener goes on.
func (s *SSH) Cut() {
	// A process that is in the middle of a login forks once more, unless it is stopped.
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range s.connections() {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
}

// Connections returns how many connections the server has.
func (s *SSH) Connections() int {
	n := 0
	for _, parent := range sshProcesses() {
		if parent == s.child.cmd.Process.Pid {
			n++
		}
	}
	return n
}

// connections returns the processes of the server's connections, also of those that outlived a
// listener.
func (s *SSH) connections() []int {
	all := sshProcesses()
	var ours []int
	for pid := range all {
		below := slices.Contains(s.left, pid)
		for up := all[pid]; up != 0 && !below; up = all[up] {
			below = up == s.child.cmd.Process.Pid || slices.Contains(s.left, up)
		}
		if below {
			ours = append(ours, pid)
		}
	}
	return ours
}

// sshProcesses returns the processes of all sshd of this machine, with their parents.
func sshProcesses() map[int]int {
	all := map[int]int{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		head, tail, _ := bytes.Cut(stat, []byte(") "))
		number, command, _ := bytes.Cut(head, []byte(" ("))
		fields := bytes.Fields(tail)
		if !bytes.HasPrefix(command, []byte("sshd")) || len(fields) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(string(number))
		all[pid], _ = strconv.Atoi(string(fields[1]))
	}
	return all
}

// Reboot does what a machine does that loses its power and is started again: the server, all
// connections and all programs that were started through it are gone at once, and then there is a
// server with another boot id. The server must be one that boots.
func (s *SSH) Reboot(tb testing.TB) {
	tb.Helper()
	s.PowerOff(tb)
	s.Start(tb)
}

// PowerOff is the first half of [SSH.Reboot]; [SSH.Start] is the other one.
func (s *SSH) PowerOff(tb testing.TB) {
	tb.Helper()
	mounts := func(pid int) string {
		at, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)) // it may have ended
		return at
	}
	machine := mounts(s.child.cmd.Process.Pid)
	if s.boot == "" || machine == "" || machine == mounts(os.Getpid()) {
		tb.Fatal("this server is no machine of its own")
	}
	// Those that are stopped start nothing more.
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGSTOP, syscall.SIGKILL} {
		names, _ := filepath.Glob("/proc/[0-9]*")
		for _, name := range names {
			if pid, _ := strconv.Atoi(filepath.Base(name)); mounts(pid) == machine {
				_ = syscall.Kill(pid, sig)
			}
		}
	}
	s.child.end(syscall.SIGKILL)
	if err := s.newBoot(); err != nil {
		tb.Fatal(err)
	}
}

func (s *SSH) newBoot() error {
	id := strings.ToLower(rand.Text() + rand.Text())[:32]
	id = strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
	return os.WriteFile(s.boot, []byte(id+"\n"), 0o644)
}

// Log returns the end of what the server has logged since it was last started.
func (s *SSH) Log() string { return s.child.log.String() }

// ReplaceHostKey gives the server another host key, and cuts all connections. It returns the new
// key, which is [SSH.HostKey] from then on.
func (s *SSH) ReplaceHostKey(tb testing.TB) string {
	tb.Helper()
	s.Kill()
	key, err := NewSSHKey(filepath.Join(s.dir, "host"))
	if err != nil {
		tb.Fatal(err)
	}
	s.HostKey = key
	s.Start(tb)
	return key
}

// Authorize lets in only who has one of these public keys, from the next login on.
func (s *SSH) Authorize(tb testing.TB, keys ...string) {
	tb.Helper()
	text := strings.Join(append(keys, ""), "\n")
	if err := os.WriteFile(filepath.Join(s.dir, "authorized_keys"), []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Close ends the server and all connections, and removes what it has in files.
func (s *SSH) Close() {
	if s.child != nil {
		s.Kill()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// NewSSHKey makes a key, writes it to a file and to file.pub, and returns its public half, as in
// authorized_keys.
func NewSSHKey(file string) (string, error) {
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
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	return line, errors.Join(
		os.WriteFile(file, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(file+".pub", []byte(line+"\n"), 0o644))
}
