package service

import (
	"context"
	"iter"
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

// A NewsQuery says which events are wanted. The zero value asks for all events, also those to come.
type NewsQuery struct {
	Job    job.ID     // the only job; zero: all jobs
	Filter job.Filter // of these jobs; state, custody, code and message are the event's
	Types  []string   // states, or names that users and jobs gave; empty: all
	Cursor string     // begin here; empty: with the first event
	// Until ends the wait for more events when it is closed. Events that are there by then are
	// yielded. Nil never ends it.
	Until <-chan struct{}
}

// News yields events in the order in which they were committed, and waits for more until ctx ends.
// Each event has the cursor at which the events after it begin. The query of one job ends after its
// terminal event. An error is yielded last.
func (s *Service) News(ctx context.Context, q NewsQuery) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		f := follower{s: s, q: q, cursor: q.Cursor}
		err := f.follow(ctx, func(e store.Event) bool {
			e.Mend()
			return yield(e, nil)
		})
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			yield(store.Event{}, err)
		}
	}
}

// Events yields the events of one job, or of all jobs for the zero id. It begins at a cursor, or
// with the first event for "", and waits for more until ctx ends. Events of one job end after its
// terminal event. An error is yielded last.
func (s *Service) Events(ctx context.Context, id job.ID, cursor string) iter.Seq2[job.Event, error] {
	return func(yield func(job.Event, error) bool) {
		for n, err := range s.News(ctx, NewsQuery{Job: id, Cursor: cursor}) {
			if !yield(n.Event, err) {
				return
			}
		}
	}
}

