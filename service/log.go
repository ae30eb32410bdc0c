package service

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/tail"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A LogQuery says what part of a job's log is wanted. The zero value is all of stdout.
type LogQuery struct {
	// Stderr asks for stderr instead of stdout.
	Stderr bool
	// Tail is how many of the last lines are wanted; 0: all lines. Up to 1 MiB is read for each of
	// them, and 64 MiB in all. If the lines are longer, the first line says that their beginning is
	// cut.
	Tail int
	// Follow goes on with what is written from now on, until the job has ended. It begins with the
	// log of the present attempt, and goes on with the attempts after it.
	Follow bool
	// Until ends following early when it is closed. What is there by then is read. Nil never ends
	// it.
	Until <-chan struct{}
}

// Log opens the log of a job's program. The caller closes it. It is read in pieces, so it may be
// large. The error is of kind NotFound if there is no log. With Follow it is no error if the log is
// yet to come.
func (s *Service) Log(ctx context.Context, id job.ID, q LogQuery) (io.ReadCloser, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.onOtherMachine(&j) {
		return s.logThere(ctx, &j, q)
	}
	k, err := s.keeper(&j)
	if err != nil {
		return nil, err
	}
	if q.Follow {
		return s.follow(ctx, &j, q), nil
	}
	f, err := k.Files(&j)
	if err != nil {
		return nil, err
	}
	name := q.name(f)
	file, r, err := open(ctx, f, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = job.Errorf(job.NotFound, "job %s has no %s: it is %s", j.ID, name, j.State)
	}
	if err != nil {
		return nil, err
	}
	start, cut, err := tail.Lines(r, file.Size, q.Tail)
	if err == nil {
		_, err = r.Seek(start, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(cut), io.LimitReader(r, file.Size-start)), r}, nil
}

func (q LogQuery) name(f engine.Files) string {
	if q.Stderr {
		return f.Stderr
	}
	return f.Stdout
}

// block is how many bytes of a log are read at once.
const block = 64 << 10

// lookEvery is how often a followed file is looked at while its program runs: nobody tells of a
// file that grows, and it may be on another machine.
const lookEvery = 200 * time.Millisecond

// A logFollower reads a log while it is written. The events of the job say which launch the file
// belongs to. A launch truncates the file, and may have written more than the one before when it is
// looked at next. So a piece counts only if no later launch was intended before the piece had been
// read.
type logFollower struct {
	s     *Service
	ctx   context.Context
	stop  context.CancelFunc
	id    job.ID
	q     LogQuery
	since int64 // since is the number of the newest event when the following began.
	news  chan item

	state   job.State
	stopped time.Time // when nothing of the launch before was alive
	launch  int       // the launch whose log is read; 0: none
	files   engine.Files
	stale   time.Time    // what was written until then belongs to the launch before
	tail    int          // how many of the last lines are read first; 0: all
	read    int64        // bytes of the file
	owed    *store.Event // the launch that has begun, and whose log could not be looked for yet
	buf     []byte       // read, and not yet asked for
	err     error        // why there is no more
}

type item struct {
	store.Event
	err error
}

func (s *Service) follow(ctx context.Context, j *job.Job, q LogQuery) *logFollower {
	f := &logFollower{s: s, id: j.ID, q: q, since: j.N, news: make(chan item)}
	f.ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.news)
		for n, err := range s.News(f.ctx, NewsQuery{Job: f.id, Until: q.Until}) {
			select {
			case f.news <- item{n, err}:
			case <-f.ctx.Done():
				return
			}
		}
	}()
	return f
}

// Close stops a Read that waits.
func (f *logFollower) Close() error {
	f.stop()
	for range f.news { // until the goroutine has ended
	}
	return nil
}

// Read waits until there is something to read. After the job has ended it returns io.EOF.
func (f *logFollower) Read(p []byte) (int, error) {
	for len(f.buf) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if f.err = f.look(); f.unreachable(f.err) {
			f.err = nil
		}
		if f.err != nil || len(f.buf) > 0 {
			continue
		}
		f.err = f.wait()
	}
	n := copy(p, f.buf)
	f.buf = f.buf[n:]
	return n, nil
}

