package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
)

// A look is what one look through all processes of the machine found: those that are alive, by their session, and by
// their group where that has another number. Nobody changes it.
type look map[int][]stat

// looks lets many who want a look at the machine at once share one. Each gets a look that began after its call did, as
// if it had looked by itself, and no two looks go on at a time.
type looks struct {
	scan func() (look, error)

	mu   sync.Mutex
	last *looking // guarded by mu: the one under way
	next *looking // guarded by mu: it has not begun, and whoever comes now shares it
}

// A looking is a look on its way. The rest is set once done is closed.
type looking struct {
	done chan struct{}
	look look
	err  error
}

// begin returns a look that begins after the call.
func (s *looks) begin(ctx context.Context) (look, error) {
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
			return l.look, l.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if last != nil { // the context does not end this: others may wait for the look
		<-last.done
	}
	s.mu.Lock()
	s.last, s.next = l, nil
	s.mu.Unlock()
	l.look, l.err = s.scan()
	close(l.done)
	s.mu.Lock()
	if s.last == l {
		s.last = nil // nobody has to wait for it, and it may be large
	}
	s.mu.Unlock()
	return l.look, l.err
}

// scan looks at all processes of the machine that the own account can see.
func scan() (look, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := look{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		s, err := readStat(pid)
		if gone(err) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !s.alive() {
			continue
		}
		all[s.session] = append(all[s.session], s)
		if s.group != s.session {
			all[s.group] = append(all[s.group], s)
		}
	}
	return all, nil
}
