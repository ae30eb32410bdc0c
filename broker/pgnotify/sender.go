package pgnotify

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl/job"
)

const (
	pace        = 2 * time.Millisecond  // between two notifications of one process
	repetition  = 20 * time.Millisecond // between two empty messages on one topic
	firstRetry  = 10 * time.Millisecond // after that twice as long each time,
	lastRetry   = 5 * time.Second       // up to this
	sendTimeout = 5 * time.Second       // for one statement
	portion     = 1000                  // announcements in one statement
	room        = 16 << 20              // bytes that may wait
)

// A sender tells the other processes. Its one loop sleeps while there is nothing to tell.
type sender struct {
	lend         lend
	name         string // the first part of its tags
	channel      string
	keep, notify string // statements
	log          *slog.Logger

	wake    chan struct{} // holds one while something waits
	closing chan struct{}
	done    chan struct{}
	told    uint64 // announcements so far; of the loop

	mu      sync.Mutex
	waiting []announcement       // guarded by mu: in the order in which they came
	texts   map[string]bool      // guarded by mu: of those waiting that are merged
	size    int                  // guarded by mu: bytes waiting
	recent  map[string]time.Time // guarded by mu: when those were told that may not be repeated yet
}

// lend runs a function with a connection.
type lend func(context.Context, func(context.Context, *pgx.Conn) error) error

func newSender(cfg Config, on lend) *sender {
	if pool := cfg.Pool; pool != nil {
		on = func(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return f(ctx, c.Conn()) })
		}
	}
	table := pgx.Identifier{cfg.Schema, "messages"}.Sanitize()
	return &sender{
		lend: on, name: rand.Text(), channel: channel(cfg.Schema), log: cfg.Log,
		// Rows that another publisher is removing at this moment are skipped without waiting.
		keep: `WITH old AS (DELETE FROM ` + table + ` WHERE id IN (
				SELECT id FROM ` + table + ` WHERE at < clock_timestamp() - interval '1 minute'
				ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED))
			INSERT INTO ` + table + ` (id, content)
			SELECT * FROM unnest($1::text[]::uuid[], $2::bytea[]) ON CONFLICT DO NOTHING`,
		notify: `SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload`,
		wake:   make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
		texts: map[string]bool{}, recent: map[string]time.Time{},
	}
}

// add takes announcements to be told, as many as there is room for. It does not wait.
func (s *sender) add(batch ...announcement) error {
	select {
	case <-s.closing:
		return errClosed
	default:
	}
	var err error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range batch {
		switch {
		case !n.fits():
			err = job.Errorf(job.Invalid,
				"other processes cannot be told of %.60q…: the name is too long for a notification", n.text)
		case len(n.content) > room:
			err = job.Errorf(job.Invalid,
				"a message of %d bytes is larger than %d: send the place where it can be found", len(n.content), room)
		case s.size+len(n.text)+len(n.content) > room:
			err = job.Errorf(job.Unavailable,
				"other processes are not told: %d bytes wait for a database that takes nothing", s.size)
		default:
			s.put(n)
		}
	}
	s.rouse()
	return err
}

// put is called with mu held.
func (s *sender) put(n announcement) {
	if n.merged && s.texts[n.text] {
		return
	}
	s.waiting = append(s.waiting, n)
	s.size += len(n.text) + len(n.content)
	if n.merged {
		s.texts[n.text] = true
	}
}

// rouse wakes the loop if something waits. It is called with mu held.
func (s *sender) rouse() {
	if len(s.waiting) == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take takes the announcements that may be sent now, for one statement, and returns when others
// may; zero: none is left. What is announced from now on must be sent again: the receivers of this
// batch may look before that is committed.
func (s *sender) take(now time.Time) (batch []announcement, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.recent, func(_ string, told time.Time) bool { return now.Sub(told) >= repetition })
	s.waiting = slices.DeleteFunc(s.waiting, func(n announcement) bool {
		told, again := s.recent[n.text]
		from := now
		if again {
			from = told.Add(repetition)
		}
		if again || len(batch) == portion {
			if next.IsZero() || from.Before(next) {
				next = from
			}
			return false
		}
		batch = append(batch, n)
		s.size -= len(n.text) + len(n.content)
		delete(s.texts, n.text)
		return true
	})
	return batch, next
}

// putBack returns what was not told to the head of the waiting ones.
func (s *sender) putBack(batch []announcement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	later := s.waiting
	s.waiting, s.size = nil, 0
	clear(s.texts)
	for _, n := range slices.Concat(batch, later) {
		s.put(n)
	}
	s.rouse()
}

// run tells what waits, until closing is closed and nothing waits any more, or until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer close(s.done)
	retry := firstRetry
	var later <-chan time.Time
	for {
		select {
		case <-s.wake:
		case <-later:
		case <-s.closing:
			s.last(ctx)
			return
		}
		pause := pace
		next, err := s.flush(ctx, time.Now())
		if later = nil; !next.IsZero() {
			later = time.After(time.Until(next))
		}
		if err != nil && ctx.Err() == nil {
			pause, retry = retry, min(2*retry, lastRetry)
			s.log.Warn("wake-ups not sent; trying again", "in", pause, "error", err)
		} else {
			retry = firstRetry
		}
		select {
		case <-time.After(pause):
		case <-s.closing:
		}
	}
}

// last tells all that waits.
func (s *sender) last(ctx context.Context) {
	for {
		next, err := s.flush(ctx, time.Now().Add(repetition))
		if err != nil {
			s.log.Warn("wake-ups not sent before the end", "error", err)
			return
		}
		if next.IsZero() {
			return
		}
	}
}

// flush tells a portion of what may be told by now, and returns from when on there is more.
func (s *sender) flush(ctx context.Context, now time.Time) (next time.Time, err error) {
	batch, next := s.take(now)
	if len(batch) == 0 {
		return next, nil
	}
	err = s.lend(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		return s.tell(ctx, conn, batch)
	})
	if err != nil {
		s.putBack(batch)
		return next, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range batch {
		if n.repeats {
			s.recent[n.text] = time.Now()
		}
	}
	return next, nil
}

// tell sends announcements, those with rows once the rows are committed. It may be repeated.
func (s *sender) tell(ctx context.Context, conn *pgx.Conn, batch []announcement) error {
	var ids []string
	var contents [][]byte
	for _, n := range batch {
		if !n.id.IsZero() {
			ids, contents = append(ids, n.id.String()), append(contents, n.content)
		}
	}
	if len(ids) > 0 {
		switch _, err := conn.Exec(ctx, s.keep, ids, contents); {
		case lasting(err):
			s.log.Error("large messages are lost: the table messages does not take them", "messages", len(ids),
				"error", err)
			batch = slices.DeleteFunc(slices.Clone(batch), func(n announcement) bool { return !n.id.IsZero() })
		case err != nil:
			return err
		}
	}
	payloads := make([]string, len(batch))
	for i, n := range batch {
		s.told++
		payloads[i] = words(s.name+"."+strconv.FormatUint(s.told, 36), n.text)
	}
	_, err := conn.Exec(ctx, s.notify, s.channel, payloads)
	return err
}