// unreachable reports whether an error says that the log is where nobody can look just now. It is
// tried again: the program runs on, and so does the log.
func (f *logFollower) unreachable(err error) bool {
	return f.state == job.Running && job.KindOf(err) == job.Unavailable
}

// wait returns when there is a reason to look again.
func (f *logFollower) wait() error {
	var tick <-chan time.Time
	if f.state == job.Running && (f.launch > 0 || f.owed != nil) {
		t := time.NewTimer(lookEvery)
		defer t.Stop()
		tick = t.C
	}
	select {
	case n, ok := <-f.news:
		switch {
		case !ok && f.ctx.Err() != nil:
			return context.Cause(f.ctx)
		case !ok: // the job has ended, or Until says that it is enough
			if err := f.look(); err != nil || len(f.buf) > 0 {
				return err
			}
			return io.EOF
		case n.err != nil:
			return n.err
		}
		return f.take(n.Event)
	case <-tick:
		if f.owed != nil {
			return f.begin(*f.owed)
		}
		return nil
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
}

// take learns from an event whose log the file is.
func (f *logFollower) take(n store.Event) error {
	was := f.state
	f.state = n.State
	again := n.State == job.Pending || n.State == job.Waiting
	if was != n.State && (was == job.Archiving || was == job.Running && again) {
		f.stopped = n.At // what the program left running has been ended, too
	}
	if f.owed = nil; !job.Begins(was, n.State) {
		return nil
	}
	return f.begin(n)
}

// begin finds the log of a launch that has begun.
func (f *logFollower) begin(n store.Event) error {
	f.launch, f.stale, f.read = 0, f.stopped, 0
	j, err := f.s.Job(f.ctx, f.id)
	if err != nil {
		return err
	}
	for later, err := range f.s.News(f.ctx, NewsQuery{Job: f.id, Cursor: n.Cursor, Until: closed()}) {
		if err != nil {
			return err
		}
		if later.State == job.SubmittingJob {
			return nil // the file is that of a later launch, or may be
		}
	}
	k, err := f.s.keeper(&j)
	if err != nil {
		return err
	}
	if f.files, err = k.Files(&j); f.unreachable(err) {
		f.owed = &n
		return nil
	} else if err != nil {
		return err
	}
	f.owed, f.launch = nil, j.Launch
	if n.N <= f.since {
		f.tail = f.q.Tail
	}
	return nil
}

// open opens the file. It returns nil if there is none, or if the program has put something else in
// its place, such as a pipe.
func (f *logFollower) open() (File, io.ReadSeekCloser, error) {
	where := f.files
	if f.state.Terminal() {
		j, err := f.s.Job(f.ctx, f.id) // what was archived is known by now
		if err != nil {
			return File{}, nil, err
		}
		if where, err = f.s.filesOf(&j); err != nil {
			return File{}, nil, err
		}
	} else {
		where.Results = "" // they are whole once the job has ended
	}
	file, r, err := open(f.ctx, where, f.q.name(where))
	if errors.Is(err, fs.ErrNotExist) || job.KindOf(err) == job.Invalid {
		return File{}, nil, nil
	}
	return file, r, err
}

// look reads what was written since the last look.
func (f *logFollower) look() error {
	if f.launch == 0 {
		return nil
	}
	file, r, err := f.open()
	if err != nil || r == nil {
		return err
	}
	defer r.Close()
	if file.Size == f.read || !file.Modified.After(f.stale) {
		return nil
	}
	cut := ""
	if f.tail > 0 {
		if f.read, cut, err = tail.Lines(r, file.Size, f.tail); err != nil {
			return err
		}
		f.tail = 0
	}
	from := f.read
	if file.Size < from {
		if f.state.Terminal() {
			return nil // the archive has another file of that name
		}
		from = 0 // the program itself has truncated it, or else the launch is not the newest
	}
	buf := make([]byte, min(file.Size-from, block))
	if _, err := r.Seek(from, io.SeekStart); err != nil {
		return err
	}
	n, err := io.ReadFull(r, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	j, err := f.s.Job(f.ctx, f.id)
	if err != nil {
		return err
	}
	if j.Launch != f.launch {
		f.launch = 0
		return nil
	}
	f.buf, f.read = append([]byte(cut), buf[:n]...), from+int64(n)
	return nil
}
