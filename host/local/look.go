package local

import (
	"context"
	"sync"
)

// looks lets callers share looks at the machine. Each caller gets a look that began after its call,
// and no two looks go on at a time.
type looks struct {
	scan func() error

	mu   sync.Mutex
	last *looking // guarded by mu: the one under way
	next *looking // guarded by mu: it has not begun; a caller that comes now shares it
}

// A looking is a look on its way. The error is set once done is closed.
type looking struct {
	done chan struct{}
	err  error
}

// begin looks, and returns when a look is over that began after the call.
func (s *looks) begin(ctx context.Context) error {
	s.mu.Lock()
	l, last := s.next, s.last
	first := l == nil
	if first {
		l = &looking{done: make(chan struct{})}
		s.next = l
	}
	s.mu.Unlock()
	if !first {
		select {
		case <-l.done:
			return l.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if last != nil { // the context does not end this: others may wait for the look
		<-last.done
	}
	s.mu.Lock()
	s.last, s.next = l, nil
	s.mu.Unlock()
	l.err = s.scan()
	close(l.done)
	s.mu.Lock()
	if s.last == l {
		s.last = nil // no call has to wait for it
	}
	s.mu.Unlock()
	return l.err
}
