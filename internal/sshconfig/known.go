package sshconfig

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/pawl-jobs/pawl/job"
)

// Known are the keys that known_hosts of a person, and of the machine, have.
type Known struct {
	check       ssh.HostKeyCallback
	authorities map[string]bool // where a line has the key of an authority, and not that of a host
}

// ReadKnown reads known_hosts. Files that are missing have no keys.
func ReadKnown(home string) (Known, error) {
	var files []string
	authorities := map[string]bool{}
	for _, file := range []string{filepath.Join(home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"} {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		files = append(files, file)
		text, err := os.ReadFile(file)
		if err != nil {
			return Known{}, job.Errorf(job.Invalid, "known_hosts: %w", err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			authorities[place(file, i+1)] = strings.HasPrefix(strings.TrimSpace(line), "@cert-authority")
		}
	}
	check, err := knownhosts.New(files...)
	if err != nil {
		return Known{}, job.Errorf(job.Invalid, "known_hosts: %w", err)
	}
	return Known{check, authorities}, nil
}

func place(file string, line int) string { return file + ":" + strconv.Itoa(line) }

// keys returns the keys that are known for a host. certified: there is an authority for it, too.
func (k Known) keys(host *job.Hop) (keys []knownhosts.KnownKey, certified bool) {
	for _, address := range addresses(host) {
		var wrong *knownhosts.KeyError
		if len(keys) == 0 && errors.As(k.check(address, &net.TCPAddr{}, noKey{}), &wrong) {
			of, authority := k.ofHosts(wrong.Want)
			keys, certified = of, certified || authority
		}
	}
	return keys, certified
}

// ofHosts leaves out the keys of authorities, and says whether there was one.
func (k Known) ofHosts(all []knownhosts.KnownKey) (keys []knownhosts.KnownKey, certified bool) {
	for _, key := range all {
		if k.authorities[place(key.Filename, key.Line)] {
			certified = true
		} else {
			keys = append(keys, key)
		}
	}
	return keys, certified
}

// noKey is a key that no host has.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "none" }
func (noKey) Marshal() []byte { return nil }

// Has reports whether key is known for a host, or is a certificate of an authority that is. where
// is the place of another key that stands there for it; empty: there is none.
func (k Known) Has(host *job.Hop, key ssh.PublicKey) (known bool, where string, err error) {
	if cert, ok := key.(*ssh.Certificate); ok {
		for _, address := range addresses(host) {
			if k.check(address, &net.TCPAddr{}, cert) == nil {
				return true, "", nil
			}
		}
		key = cert.Key
	}
	for i, address := range addresses(host) {
		err := k.check(address, &net.TCPAddr{}, key)
		var wrong *knownhosts.KeyError
		switch {
		case err == nil:
			return true, "", nil
		case !errors.As(err, &wrong):
			return false, "", job.Errorf(job.Denied, "known_hosts: %w", err) // it is revoked
		}
		if others, _ := k.ofHosts(wrong.Want); i == 0 && len(others) > 0 {
			return false, place(others[0].Filename, others[0].Line), nil
		}
	}
	return false, "", nil
}

// addresses are the names that known_hosts may have for a host. As OpenSSH does, where nothing
// stands there for its port, the name alone counts, if it has the key.
func addresses(h *job.Hop) []string {
	all := []string{addressOf(h)}
	if h.Port != job.DefaultPort {
		all = append(all, net.JoinHostPort(h.Address, strconv.Itoa(job.DefaultPort)))
	}
	return all
}

// addressOf is where a host listens.
func addressOf(h *job.Hop) string { return net.JoinHostPort(h.Address, strconv.Itoa(h.Port)) }
