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
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/host/ssh/members"
	"github.com/pawl-jobs/pawl/host/ssh/script"
	"github.com/pawl-jobs/pawl/job"
)

// Config configures a Host.
type Config struct {
	// Config says how the machine is reached. Its Idle is at least Answer.
	connection.Config
	// Environ is added to the environment of every program, as NAME=value.
	Environ []string
	// Shell is the shell, with its options, whose environment programs get, such as [bash, -l]. It
	// is run once for each connection, so what its login files do counts for all programs. Default:
	// that of a session without a terminal.
	Shell []string
	// Answer bounds each request. A shell that takes longer is replaced. Default: 1 min.
	Answer time.Duration
}

// Host is one account on one machine. Its methods are safe for concurrent use.
type Host struct {
	cfg  Config
	pool *connection.Pool
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	ends sync.Mutex     // held while Close begins, and while a goroutine starts
	work sync.WaitGroup // the goroutines

	shells chan struct{} // whoever has put its token in replaces shell
	shell  atomic.Pointer[shell]
	hung   hung
	remote remote
	census members.Census
	asked  atomic.Int64 // requests, of shells and of SFTP
}

// Open returns a machine. It does not dial: the first request does. Close ends it.
func Open(c Config) (*Host, error) {
	for _, v := range c.Environ {
		if !script.Exportable(v) {
			return nil, job.Errorf(job.Invalid, "ssh host %s: %q is no variable that a shell can export", c.ID, v)
		}
	}
	c.Answer = cmp.Or(c.Answer, time.Minute)
	c.Idle = max(cmp.Or(c.Idle, 5*time.Minute), c.Answer)
	pool, err := connection.New(c.Config)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: c, pool: pool, shells: make(chan struct{}, 1)}
	h.remote.turn, h.remote.files = make(chan struct{}, 1), newAllFiles(h)
	h.ctx, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Close closes all connections and waits until they are closed. Programs run on. Close can be
// called again.
func (h *Host) Close() error {
	h.ends.Lock()
	h.end()
	h.ends.Unlock()
	h.pool.Close()
	h.work.Wait()
	return nil
}

// Forget has the next request dial at once, if there is no connection. Otherwise dials that fail
// are spread, in an outage requests share the failure of one, and a login that was refused is not
// tried again for five minutes.
func (h *Host) Forget() { h.pool.Forget() }

// Requests returns how many requests were sent to the machine so far, those of its shell and those
// of SFTP. It leaves out those that close a file, for nobody waits for their answers.
func (h *Host) Requests() int64 { return h.asked.Load() }

// ID returns the machine id.
func (h *Host) ID() string { return h.cfg.ID }

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
