package postgres

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl/job"
)

// A query is one statement of a call.
type query struct {
	sql  string
	args []any
	each func(r *reader) error // is called for every row; nil: they are not looked at
}

// do is a query whose rows nobody looks at.
func do(sql string, args ...any) *query { return &query{sql: sql, args: args} }

// read is a query that calls each for every row. The row is only valid during the call.
func read(sql string, each func(r *reader) error, args ...any) *query {
	return &query{sql: sql, args: args, each: each}
}

// everyone is the tenant of calls that serve the loops.
const everyone = "*"

// mostTries is how often a call is made that was undone because of another one.
const mostTries = 8

// call runs f in a transaction, and again when the database undid it because of another one. An
// error of f undoes it.
func (s *Store) call(ctx context.Context, tenant string, f func(*tx) error) error {
	return s.on(ctx, s.pool, tenant, f)
}

// write is a call that may write events.
func (s *Store) write(ctx context.Context, tenant string, f func(*tx) error) error {
	err := s.call(ctx, tenant, func(t *tx) error {
		t.writes = true
		return f(t)
	})
	if tenant == everyone {
		s.late(err)
	}
	return err
}

// look is a call that only reads, with plans made for its arguments.
func (s *Store) look(ctx context.Context, tenant string, f func(*tx) error) error {
	return s.on(ctx, s.readers, tenant, f)
}

func (s *Store) on(ctx context.Context, pool *pgxpool.Pool, tenant string, f func(*tx) error) error {
	return s.again(ctx, func() error { return s.try(ctx, pool, tenant, f) })
}

// again makes a try of a call, and another one when the database undid it because of another call.
func (s *Store) again(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || !again(err) || try == mostTries {
			if err = classify(err); cutOff(err) {
				s.failed.Store(time.Since(s.opened).Microseconds())
			}
			return err
		}
		level := slog.LevelWarn
		if errors.Is(err, errAgain) {
			level = slog.LevelDebug // as when two submit the same
		}
		s.o.Log.Log(ctx, level, "a call met another one and is made again", "code", codeOf(err), "try", try)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(time.Millisecond << try)):
		}
	}
}

// late notes that a call of the loops had no answer in time. Only they know what the database owes
// them: the deadline of a user may be as short as the user likes, and a list may be long.
func (s *Store) late(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		s.failed.Store(time.Since(s.opened).Microseconds())
	}
}

func (s *Store) try(ctx context.Context, pool *pgxpool.Pool, tenant string, f func(*tx) error) error {
	if s.closed.Load() {
		return errClosed
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		if s.closed.Load() {
			return errClosed
		}
		return err
	}
	defer conn.Release() // a connection in the middle of a transaction is closed
	return s.within(ctx, conn.Conn(), tenant, f)
}

// within runs f in a transaction on a connection.
func (s *Store) within(ctx context.Context, conn *pgx.Conn, tenant string, f func(*tx) error) error {
	t := &tx{s: s, ctx: ctx, conn: conn, tenant: tenant, bare: s.o.Pooled}
	err := f(t)
	if t.open {
		s.statements.Add(1)
		if _, undo := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK"); err == nil {
			err = undo
		}
	}
	if standby(codeOf(err)) {
		conn.Close(ctx) // another connection may lead to the primary
	}
	return err
}

// renewing is a call on the connection for renewals.
func (s *Store) renewing(ctx context.Context, f func(*tx) error) error {
	var err error
	if s.o.Renewals == nil {
		err = s.call(ctx, everyone, f)
	} else {
		err = s.again(ctx, func() error {
			if s.closed.Load() {
				return errClosed
			}
			return s.o.Renewals(ctx, func(ctx context.Context, conn *pgx.Conn) error {
				return s.within(ctx, conn, everyone, func(t *tx) error {
					t.bare = !settled(conn)
					return f(t)
				})
			})
		})
	}
	s.late(err)
	return err
}

var errClosed = job.Errorf(job.Closed, "the service was closed")

// A tx is a transaction. It is sent to the database in one piece, or in two where package job
// decides in between.
type tx struct {
	s      *Store
	ctx    context.Context
	conn   *pgx.Conn
	tenant string
	writes bool // it may write events
	bare   bool // the connection has not the settings of this store, so each transaction sets them
	open   bool
	last   []*query // that go with the last ones
}

// send sends queries that more will follow: it opens the transaction.
func (t *tx) send(qs ...*query) error { return t.run(false, qs) }

// commit sends the last queries of the transaction and commits it. Those that were sent together
// are one transaction without being told so, where the connection has the right defaults.
func (t *tx) commit(qs ...*query) error { return t.run(true, append(qs, t.last...)) }

func (t *tx) run(last bool, qs []*query) error {
	b := &pgx.Batch{}
	first := !t.open
	whole := first && last && !t.bare
	if first && !whole {
		b.Queue(t.begin())
	}
	if first {
		for _, q := range t.s.prelude(t) {
			b.Queue(q.sql, q.args...)
		}
	}
	var failed error // of a callback: the other answers are still to be read
	for _, q := range qs {
		queued := b.Queue(t.s.sql(q.sql), q.args...)
		if q.each == nil {
			continue
		}
		queued.Query(func(rows pgx.Rows) error {
			var r reader
			for rows.Next() && failed == nil {
				r.values = rows.RawValues()
				failed = q.each(&r)
			}
			return nil
		})
	}
	if last && !whole {
		b.Queue("COMMIT")
	}
	if b.Len() == 0 {
		return nil
	}
	t.s.trips.Add(1)
	t.s.statements.Add(int64(b.Len()))
	err := t.conn.SendBatch(t.ctx, b).Close()
	switch {
	case err != nil:
		t.open = !whole
		return err
	case last:
		t.open = false
	default:
		t.open = true
	}
	return failed
}

// begin is the statement that begins the transaction.
func (t *tx) begin() string {
	if t.bare {
		return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	}
	return "BEGIN"
}

// lost reports whether err says that the connection is gone.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNRESET)
}
