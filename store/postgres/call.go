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

// call runs f in a transaction, and again when the database undid it because of another one. An error of f undoes it.
func (s *Store) call(ctx context.Context, tenant string, f func(*tx) error) error {
	return s.on(ctx, s.pool, tenant, f)
}

// write is a call that may write events.
func (s *Store) write(ctx context.Context, tenant string, f func(*tx) error) error {
	return s.call(ctx, tenant, func(t *tx) error {
		t.writes = true
		return f(t)
	})
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
			err = classify(err)
			if job.KindOf(err) == job.Unavailable {
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
	t := &tx{s: s, ctx: ctx, conn: conn, tenant: tenant}
	err := f(t)
	if t.open {
		if _, undo := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK"); err == nil {
			err = undo
		}
	}
	if codeOf(err) == codeReadOnly {
		conn.Close(ctx) // another connection may lead to the primary
	}
	return err
}

// renewing is a call on the connection for renewals.
func (s *Store) renewing(ctx context.Context, f func(*tx) error) error {
	if s.o.Renewals == nil {
		return s.call(ctx, everyone, f)
	}
	return s.again(ctx, func() error {
		if s.closed.Load() {
			return errClosed
		}
		return s.o.Renewals(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return s.within(ctx, conn, everyone, func(t *tx) error {
				t.guest = true
				return f(t)
			})
		})
	})
}

var errClosed = job.Errorf(job.Closed, "the store is closed")

// A tx is a transaction. It is sent to the database in one piece, or in two where package job decides in between.
type tx struct {
	s      *Store
	ctx    context.Context
	conn   *pgx.Conn
	tenant string
	writes bool // it may write events
	guest  bool // the connection is another's, and has its settings
	open   bool
}

// send sends queries that more will follow: it opens the transaction.
func (t *tx) send(qs ...*query) error { return t.run(false, qs) }

// commit sends the last queries of the transaction and commits it. Those that were sent together are one transaction
// without being told so.
func (t *tx) commit(qs ...*query) error { return t.run(true, qs) }

func (t *tx) run(last bool, qs []*query) error {
	b := &pgx.Batch{}
	first := !t.open
	if first && !last {
		b.Queue("BEGIN")
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
	if last && !first {
		b.Queue("COMMIT")
	}
	if b.Len() == 0 {
		return nil
	}
	t.s.trips.Add(1)
	t.s.statements.Add(int64(len(qs)))
	err := t.conn.SendBatch(t.ctx, b).Close()
	switch {
	case err != nil:
		t.open = !first || !last
		return err
	case last:
		t.open = false
	default:
		t.open = true
	}
	return failed
}

// lost reports whether err says that the connection is gone.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
