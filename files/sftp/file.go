package sftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// Open opens a regular file. It looks first: the opening of a pipe would hold up the server. The
// file can be read until ctx ends.
func (f *FS) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	info, err := f.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, job.Errorf(job.Invalid, "open %s: not a regular file but %s", name, info.Mode().Type())
	}
	var c *sftp.Client
	file, err := ask(ctx, f, func(at *sftp.Client) (*sftp.File, error) {
		c = at
		return at.Open(name)
	}, "open", name)
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, c: c, file: file, name: name, size: info.Size(), ahead: 2}, nil
}

// A reader reads a file ahead, up to inFlight packets. They count in their order, up to the first
// that is not whole: a file may grow or shrink meanwhile.
type reader struct {
	ctx    context.Context
	c      *sftp.Client
	file   *sftp.File
	name   string
	closed sync.Once

	size  int64 // when it was looked at
	at    int64 // of the next byte for Read
	next  int64 // of the next part to ask for
	ahead int   // how many parts to ask for
	asked []chan part
	now   part // what Read returns from
}

type part struct {
	from *packet
	b    []byte // the rest of it
	err  error  // after it
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.now.b) == 0 {
		if r.now.from != nil {
			packets.Put(r.now.from)
		}
		if err := r.now.err; err != nil {
			r.forget(r.at)
			return 0, explain(err, "read", r.name)
		}
		r.now = part{}
		r.ask()
		select {
		case r.now = <-r.asked[0]:
			r.asked = r.asked[1:]
			r.ahead = min(2*r.ahead, inFlight)
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
	n := copy(p, r.now.b)
	r.now.b = r.now.b[n:]
	r.at += int64(n)
	return n, nil
}

// ask asks for parts. One of them lies behind the size, so that the end is known as soon as the
// content is.
func (r *reader) ask() {
	for len(r.asked) == 0 || len(r.asked) < r.ahead && r.next <= r.size {
		buf, from, answer := packets.Get().(*packet), r.next, make(chan part, 1)
		n := int64(len(buf))
		if r.next < r.size {
			n = min(n, r.size-r.next)
		}
		r.next += n
		r.asked = append(r.asked, answer)
		go func() { // until the answer, or until the connection ends
			got, err := r.file.ReadAt(buf[:n], from)
			answer <- part{buf, buf[:got], err}
		}()
	}
}

// forget drops what was read ahead.
func (r *reader) forget(at int64) {
	r.at, r.next, r.asked, r.now = at, at, nil, part{}
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		info, err := within(r.ctx, r.c, r.file.Stat)
		if err != nil {
			return r.at, explain(err, "seek", r.name)
		}
		r.size = info.Size()
		offset += r.size
	default:
		return r.at, &fs.PathError{Op: "seek", Path: r.name, Err: fs.ErrInvalid}
	}
	if offset < 0 {
		return r.at, &fs.PathError{Op: "seek", Path: r.name, Err: fs.ErrInvalid}
	}
	if offset != r.at {
		r.forget(offset)
	}
	return r.at, nil
}

// Close does not wait: nothing depends on the answer.
func (r *reader) Close() error {
	r.closed.Do(func() { go r.file.Close() })
	return nil
}

// Put writes a temporary file, syncs and renames it, and syncs the folder. That is four round trips
// for a short file, and one more for the folder.
func (f *FS) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	c, err := f.begin(ctx, name)
	if err != nil {
		return err
	}
	w := &writer{ctx: ctx, turns: make(chan struct{}, inFlight)}
	tidy, done := linger(ctx)
	defer done()
	_, err = within(tidy, c, func() (struct{}, error) {
		put := func() error { return f.put(c, w, name, r, o) }
		if o.NoSync || o.Passing {
			return struct{}{}, put()
		}
		return struct{}{}, durably(c, put, path.Dir(name))
	})
	w.reading.Lock() // from here on nobody reads r any more
	defer w.reading.Unlock()
	switch {
	case err != nil && ctx.Err() != nil && job.KindOf(err) != job.Unavailable:
		return ctx.Err()
	case w.source != nil:
		return fmt.Errorf("put %s: %w", name, w.source)
	}
	return explain(err, "put", name)
}

