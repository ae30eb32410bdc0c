package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// A Pool has the connections to one account. Its methods are safe for concurrent use.
type Pool struct {
	cfg  Config
	log  *slog.Logger
	dial func(context.Context) (connection, error)
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // the goroutines, which start while turn is held

	turn  chan struct{} // whoever has put its token in opens sessions; it guards what follows
	lines []*line
	fault error     // why the last dial failed
	at    time.Time // when it did
	fails int       // how many dials have failed in a row
}

// Close closes all connections and waits until they are closed. Programs run on. Close can be
// called again.
func (p *Pool) Close() {
	p.end()
	p.turn <- struct{}{}
	for _, l := range p.lines {
		l.close()
	}
	<-p.turn
	p.work.Wait()
}

// Forget forgets the dials that failed: the next session dials, and waits for no other.
func (p *Pool) Forget() {
	select {
	case p.turn <- struct{}{}:
		p.fault, p.fails = nil, 0
		<-p.turn
	case <-p.ctx.Done():
	}
}

func (p *Pool) closed() error {
	if p.ctx.Err() != nil {
		return job.Errorf(job.Closed, "ssh host %s: it has been closed", p.cfg.ID)
	}
	return nil
}

// A line is a connection in use.
type line struct {
	connection
	full atomic.Bool  // it grants no session until one of them is closed
	used atomic.Int64 // when something last came or went, in nanoseconds of Unix time
}

func (l *line) touch() { l.used.Store(time.Now().UnixNano()) }

// A Session is a program on the far side, with its standard input and output. Read ends when the
// program does, or when the connection is lost.
type Session struct {
	session
	line *line
}

func (s *Session) Read(p []byte) (int, error) {
	n, err := s.session.Read(p)
	s.line.touch()
	return n, err
}

func (s *Session) Write(p []byte) (int, error) {
	s.line.touch()
	return s.session.Write(p)
}

// Close closes the session. It can be called again.
func (s *Session) Close() error {
	s.close()
	s.line.full.Store(false)
	return nil
}

// Kill asks the far side to kill the program and its process group, where that can be asked: sshd
// before 7.9 does not listen, and a [Master] passes nothing on. It does not wait.
func (s *Session) Kill() { s.kill() }

// Said returns the end of what the program has written to its standard error: maybe why it ended.
func (s *Session) Said() string { return s.said().String() }

// Hush forgets what the program has written to its standard error so far.
func (s *Session) Hush() { s.said().reset() }

// Gone is closed when the connection is lost or closed.
func (s *Session) Gone() <-chan struct{} { return s.line.done() }

// Expire ends the session after d, unless it is stopped.
func (s *Session) Expire(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		s.kill()
		_ = s.Close()
	})
}

// Lost says why a session has ended: of what it was, or with its connection.
func (s *Session) Lost(what job.Code, err error) *host.Trouble {
	select {
	case <-s.line.done():
		what = job.ConnectionLost
	case <-time.After(lull): // the sessions of a lost connection end just before it does
	}
	return &host.Trouble{Code: what, Err: err}
}

const lull = 50 * time.Millisecond

// Open starts a command in a session, on a new connection if none of those that are there grants
// one.
func (p *Pool) Open(command string) (*Session, error) { return p.open(command, false) }

// OpenSFTP starts the subsystem sftp in a session, as Open does.
func (p *Pool) OpenSFTP() (*Session, error) { return p.open("", true) }

func (p *Pool) open(command string, sftp bool) (*Session, error) {
	asked := time.Now()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-p.ctx.Done():
	}
	if err := p.closed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
	defer cancel()
	for _, l := range slices.Clone(p.lines) {
		if l.full.Load() {
			continue
		}
		s, err := l.open(ctx, command, sftp)
		switch {
		case err == nil:
			return &Session{s, l}, nil
		case errors.Is(err, errFull):
			l.full.Store(true)
		case errors.Is(err, errRefused):
			return nil, p.refused(err, sftp)
		case ctx.Err() != nil:
			return nil, p.late()
		default:
			l.close()
		}
	}
	if err := p.tried(asked); err != nil {
		return nil, err
	}
	l, err := p.connect()
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
	defer done()
	s, err := l.open(ctx, command, sftp)
	switch {
	case err == nil:
		return &Session{s, l}, nil
	case errors.Is(err, errFull):
		l.close()
		return nil, &host.Trouble{Code: job.ChannelRefused, Err: fmt.Errorf("%s grants no session", p.cfg.Address)}
	case errors.Is(err, errRefused):
		return nil, p.refused(err, sftp)
	case ctx.Err() != nil:
		return nil, p.late()
	}
	return nil, &host.Trouble{Code: job.ConnectionLost, Err: fmt.Errorf(
		"ssh to %s: the connection broke before it had a session: %w", p.cfg.Address, err)}
}

