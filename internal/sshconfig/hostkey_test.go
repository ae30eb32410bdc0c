package sshconfig

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// hop is a server as a host on the way.
func hop(s *testenv.SSH) job.Hop {
	return job.Hop{
		Address: s.Host, Port: s.Port, User: s.User, Identities: []string{s.Key}, HostKeys: []string{s.HostKey},
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	gate, lab := testenv.SSHD(t, testenv.SSHOptions{}), testenv.SSHD(t, testenv.SSHOptions{})
	ask := func(t *testing.T, a Asker, hops ...job.Hop) string {
		t.Helper()
		if a.Home == "" {
			a.Home = t.TempDir()
		}
		if a.Known.check == nil {
			var err error
			if a.Known, err = ReadKnown(a.Home); err != nil {
				t.Fatal(err)
			}
		}
		key, err := a.Key(t.Context(), hops)
		if err != nil {
			return err.Error()
		}
		return Line(key)
	}
	says := func(t *testing.T, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	target := job.Hop{Address: lab.Host, Port: lab.Port} // nobody logs in there

	t.Run("of a host that is reached directly", func(t *testing.T) {
		if got := ask(t, Asker{}, target); got != lab.HostKey {
			t.Errorf("%s, want %s", got, lab.HostKey)
		}
	})
	t.Run("through hosts on the way", func(t *testing.T) {
		if got := ask(t, Asker{}, hop(gate), hop(lab), target); got != lab.HostKey {
			t.Errorf("%s, want %s", got, lab.HostKey)
		}
	})
	t.Run("of several keys the one that is trusted", func(t *testing.T) {
		file, signer := ecdsaKey(t)
		both := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"HostKey " + file}})
		h := job.Hop{Address: both.Host, Port: both.Port}
		if got := ask(t, Asker{}, h); got != both.HostKey {
			t.Errorf("%s, want %s", got, both.HostKey)
		}
		h.HostKeys = []string{Line(signer.PublicKey())}
		if got := ask(t, Asker{}, h); got != h.HostKeys[0] {
			t.Errorf("%s, want %s", got, h.HostKeys[0])
		}
	})
	t.Run("of several keys the one that a known authority has certified", func(t *testing.T) {
		file, signer := ecdsaKey(t)
		_, authority := ecdsaKey(t)
		certify := func(name string, until uint64) {
			cert := &ssh.Certificate{
				Key: signer.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{name}, ValidBefore: until,
			}
			if err := cert.SignCert(rand.Reader, authority); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file+"-cert.pub", ssh.MarshalAuthorizedKey(cert), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct {
			name  string
			until uint64
			hosts string // of the authority; empty: this one with its port
			known bool
		}{
			{"127.0.0.1", ssh.CertTimeInfinity, "", true},
			{"127.0.0.1", 1, "", false},
			{"elsewhere", ssh.CertTimeInfinity, "", false},
			{"127.0.0.1", ssh.CertTimeInfinity, "*", true},
			{"127.0.0.1", ssh.CertTimeInfinity, "127.0.0.*", true},
			{"127.0.0.1", ssh.CertTimeInfinity, "*.example.org", false},
		} {
			certify(tt.name, tt.until)
			both := testenv.SSHD(t, testenv.SSHOptions{
				Lines: []string{"HostKey " + file, "HostCertificate " + file + "-cert.pub"},
			})
			known, err := ReadKnown(home(t, map[string]string{
				"known_hosts": "@cert-authority " + cmp.Or(tt.hosts, "[127.0.0.1]:"+strconv.Itoa(both.Port)) + " " +
					Line(authority.PublicKey()) + "\n",
			}))
			if err != nil {
				t.Fatal(err)
			}
			h := job.Hop{Address: both.Host, Port: both.Port}
			key, err := Asker{Known: known}.Key(t.Context(), []job.Hop{h})
			if err != nil || tt.hosts != "*.example.org" && Line(key) != Line(signer.PublicKey()) {
				t.Fatalf("%v, %v, want %s", key, err, Line(signer.PublicKey()))
			}
			if has, where, err := known.Has(&h, key); has != tt.known || where != "" || err != nil {
				t.Errorf("%+v: known: %t, another one: %q, %v", tt, has, where, err)
			}
		}
	})
	t.Run("the agent has the key", func(t *testing.T) {
		socket := agentWith(t, gate.Key)
		way, h := hop(gate), t.TempDir()
		way.Identities = nil
		if got := ask(t, Asker{Home: h, Agent: socket}, way, target); got != lab.HostKey {
			t.Errorf("%s, want %s", got, lab.HostKey)
		}
		says(t, ask(t, Asker{Home: h, Agent: filepath.Join(h, "none")}, way, target),
			"there is no key to log in with at 127.0.0.1, on the way: tried the agent not, for dial unix")
		says(t, ask(t, Asker{Home: h}, way, target),
			"there is no key to log in with at 127.0.0.1, on the way: ~/.ssh has none, and no agent is there")
	})
	t.Run("of many keys of the agent those that are named", func(t *testing.T) {
		var all []string
		for i := range 6 { // a server lets six be tried
			file := filepath.Join(t.TempDir(), strconv.Itoa(i))
			if _, err := testenv.NewSSHKey(file); err != nil {
				t.Fatal(err)
			}
			all = append(all, file)
		}
		socket := agentWith(t, append(all, gate.Key)...)
		way := hop(gate)
		way.Identities = []string{gate.Key + ".pub"}
		if got := ask(t, Asker{Agent: socket}, way, target); got != lab.HostKey {
			t.Errorf("%s, want %s", got, lab.HostKey)
		}
	})
	t.Run("a usual key file has it", func(t *testing.T) {
		text, err := os.ReadFile(gate.Key)
		if err != nil {
			t.Fatal(err)
		}
		way := hop(gate)
		way.Identities = nil
		if got := ask(t, Asker{Home: home(t, map[string]string{"id_ecdsa": string(text)})}, way,
			target); got != lab.HostKey {
			t.Errorf("%s, want %s", got, lab.HostKey)
		}
	})
	t.Run("nobody logs in at a host on the way that is another one", func(t *testing.T) {
		way := hop(gate)
		way.HostKeys = []string{lab.HostKey}
		says(t, ask(t, Asker{}, way, target),
			"it has the key "+strings.Fields(Fingerprint(gate.HostKey))[1]+", which is not trusted")
		way.HostKeys = []string{"ssh-ed25519 AAAA"}
		says(t, ask(t, Asker{}, way, target), "a trusted key of 127.0.0.1: ")
	})
	t.Run("keys that do not help", func(t *testing.T) {
		way, h := hop(gate), home(t, map[string]string{"wrong": "no key", "locked": locked(t)})
		way.Identities = []string{"~/.ssh/wrong"}
		says(t, ask(t, Asker{Home: h}, way, target), "wrong not, for ssh: no key found")
		way.Identities = []string{"~/.ssh/missing"}
		says(t, ask(t, Asker{Home: h}, way, target), "missing: no such file")
		way.Identities = []string{"~/.ssh/locked"}
		says(t, ask(t, Asker{Home: h}, way, target), "locked not, for it has a passphrase: give it to an agent (ssh-add)")
		way.Identities = []string{lab.Key}
		says(t, ask(t, Asker{Home: h}, way, target), "log in at "+gate.Addr()+" as "+gate.User+", on the way: ")
	})
	t.Run("a host that is away", func(t *testing.T) {
		away := job.Hop{Address: "127.0.0.1", Port: 1}
		says(t, ask(t, Asker{}, away), "connect to 127.0.0.1:1: ")
		says(t, ask(t, Asker{}, hop(gate), away), "connect to 127.0.0.1:1 through 127.0.0.1: ")
	})
	t.Run("a host that is no SSH server", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}()
		says(t, ask(t, Asker{}, job.Hop{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}),
			"the key of 127.0.0.1:")
	})
}

