// Package connection opens sessions on an account of a machine that SSH reaches.
//
// A [Pool] keeps connections, and makes a new one when it needs one. What makes a connection is
// behind a seam, the interface connection. There are two ways: golang.org/x/crypto/ssh, and an
// OpenSSH client that a person has logged in with, a [Master].
package connection

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Config says how a machine is reached.
type Config struct {
	// ID is the machine id, which begins with the name of the system and a slash. Required.
	ID string
	// Hop is the machine itself. A Master knows it by itself.
	Hop
	// Jump holds the machines that lead there, the first to dial first. Default: none.
	Jump []Hop
	// Identities are files of private keys; a certificate NAME-cert.pub may stand beside each.
	Identities []string
	// Agent is the socket of an SSH agent. Default: none is asked.
	Agent string
	// Master opens all sessions, if it has a socket. Default: Pawl connects by itself.
	Master Master
	// DialTimeout bounds each way from a name to a session. Default: 30 s.
	DialTimeout time.Duration
	// Allow is called before each dial, and returns when it may be made. An error forbids it.
	// Default: each may be made.
	Allow func(ctx context.Context) error
	// Keepalive is how often a connection is tried, and how long the answer may take. Default: 15
	// s.
	Keepalive time.Duration
	// Idle is how long a connection stays open with nothing to do. It is at least DialTimeout, so
	// that what is under way is not cut. Default: 5 min.
	Idle time.Duration
	// Log gets what happens to connections. Default: nobody does.
	Log *slog.Logger
}

// A Hop is an account on a machine.
type Hop struct {
	Address string // a name or an IP address; required
	Port    int    // default: 22
	User    string // required
	// HostKeys are the host keys to trust, as lines of authorized_keys. Without one every
	// connection is refused.
	HostKeys []string
}

// New returns a pool. It does not dial: the first session does. Close ends it.
func New(c Config) (*Pool, error) {
	if c.ID == "" {
		return nil, job.Errorf(job.Invalid, "ssh host: no machine id")
	}
	hops := append([]Hop{c.Hop}, c.Jump...)
	if c.Master.Socket != "" {
		c.Address, hops = c.Master.Host, nil
	}
	for _, hop := range hops {
		if hop.Address == "" || hop.User == "" {
			return nil, job.Errorf(job.Invalid, "ssh host %s: it needs an address and a user", c.ID)
		}
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 30*time.Second)
	c.Keepalive = cmp.Or(c.Keepalive, 15*time.Second)
	c.Idle = max(cmp.Or(c.Idle, 5*time.Minute), c.DialTimeout)
	p := &Pool{cfg: c, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), turn: make(chan struct{}, 1)}
	p.log = p.log.With("watch", c.ID)
	p.dial = native(c).dial
	if c.Master.Socket != "" {
		p.dial = joining(c).dial
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p, nil
}

// system is the name of the system in the machine id.
func (c Config) system() string {
	name, _, _ := strings.Cut(c.ID, "/")
	return name
}

// A connection opens sessions on one account of one machine. Sessions are independent of each
// other, and safe for concurrent use.
//
// This is the seam between the ways to a machine: what opens sessions is all that a way has to do.
type connection interface {
	// open starts a session. If sftp is set, that is of the subsystem sftp, else of the command. A
	// connection that grants no more sessions returns errFull, and one that does not start this in a
	// session errRefused. Any other error means that the connection is lost.
	open(ctx context.Context, command string, sftp bool) (session, error)
	// ping returns when the far side has answered.
	ping() error
	// done is closed when the connection is lost or closed.
	done() <-chan struct{}
	close()
}

// A session is a program on the far side, with its standard input and output. Read ends when the
// program does, or when the connection is lost.
type session interface {
	io.ReadWriter
	// said is what has come from its standard error.
	said() *tail
	// kill asks the far side to kill the program and its process group, where that can be asked. It
	// does not wait.
	kill()
	// close ends the session. It can be called again.
	close()
}

var (
	errFull    = errors.New("the server grants no more sessions")
	errRefused = errors.New("the server has refused it")
)

// errDropped: the server closes a connection before the login.
var errDropped = errors.New("the server closed the connection before the login")
