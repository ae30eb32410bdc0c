// Package feed reads the events that are committed from now on once, for all who follow them in
// this process.
package feed

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Feed reads the events that are committed from now on. It runs while somebody follows, between
// Join and Leave.
//
// It keeps what it has read in batches, and forgets the oldest ones. A slower follower reads the
// store instead.
type Feed struct {
	store  store.Store
	broker broker.Broker
	tenant string
	log    *slog.Logger

	Keep int // events; it may be set before the first Join

	joining   sync.Mutex // held while a follower joins or leaves
	followers int        // guarded by joining
	stop      func()     // guarded by joining: ends the goroutine and waits for it

	reading   sync.Mutex // held while events are read
	cursor    string     // guarded by reading: of the newest event that was read; empty: none
	unsettled bool       // guarded by reading: see [store.Events]

	mu      sync.Mutex
	batches []*Batch      // guarded by mu: the newest ones
	events  int           // guarded by mu: in batches
	bytes   int           // guarded by mu: of these events
	count   int64         // guarded by mu: how many batches have been read
	grown   chan struct{} // guarded by mu: closed by the next batch, or the error
	err     error         // guarded by mu: why no more is read

	awaited map[job.ID][]chan struct{} // guarded by mu: whose end somebody waits for
}

// What a feed reads at a time, and what it keeps, or little more: some seconds of a busy service.
const (
	page       = 1000
	keptEvents = 20_000
	keptBytes  = 32 << 20
)

// New returns a feed of the events of a tenant; empty: of all.
func New(s store.Store, b broker.Broker, tenant string, log *slog.Logger) *Feed {
	return &Feed{store: s, broker: b, tenant: tenant, log: log, Keep: keptEvents, awaited: map[job.ID][]chan struct{}{}}
}

// A Batch is some events with what is known of their jobs.
type Batch struct {
	Events []store.Event
	bytes  int // of the events

	mu   sync.Mutex
	jobs map[job.ID]*job.Job // guarded by mu: nil until somebody asks
}

// Facts returns the jobs of b, without deleted ones.
func (b *Batch) Facts(ctx context.Context, s store.Reader) (map[job.ID]*job.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs != nil {
		return b.jobs, nil
	}
	jobs := map[job.ID]*job.Job{}
	var ids []job.ID
	for _, e := range b.Events {
		if _, twice := jobs[e.Job]; !twice {
			jobs[e.Job] = nil
			ids = append(ids, e.Job)
		}
	}
	found, err := s.Find(ctx, store.FindQuery{IDs: ids})
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

// Join keeps the feed running until Leave.
func (f *Feed) Join() {
	f.joining.Lock()
	defer f.joining.Unlock()
	if f.followers++; f.followers > 1 {
		return
	}
	f.mu.Lock()
	f.batches, f.events, f.bytes, f.grown, f.err = nil, 0, 0, make(chan struct{}), nil
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	f.stop = func() {
		cancel()
		running.Wait()
		f.reading.Lock()
		defer f.reading.Unlock()
		f.cursor = "" // events until the next Join are past then
	}
}

// Leave takes back a Join.
func (f *Feed) Leave() {
	f.joining.Lock()
	defer f.joining.Unlock()
	if f.followers--; f.followers == 0 {
		f.stop()
	}
}

// run reads whenever there is news, until ctx ends.
func (f *Feed) run(ctx context.Context) {
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

// While something is unsettled, it is read again after soonAgain, then later and later, up to
// lateAgain.
const (
	soonAgain = 5 * time.Millisecond
	lateAgain = time.Second
)

// listen reads whenever there is news, until the subscription is lost. Looking at jobs takes up to
// a tenth of the time.
func (f *Feed) listen(ctx context.Context, news broker.Subscription) error {
	wait := soonAgain
	var looked time.Time
	var took time.Duration
	for {
		if _, _, err := f.Read(ctx); err != nil {
			return err
		}
		var again <-chan time.Time
		if f.open() {
			early := 10*took - time.Since(looked)
			if early <= 0 {
				looked = time.Now()
				if err := f.look(ctx); err != nil {
					return err
				}
				took = time.Since(looked)
			}
			again = time.After(max(wait, early))
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

// Read reads everything that is committed by now. It returns how many batches have been read in
// all, and the cursor at their end.
func (f *Feed) Read(ctx context.Context) (at int64, cursor string, err error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	for whole := false; !whole; {
		q := store.EventQuery{Tenant: f.tenant, Cursor: f.cursor, End: f.cursor == "", Limit: page}
		es, err := f.store.Events(ctx, q)
		if err != nil {
			return 0, "", err
		}
		f.cursor, f.unsettled, whole = es.Cursor, es.Unsettled, len(es.Events) < page
		if len(es.Events) > 0 {
			f.add(&Batch{Events: es.Events})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count, f.cursor, nil
}

// open reports whether something was unsettled at the newest read.
func (f *Feed) open() bool {
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.unsettled
}

// Await returns what is closed when a job has ended or is gone, while its events wait for a
// transaction under way. Without one they tell that as soon.
func (f *Feed) Await(id job.ID) (ended chan struct{}, forget func()) {
	ended = make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaited[id] = append(f.awaited[id], ended)
	return ended, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.awaited[id] = slices.DeleteFunc(f.awaited[id], func(c chan struct{}) bool { return c == ended })
		if len(f.awaited[id]) == 0 {
			delete(f.awaited, id)
		}
	}
}

// look tells who waits for jobs which of them have ended.
func (f *Feed) look(ctx context.Context) error {
	f.mu.Lock()
	ids := slices.Collect(maps.Keys(f.awaited))
	f.mu.Unlock()
	for some := range slices.Chunk(ids, page) {
		jobs, err := f.store.Find(ctx, store.FindQuery{IDs: some})
		if err != nil {
			return err
		}
		lives := map[job.ID]bool{}
		for i := range jobs {
			lives[jobs[i].ID] = !jobs[i].State.Terminal()
		}
		f.mu.Lock()
		for _, id := range some {
			if lives[id] {
				continue
			}
			for _, ended := range f.awaited[id] {
				close(ended)
			}
			delete(f.awaited, id)
		}
		f.mu.Unlock()
	}
	return nil
}

func (f *Feed) add(b *Batch) {
	for i := range b.Events {
		b.bytes += SizeOf(&b.Events[i])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches, f.events, f.bytes, f.count = append(f.batches, b), f.events+len(b.Events), f.bytes+b.bytes, f.count+1
	for oldest := f.batches[0]; f.events-len(oldest.Events) >= f.Keep || f.bytes > keptBytes &&
		len(f.batches) > 1; oldest = f.batches[0] {
		f.events, f.bytes = f.events-len(oldest.Events), f.bytes-oldest.bytes
		f.batches[0] = nil
		f.batches = f.batches[1:]
	}
	close(f.grown)
	f.grown = make(chan struct{})
}

func (f *Feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	close(f.grown)
	f.grown = make(chan struct{})
}

// After returns batch number at. If it is not there yet, it returns a channel that is closed when
// there may be one. If the batch is forgotten, both are nil.
func (f *Feed) After(at int64) (*Batch, <-chan struct{}, error) {
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

// SizeOf returns about how many bytes an event takes in memory.
func SizeOf(e *store.Event) int { return 400 + len(e.Message) + len(e.Data) }
