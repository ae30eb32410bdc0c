package sshconfig

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/pawl-jobs/pawl/job"
)

// Known are the keys that known_hosts of a person, and of the machine, have.
type Known struct{ check ssh.HostKeyCallback }

// ReadKnown reads known_hosts. Files that are missing have no keys.
func ReadKnown(home string) (Known, error) {
	var files []string
	for _, file := range []string{filepath.Join(home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"} {
		if _, err := os.Stat(file); err == nil {
			files = append(files, file)
		}
	}
	check, err := knownhosts.New(files...)
	if err != nil {
		return Known{}, job.Errorf(job.Invalid, "known_hosts: %w", err)
	}
	return Known{check}, nil
}

// keys returns the keys that are known for a host.
func (k Known) keys(address string) []knownhosts.KnownKey {
	var wrong *knownhosts.KeyError
	if errors.As(k.check(address, &net.TCPAddr{}, noKey{}), &wrong) {
		return wrong.Want
	}
	return nil
}

// noKey is a key that no host has.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "none" }
func (noKey) Marshal() []byte { return nil }

// Has reports whether key is known for a host. where is the place of another key that stands there
// for it; empty: there is none.
func (k Known) Has(host *job.Hop, key ssh.PublicKey) (known bool, where string, err error) {
	err = k.check(addressOf(host), &net.TCPAddr{}, key)
	var wrong *knownhosts.KeyError
	switch {
	case err == nil:
		return true, "", nil
	case errors.As(err, &wrong):
		if len(wrong.Want) > 0 {
			where = wrong.Want[0].Filename + ":" + strconv.Itoa(wrong.Want[0].Line)
		}
		return false, where, nil
	}
	return false, "", job.Errorf(job.Denied, "known_hosts: %w", err) // it is revoked
}

// addressOf is where a host listens.
func addressOf(h *job.Hop) string { return net.JoinHostPort(h.Address, strconv.Itoa(h.Port)) }
