package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
)

// A hub joins the brokers of processes. Between them it delays, drops, doubles and reorders; within
// a process what is told arrives at once. Of a topic's message that is dropped the receivers hear
// later that they have lost some.
type hub struct {
	w *world // whose dice decide; nil: all arrives at once

	mu   sync.Mutex
	ends []*end // guarded by mu
}

// An end is the broker of one process.
type end struct {
	h *hub
	p *process // nil: of none that could be frozen

	mu      sync.Mutex
	dirty   map[job.QueueKind]bool     // guarded by mu
	waiters []chan struct{}            // guarded by mu
	topics  map[string][]*subscription // guarded by mu
	sent    map[string]int             // guarded by mu
}

var _ broker.Broker = (*end)(nil)

func (h *hub) join(p *process) *end {
	e := &end{h: h, p: p, dirty: map[job.QueueKind]bool{}, topics: map[string][]*subscription{}, sent: map[string]int{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, e)
	return e
}

func (h *hub) leave(e *end) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = slices.DeleteFunc(h.ends, func(o *end) bool { return o == e })
}

// send has each other process hear of something, sooner or later. miss is what it hears of where it
// is dropped.
func (h *hub) send(from *end, what string, hear, miss func(*end)) {
	from.mu.Lock()
	from.sent[what]++
	n := from.sent[what]
	from.mu.Unlock()
	h.mu.Lock()
	others := slices.DeleteFunc(slices.Clone(h.ends), func(e *end) bool { return e == from })
	h.mu.Unlock()
	for _, e := range others {
		if h.w == nil {
			hear(e)
			continue
		}
		r := h.w.dice(from.p.name+"/"+what+"/"+e.p.name, n)
		after := func(most time.Duration, f func(*end)) {
			time.AfterFunc(between(r, time.Microsecond, most), func() {
				if e.p.awake() {
					f(e)
				}
			})
		}
		switch n := r.IntN(20); {
		case h.w.silent && what == "lines":
		case h.w.calm || h.w.is(&h.w.healed) && n > 2 || n > 6:
			after(2*time.Millisecond, hear)
		case n < 3:
			after(10*time.Second, miss)
		case n < 5:
			after(5*time.Second, hear)
		default:
			after(time.Second, hear)
			after(20*time.Second, hear)
		}
	}
}

// Announce implements [broker.Broker].
func (e *end) Announce(_ context.Context, lines ...job.QueueKind) error {
	if len(lines) == 0 {
		return nil
	}
	lines = slices.Clone(lines)
	if e.p == nil || e.p.awake() {
		e.announced(lines)
		e.h.send(e, "lines", func(o *end) { o.announced(lines) }, func(*end) {})
	}
	return nil
}

func (e *end) announced(lines []job.QueueKind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range lines {
		e.dirty[l] = true
	}
	for _, w := range e.waiters {
		close(w)
	}
	e.waiters = nil
}

// Wait implements [broker.Broker].
func (e *end) Wait(ctx context.Context, lines []job.QueueKind) ([]job.QueueKind, error) {
	for {
		e.mu.Lock()
		var found []job.QueueKind
		for _, l := range lines {
			if e.dirty[l] {
				found = append(found, l)
				delete(e.dirty, l)
			}
		}
		if found != nil {
			e.mu.Unlock()
			return found, nil
		}
		woken := make(chan struct{})
		e.waiters = append(e.waiters, woken)
		e.mu.Unlock()
		select {
		case <-woken:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Publish implements [broker.Broker].
func (e *end) Publish(_ context.Context, topic string, message []byte) error {
	message = slices.Clone(message)
	if e.p == nil || e.p.awake() {
		e.published(topic, message)
		e.h.send(e, topic, func(o *end) { o.published(topic, message) }, func(o *end) { o.missed(topic) })
	}
	return nil
}

func (e *end) published(topic string, message []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.topics[topic] {
		select {
		case s.messages <- slices.Clone(message):
		default:
			s.lose()
		}
	}
}

func (e *end) missed(topic string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.topics[topic] {
		s.lose()
	}
}

// Subscribe implements [broker.Broker].
func (e *end) Subscribe(_ context.Context, topic string) (broker.Subscription, error) {
	s := &subscription{e: e, topic: topic, messages: make(chan []byte, 256), lost: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.topics[topic] = append(e.topics[topic], s)
	return s, nil
}

type subscription struct {
	e        *end
	topic    string
	messages chan []byte
	lost     chan struct{}
}

func (s *subscription) lose() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

func (s *subscription) Messages() <-chan []byte { return s.messages }
func (s *subscription) Lost() <-chan struct{}   { return s.lost }

func (s *subscription) Close() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.topics[s.topic] = slices.DeleteFunc(s.e.topics[s.topic], func(x *subscription) bool { return x == s })
}
