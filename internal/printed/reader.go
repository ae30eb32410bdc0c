package printed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Bounds of what readers take.
const (
	mostPart   = 16 << 20 // bytes of an output that are read at a time
	mostRest   = 64 << 20 // bytes that are read when the program has ended: the last ones
	mostEvents = 1000     // events of one launch

	otherWait = 2 * time.Second // how long the end waits for another call, which may hang
)

// A Reader reads one output from its beginning for events, and for the last checkpoint. It goes on
// where it was. It is safe for concurrent use.
type Reader struct {
	size func(context.Context) (int64, error)
	open Open
	busy chan struct{} // holds a value while a call reads; it guards what follows

	at         int64 // how far it has come
	within     bool  // in the middle of a line that is too long to say something
	events     int   // that were handed on
	checkpoint string
}

// NewReader returns a reader of an output.
func NewReader(size func(context.Context) (int64, error), open Open) *Reader {
	return &Reader{size: size, open: open, busy: make(chan struct{}, 1)}
}

// A Tell writes an event, which has a key.
type Tell func(context.Context, job.CustomEvent) error

// Follow reads a part of the output while its program runs, and hands on the events in it. After an
// error of tell it begins with that event the next time. While another call reads it does nothing.
func (r *Reader) Follow(ctx context.Context, l Launch, tell Tell) error {
	select {
	case r.busy <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-r.busy }()
	if size, err := r.size(ctx); err != nil || size == r.at { // mostly nothing is new
		return err
	}
	return r.read(ctx, l, r.open, tell, false)
}

// Finish reads the rest of the output, after the end of the program. An event that is refused for
// good is left out. It returns the last checkpoint; empty: there is none. It waits a moment for
// another call. That may hang with its file system: then it reads from the beginning. Open may be
// nil if it is opened as before.
func (r *Reader) Finish(ctx context.Context, l Launch, open Open, tell Tell) (checkpoint string, err error) {
	select {
	case r.busy <- struct{}{}:
	case <-time.After(otherWait):
		r = NewReader(r.size, r.open)
		r.busy <- struct{}{}
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-r.busy }()
	if open == nil {
		open = r.open
	}
	err = r.read(ctx, l, open, tell, true)
	return r.checkpoint, err
}

func (r *Reader) read(ctx context.Context, l Launch, open Open, tell Tell, last bool) error {
	f, size, err := open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	if size < r.at { // it was written anew
		r.at, r.within = 0, false
	}
	end := min(size, r.at+mostPart)
	if last {
		if far := size - mostRest; far > r.at {
			err := r.tell(ctx, l, tell, "far", true, job.CustomEvent{Name: "lines-skipped", Message: fmt.Sprintf(
				"%d bytes of the output were not looked through for events: it grew too fast", far-r.at)})
			if err != nil {
				return err
			}
			r.at, r.within = far, true
		}
		end = size
	}
	if _, err := f.Seek(r.at, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.LimitReader(f, end-r.at), 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		long := r.within || len(line) > 2*mostLine
		r.within = errors.Is(err, bufio.ErrBufferFull) // the rest of the line follows
		switch {
		case err != nil && !r.within && !errors.Is(err, io.EOF):
			return err
		case err != nil && !r.within && !last && !long: // the rest of the line is not printed yet
			return nil
		case !long && !r.within && bytes.HasPrefix(line, prefix):
			if err := r.hear(ctx, l, tell, last, line); err != nil {
				return err
			}
		}
		r.at += int64(len(line))
		if errors.Is(err, io.EOF) {
			r.within = long && !last
			return nil
		}
	}
}

// hear takes in a line that may say something.
func (r *Reader) hear(ctx context.Context, l Launch, tell Tell, last bool, line []byte) error {
	said := Parse(string(bytes.TrimSuffix(line, []byte("\n"))))
	if said.Checkpoint != nil {
		r.checkpoint = *said.Checkpoint
	}
	switch {
	case said.Event != nil && r.events < mostEvents:
		if err := r.tell(ctx, l, tell, fmt.Sprint(r.at), last, *said.Event); err != nil {
			return err
		}
		r.events++
	case said.Event != nil && r.events == mostEvents:
		err := r.tell(ctx, l, tell, "many", last, job.CustomEvent{Name: "lines-skipped", Message: fmt.Sprintf(
			"the program has printed more than %d events: the others are not written", mostEvents)})
		if err != nil {
			return err
		}
		r.events++
	}
	return nil
}

// tell hands on an event under a key that says where it comes from. One that is refused for good is
// left out: while the program runs the next part may find that it has ended.
func (r *Reader) tell(ctx context.Context, l Launch, tell Tell, place string, last bool, e job.CustomEvent) error {
	e.Key = fmt.Sprintf("line-%d-%s", l.Launch, place)
	err := tell(ctx, e)
	if kind := job.KindOf(err); kind == job.Invalid || last && kind == job.Conflict {
		return nil
	}
	return err
}

// Readers are the readers of the outputs of running programs. The zero value is ready. Its methods
// are safe for concurrent use.
type Readers struct {
	mu sync.Mutex
	of map[Launch]*Reader // guarded by mu
}

// Get returns the reader of a launch; nil: there is none yet.
func (rs *Readers) Get(l Launch) *Reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.of[l]
}

// Add adds the reader of a launch.
func (rs *Readers) Add(l Launch, r *Reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.of == nil {
		rs.of = map[Launch]*Reader{}
	}
	rs.of[l] = r
}

// Take removes the reader of a launch that is over, and returns it; nil: there was none.
func (rs *Readers) Take(l Launch) *Reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.of[l]
	delete(rs.of, l)
	return r
}

// Keep removes the readers of launches that are not in a list.
func (rs *Readers) Keep(running map[Launch]bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	maps.DeleteFunc(rs.of, func(l Launch, _ *Reader) bool { return !running[l] })
}
