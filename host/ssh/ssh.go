// Package ssh is an account on a machine that SSH reaches. It implements [host.Host], with nothing
// installed on the far side: that is Linux with /proc, /bin/sh, coreutils, util-linux and SFTP.
//
// All that is asked goes through one long session of /bin/sh, whatever the login shell is. Files go
// through one session of SFTP, and each watch has a session of its own. They share a connection. If
// the server grants a connection fewer sessions, the others get a connection more.
//
// A request is one compound command on the standard input of the shell. The shell reads it whole
// before it runs any of it, so a request that is cut in the middle does not run. What a user gave
// is a quoted word of the request, and never part of a command line.
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// Config configures a Host.
type Config struct {
	// ID is the machine id. Required.
	ID string
	// Hop is the machine itself.
	Hop
	// Jump holds the machines that lead there, the first to dial first. Default: none.
	Jump []Hop
	// Identities are files of private keys; a certificate NAME-cert.pub may stand beside each.
	Identities []string
	// Agent is the socket of an SSH agent. Default: none is asked.
	Agent string
	// Environ is added to the environment of every program, as NAME=value.
	Environ []string
	// Shell is the shell, with its options, whose environment programs get, such as [bash, -l]. It
	// is run once for each connection, so what its login files do counts for all programs. Default:
	// that of a session without a terminal.
	Shell []string
	// DialTimeout bounds each way from a name to a session. Default: 30 s.
	DialTimeout time.Duration
	// Keepalive is how often a connection is tried, and how long the answer may take. Default: 15
	// s.
	Keepalive time.Duration
	// Answer bounds each request. A shell that takes longer is replaced. Default: 1 min.
	Answer time.Duration
	// Idle is how long a connection stays open with nothing to do. It is at least DialTimeout and
	// Answer, so that what is under way is not cut. Default: 5 min.
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

// Host is one account on one machine. Its methods are safe for concurrent use.
type Host struct {
	cfg  Config
	log  *slog.Logger
	dial func(context.Context) (connection, error)
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	ends sync.Mutex     // held while Close begins, and while a goroutine starts
	work sync.WaitGroup // the goroutines

	turn  chan struct{} // whoever has put its token in opens sessions; it guards what follows
	lines []*line
	fault error     // why the last dial failed
	at    time.Time // when it did
	fails int       // how many dials have failed in a row

	shells chan struct{} // whoever has put its token in replaces shell
	shell  atomic.Pointer[shell]
	remote remote
	census census
}

// A connection opens sessions on one account of one machine. Sessions are independent of each
// other, and safe for concurrent use.
//
// This is the seam for another way to a machine, such as the user's own OpenSSH client: what opens
// sessions is all that a way has to do.
type connection interface {
	// open starts a session. If sftp is set, that is of the subsystem sftp, else of the command. A
	// connection that grants no more sessions returns errFull. Any other error means that the
	// connection is lost.
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
	// kill asks the far side to kill the program and its process group. It does not wait.
	kill()
	// close ends the session. It can be called again.
	close()
}

var errFull = errors.New("the server grants no more sessions")

// Open returns a machine. It does not dial: the first request does. Close ends it.
func Open(c Config) (*Host, error) {
	if c.ID == "" {
		return nil, job.Errorf(job.Invalid, "ssh host: no machine id")
	}
	for _, hop := range append([]Hop{c.Hop}, c.Jump...) {
		if hop.Address == "" || hop.User == "" {
			return nil, job.Errorf(job.Invalid, "ssh host %s: it needs an address and a user", c.ID)
		}
	}
	for _, v := range c.Environ {
		if !exportable(v) {
			return nil, job.Errorf(job.Invalid, "ssh host %s: %q is no variable that a shell can export", c.ID, v)
		}
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 30*time.Second)
	c.Keepalive = cmp.Or(c.Keepalive, 15*time.Second)
	c.Answer = cmp.Or(c.Answer, time.Minute)
	c.Idle = max(cmp.Or(c.Idle, 5*time.Minute), c.DialTimeout, c.Answer)
	h := &Host{
		cfg: c, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		turn: make(chan struct{}, 1), shells: make(chan struct{}, 1),
	}
	h.log = h.log.With("system", c.ID)
	h.dial = native(c).dial
	h.remote.turn, h.remote.files = make(chan struct{}, 1), newFiles(h.sftp)
	h.ctx, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Close closes all connections and waits until they are closed. Programs run on. Close can be
// called again.
func (h *Host) Close() error {
	h.ends.Lock()
	h.end()
	h.ends.Unlock()
	h.turn <- struct{}{}
	for _, l := range h.lines {
		l.close()
	}
	<-h.turn
	h.work.Wait()
	return nil
}

// ID returns [Config.ID].
func (h *Host) ID() string { return h.cfg.ID }

// A line is a connection in use.
type line struct {
	connection
	full atomic.Bool  // it grants no session until one of them is closed
	used atomic.Int64 // when something last came or went, in nanoseconds of Unix time
}

func (l *line) touch() { l.used.Store(time.Now().UnixNano()) }

// A stream is a session of a line.
type stream struct {
	session
	line *line
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.session.Read(p)
	s.line.touch()
	return n, err
}

func (s *stream) Write(p []byte) (int, error) {
	s.line.touch()
	return s.session.Write(p)
}

// Close closes the session.
func (s *stream) Close() error {
	s.close()
	s.line.full.Store(false)
	return nil
}

// expire closes the session after d, unless it is stopped.
func (s *stream) expire(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		s.kill()
		_ = s.Close()
	})
}

