package ingress

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Crowd keeps the connections of servers below a number, so that callers never take the
// descriptors that the service needs for its own work. Where it is full, the connection that has
// been without a request for longest makes room for the next one. Where each has a request, the
// next one waits.
type Crowd struct {
	most int

	mu    sync.Mutex
	room  *sync.Cond // told of each change
	conns map[*member]bool
	clock int64 // counts how often a connection came to be without a request
}

// NewCrowd returns a crowd of at most so many connections.
func NewCrowd(most int) *Crowd {
	c := &Crowd{most: most, conns: map[*member]bool{}}
	c.room = sync.NewCond(&c.mu)
	return c
}

// Join has the connections of a server count that come from l. It is called before the server
// serves the listener that it returns, which accepts again, with backoff, after a shortage of the
// machine.
func (c *Crowd) Join(s *http.Server, l net.Listener) net.Listener {
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		c.note(conn, state == http.StateNew || state == http.StateIdle)
	}
	return &entrance{Listener: l, crowd: c, closed: make(chan struct{})}
}

// note says whether a connection is without a request now.
func (c *Crowd) note(conn net.Conn, idle bool) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = over.NetConn()
	}
	m, ok := conn.(*member)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.idle = 0
	if idle {
		c.clock++
		m.idle = c.clock
		c.room.Broadcast()
	}
}

// enter takes a place for m, once there is one. It reports whether the entrance is still open.
func (c *Crowd) enter(m *member, e *entrance) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.conns) >= c.most && !e.shut {
		oldest := c.oldest()
		if oldest == nil {
			c.room.Wait()
			continue
		}
		delete(c.conns, oldest)
		oldest.Conn.Close()
	}
	if !e.shut {
		c.conns[m] = true
	}
	return !e.shut
}

// oldest returns the connection that has been without a request for longest. It is called with mu
// held.
func (c *Crowd) oldest() (oldest *member) {
	for m := range c.conns {
		if m.idle > 0 && (oldest == nil || m.idle < oldest.idle) {
			oldest = m
		}
	}
	return oldest
}

// A member is a connection of a crowd.
type member struct {
	net.Conn
	crowd *Crowd
	idle  int64 // when it came to be without a request, by the crowd's clock; 0: it has one
}

// Close frees its place.
func (m *member) Close() error {
	m.crowd.mu.Lock()
	delete(m.crowd.conns, m)
	m.crowd.room.Broadcast()
	m.crowd.mu.Unlock()
	return m.Conn.Close()
}

// An entrance is a listener of a crowd.
type entrance struct {
	net.Listener
	crowd  *Crowd
	shut   bool // guarded by the crowd's mu
	closed chan struct{}
}

// Accept implements [net.Listener].
func (e *entrance) Accept() (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err := e.Listener.Accept()
		switch {
		case err == nil:
			m := &member{Conn: conn, crowd: e.crowd}
			if !e.crowd.enter(m, e) {
				conn.Close()
				return nil, net.ErrClosed
			}
			return m, nil
		case !job.Shortage(err):
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-e.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close implements [net.Listener].
func (e *entrance) Close() error {
	e.crowd.mu.Lock()
	if !e.shut {
		e.shut = true
		close(e.closed)
		e.crowd.room.Broadcast()
	}
	e.crowd.mu.Unlock()
	return e.Listener.Close()
}
