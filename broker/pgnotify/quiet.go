package pgnotify

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A transaction that notifies holds a lock of the whole cluster until its commit is on disk, so
// those of many clients commit one after the other. Where many of them enqueue (pawl.enqueue in
// store/postgres), listeners look for a while without being told. Two advisory locks settle who may
// tell nothing:
//
//   - A listener that wants to be told holds the first one, shared. It lets it go when it was told
//     often, and many transactions were under way at once, until no longer many new ones are.
//   - A transaction takes the second one, shared, until its end, then tries the first one. If
//     nobody holds that, it tells nothing.
//
// A listener that has taken the first lock again goes on to look until nobody holds the second one.
// Since each takes its lock before it looks at the other's, one of the two sees the other.
const (
	wantedLock = `hashtextextended('pawl/wanted/' || $1, 0)`
	untoldLock = `hashtextextended('pawl/untold/' || $1, 0)`
	underWay   = `SELECT coalesce(array_agg(virtualtransaction), '{}') FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32) | objid::bigint = ` + untoldLock
)

// What these transactions tell (engine.NewsTopic, engine.GateTopic).
const (
	inSQL     = "sql" // is the sender of what they tell
	newsTopic = "news"
	gateTopic = "gate"
)

const (
	often    = 8 // notifications of transactions within the window
	many     = 4 // transactions that are under way at once, and were not when it was asked last
	window   = 50 * time.Millisecond
	looking  = 200 * time.Millisecond // without being told, before it is asked whether they are still many
	interval = 10 * time.Millisecond  // between two looks
	patience = time.Second            // between two looks that wait for the end of a transaction, at most
)

// quiet says when to look for what nobody tells. The holder of the connection owns it.
type quiet struct {
	schema string
	told   bool      // this listener is told
	whole  bool      // it is told, and no transaction is under way that began before
	began  time.Time // when told, or its contrary, began
	next   time.Time // when to look next
	window time.Time // when it began to count
	seen   int       // notifications

	underWay []string // transactions, when it was asked last
}

// begin is called when a connection has begun to listen, or is to be told again.
func (q *quiet) begin(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared("+wantedLock+")", q.schema)
	if err != nil {
		return err
	}
	q.told, q.began, q.seen = true, time.Now(), 0
	return q.ask(ctx, conn)
}

// ask asks whether a transaction is under way that may tell nothing.
func (q *quiet) ask(ctx context.Context, conn *pgx.Conn) error {
	q.next = time.Now().Add(min(max(interval, time.Since(q.began)/10), patience))
	return conn.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock("+untoldLock+")", q.schema).Scan(&q.whole)
}

// due is when to look next. It is false if this listener is told of all.
func (q *quiet) due() (time.Time, bool) { return q.next, !q.told || !q.whole }

// heard counts a notification of a transaction.
func (q *quiet) heard(now time.Time) {
	if now.Sub(q.window) > window {
		q.window, q.seen = now, 0
	}
	q.seen++
}

// busy reports whether many transactions are under way that were not when it was asked last: those
// that stay open commit nothing.
func (q *quiet) busy(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var now []string
	if err := conn.QueryRow(ctx, underWay, q.schema).Scan(&now); err != nil {
		return false, err
	}
	fresh := 0
	for _, tx := range now {
		if !slices.Contains(q.underWay, tx) {
			fresh++
		}
	}
	q.underWay = now
	return fresh >= many, nil
}

// step reports whether there may be something of which nobody has told.
func (q *quiet) step(ctx context.Context, conn *pgx.Conn) (news bool, err error) {
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	switch {
	case q.told && q.seen >= often:
		q.seen = 0
		busy, err := q.busy(ctx, conn)
		if err == nil && busy {
			_, err = conn.Exec(ctx, "SELECT pg_advisory_unlock_shared("+wantedLock+")", q.schema)
			q.told, q.began, q.next = false, now, now.Add(interval)
		}
		return false, err
	case q.told && q.whole || now.Before(q.next):
		return false, nil
	case q.told:
		err = q.ask(ctx, conn)
	case now.Sub(q.began) < looking:
		q.next = now.Add(interval)
	default:
		var busy bool
		if busy, err = q.busy(ctx, conn); err == nil && busy {
			q.began, q.next = now, now.Add(interval)
		} else if err == nil {
			err = q.begin(ctx, conn)
		}
	}
	return true, err
}
