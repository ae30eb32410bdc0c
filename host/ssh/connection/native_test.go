package connection_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Stopping(m)) }

func config(s *testenv.SSH) connection.Config {
	return connection.Config{
		ID:  "far",
		Hop: connection.Hop{Address: s.Host, Port: s.Port, User: s.User, HostKeys: []string{s.HostKey}},
	}
}

// try logs in and asks who is there.
func try(t *testing.T, c connection.Config) (string, error) {
	t.Helper()
	p, err := connection.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.Open("id -un | cat")
	if err != nil {
		return "", err
	}
	defer s.Close()
	out, err := io.ReadAll(s)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n") // after those of the login files
	return lines[len(lines)-1], err
}

func lets(t *testing.T, what string, c connection.Config, user string) {
	t.Helper()
	if who, err := try(t, c); err != nil || who != user {
		t.Errorf("%s: %q, %v", what, who, err)
	}
}

func refuses(t *testing.T, what string, c connection.Config, words ...string) {
	t.Helper()
	_, err := try(t, c)
	if trouble, ok := errors.AsType[*host.Trouble](err); !ok || trouble.Code != job.AuthenticationFailed {
		t.Fatalf("%s: %v", what, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

// key reads a private key that has no passphrase.
func key(t *testing.T, file string) crypto.PrivateKey {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ssh.ParseRawPrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// agent starts an agent at a socket. What it returns gives it a key.
func agent(t *testing.T, socket string) (add func(key string)) {
	t.Helper()
	daemon := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Wait() }) // the context of the test has ended it
	if !testenv.Until(t.Context(), func() bool { _, err := os.Stat(socket); return err == nil }) {
		t.Fatal("the agent does not listen")
	}
	return func(key string) {
		t.Helper()
		add := exec.CommandContext(t.Context(), "ssh-add", "-q", key)
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%s%v", out, err)
		}
	}
}

// A key that has a passphrase is of use by way of an agent alone.
func TestAgent(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	dir := t.TempDir()
	locked, socket := filepath.Join(dir, "locked"), filepath.Join(dir, "agent")
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key(t, s.Key), "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(locked, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config(s)
	refuses(t, "nothing", c, "there is no key file, and no agent")
	c.Identities, c.Agent = []string{locked}, socket
	refuses(t, "no agent", c, locked, "it has a passphrase", "ssh-add", "the agent not")

	add := agent(t, socket)
	refuses(t, "an empty agent", c, locked, "it has a passphrase", "the agent not, for it has no keys")
	// A server lets six keys be tried.
	for i := range 6 {
		other := filepath.Join(dir, strconv.Itoa(i))
		if _, err := testenv.NewSSHKey(other); err != nil {
			t.Fatal(err)
		}
		add(other)
	}
	add(s.Key)
	lets(t, "an agent that has the key", c, s.User)
	c.Identities = []string{s.Key + ".pub"}
	lets(t, "a public key, of which the agent has the other half", c, s.User)
	c.Identities = nil
	refuses(t, "too many keys", c, "MaxAuthTries", "host.identities")
	for i := range 5 {
		c.Identities = append(c.Identities, filepath.Join(dir, strconv.Itoa(i)))
	}
	c.Identities = append(c.Identities, s.Key)
	lets(t, "keys that the agent has too", c, s.User)
}

// A key that the server does not know counts if an authority that it trusts has signed it.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	authority, mine := filepath.Join(dir, "authority"), filepath.Join(dir, "mine")
	for _, name := range []string{authority, mine} {
		if _, err := testenv.NewSSHKey(name); err != nil {
			t.Fatal(err)
		}
	}
	s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"TrustedUserCAKeys " + authority + ".pub"}})
	c := config(s)
	c.Identities = []string{mine}
	refuses(t, "no certificate", c, mine)

	by, err := ssh.NewSignerFromKey(key(t, authority))
	if err != nil {
		t.Fatal(err)
	}
	of, err := ssh.NewSignerFromKey(key(t, mine))
	if err != nil {
		t.Fatal(err)
	}
	certify := func(user string, until time.Time) {
		cert := &ssh.Certificate{
			Key: of.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{user},
			ValidBefore: uint64(until.Unix()),
		}
		if err := cert.SignCert(rand.Reader, by); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(mine+"-cert.pub", ssh.MarshalAuthorizedKey(cert), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certify(s.User, time.Now().Add(time.Hour))
	lets(t, "a certificate", c, s.User)
	held := filepath.Join(dir, "held") // the agent has the key alone, without the certificate
	if err := os.Link(mine, held); err != nil {
		t.Fatal(err)
	}
	public := filepath.Join(dir, "public")
	for from, to := range map[string]string{mine + ".pub": public, mine + "-cert.pub": public + "-cert.pub"} {
		if err := os.Link(from, to); err != nil {
			t.Fatal(err)
		}
	}
	c.Agent = filepath.Join(dir, "agent")
	agent(t, c.Agent)(held)
	c.Identities = []string{public}
	lets(t, "the certificate of a key that the agent has", c, s.User)
	c.Agent, c.Identities = "", []string{mine}
	certify("another", time.Now().Add(time.Hour))
	refuses(t, "the certificate of another", c, mine+"-cert.pub", `for ["another"]`)
	certify(s.User, time.Now().Add(-time.Hour))
	refuses(t, "a certificate that has run out", c, mine+"-cert.pub", "expired at 20")
	if err := os.WriteFile(mine+"-cert.pub", []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, "what is no certificate", c, mine+"-cert.pub not")
}

// Each dial is allowed beforehand. What must not be dialed now is not dialed.
func TestAllow(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	c := config(s)
	c.Identities = []string{s.Key}
	asked, may := 0, errors.New("the database is away")
	c.Allow = func(context.Context) error {
		asked++
		return may
	}
	if _, err := try(t, c); !errors.Is(err, may) || asked != 1 {
		t.Errorf("it was not allowed, and asked for %d times: %v", asked, err)
	}
	may = nil
	if lets(t, "allowed", c, s.User); asked != 2 {
		t.Errorf("asked for %d times", asked)
	}
}
