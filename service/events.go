package service

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service/internal/feed"
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
// terminal event, and does not wait for others' transactions then. An error is yielded last.
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

// Wait waits until a job has ended, and returns it.
func (s *Service) Wait(ctx context.Context, id job.ID) (job.Job, error) {
	if j, err := s.Job(ctx, id); err == nil && j.State.Terminal() || err != nil && ctx.Err() == nil {
		return j, err
	}
	for _, err := range s.News(ctx, NewsQuery{Job: id}) {
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
	cursor string          // of the newest event that it looked at
	ended  <-chan struct{} // closed when the one job has ended or is gone; nil: it looks at all
}

// follow yields events until there are no more, yield returns false, or ctx ends with an error.
func (f *follower) follow(ctx context.Context, yield func(store.Event) bool) error {
	if isClosed(f.q.Until) {
		_, err := f.past(ctx, store.EventQuery{}, yield)
		return err
	}
	if !f.q.Job.IsZero() {
		ended, forget := f.s.feed.Await(f.q.Job)
		defer forget()
		f.ended = ended
	}
	news := f.s.feed
	news.Join()
	defer news.Leave()
	for {
		// Everything up to this read of the feed is past. If the past yields events beyond it, the
		// feed is read again. So the past ends where the feed goes on: no event is left out, and
		// none comes twice.
		at, known, err := news.Read(ctx)
		if err != nil {
			return err
		}
		before := f.cursor
		if over, err := f.past(ctx, store.EventQuery{Known: known}, yield); over || err != nil {
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

// past yields the events that the store has now; q says of which time. over says that no more
// events are wanted.
func (f *follower) past(ctx context.Context, q store.EventQuery, yield func(store.Event) bool) (over bool, err error) {
	q.Tenant, q.Job, q.Cursor, q.Limit = f.s.cfg.Tenant, f.q.Job, f.cursor, firstPage
	for {
		es, err := f.s.cfg.Store.Events(ctx, q)
		if err != nil || len(es.Events) == 0 {
			return false, err
		}
		if over, err := f.take(ctx, &feed.Batch{Events: es.Events}, yield); over || err != nil || len(es.Events) < q.Limit {
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
		bytes += feed.SizeOf(&page[i])
	}
	return max(1, min(2*limit, maxPage, len(page)*pageBytes/bytes))
}

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
		b, grown, err := f.s.feed.After(at)
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
				fresh = len(b.Events) > 0
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
		case <-f.ended: // the feed may wait for a transaction that began before
			over, err := f.past(ctx, store.EventQuery{Now: true}, yield)
			if !over && err == nil { // it told its end before, or is gone
				_, err = f.s.Job(ctx, f.q.Job)
			}
			return true, err
		case <-f.q.Until:
			_, err := f.past(ctx, store.EventQuery{}, yield) // the feed may be behind
			return true, err
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// unseen returns the events of b that come after the cursor. The cursor may come from another
// process, which may have known earlier than this feed that nothing is missing before it.
func (f *follower) unseen(b *feed.Batch) (*feed.Batch, error) {
	for i := range b.Events {
		switch after, err := store.CursorAfter(b.Events[i].Cursor, f.cursor); {
		case err != nil:
			return nil, err
		case after && i == 0:
			return b, nil
		case after:
			return &feed.Batch{Events: b.Events[i:]}, nil
		}
	}
	return &feed.Batch{}, nil
}

// take yields the wanted ones among some events. over says that no more events are wanted.
func (f *follower) take(ctx context.Context, b *feed.Batch, yield func(store.Event) bool) (over bool, err error) {
	var facts map[job.ID]*job.Job
	if len(f.q.Filter) > 0 {
		if facts, err = b.Facts(ctx, f.s.cfg.Store); err != nil {
			return false, err
		}
	}
	for _, e := range b.Events {
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
