package pawl

import (
	"context"
	"iter"

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

// News is Events with the cursor of each event, and waits for more only until a channel is closed: what is there by then
// is yielded. With a nil channel it waits for ever, with a closed one not at all.
func (s *Service) News(ctx context.Context, id job.ID, cursor string, until <-chan struct{}) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		news, err := s.cfg.Broker.Subscribe(ctx, engine.NewsTopic)
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		defer news.Close()
		q := store.EventQuery{Tenant: s.cfg.Tenant, Job: id, Cursor: cursor}
		for {
			last := isClosed(until) // before the store is read
			es, err := s.cfg.Store.Events(ctx, q)
			if err != nil {
				yield(store.Event{}, err)
				return
			}
			for _, e := range es.Events {
				if !yield(e, nil) || !id.IsZero() && e.State.Terminal() {
					return
				}
			}
			q.Cursor = es.Cursor
			if len(es.Events) > 0 {
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
				yield(store.Event{}, context.Cause(ctx))
				return
			}
		}
	}
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
