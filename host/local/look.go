package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
)

// A look is what one look through all processes of the machine found: those that are alive. Nobody changes it.
type look []sight

// A sight is one process in a look, with the marks that it bears.
type sight struct {
	stat
	marks
}

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

// rounds is how often a look lists the processes at most. Each time it reads those that are new since the last one; a
// machine that starts programs all the time needs some.
const rounds = 50

// scan looks at all processes of the machine. It lists them until a list holds none that it has not read: a child that
// is started while its parents end is in the next list, or the one after that.
func (h *Host) scan() (look, error) {
	var all look
	read := map[int]bool{}
	known := h.marked
	h.marked = make(map[int]bearer, len(known))
	for range rounds {
		pids, err := pids()
		if err != nil {
			return nil, err
		}
		again := false
		for _, pid := range pids {
			if read[pid] {
				continue
			}
			again = true
			s, err := readStat(pid)
			if gone(err) {
				continue
			}
			if read[pid] = true; errors.Is(err, fs.ErrPermission) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if s.alive() {
				all = append(all, sight{s, h.marksOf(s, known)})
			}
		}
		if !again {
			break
		}
	}
	return all, nil
}

// pids lists the processes of the machine that the own account can see.
func pids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