// refused is the error where a server opens sessions, and does not start in one what was asked for:
// it has no such subsystem, or the account may have no more processes.
func (p *Pool) refused(err error, sftp bool) error {
	if sftp {
		return &host.Trouble{Code: job.ChannelRefused, Err: fmt.Errorf("%s serves no SFTP: %w", p.cfg.Address, err)}
	}
	return &host.Trouble{Code: job.ShellBroken, Err: fmt.Errorf("%s starts no shell: %w", p.cfg.Address, err)}
}

// late says why a dial has ended before it was done.
func (p *Pool) late() error {
	if err := p.closed(); err != nil {
		return err
	}
	return &host.Trouble{Code: job.ConnectionTimeout, Err: fmt.Errorf(
		"ssh to %s: it did not answer within %s", p.cfg.Address, p.cfg.DialTimeout)}
}

// A dial after one that failed waits longer each time, from minPause up to maxPause. In an outage,
// after so many that failed, who asks while a failure is fresh hears of it at once: else each
// request of each job would wait for a dial of its own. A login that was refused is not tried again
// for longer: servers lock out who tries too often, and nothing changes by itself. Whoever has
// changed something calls Forget.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	outage   = 3
	fresh    = 250 * time.Millisecond
	refused  = 5 * time.Minute
)

// refusals are the codes of a login that was refused, by either side.
var refusals = []job.Code{job.AuthenticationFailed, job.HostKeyChanged, job.HostKeyUnknown}

// tried returns why the last dial has failed, if that is the answer to who asks now.
func (p *Pool) tried(asked time.Time) error {
	if p.fault == nil {
		return nil
	}
	since := asked.Sub(p.at)
	trouble, ok := errors.AsType[*host.Trouble](p.fault)
	if since < 0 || since < fresh && p.fails >= outage ||
		ok && since < refused && slices.Contains(refusals, trouble.Code) {
		return p.fault
	}
	return nil
}

// connect dials. A server that has too many connections in their login closes some (MaxStartups of
// sshd), so a connection that is closed before the login is tried again.
func (p *Pool) connect() (*line, error) {
	for try := 1; ; try++ {
		if p.fails > 0 {
			pause := min(maxPause, minPause<<min(p.fails, 10))
			pause = pause/2 + rand.N(pause/2)
			select {
			case <-time.After(time.Until(p.at.Add(pause))):
			case <-p.ctx.Done():
				return nil, p.closed()
			}
		}
		if p.cfg.Allow != nil {
			if err := p.cfg.Allow(p.ctx); err != nil {
				return nil, fmt.Errorf("ssh to %s: whether it may be dialed now is not known: %w", p.cfg.Address, err)
			}
		}
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
		c, err := p.dial(ctx)
		late := ctx.Err() != nil
		cancel()
		if err == nil {
			p.fault, p.fails = nil, 0
			return p.keep(c), nil
		}
		if late {
			err = p.late()
		}
		p.fault, p.at = err, time.Now()
		p.fails++
		p.log.Info("ssh: no connection", "try", try, "error", err)
		if !errors.Is(err, errDropped) || try == 4 {
			return nil, err
		}
	}
}

// keep looks after a connection until it is lost: it is tried from time to time, and closed when it
// has nothing to do.
func (p *Pool) keep(c connection) *line {
	l := &line{connection: c}
	l.touch()
	p.lines = append(p.lines, l)
	p.log.Debug("ssh: connected")
	p.work.Go(func() {
		tick := time.NewTicker(p.cfg.Keepalive)
		defer tick.Stop()
		for lost := false; !lost; {
			select {
			case <-l.done():
				lost = true
			case <-p.ctx.Done():
				l.close()
				<-l.done()
			case <-tick.C:
				if idle := time.Since(time.Unix(0, l.used.Load())); idle > p.cfg.Idle {
					l.close()
					continue
				}
				silent := time.AfterFunc(p.cfg.Keepalive, l.close)
				if l.ping() != nil {
					l.close()
				}
				silent.Stop()
			}
		}
		p.turn <- struct{}{}
		p.lines = slices.DeleteFunc(p.lines, func(other *line) bool { return other == l })
		<-p.turn
		p.log.Debug("ssh: the connection is closed")
	})
	return l
}