// History returns all events of one job so far.
func (s *Service) History(ctx context.Context, id job.ID) ([]job.Event, error) {
	if _, err := s.Job(ctx, id); err != nil {
		return nil, err
	}
	var all []job.Event
	for e, err := range s.history(ctx, id) {
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// history yields what is in the history of a job now.
func (s *Service) history(ctx context.Context, id job.ID) iter.Seq2[*job.Event, error] {
	return func(yield func(*job.Event, error) bool) {
		q := store.EventQuery{Tenant: s.cfg.Tenant, Job: id, Now: true}
		for {
			es, err := s.cfg.Store.Events(ctx, q)
			if err != nil {
				yield(nil, err)
			}
			if err != nil || len(es.Events) == 0 {
				return
			}
			for i := range es.Events {
				if !yield(&es.Events[i].Event, nil) {
					return
				}
			}
			q.Cursor = es.Cursor
		}
	}
}

// Cursor returns the cursor at which the events begin that are committed from now on.
func (s *Service) Cursor(ctx context.Context) (string, error) {
	es, err := s.cfg.Store.Events(ctx, store.EventQuery{Tenant: s.cfg.Tenant, End: true})
	return es.Cursor, err
}

// Wait waits until a job has ended, and returns it. It does not wait for others' transactions, as
// events do, which are in order.
func (s *Service) Wait(ctx context.Context, id job.ID) (job.Job, error) {
	ended, forget := s.feed.await(id)
	defer forget()
	if j, err := s.Job(ctx, id); err != nil || j.State.Terminal() {
		return j, err
	}
	for _, err := range s.News(ctx, NewsQuery{Job: id, Until: ended}) {
		if err != nil {
			return job.Job{}, err
		}
	}
	return s.Job(ctx, id)
}

// A follower yields events: past ones from the store, new ones from the feed.
type follower struct {
	s      *Service
	q      NewsQuery
	cursor string // of the newest event that it looked at
}

// follow yields events until there are no more, yield returns false, or ctx ends with an error.
func (f *follower) follow(ctx context.Context, yield func(store.Event) bool) error {
	if isClosed(f.q.Until) {
		_, err := f.past(ctx, "", yield)
		return err
	}
	feed := &f.s.feed
	feed.join()
	defer feed.leave()
	for {
		// Everything up to this read of the feed is past. If the past yields events beyond it, the
		// feed is read again. So the past ends where the feed goes on: no event is left out, and
		// none comes twice.
		at, known, err := feed.read(ctx)
		if err != nil {
			return err
		}
		before := f.cursor
		if over, err := f.past(ctx, known, yield); over || err != nil {
			return err
		}
		if f.cursor != before {
			continue
		}
		if over, err := f.present(ctx, at, yield); over || err != nil {
			return err
		}
	}
}

// past yields the events that the store has now. known is how far the feed has read. over says that
// no more events are wanted.
func (f *follower) past(ctx context.Context, known string, yield func(store.Event) bool) (over bool, err error) {
	q := store.EventQuery{Tenant: f.s.cfg.Tenant, Job: f.q.Job, Cursor: f.cursor, Known: known, Limit: firstPage}
	for {
		es, err := f.s.cfg.Store.Events(ctx, q)
		if err != nil || len(es.Events) == 0 {
			return false, err
		}
		if over, err := f.take(ctx, &batch{events: es.Events}, yield); over || err != nil || len(es.Events) < q.Limit {
			return over, err
		}
		q.Limit, q.Cursor = nextPage(es.Events, q.Limit), es.Cursor
	}
}

// A follower keeps a page of past events in memory, and may take long to read it. A page has about
// pageBytes; its size follows from the page before.
const (
	firstPage = 16 // events
	maxPage   = 256
	pageBytes = 256 << 10
)

// nextPage returns how many events the next page should have. It grows little by little.
func nextPage(page []store.Event, limit int) int {
	bytes := 0
	for i := range page {
		bytes += sizeOf(&page[i])
	}
	return max(1, min(2*limit, maxPage, len(page)*pageBytes/bytes))
}

// sizeOf returns about how many bytes an event takes in memory.
func sizeOf(e *store.Event) int { return 400 + len(e.Message) + len(e.Data) }

// lookAgain is how often a follower of one job checks that the job is still there.
const lookAgain = 30 * time.Second

// present yields events that come after a point of the feed. It returns when this follower is too
// slow for the feed, or when no more events are wanted.
func (f *follower) present(ctx context.Context, at int64, yield func(store.Event) bool) (over bool, err error) {
	var gone <-chan time.Time // when to see whether the job is there: one that was deleted tells nothing
	if !f.q.Job.IsZero() {
		t := time.NewTicker(lookAgain)
		defer t.Stop()
		gone = t.C
	}
	fresh := false // what comes from the feed comes after the cursor
	for {
		b, grown, err := f.s.feed.after(at)
		if err != nil {
			return false, err
		}
		switch {
		case b == nil && grown == nil:
			return false, nil
		case b != nil:
			if !fresh {
				if b, err = f.unseen(b); err != nil {
					return false, err
				}
				fresh = len(b.events) > 0
			}
			if over, err := f.take(ctx, b, yield); over || err != nil {
				return over, err
			}
			at++
			continue
		}
		select {
		case <-grown:
		case <-gone:
			if _, err := f.s.Job(ctx, f.q.Job); err != nil {
				return false, err
			}
		case <-f.q.Until:
			_, err := f.past(ctx, "", yield) // the feed may be behind
			return true, err
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// unseen returns the events of b that come after the cursor. The cursor may come from another
// process, which may have known earlier than this feed that nothing is missing before it.
func (f *follower) unseen(b *batch) (*batch, error) {
	for i := range b.events {
		switch after, err := store.CursorAfter(b.events[i].Cursor, f.cursor); {
		case err != nil:
			return nil, err
		case after && i == 0:
			return b, nil
		case after:
			return &batch{events: b.events[i:]}, nil
		}
	}
	return &batch{}, nil
}

// take yields the wanted ones among some events. over says that no more events are wanted.
func (f *follower) take(ctx context.Context, b *batch, yield func(store.Event) bool) (over bool, err error) {
	var facts map[job.ID]*job.Job
	if len(f.q.Filter) > 0 {
		if facts, err = b.facts(ctx, f.s.cfg.Store); err != nil {
			return false, err
		}
	}
	for _, e := range b.events {
		f.cursor = e.Cursor
		if !f.q.Job.IsZero() && e.Job != f.q.Job {
			continue
		}
		if f.wants(&e, facts) && !yield(e) {
			return true, nil
		}
		if !f.q.Job.IsZero() && e.State.Terminal() {
			return true, nil
		}
	}
	return false, nil
}

func (f *follower) wants(e *store.Event, facts map[job.ID]*job.Job) bool {
	kind := string(e.State)
	if e.Sub > 0 {
		kind = e.Name
	}
	if len(f.q.Types) > 0 && !slices.Contains(f.q.Types, kind) {
		return false
	}
	if len(f.q.Filter) == 0 {
		return true
	}
	now, there := facts[e.Job]
	if !there {
		return false // it was deleted
	}
	then := *now
	then.State, then.Custody, then.Code, then.Message = e.State, e.Custody, e.Code, e.Message
	return f.q.Filter.Match(&then)
}

// closed returns a closed channel.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A feed reads the events that are committed from now on, once for all followers of this process.
// It runs while there is a follower.
//
// It keeps what it has read in batches, and forgets the oldest ones. A slower follower reads the
// store instead.
type feed struct {
	store  store.Store
	broker broker.Broker
	tenant string
	log    *slog.Logger
	keep   int // events
	most   int // bytes of these events

	joining   sync.Mutex // held while a follower joins or leaves
	followers int        // guarded by joining
	stop      func()     // guarded by joining: ends the goroutine and waits for it

	reading   sync.Mutex // held while events are read
	cursor    string     // guarded by reading: of the newest event that was read; empty: none
	unsettled bool       // guarded by reading: see [store.Events]

	mu      sync.Mutex
	batches []*batch      // guarded by mu: the newest ones
	events  int           // guarded by mu: in batches
	bytes   int           // guarded by mu: of these events
	count   int64         // guarded by mu: how many batches have been read
	grown   chan struct{} // guarded by mu: closed by the next batch, or the error
	err     error         // guarded by mu: why no more is read

	awaited map[job.ID][]chan struct{} // guarded by mu: whose end somebody waits for
}

// What a feed reads at a time, and what it keeps, or little more: some seconds of a busy service.
const (
	feedPage   = 1000
	keptEvents = 20_000
	keptBytes  = 32 << 20
)

// A batch is some events with what is known of their jobs.
type batch struct {
	events []store.Event
	bytes  int // of the events

	mu   sync.Mutex
	jobs map[job.ID]*job.Job // guarded by mu: nil until somebody asks
}

// facts returns the jobs of b, without deleted ones.
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
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	f.stop = func() {
		cancel()
		running.Wait()
		f.reading.Lock()
		defer f.reading.Unlock()
		f.cursor = "" // events until the next join are past then
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

// While something is unsettled, it is read again after soonAgain, then later and later, up to
// lateAgain.
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
			if err := f.look(ctx); err != nil {
				return err
			}
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

// read reads everything that is committed by now. It returns how many batches have been read in
// all, and the cursor at their end.
func (f *feed) read(ctx context.Context) (at int64, cursor string, err error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	for whole := false; !whole; {
		q := store.EventQuery{Tenant: f.tenant, Cursor: f.cursor, End: f.cursor == "", Limit: feedPage}
		es, err := f.store.Events(ctx, q)
		if err != nil {
			return 0, "", err
		}
		f.cursor, f.unsettled, whole = es.Cursor, es.Unsettled, len(es.Events) < feedPage
		if len(es.Events) > 0 {
			f.add(&batch{events: es.Events})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count, f.cursor, nil
}

// open reports whether something was unsettled at the newest read.
func (f *feed) open() bool {
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.unsettled
}

// await returns what is closed when a job has ended or is gone, while its events wait for a
// transaction under way. Without one they tell that as soon.
func (f *feed) await(id job.ID) (ended chan struct{}, forget func()) {
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
func (f *feed) look(ctx context.Context) error {
	f.mu.Lock()
	ids := slices.Collect(maps.Keys(f.awaited))
	f.mu.Unlock()
	for some := range slices.Chunk(ids, feedPage) {
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

func (f *feed) add(b *batch) {
	for i := range b.events {
		b.bytes += sizeOf(&b.events[i])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches, f.events, f.bytes, f.count = append(f.batches, b), f.events+len(b.events), f.bytes+b.bytes, f.count+1
	for oldest := f.batches[0]; f.events-len(oldest.events) >= f.keep || f.bytes > f.most &&
		len(f.batches) > 1; oldest = f.batches[0] {
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

// after returns batch number at. If it is not there yet, it returns a channel that is closed when
// there may be one. If the batch is forgotten, both are nil.
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
