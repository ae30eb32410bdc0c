package connection

import (
	"bufio"
	"net"
	"sync"
)

const (
	// readSize and writeSize are how many bytes a wide connection reads or writes at once. They
	// bound its memory.
	readSize  = 128 << 10
	writeSize = 256 << 10
	// smallWrite is below what x/crypto/ssh writes of a large packet at first.
	smallWrite = 4 << 10
)

// A wide is a connection for x/crypto/ssh, which reads and writes 4 KiB and then the rest of each
// packet. It reads ahead, and gathers what is written while an earlier write is under way.
type wide struct {
	net.Conn
	in *bufio.Reader

	mu      sync.Mutex // guards what follows
	changed sync.Cond
	next    []byte // to be written after what is under way
	spare   []byte // the buffer that next gets then
	writing bool   // a goroutine does that
	err     error  // of the first write that failed
}

func widen(c net.Conn) *wide {
	w := &wide{Conn: c, in: bufio.NewReaderSize(c, readSize)}
	w.changed.L = &w.mu
	return w
}

func (w *wide) Read(p []byte) (int, error) { return w.in.Read(p) }

// Write returns when p is written or gathered. The error may be that of an earlier call.
func (w *wide) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.next) > 0 && len(w.next)+len(p) > writeSize {
		w.changed.Wait()
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case !w.writing && len(p) < smallWrite:
		return w.Conn.Write(p)
	}
	w.next = append(w.next, p...)
	if !w.writing {
		w.writing = true
		go w.flush()
	}
	return len(p), nil
}

// flush writes what is gathered, until nothing is.
func (w *wide) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.next) > 0 {
		now := w.next
		w.next = w.spare[:0]
		w.changed.Broadcast()
		w.mu.Unlock()
		_, err := w.Conn.Write(now)
		w.mu.Lock()
		w.spare, w.err = now, err
	}
	w.writing = false
	w.changed.Broadcast()
}
