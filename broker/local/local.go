// Package local is the broker within one process.
package local

import (
	"context"
	"slices"
	"sync"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
)

// Broker implements [broker.Broker]. The zero value is ready to use.
type Broker struct {
	mu      sync.Mutex
	dirty   map[job.QueueKind]bool
	waiters []chan struct{}            // woken by an announcement
	topics  map[string][]*subscription // live ones
	closed  bool
}

var _ broker.Broker = (*Broker)(nil)

var errClosed = job.Errorf(job.Closed, "the service was closed")

// Close ends calls of Wait that find nothing, and refuses Subscribe, with an error of kind
// [job.Closed]. Subscriptions signal Lost. Close can be called again.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake()
	for _, subscriptions := range b.topics {
		for _, s := range subscriptions {
			s.miss()
		}
	}
}

// wake is called with mu held.
func (b *Broker) wake() {
	for _, w := range b.waiters {
		close(w)
	}
	b.waiters = nil
}

// Announce implements [broker.Broker].
func (b *Broker) Announce(_ context.Context, where ...job.QueueKind) error {
	if len(where) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty == nil {
		b.dirty = map[job.QueueKind]bool{}
	}
	for _, l := range where {
		b.dirty[l] = true
	}
	b.wake()
	return nil
}

// Wait implements [broker.Broker].
func (b *Broker) Wait(ctx context.Context, where []job.QueueKind) ([]job.QueueKind, error) {
	for {
		b.mu.Lock()
		var found []job.QueueKind
		for _, l := range where {
			if b.dirty[l] {
				found = append(found, l)
				delete(b.dirty, l)
			}
		}
		if found != nil || b.closed {
			b.mu.Unlock()
			if found == nil {
				return nil, errClosed
			}
			return found, nil
		}
		woken := make(chan struct{})
		b.waiters = append(b.waiters, woken)
		b.mu.Unlock()
		select {
		case <-woken:
		case <-ctx.Done():
			b.mu.Lock()
			b.waiters = slices.DeleteFunc(b.waiters, func(w chan struct{}) bool { return w == woken })
			b.mu.Unlock()
			return nil, ctx.Err()
		}
	}
}

// Publish implements [broker.Broker].
func (b *Broker) Publish(_ context.Context, topic string, message []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.topics[topic] {
		select {
		case s.messages <- slices.Clone(message):
		default:
			s.miss()
		}
	}
	return nil
}

// buffer is how many messages a subscriber may be behind.
const buffer = 256

// Subscribe implements [broker.Broker].
func (b *Broker) Subscribe(_ context.Context, topic string) (broker.Subscription, error) {
	s := &subscription{b: b, topic: topic, messages: make(chan []byte, buffer), lost: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	if b.topics == nil {
		b.topics = map[string][]*subscription{}
	}
	b.topics[topic] = append(b.topics[topic], s)
	return s, nil
}

type subscription struct {
	b        *Broker
	topic    string
	messages chan []byte
	lost     chan struct{}
}

func (s *subscription) miss() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

func (s *subscription) Messages() <-chan []byte { return s.messages }
func (s *subscription) Lost() <-chan struct{}   { return s.lost }

func (s *subscription) Close() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	left := slices.DeleteFunc(s.b.topics[s.topic], func(x *subscription) bool { return x == s })
	if len(left) == 0 {
		delete(s.b.topics, s.topic)
		return
	}
	s.b.topics[s.topic] = left
}
