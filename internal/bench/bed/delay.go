package bed

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A Delay is a TCP proxy that holds up each byte on its way, in both directions.
type Delay struct {
	Port int

	listener net.Listener
	to       string
	delay    time.Duration
	work     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	closed bool
}

// StartDelay starts a proxy for the server at an address. A way back and forth takes rtt longer.
func StartDelay(to string, rtt time.Duration) (*Delay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Delay{
		Port: l.Addr().(*net.TCPAddr).Port, listener: l, to: to, delay: rtt / 2, conns: map[net.Conn]bool{},
	}
	d.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.work.Go(func() { d.serve(c) })
		}
	})
	return d, nil
}

// Close ends the proxy, and all that goes through it.
func (d *Delay) Close() error {
	err := d.listener.Close()
	d.mu.Lock()
	d.closed = true
	for c := range d.conns {
		_ = c.Close() // its goroutines end by that
	}
	d.mu.Unlock()
	d.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// keep notes a connection that Close is to close. It closes one that comes too late.
func (d *Delay) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = c.Close()
		return false
	}
	d.conns[c] = true
	return true
}

func (d *Delay) drop(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	_ = c.Close()
}

func (d *Delay) serve(near net.Conn) {
	if !d.keep(near) {
		return
	}
	defer d.drop(near)
	far, err := net.Dial("tcp", d.to)
	if err != nil || !d.keep(far) {
		return
	}
	defer d.drop(far)
	var ways sync.WaitGroup
	ways.Go(func() { d.carry(far, near) })
	ways.Go(func() { d.carry(near, far) })
	ways.Wait()
}

// A parcel is what was read at once. It is written when it is due.
type parcel struct {
	due  time.Time
	data []byte
}

// maxParcels is how much may be on its way. At 32 KiB each that is far more than a TCP window.
const maxParcels = 4096

// carry carries what comes from one side to the other, until one of them ends.
func (d *Delay) carry(to io.WriteCloser, from io.ReadCloser) {
	under := make(chan parcel, maxParcels)
	d.work.Go(func() {
		defer to.Close()
		for p := range under {
			if wait := time.Until(p.due); wait > 0 {
				<-time.After(wait)
			}
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close()
				for range under { // so that its sender ends
				}
				return
			}
		}
	})
	defer close(under)
	for data := make([]byte, 32<<10); ; {
		n, err := from.Read(data)
		if n > 0 {
			under <- parcel{time.Now().Add(d.delay), bytes.Clone(data[:n])}
		}
		if err != nil {
			return
		}
	}
}
