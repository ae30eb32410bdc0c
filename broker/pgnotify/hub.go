package pgnotify

import (
	"context"
	"slices"
	"sync"

	"github.com/pawl-jobs/pawl/job"
)

// A hub tells the receivers within this process.
type hub struct {
	closed chan struct{}
	begun  chan struct{} // has a value when somebody began to wait for what transactions tell

	mu     sync.Mutex
	dirty  map[job.QueueKind]bool     // announced, and nobody was told
	asked  map[job.QueueKind]bool     // waited for at any time
	woken  chan struct{}              // closed by the next announcement; nil: nobody waits
	topics map[string][]*subscription // open ones
}

func newHub() *hub {
	return &hub{
		closed: make(chan struct{}), begun: make(chan struct{}, 1),
		dirty: map[job.QueueKind]bool{}, asked: map[job.QueueKind]bool{}, topics: map[string][]*subscription{},
	}
}

func (h *hub) announce(where []job.QueueKind) {
	if len(where) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range where {
		h.dirty[l] = true
	}
	h.wake()
}

// wake is called with mu held.
func (h *hub) wake() {
	if h.woken != nil {
		close(h.woken)
		h.woken = nil
	}
}

func (h *hub) wait(ctx context.Context, where []job.QueueKind) ([]job.QueueKind, error) {
	for {
		found, woken := h.take(where)
		if found != nil {
			return found, nil
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-h.closed:
			return nil, errClosed
		}
	}
}

// take takes those of where that are dirty. If none is, it returns a channel that the next
// announcement closes.
func (h *hub) take(where []job.QueueKind) ([]job.QueueKind, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []job.QueueKind
	if len(h.asked) == 0 {
		h.begin()
	}
	for _, l := range where {
		h.asked[l] = true
		if h.dirty[l] {
			found = append(found, l)
			delete(h.dirty, l)
		}
	}
	if h.woken == nil {
		h.woken = make(chan struct{})
	}
	return found, h.woken
}

// wanted reports whether somebody waits for what transactions of programs tell: a process that has
// ever waited for ready jobs, or one that follows events.
func (h *hub) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.asked) > 0 || len(h.topics[gateTopic]) > 0 || len(h.topics[newsTopic]) > 0
}

func (h *hub) begin() {
	select {
	case h.begun <- struct{}{}:
	default:
	}
}

// look says that transactions may have enqueued jobs without a word: there may be ready ones
// everywhere, some at the gate, and events.
func (h *hub) look() {
	h.mu.Lock()
	h.everywhere()
	h.mu.Unlock()
	h.deliver(gateTopic, nil)
	h.deliver(newsTopic, nil)
}

// everywhere is called with mu held.
func (h *hub) everywhere() {
	for l := range h.asked {
		h.dirty[l] = true
	}
	h.wake()
}

// missed says that anything may have been missed: there may be ready jobs everywhere, and messages
// on every topic.
func (h *hub) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.everywhere()
	for _, subscriptions := range h.topics {
		for _, s := range subscriptions {
			s.miss()
		}
	}
}

// close ends calls that wait. Subscribers that wait for messages are told that none comes any more.
func (h *hub) close() {
	close(h.closed)
	h.missed()
}

func (h *hub) heard(topic string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics[topic]) > 0
}

func (h *hub) deliver(topic string, message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.topics[topic] {
		select {
		case s.messages <- slices.Clone(message):
		default:
			s.miss()
		}
	}
}

// lost says that there was a message on topic which cannot be delivered.
func (h *hub) lost(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.topics[topic] {
		s.miss()
	}
}

// behind is how many messages a receiver may be behind.
const behind = 256

func (h *hub) subscribe(topic string) (*subscription, error) {
	s := &subscription{hub: h, topic: topic, messages: make(chan []byte, behind), missed: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
		return nil, errClosed
	default:
	}
	h.topics[topic] = append(h.topics[topic], s)
	h.begin()
	return s, nil
}

// A subscription implements [broker.Subscription].
type subscription struct {
	hub      *hub
	topic    string
	messages chan []byte
	missed   chan struct{}
}

func (s *subscription) miss() {
	select {
	case s.missed <- struct{}{}:
	default:
	}
}

func (s *subscription) Messages() <-chan []byte { return s.messages }
func (s *subscription) Lost() <-chan struct{}   { return s.missed }

func (s *subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topics[s.topic] = slices.DeleteFunc(h.topics[s.topic], func(x *subscription) bool { return x == s })
	if len(h.topics[s.topic]) == 0 {
		delete(h.topics, s.topic)
	}
}