// locked is a private key with a passphrase.
func locked(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

// agentWith serves an agent that has the keys of some files, and returns its socket.
func agentWith(t *testing.T, files ...string) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ssh.ParseRawPrivateKey(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = agent.ServeAgent(ring, c) // until who asked has gone
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestKnown(t *testing.T) {
	t.Parallel()
	other, key := publicKey(t), publicKey(t)
	host := job.Hop{Address: "lab.example.org", Port: 2222}
	for name, tt := range map[string]struct {
		text  string
		known bool
		where string // the line of another key
		err   string
	}{
		"nothing":                    {},
		"the key":                    {text: "[lab.example.org]:2222 " + Line(key) + "\n", known: true},
		"the key at another port":    {text: "[lab.example.org]:22022 " + Line(key) + "\n"},
		"the key without a port":     {text: "lab.example.org " + Line(key) + "\n", known: true},
		"another key without a port": {text: "lab.example.org " + Line(other) + "\n"},
		"the key without a port, and another": {
			text:  "lab.example.org " + Line(key) + "\n[lab.example.org]:2222 " + Line(other) + "\n",
			where: "known_hosts:2",
		},
		"another key": {
			text:  "# old\n[lab.example.org]:2222 " + Line(other) + "\n",
			where: "known_hosts:2",
		},
		"both": {
			text:  "[lab.example.org]:2222 " + Line(other) + "\n[*.example.org]:2222 " + Line(key) + "\n",
			known: true,
		},
		"an authority, which has not certified the key": {
			text: "@cert-authority [*.example.org]:2222 " + Line(other) + "\n",
		},
		"an authority and another key": {
			text:  "@cert-authority [*.example.org]:2222 " + Line(other) + "\n[lab.example.org]:2222 " + Line(other) + "\n",
			where: "known_hosts:2",
		},
		"a key that has been revoked": {text: "@revoked * " + Line(key) + "\n", err: "revoked"},
		"a name that cannot be read": {
			text: "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= " + Line(other) + "\n",
		},
		"a line that is none of those": {text: "lab.example.org\n", err: "known_hosts: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := ReadKnown(home(t, map[string]string{"known_hosts": tt.text}))
			known, where := false, ""
			if err == nil {
				known, where, err = k.Has(&host, key)
			}
			if known != tt.known || !strings.HasSuffix(where, tt.where) || (where == "") != (tt.where == "") ||
				(err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("known: %t, another one: %q, %v", known, where, err)
			}
		})
	}
}

// ecdsaKey makes a key file.
func ecdsaKey(t *testing.T) (file string, signer ssh.Signer) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = ssh.NewSignerFromKey(private); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ecdsa")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, signer
}

// A kind of key that is trusted or known is asked for first: a host has several.
func TestKnownKindIsAskedFor(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ReadKnown(home(t, map[string]string{"known_hosts": "lab " + Line(key) + "\n"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ host, trusted, first string }{
		{"lab", "", ssh.KeyAlgoECDSA384},
		{"other", "", ssh.KeyAlgoED25519},
		{"lab", "ssh-rsa AAAA", ssh.KeyAlgoRSASHA512},
	} {
		h := job.Hop{Address: tt.host, Port: 22}
		if tt.trusted != "" {
			h.HostKeys = []string{tt.trusted}
		}
		if all := (Asker{Known: k}).algorithms(&h); all[0] != tt.first || len(all) != 6 {
			t.Errorf("%s with %q is asked for %v", tt.host, tt.trusted, all)
		}
	}
	if got := Fingerprint(Line(key)); !strings.HasPrefix(got, "ECDSA SHA256:") {
		t.Error(got)
	}
}

func publicKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
