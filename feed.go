package pawl

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A feed reads the events that are committed from now on, once for all who follow them in this process. It runs while
// somebody does.
//
// What it has read it keeps in batches, of which it forgets the oldest: who is slower reads the store instead.
type feed struct {
	store  store.Store
	broker broker.Broker
	tenant string
	log    *slog.Logger
	keep   int // events
	most   int // bytes of them

	joining   sync.Mutex // held by who joins or leaves
	followers int        // guarded by joining
	stop      func()     // guarded by joining: ends the goroutine and waits for it

	reading   sync.Mutex // held by who reads
	cursor    string     // guarded by reading: of the newest event that was read; empty: none was
	unsettled bool       // guarded by reading: see [store.Events]

	mu      sync.Mutex
	batches []*batch      // guarded by mu: the newest ones
	events  int           // guarded by mu: in batches
	bytes   int           // guarded by mu: of these events
	count   int64         // guarded by mu: how many batches have been read
	grown   chan struct{} // guarded by mu: closed by the next batch, or the error
	err     error         // guarded by mu: why nothing more is read
}

// What a feed keeps, and a few more: some seconds of a busy service.
const (
	keptEvents = 20_000
	keptBytes  = 32 << 20
)

// A batch is some events, and what there is to know of their jobs.
type batch struct {
	events []store.Event
	bytes  int // of the events

	mu   sync.Mutex
	jobs map[job.ID]*job.Job // guarded by mu: nil until somebody asks
}

// facts returns the jobs of b, without those that were deleted.
func (b *batch) facts(ctx context.Context, s store.Reader) (map[job.ID]*job.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs != nil {
		return b.jobs, nil
	}
	jobs := map[job.ID]*job.Job{}
	var ids []job.ID
	for _, e := range b.events {
		if _, twice := jobs[e.Job]; !twice {
			jobs[e.Job] = nil
			ids = append(ids, e.Job)
		}
	}
	found, err := s.Find(ctx, ids)
	if err != nil {
		return nil, err
	}
	clear(jobs)
	for i := range found {
		jobs[found[i].ID] = &found[i]
	}
	b.jobs = jobs
	return jobs, nil
}

// join keeps the feed running until leave.
func (f *feed) join() {
	f.joining.Lock()
	defer f.joining.Unlock()
	if f.followers++; f.followers > 1 {
		return
	}
	f.mu.Lock()
	f.batches, f.events, f.bytes, f.grown, f.err = nil, 0, 0, make(chan struct{}), nil
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-done
		f.reading.Lock()
		defer f.reading.Unlock()
		f.cursor = "" // what comes until somebody joins again is of the past then
	}
}

func (f *feed) leave() {
	f.joining.Lock()
	defer f.joining.Unlock()
	if f.followers--; f.followers == 0 {
		f.stop()
	}
}

// run reads whenever there is news, until ctx ends.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		news, err := f.broker.Subscribe(ctx, engine.NewsTopic)
		if err == nil {
			err = f.listen(ctx, news)
			news.Close()
		}
		switch {
		case ctx.Err() != nil:
		case job.KindOf(err) == job.Unavailable:
			f.log.Warn("events not read; trying again", "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		case err != nil:
			f.fail(err)
			return
		}
	}
}

// While something is unsettled, it is read again after soonAgain, and later and later.
const (
	soonAgain = 5 * time.Millisecond
	lateAgain = time.Second
)

// listen reads whenever there is news, until the subscription is lost.
func (f *feed) listen(ctx context.Context, news broker.Subscription) error {
	wait := soonAgain
	for {
		if _, _, err := f.read(ctx); err != nil {
			return err
		}
		var again <-chan time.Time
		if f.open() {
			again = time.After(wait)
			wait = min(2*wait, lateAgain)
		} else {
			wait = soonAgain
		}
		select {
		case <-again:
		case <-news.Messages():
			for len(news.Messages()) > 0 { // one read sees to many messages
				<-news.Messages()
			}
		case <-news.Lost():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads all that has been committed by now, and returns how many batches have been read in all, and up to where.
func (f *feed) read(ctx context.Context) (at int64, cursor string, err error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	for {
		es, err := f.store.Events(ctx, store.EventQuery{Tenant: f.tenant, Cursor: f.cursor, End: f.cursor == ""})
		if err != nil {
			return 0, "", err
		}
		f.cursor, f.unsettled = es.Cursor, es.Unsettled
		if len(es.Events) == 0 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.count, f.cursor, nil
		}
		f.add(&batch{events: es.Events})
	}
}

// open reports whether something was unsettled when somebody read last.
func (f *feed) open() bool {
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.unsettled
}

func (f *feed) add(b *batch) {
	for i := range b.events {
		b.bytes += sizeOf(&b.events[i])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches, f.events, f.bytes, f.count = append(f.batches, b), f.events+len(b.events), f.bytes+b.bytes, f.count+1
	for oldest := f.batches[0]; f.events-len(oldest.events) >= f.keep || f.bytes > f.most && len(f.batches) > 1; oldest = f.batches[0] {
		f.events, f.bytes = f.events-len(oldest.events), f.bytes-oldest.bytes
		f.batches[0] = nil
		f.batches = f.batches[1:]
	}
	close(f.grown)
	f.grown = make(chan struct{})
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	close(f.grown)
	f.grown = make(chan struct{})
}

// after returns the batch that was read after so many others; or nil, and a channel that is closed when there may be one.
// The channel is nil, too, when it has been forgotten.
func (f *feed) after(at int64) (*batch, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := f.count - int64(len(f.batches))
	switch {
	case at < oldest:
		return nil, nil, nil
	case at < f.count:
		return f.batches[at-oldest], nil, nil
	}
	return nil, f.grown, f.err
}
