package testenv

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy stands between clients and a server, and does to their connections what a bad network
// does. Its methods are safe for concurrent use.
type Proxy struct {
	// Port is where it listens, on 127.0.0.1.
	Port int

	to       string
	listener net.Listener
	all      sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool // guarded by mu
	passed  [2]int64       // guarded by mu: bytes in each direction
	left    [2]int64       // guarded by mu: bytes until the cut; negative: there is none
	held    [2]bool        // guarded by mu
	free    [2]int64       // guarded by mu: bytes until a direction is held; negative: it is not
	delay   time.Duration  // guarded by mu
	resets  int            // guarded by mu: how many connections are reset before they begin
	changed chan struct{}  // guarded by mu: closed when held is another
	ended   bool           // guarded by mu
}

// A Direction is one of the two in which bytes pass.
type Direction int

// The directions.
const (
	Up   Direction = iota // to the server
	Down                  // to the client
)

// A link is a connection of a client, with that to the server.
type link struct {
	ends   [2]*net.TCPConn // where Up and Down lead
	closed chan struct{}
	once   sync.Once
	held   atomic.Bool  // nothing passes here any more
	over   atomic.Int32 // how many directions have ended
}

// close closes both connections. With reset both sides see that, and what was not passed on yet is
// lost.
func (l *link) close(reset bool) {
	l.once.Do(func() {
		close(l.closed)
		for _, c := range l.ends {
			if reset {
				_ = c.SetLinger(0)
			}
			_ = c.Close()
		}
	})
}

// NewProxy starts a proxy before the server at an address. It ends with the test.
func NewProxy(tb testing.TB, to string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		Port: l.Addr().(*net.TCPAddr).Port, to: to, listener: l, links: map[*link]bool{}, left: [2]int64{-1, -1},
		free: [2]int64{-1, -1}, changed: make(chan struct{}),
	}
	p.all.Go(p.accept)
	tb.Cleanup(func() {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		l.Close()
		p.Cut()
		p.all.Wait()
	})
	return p
}

// Passed returns how many bytes have passed in a direction.
func (p *Proxy) Passed(d Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[d]
}

// Delay has what is sent arrive later by so much, in both directions.
func (p *Proxy) Delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

// Cut resets all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	all := p.links
	p.links = map[*link]bool{}
	p.mu.Unlock()
	for l := range all {
		l.close(true)
	}
}

// CutAfter resets all connections once n more bytes have passed in a direction. Later connections
// are as good as any.
func (p *Proxy) CutAfter(d Direction, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[d] = n
}

// IsCut reports whether [Proxy.CutAfter] has done what it was asked for.
func (p *Proxy) IsCut(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left[d] < 0
}

// Uncut takes back what [Proxy.CutAfter] has not done yet. It reports whether it has been done.
func (p *Proxy) Uncut(d Direction) (done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done = p.left[d] < 0
	p.left[d] = -1
	return done
}

// Hold has nothing pass in these directions, in any connection. Nobody is told. What was sent
// meanwhile passes when no direction is held any more, as a network sends again what it has lost.
func (p *Proxy) Hold(ds ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = [2]bool{}
	for _, d := range ds {
		p.held[d] = true
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// HoldAfter holds a direction once about n more bytes have passed there, until the next Hold. A
// negative n takes that back.
func (p *Proxy) HoldAfter(d Direction, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[d] = n
}

// Holds reports whether a direction is held.
func (p *Proxy) Holds(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[d]
}

// Strand has nothing pass any more in the connections that there are, as if the server had been
// cut off its power. Later connections are as good as any.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.held.Store(true)
	}
}

// Reset resets the next n connections before anything has passed.
func (p *Proxy) Reset(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resets = n
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = near.(*net.TCPConn).SetLinger(0)
			near.Close()
			continue
		}
		l := &link{ends: [2]*net.TCPConn{far.(*net.TCPConn), near.(*net.TCPConn)}, closed: make(chan struct{})}
		p.mu.Lock()
		bad := p.ended || p.resets > 0
		p.resets = max(0, p.resets-1)
		if !bad {
			p.links[l] = true
		}
		p.mu.Unlock()
		if bad {
			l.close(true)
			continue
		}
		p.all.Go(func() { p.pass(l, Up) })
		p.all.Go(func() { p.pass(l, Down) })
	}
}

// A chunk is what was read at once, and when it is to arrive.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pass carries what comes in one direction until the link ends.
func (p *Proxy) pass(l *link, d Direction) {
	from := l.ends[1-d]
	chunks := make(chan chunk, 64)
	p.all.Go(func() {
		if !p.deliver(l, d, chunks) {
			l.close(true)
		}
		if l.over.Add(1) == 2 {
			l.close(false)
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		}
	})
	defer close(chunks)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			due := time.Now().Add(p.delay)
			p.mu.Unlock()
			select {
			case chunks <- chunk{b[:n], due}:
			case <-l.closed:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes what has come in one direction. It reports whether that ended as the side ended
// from which it came.
func (p *Proxy) deliver(l *link, d Direction, chunks <-chan chunk) bool {
	to := l.ends[d]
	for c := range chunks {
		select {
		case <-time.After(time.Until(c.due)):
		case <-l.closed:
			return false
		}
		for p.holds(l, d) {
		}
		n, cut := p.count(d, len(c.bytes))
		if _, err := to.Write(c.bytes[:n]); err != nil {
			return false
		}
		if cut {
			p.Cut()
			return false
		}
	}
	_ = to.CloseWrite() // it reads what was sent before, and then the end
	return true
}

// holds waits for as long as a direction is held, and reports whether to ask again.
func (p *Proxy) holds(l *link, d Direction) bool {
	p.mu.Lock()
	held, changed := p.held[d], p.changed
	p.mu.Unlock()
	switch {
	case l.held.Load():
		<-l.closed
		return false
	case !held:
		return false
	}
	select {
	case <-changed:
		return true
	case <-l.closed:
		return false
	}
}

// count counts bytes that are about to pass. It returns how many of them may, and whether the
// connections are cut behind them.
func (p *Proxy) count(d Direction, n int) (may int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	may = n
	if left := p.left[d]; left >= 0 {
		if may = int(min(left, int64(n))); left < int64(n) {
			cut = true
			p.left[d] = -1
		} else {
			p.left[d] -= int64(n)
		}
	}
	p.passed[d] += int64(may)
	if p.free[d] >= 0 {
		if p.free[d] -= int64(may); p.free[d] < 0 {
			p.held[d] = true
		}
	}
	return may, cut
}