// lost says why a stream has ended: of what it was, or with its connection.
func (s *stream) lost(what job.Code, err error) *host.Trouble {
	select {
	case <-s.line.done():
		what = job.ConnectionLost
	case <-time.After(lull): // the sessions of a lost connection end just before it does
	}
	return &host.Trouble{Code: what, Err: err}
}

const lull = 50 * time.Millisecond

// open opens a session, on a new connection if none of those that are there grants it.
func (h *Host) open(command string, sftp bool) (*stream, error) {
	asked := time.Now()
	if err := h.take(h.ctx, h.turn); err != nil {
		return nil, err
	}
	defer func() { <-h.turn }()
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.DialTimeout)
	defer cancel()
	for _, l := range slices.Clone(h.lines) {
		if l.full.Load() {
			continue
		}
		s, err := l.open(ctx, command, sftp)
		switch {
		case err == nil:
			return &stream{s, l}, nil
		case errors.Is(err, errFull):
			l.full.Store(true)
		case ctx.Err() != nil:
			return nil, h.late()
		default:
			l.close()
		}
	}
	if h.fault != nil && h.at.After(asked) {
		return nil, h.fault // somebody has just tried
	}
	l, err := h.connect(ctx)
	if err != nil {
		return nil, err
	}
	s, err := l.open(ctx, command, sftp)
	switch {
	case err == nil:
		return &stream{s, l}, nil
	case errors.Is(err, errFull):
		l.close()
		return nil, &host.Trouble{Code: job.ChannelRefused, Err: fmt.Errorf("%s grants no session", h.cfg.Address)}
	case ctx.Err() != nil:
		return nil, h.late()
	}
	return nil, &host.Trouble{Code: job.ConnectionLost, Err: fmt.Errorf(
		"ssh to %s: the connection broke before it had a session: %w", h.cfg.Address, err)}
}

// late says why a dial has ended before it was done.
func (h *Host) late() error {
	if err := h.closed(); err != nil {
		return err
	}
	return &host.Trouble{Code: job.HostTimeout, Err: fmt.Errorf(
		"ssh to %s: it did not answer within %s", h.cfg.Address, h.cfg.DialTimeout)}
}

// await runs f, and waits for it no longer than ctx. What f returns after that is dropped: a dial
// goes on for others when the first who wants it has gone.
func await[T any](ctx context.Context, h *Host, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	if err := errors.Join(ctx.Err(), h.closed()); err != nil {
		return none, err
	}
	results := make(chan result)
	h.goes(func() {
		v, err := f()
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			if err == nil {
				drop(v)
			}
		}
	})
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// goes starts a goroutine that Close waits for.
func (h *Host) goes(f func()) {
	h.ends.Lock()
	defer h.ends.Unlock()
	h.work.Go(f)
}

// take puts a token in, once there is room.
func (h *Host) take(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cmp.Or(h.closed(), ctx.Err())
	}
}

func (h *Host) closed() error {
	if h.ctx.Err() != nil {
		return job.Errorf(job.Closed, "ssh host %s: it has been closed", h.cfg.ID)
	}
	return nil
}

// A dial after one that failed waits longer each time, from minPause up to maxPause.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// connect dials. A server that has too many connections in their login closes some (MaxStartups of
// sshd), so a connection that is closed before the login is tried again.
func (h *Host) connect(ctx context.Context) (*line, error) {
	for try := 1; ; try++ {
		if h.fails > 0 {
			pause := min(maxPause, minPause<<min(h.fails, 10))
			pause = pause/2 + rand.N(pause/2)
			select {
			case <-time.After(time.Until(h.at.Add(pause))):
			case <-ctx.Done():
				return nil, h.late()
			}
		}
		c, err := h.dial(ctx)
		if err == nil {
			h.fault, h.fails = nil, 0
			return h.keep(c), nil
		}
		if ctx.Err() != nil {
			err = h.late()
		}
		h.fault, h.at = err, time.Now()
		h.fails++
		h.log.Info("ssh: no connection", "try", try, "error", err)
		if !errors.Is(err, errDropped) || try == 4 {
			return nil, err
		}
	}
}

// keep looks after a connection until it is lost: it is tried from time to time, and closed when it
// has nothing to do.
func (h *Host) keep(c connection) *line {
	l := &line{connection: c}
	l.touch()
	h.lines = append(h.lines, l)
	h.log.Debug("ssh: connected")
	h.goes(func() {
		tick := time.NewTicker(h.cfg.Keepalive)
		defer tick.Stop()
		for lost := false; !lost; {
			select {
			case <-l.done():
				lost = true
			case <-h.ctx.Done():
				l.close()
			case <-tick.C:
				if idle := time.Since(time.Unix(0, l.used.Load())); idle > h.cfg.Idle {
					l.close()
					continue
				}
				silent := time.AfterFunc(h.cfg.Keepalive, l.close)
				if l.ping() != nil {
					l.close()
				}
				silent.Stop()
			}
		}
		h.turn <- struct{}{}
		h.lines = slices.DeleteFunc(h.lines, func(other *line) bool { return other == l })
		<-h.turn
		h.log.Debug("ssh: the connection is closed")
	})
	return l
}
