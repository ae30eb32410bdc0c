package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/sshkeys"
	"github.com/pawl-jobs/pawl/job"
)

// native is the way to a machine by golang.org/x/crypto/ssh.
type native Config

// dial goes from hop to hop. Each of them proves its host key.
func (n native) dial(ctx context.Context) (connection, error) {
	c := &conn{}
	for _, hop := range append(slices.Clone(n.Jump), n.Hop) {
		client, err := n.step(ctx, c.client, hop)
		if err != nil {
			c.close()
			return nil, err
		}
		c.hops, c.client = append(c.hops, client), client
	}
	c.lost = make(chan struct{})
	go func() {
		defer close(c.lost)
		_ = c.client.Wait() // why it ended is seen by who used it
		c.close()
	}()
	return c, nil
}

// step connects to a hop, through the one before it if there is one.
func (n native) step(ctx context.Context, before *ssh.Client, hop Hop) (*ssh.Client, error) {
	port := hop.Port
	if port == 0 {
		port = 22
	}
	addr := net.JoinHostPort(hop.Address, strconv.Itoa(port))
	trouble := func(code job.Code, format string, args ...any) error {
		return &host.Trouble{Code: code, Err: fmt.Errorf("ssh to "+hop.User+"@"+addr+": "+format, args...)}
	}
	trusted, err := hostKeys(hop.HostKeys)
	if err != nil {
		return nil, job.Errorf(job.Invalid, "ssh to %s: a line of its trusted host keys: %w", addr, err)
	}
	if len(trusted) == 0 {
		return nil, trouble(job.HostKeyUnknown, "none of its host keys is trusted: run `pawl systems trust %s`",
			Config(n).system())
	}
	var raw net.Conn
	if before == nil {
		raw, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	} else {
		raw, err = before.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, trouble(dialCode(err), "%w", err)
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()

	var refused error // by us: its key
	signers, tried, done := sshkeys.For(hop.User, n.Identities, n.Agent)
	defer done()
	config := &ssh.ClientConfig{
		User:              hop.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: algorithms(trusted),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if slices.ContainsFunc(trusted, func(k ssh.PublicKey) bool { return string(k.Marshal()) == string(key.Marshal()) }) {
				return nil
			}
			var known []string
			for _, k := range trusted {
				known = append(known, k.Type()+" "+ssh.FingerprintSHA256(k))
			}
			refused = trouble(job.HostKeyChanged, "its host key is %s %s, and %s is trusted: ask who runs it "+
				"whether the key has changed; if so, run `pawl systems trust %s`",
				key.Type(), ssh.FingerprintSHA256(key), strings.Join(known, ", "), Config(n).system())
			return refused
		},
	}
	c, channels, requests, err := ssh.NewClientConn(widen(raw), addr, config)
	switch {
	case err == nil:
		return ssh.NewClient(c, channels, requests), nil
	case refused != nil:
		err = refused
	case strings.Contains(err.Error(), "Too many authentication failures"):
		err = trouble(job.AuthenticationFailed, "it does not let this account in, and lets no more keys be tried "+
			"(MaxAuthTries of its sshd): name the right one in host.identities. In this order: %s", strings.Join(tried, "; "))
	case strings.Contains(err.Error(), "unable to authenticate"), strings.Contains(err.Error(), "disconnect, reason 2"),
		strings.Contains(err.Error(), "disconnect, reason 14"):
		err = trouble(job.AuthenticationFailed, "it does not let this account in. Tried: %s",
			cmp.Or(strings.Join(tried, "; "), "nothing: there is no key file, and no agent (SSH_AUTH_SOCK)"))
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = trouble(job.HostRefused, "%w: %w", errDropped, err)
	default:
		err = trouble(job.HostUnreachable, "%w", err)
	}
	raw.Close()
	return nil, err
}

// dialCode says which trouble an error of a dial is.
func dialCode(err error) job.Code {
	var name *net.DNSError
	var timeout net.Error
	var far *ssh.OpenChannelError // a jump host could not dial
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return job.HostUnknown
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &far) && strings.Contains(far.Message, "refused"):
		return job.HostRefused
	case errors.As(err, &timeout) && timeout.Timeout():
		return job.ConnectionTimeout
	}
	return job.HostUnreachable
}

func hostKeys(lines []string) (keys []ssh.PublicKey, err error) {
	for _, line := range lines {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// algorithms asks for the host keys that are trusted before all others: a server may have several.
// The others come last, so that the error can say which key a server has instead.
func algorithms(trusted []ssh.PublicKey) (names []string) {
	for _, k := range trusted {
		if k.Type() == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		names = append(names, k.Type())
	}
	for _, a := range ssh.SupportedAlgorithms().HostKeys {
		if !slices.Contains(names, a) && !strings.Contains(a, "-cert-") {
			names = append(names, a)
		}
	}
	return names
}

// A conn is a connection, with the hops that lead there.
type conn struct {
	hops   []*ssh.Client
	client *ssh.Client // the last of them
	lost   chan struct{}
}

func (c *conn) done() <-chan struct{} { return c.lost }

func (c *conn) close() {
	// The first hop carries the others, and closing one that is carried could wait for the far
	// side.
	for _, hop := range c.hops {
		_ = hop.Close() // it may be closed already
	}
}

func (c *conn) ping() error {
	_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
	return err
}

func (c *conn) open(ctx context.Context, command string, sftp bool) (session, error) {
	// A connection that does not answer is of no use to anybody.
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	s, err := c.client.NewSession()
	if err != nil {
		if errors.As(err, new(*ssh.OpenChannelError)) {
			err = errFull
		}
		return nil, err
	}
	in, err1 := s.StdinPipe()
	out, err2 := s.StdoutPipe()
	words := &tail{}
	s.Stderr = words // sshd passes on none of a subsystem
	err = errors.Join(err1, err2)
	switch {
	case err != nil:
	case sftp:
		err = s.RequestSubsystem("sftp")
	default:
		err = s.Start(command)
	}
	if err != nil {
		_ = s.Close()
		if c.ping() == nil { // the connection lives
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return nil, err
	}
	return &channel{Reader: out, Writer: in, of: s, words: words}, nil
}

// A channel is a session of a conn.
type channel struct {
	io.Reader
	io.Writer
	of    *ssh.Session
	words *tail
	once  sync.Once
}

func (c *channel) said() *tail { return c.words }

func (c *channel) kill() { _ = c.of.Signal(ssh.SIGKILL) }

func (c *channel) close() { c.once.Do(func() { _ = c.of.Close() }) }
