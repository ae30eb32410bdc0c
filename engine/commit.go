package engine

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A committer sends changes to the store, many in one call. Changes that come while a call is under
// way go with the next call; nothing waits for a timer. A job has at most one change in a call:
// later ones are joined.
type committer struct {
	s    *session
	wake flag

	mu      sync.Mutex
	queue   []*pending          // to go with the next call
	flight  map[job.ID]*pending // queued or in the call under way
	stopped error               // set once nothing is sent any more
}

// A pending is a change on its way to the store.
type pending struct {
	change  job.Change
	since   time.Time
	answers []func(store.Applied, error)
	sent    bool
	next    *pending // joined from the changes that came while this one was sent
}

func newCommitter(s *session) *committer {
	return &committer{s: s, wake: newFlag(), flight: map[job.ID]*pending{}}
}

// maxChanges is how many changes one call takes.
const maxChanges = 1000

// send queues a change. answered is called once, from the goroutine of the committer and without
// locks. It must not block.
func (m *committer) send(c job.Change, answered func(store.Applied, error)) {
	m.mu.Lock()
	if m.stopped != nil {
		err := m.stopped
		m.mu.Unlock()
		answered(store.Applied{Outcome: store.Fenced}, err)
		return
	}
	p := &pending{change: c, since: time.Now(), answers: []func(store.Applied, error){answered}}
	switch old := m.flight[c.Job]; {
	case old == nil:
		m.flight[c.Job] = p
		m.queue = append(m.queue, p)
	case !old.sent:
		old.join(p)
	case old.next == nil:
		old.next = p
	default:
		old.next.join(p)
	}
	m.mu.Unlock()
	m.wake.set()
}

func (p *pending) join(q *pending) {
	p.change = job.Join(p.change, q.change)
	p.answers = append(p.answers, q.answers...)
}

// oldest returns how long the oldest change has waited for its answer.
func (m *committer) oldest() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	for _, p := range m.flight {
		longest = max(longest, time.Since(p.since))
	}
	return longest
}

// busy reports whether a change of the job is on its way.
func (m *committer) busy(id job.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flight[id] != nil
}

// run sends changes until ctx ends. The rest is then answered as fenced: nobody knows what became
// of it.
func (m *committer) run(ctx context.Context) error {
	for {
		select {
		case <-m.wake:
		case <-ctx.Done():
			return m.stop(context.Cause(ctx))
		}
		for {
			runtime.Gosched() // steps that are about to end go along
			batch := m.take()
			if len(batch) == 0 {
				break
			}
			if err := m.apply(ctx, batch); err != nil {
				return m.stop(err)
			}
		}
	}
}

func (m *committer) take() []*pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.queue), maxChanges)
	batch := m.queue[:n:n]
	m.queue = m.queue[n:]
	for _, p := range batch {
		p.sent = true
	}
	return batch
}

// apply sends a batch and answers it. A batch that is refused is halved until the bad change is
// alone. An error means that nothing more can be sent.
func (m *committer) apply(ctx context.Context, batch []*pending) error {
	changes := make([]job.Change, len(batch))
	for i, p := range batch {
		changes[i] = p.change
	}
	answers, err := m.s.apply(ctx, changes)
	switch kind := job.KindOf(err); {
	case err == nil:
	case ctx.Err() != nil || kind == job.Closed || kind == job.Corrupt:
		m.answerAll(batch, err)
		return err
	case len(batch) > 1:
		half := len(batch) / 2
		if err := m.apply(ctx, batch[:half]); err != nil {
			m.answerAll(batch[half:], err)
			return err
		}
		return m.apply(ctx, batch[half:])
	default:
		for i, p := range batch { // the one that is left
			m.answer(p, store.Applied{Outcome: store.Conflict, Now: changes[i].From}, err)
		}
		m.s.freed.set()
		return nil
	}
	for i, p := range batch {
		m.answer(p, answers[i], nil)
	}
	m.s.freed.set() // once for the batch: the next claim is as large as the slots that it freed
	return nil
}

// answer tells the senders of p, and queues the changes that came meanwhile. If p was refused they
// are refused too: the job stands where p found it.
func (m *committer) answer(p *pending, a store.Applied, err error) {
	m.mu.Lock()
	next := p.next
	follows := next != nil && err == nil && (a.Outcome == store.OK || a.Outcome == store.Diverted)
	delete(m.flight, p.change.Job)
	if follows {
		m.flight[p.change.Job] = next
		m.queue = append(m.queue, next)
	}
	m.mu.Unlock()
	for _, f := range p.answers {
		f(a, err)
	}
	if next != nil && !follows {
		for _, f := range next.answers {
			f(a, err)
		}
	}
}

// stop answers everything that was not sent, and everything that comes later.
func (m *committer) stop(cause error) error {
	m.mu.Lock()
	m.stopped = job.Errorf(job.Fenced, "not committed: %w", cause)
	rest := m.queue
	m.queue = nil
	m.mu.Unlock()
	m.answerAll(rest, m.stopped)
	return cause
}

func (m *committer) answerAll(batch []*pending, err error) {
	for _, p := range batch {
		m.answer(p, store.Applied{Outcome: store.Fenced}, job.Errorf(job.Fenced, "%w", err))
	}
}