func (f *FS) put(c *sftp.Client, w *writer, name string, r io.Reader, o files.PutOptions) (err error) {
	tmp := o.TemporaryFor(name)
	if w.file, err = c.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL); err != nil {
		return f.reason(w.ctx, c, path.Dir(name), err)
	}
	err = first(w.fill(r, o), w.ctx.Err())
	synced := err == nil && !o.NoSync && has(c, "fsync@openssh.com")
	if synced {
		err = w.file.Sync()
	}
	var closing sync.WaitGroup
	var closed error
	closing.Go(func() { closed = w.file.Close() })
	if !synced { // then it may fail as late as this
		closing.Wait()
		err = first(err, closed)
	}
	if err == nil {
		err = move(c, tmp, name)
	}
	closing.Wait() // nobody can execute a file that is open for writing
	if err != nil {
		// Before there is room again.
		err = f.reason(w.ctx, c, path.Dir(name), err)
		c.Remove(tmp) //nolint:errcheck // if the connection is gone, it stays, and List hides it
	}
	return err
}

// linger returns a context that ends a while after ctx.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	tidy, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-tidy.Done():
		}
	})
	return tidy, func() { stop(); cancel() }
}

// A writer writes a file of Put, with up to inFlight packets under way. It is a [files.Pool], so
// that holes stay holes.
type writer struct {
	ctx   context.Context
	file  *sftp.File
	turns chan struct{} // one for each packet under way

	reading sync.Mutex // held while the source is read
	source  error      // of the source; guarded by reading

	buf    *packet // what is not sent yet: n bytes for at
	n      int
	at     int64
	wg     sync.WaitGroup
	mu     sync.Mutex
	failed error // of the first packet that failed; guarded by mu
}

func (w *writer) fill(r io.Reader, o files.PutOptions) error {
	mode := make(chan error, 1)
	go func() { mode <- w.file.Chmod(o.Perm()) }()
	var err error
	if p, ok := r.(*parts); ok {
		err = p.copy(w.ctx, w.file)
	} else if p, ok := r.(files.Poured); ok {
		err = p.Pour(w)
	} else {
		_, err = w.ReadFrom(r)
	}
	return first(err, w.flush(), <-mode)
}

// ReadFrom implements [io.ReaderFrom].
func (w *writer) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		w.reading.Lock()
		buf := w.room()
		var got int
		if err = w.ctx.Err(); err == nil {
			if got, err = r.Read(buf); err != nil && !errors.Is(err, io.EOF) {
				w.source = err
			}
		}
		w.reading.Unlock()
		n += int64(got)
		if w.n += got; w.n == len(w.buf) {
			err = first(err, w.send())
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// room is where the next bytes go.
func (w *writer) room() []byte {
	if w.buf == nil {
		w.buf = packets.Get().(*packet)
	}
	return w.buf[w.n:]
}

func (w *writer) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		got := copy(w.room(), p[n:])
		n += got
		if w.n += got; w.n == len(w.buf) {
			err = w.send()
		}
	}
	return n, err
}

// send sends what has been gathered. The error is that of an earlier packet.
func (w *writer) send() error {
	if w.n == 0 {
		return w.err()
	}
	select {
	case w.turns <- struct{}{}:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	buf, n, at := w.buf, w.n, w.at
	w.buf, w.n, w.at = nil, 0, at+int64(n)
	w.wg.Go(func() {
		if _, err := w.file.WriteAt(buf[:n], at); err != nil {
			w.mu.Lock()
			w.failed = first(w.failed, err)
			w.mu.Unlock()
		}
		packets.Put(buf)
		<-w.turns
	})
	return w.err()
}

func (w *writer) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// flush sends what has been gathered and waits for all answers.
func (w *writer) flush() error {
	err := w.send()
	w.wg.Wait()
	return first(w.err(), err)
}

// Seek implements [files.Pool].
func (w *writer) Seek(offset int64, whence int) (int64, error) {
	err := w.send()
	switch whence {
	case io.SeekStart:
		w.at = offset
	case io.SeekCurrent:
		w.at += offset
	default:
		return w.at, fs.ErrInvalid
	}
	return w.at, err
}

// Truncate implements [files.Pool].
func (w *writer) Truncate(size int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.file.Truncate(size)
}
