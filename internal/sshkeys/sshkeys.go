// Package sshkeys finds the keys of a login by SSH, and says what is tried.
package sshkeys

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// For returns the keys for a login as user: certificates, key files, and those of the agent at a
// socket; "": there is none. It also says what is tried, and why something cannot be, and what to
// call when the login is over.
//
// A server lets few keys be tried. So none comes twice, and of the keys of the agent those come
// first whose files are named.
func For(user string, files []string, socket string) (signers []ssh.Signer, tried []string, done func()) {
	done = func() {}
	add := func(where string, s ssh.Signer) {
		if !slices.ContainsFunc(signers, func(o ssh.Signer) bool { return same(o.PublicKey(), s.PublicKey()) }) {
			signers = append(signers, s)
			tried = append(tried, where+" ("+describe(s.PublicKey(), user)+")")
		}
	}
	not := func(where string, err error) { tried = append(tried, fmt.Sprintf("%s not, for %v", where, err)) }
	var held []ssh.Signer
	var silent error
	if socket != "" {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			done = func() { conn.Close() }
			held, err = agent.NewClient(conn).Signers()
		}
		if silent = err; err == nil && len(held) == 0 {
			silent = errors.New("it has no keys")
		}
	}
	for _, name := range files {
		where := name
		signer, public, err := identity(name)
		if err != nil {
			has := func(s ssh.Signer) bool { return public != nil && same(s.PublicKey(), public) }
			i := slices.IndexFunc(held, has)
			if i < 0 {
				not(name, err)
				continue
			}
			where, signer = name+", a key of the agent", held[i]
		}
		if cert, err := certificate(name+"-cert.pub", signer); err == nil {
			add(name+"-cert.pub", cert)
		} else if !errors.Is(err, os.ErrNotExist) {
			not(name+"-cert.pub", err)
		}
		add(where, signer)
	}
	for _, s := range held {
		add("a key of the agent", s)
	}
	if silent != nil {
		not("the agent", silent)
	}
	return signers, tried, done
}

func same(a, b ssh.PublicKey) bool { return string(a.Marshal()) == string(b.Marshal()) }

// describe names a key, with what a server may have against it if it is a certificate.
func describe(key ssh.PublicKey, user string) string {
	c, ok := key.(*ssh.Certificate)
	if !ok {
		return ssh.FingerprintSHA256(key)
	}
	text, now := ssh.FingerprintSHA256(c.Key), uint64(time.Now().Unix())                     //nolint:gosec // it is after 1970
	at := func(t uint64) string { return time.Unix(int64(t), 0).UTC().Format(time.RFC3339) } //nolint:gosec // as above
	switch {
	case c.CertType != ssh.UserCert:
		text += ", a certificate of a host"
	case now < c.ValidAfter:
		text += ", valid only from " + at(c.ValidAfter)
	case c.ValidBefore != ssh.CertTimeInfinity && now >= c.ValidBefore:
		text += ", expired at " + at(c.ValidBefore)
	case !slices.Contains(c.ValidPrincipals, user):
		text += fmt.Sprintf(", for %q", c.ValidPrincipals)
	}
	return text
}

// identity reads a key file. If only an agent can use it, it returns its public half, where that
// can be found: the file may be nothing but that.
func identity(name string) (signer ssh.Signer, public ssh.PublicKey, err error) {
	text, err := os.ReadFile(name)
	if err == nil {
		signer, err = ssh.ParsePrivateKey(text)
	}
	if err == nil {
		return signer, nil, nil
	}
	if key, _, _, _, bad := ssh.ParseAuthorizedKey(text); bad == nil {
		return nil, key, errors.New("it is a public key, and no agent has the private one")
	}
	if locked, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		public, err = locked.PublicKey, errors.New("it has a passphrase: give it to an agent (ssh-add)")
	}
	if beside, bad := os.ReadFile(name + ".pub"); public == nil && bad == nil {
		public, _, _, _, _ = ssh.ParseAuthorizedKey(beside) // nil: it is none
	}
	return nil, public, err
}

func certificate(name string, signer ssh.Signer) (ssh.Signer, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, err
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok {
		return nil, errors.New("it is no certificate")
	}
	return ssh.NewCertSigner(cert, signer)
}
