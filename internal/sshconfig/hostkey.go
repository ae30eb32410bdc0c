package sshconfig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pawl-jobs/pawl/internal/sshkeys"
	"github.com/pawl-jobs/pawl/job"
)

// An Asker asks hosts for their keys.
type Asker struct {
	Home  string // the home folder of the person, for ~ and the usual key files
	Agent string // the socket of the agent; empty: there is none
	Known Known  // kinds of key that are known for a host are asked for first
}

// dialTimeout is how long a host may take to answer, and again to say its key.
const dialTimeout = 15 * time.Second

// errSeen ends a handshake once the key has been seen.
var errSeen = errors.New("the key has been seen")

// Key asks the last of hops for its key, or the certificate of one. It goes through the others,
// whose keys must be trusted: they are in their HostKeys. It does not log in at the last one.
func (a Asker) Key(ctx context.Context, hops []job.Hop) (key ssh.PublicKey, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connections
	dial := (&net.Dialer{Timeout: dialTimeout}).DialContext
	for i := range hops {
		hop := &hops[i]
		conn, err := dial(ctx, "tcp", addressOf(hop))
		if err != nil {
			return nil, job.Errorf(job.Unavailable, "connect to %s%s: %w", addressOf(hop), through(hops[:i]), err)
		}
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		defer conn.Close()
		late := time.AfterFunc(dialTimeout, func() { conn.Close() })
		if i == len(hops)-1 {
			key, err = a.see(conn, hop)
			late.Stop()
			return key, err
		}
		client, err := a.login(conn, hop)
		late.Stop()
		if err != nil {
			return nil, err
		}
		defer client.Close()
		dial = client.DialContext
	}
	return nil, errors.New("no host is named")
}

func through(hops []job.Hop) string {
	if len(hops) == 0 {
		return ""
	}
	return " through " + hops[len(hops)-1].Address
}

// see begins a handshake, and ends it when the host has shown its key.
func (a Asker) see(conn net.Conn, host *job.Hop) (seen ssh.PublicKey, err error) {
	_, _, _, err = ssh.NewClientConn(conn, addressOf(host), &ssh.ClientConfig{
		HostKeyAlgorithms: a.algorithms(host),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			seen = key
			return errSeen
		},
	})
	if seen == nil {
		return nil, job.Errorf(job.Unavailable, "the key of %s: %w", addressOf(host), err)
	}
	return seen, nil
}

// algorithms returns the algorithms of host keys. Those of a key that is trusted come first, then
// those of one that is known: a host with several keys shows that one, and has not changed. Then
// come certificates, if an authority is known for the host.
func (a Asker) algorithms(host *job.Hop) []string {
	var first []string
	for _, line := range host.HostKeys {
		kind, _, _ := strings.Cut(line, " ")
		first = append(first, algorithmsOf(kind)...)
	}
	known, certified := a.Known.keys(host)
	for _, k := range known {
		first = append(first, algorithmsOf(k.Key.Type())...)
	}
	if certified {
		first = append(first, ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01,
			ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01)
	}
	all := slices.Concat(first, algorithmsOf(ssh.KeyAlgoED25519), algorithmsOf(ssh.KeyAlgoECDSA256),
		algorithmsOf(ssh.KeyAlgoECDSA384), algorithmsOf(ssh.KeyAlgoECDSA521), algorithmsOf(ssh.KeyAlgoRSA))
	return unique(all)
}

// algorithmsOf returns the algorithms of signatures by a kind of key.
func algorithmsOf(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

func unique(all []string) (out []string) {
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// login logs in at a host on the way.
func (a Asker) login(conn net.Conn, hop *job.Hop) (*ssh.Client, error) {
	var trusted []ssh.PublicKey
	var algorithms []string
	for _, line := range hop.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, job.Errorf(job.Invalid, "a trusted key of %s: %w", hop.Address, err)
		}
		trusted, algorithms = append(trusted, key), append(algorithms, algorithmsOf(key.Type())...)
	}
	signers, tried, done, err := a.signers(hop)
	defer done()
	if err != nil {
		return nil, err
	}
	c, channels, requests, err := ssh.NewClientConn(conn, addressOf(hop), &ssh.ClientConfig{
		User: hop.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)}, HostKeyAlgorithms: unique(algorithms),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if slices.ContainsFunc(trusted, func(t ssh.PublicKey) bool { return Line(t) == Line(key) }) {
				return nil
			}
			return fmt.Errorf("it has the key %s, which is not trusted", ssh.FingerprintSHA256(key))
		},
	})
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "log in at %s as %s, on the way: %w (tried %s)", addressOf(hop), hop.User,
			err, strings.Join(tried, "; "))
	}
	return ssh.NewClient(c, channels, requests), nil
}

// signers returns the keys for a login: those of the hop, and those of the agent. tried names them.
// done is called when the login is over.
func (a Asker) signers(hop *job.Hop) (all []ssh.Signer, tried []string, done func(), err error) {
	var names []string
	for _, file := range hop.Identities {
		if rest, ok := strings.CutPrefix(file, "~/"); ok {
			file = filepath.Join(a.Home, rest)
		}
		names = append(names, file)
	}
	if names == nil { // those that ssh looks for, too
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			if file := filepath.Join(a.Home, ".ssh", name); exists(file) {
				names = append(names, file)
			}
		}
	}
	all, tried, done = sshkeys.For(hop.User, names, a.Agent)
	if len(all) == 0 {
		why := "~/.ssh has none, and no agent is there"
		if tried != nil {
			why = "tried " + strings.Join(tried, "; ")
		}
		err = job.Errorf(job.Invalid, "there is no key to log in with at %s, on the way: %s", hop.Address, why)
	}
	return all, tried, done, err
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Line is a public key as a document of a system has it. Of a certificate it is the key in it.
func Line(key ssh.PublicKey) string {
	if cert, ok := key.(*ssh.Certificate); ok {
		key = cert.Key
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// Fingerprint is the fingerprint of a line as ssh prints it, such as "ED25519 SHA256:…". Of a line
// that holds no key it is the line itself.
func Fingerprint(line string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return line
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(key.Type(), "ssh-"), "-")
	return strings.ToUpper(kind) + " " + ssh.FingerprintSHA256(key)
}
