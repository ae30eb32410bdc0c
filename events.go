package pawl

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// History returns all events of one job.
func (s *Service) History(ctx context.Context, id job.ID) ([]job.Event, error) {
	if _, err := s.Job(ctx, id); err != nil {
		return nil, err
	}
	var all []job.Event
	for n, err := range s.News(ctx, id, "", closed()) {
		if err != nil {
			return nil, err
		}
		all = append(all, n.Event)
	}
	return all, nil
}

// Events yields the events of one job, or of all jobs for the zero id, from a cursor on ("": from the first), and
// waits for more until ctx ends. The error is yielded last. It ends by itself after a job's terminal event.
func (s *Service) Events(ctx context.Context, id job.ID, cursor string) iter.Seq2[job.Event, error] {
	return func(yield func(job.Event, error) bool) {
		for n, err := range s.News(ctx, id, cursor, nil) {
			if !yield(n.Event, err) {
				return
			}
		}
	}
}

// Cursor returns the cursor from which those events are had that are committed from now on.
func (s *Service) Cursor(ctx context.Context) (string, error) {
	es, err := s.cfg.Store.Events(ctx, store.EventQuery{Tenant: s.cfg.Tenant, End: true})
	return es.Cursor, err
}

// A News is an event with the cursor from which those after it are had.
type News struct {
	job.Event
	Cursor string
}

// News is Events with a cursor for each event, and waits for more only until a channel is closed: what is there by then
// is yielded. With a nil channel it waits for ever, with a closed one not at all.
func (s *Service) News(ctx context.Context, id job.ID, cursor string, until <-chan struct{}) iter.Seq2[News, error] {
	return func(yield func(News, error) bool) {
		base, skip, err := splitCursor(cursor)
		if err != nil {
			yield(News{}, err)
			return
		}
		news, err := s.cfg.Broker.Subscribe(ctx, engine.NewsTopic)
		if err != nil {
			yield(News{}, err)
			return
		}
		defer news.Close()
		q := store.EventQuery{Tenant: s.cfg.Tenant, Job: id, Cursor: base}
		for {
			last := isClosed(until) // before the store is read
			es, err := s.cfg.Store.Events(ctx, q)
			if err != nil {
				yield(News{}, err)
				return
			}
			for i, e := range es.Events {
				if i < skip {
					continue
				}
				n := News{Event: e, Cursor: q.Cursor + skipMark + strconv.Itoa(i+1)}
				if i+1 == len(es.Events) {
					n.Cursor = es.Cursor
				}
				if !yield(n, nil) || !id.IsZero() && e.State.Terminal() {
					return
				}
			}
			skip = max(0, skip-len(es.Events))
			if len(es.Events) > 0 {
				q.Cursor = es.Cursor
				continue
			}
			if last {
				return
			}
			select {
			case <-news.Messages():
			case <-news.Lost():
			case <-until:
			case <-ctx.Done():
				yield(News{}, context.Cause(ctx))
				return
			}
		}
	}
}

// skipMark stands between a store's cursor and a number of events after it. A store has a cursor for a run of events
// only; their order never changes, so an event within a run is found by counting.
const skipMark = "~"

func splitCursor(cursor string) (base string, skip int, err error) {
	base, count, found := strings.Cut(cursor, skipMark)
	if !found {
		return base, 0, nil
	}
	skip, err = strconv.Atoi(count)
	if err != nil || skip < 0 {
		return "", 0, job.Errorf(job.Invalid, "%q is not a cursor: pass the one from the answer before, or none", cursor)
	}
	return base, skip, nil
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

// Wait returns the job once it has ended.
func (s *Service) Wait(ctx context.Context, id job.ID) (job.Job, error) {
	if j, err := s.Job(ctx, id); err != nil || j.State.Terminal() {
		return j, err
	}
	for _, err := range s.Events(ctx, id, "") {
		if err != nil {
			return job.Job{}, err
		}
	}
	return s.Job(ctx, id)
}
