package pgnotify

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A transaction that notifies holds a lock of the whole cluster until its commit is on disk, so
// those of many clients commit one after the other; and it wakes each listener. So the transactions
// that enqueue (pawl.enqueue in store/postgres) tell nothing where nobody waits for it, and where
// they are many, listeners look for a while without being told. Two advisory locks settle who may
// tell nothing:
//
//   - A listener that wants to be told holds the first one, shared. It lets it go for a while when
//     many clients told often, and for as long as nobody in its process waits for what they tell.
//   - A transaction takes the second one, shared, until its end, then tries the first one. If
//     nobody holds that, it tells nothing.
//
// A listener that has taken the first lock again goes on to look until nobody holds the second one.
// Since each takes its lock before it looks at the other's, one of the two sees the other.
const (
	wantedLock = `hashtextextended('pawl/wanted/' || $1, 0)`
	untoldLock = `hashtextextended('pawl/untold/' || $1, 0)`
)

// What these transactions tell (engine.NewsTopic, engine.GateTopic).
const (
	inSQL     = "sql" // is the sender of what they tell
	newsTopic = "news"
	gateTopic = "gate"
)

const (
	often    = 8 // notifications of transactions within the window
	many     = 4 // clients that sent these
	window   = 50 * time.Millisecond
	looking  = 500 * time.Millisecond // without being told, before it is told again
	interval = 20 * time.Millisecond  // between two looks
	patience = time.Second            // between two looks that wait for the end of a transaction, at most
	unwanted = time.Second            // after the last receiver, before it is told no more
)

// quiet says when to look for what nobody tells. The holder of the connection owns it.
type quiet struct {
	schema string
	clock  func() time.Time
	told   bool      // this listener is told
	whole  bool      // it is told, and no transaction is under way that began before
	began  time.Time // when told, or its contrary, began
	next   time.Time // when to look next
	unused time.Time // since when nobody waits; zero: somebody does

	window  time.Time // when it began to count
	seen    int       // notifications
	clients map[uint32]bool
}

// listen is called when a connection has begun to listen.
func (q *quiet) listen(ctx context.Context, conn *pgx.Conn, wanted bool) error {
	*q = quiet{schema: q.schema, clock: q.clock}
	if wanted {
		return q.begin(ctx, conn)
	}
	q.unused = q.clock()
	return nil
}

// begin has this listener told.
func (q *quiet) begin(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared("+wantedLock+")", q.schema)
	if err != nil {
		return err
	}
	q.told, q.began, q.seen = true, q.clock(), 0
	return q.ask(ctx, conn)
}

// end has this listener told no more.
func (q *quiet) end(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock_shared("+wantedLock+")", q.schema)
	q.told, q.whole, q.began = false, false, q.clock()
	q.next = q.began.Add(interval)
	return err
}

// ask asks whether a transaction is under way that may tell nothing.
func (q *quiet) ask(ctx context.Context, conn *pgx.Conn) error {
	q.next = q.clock().Add(min(max(interval, q.clock().Sub(q.began)/10), patience))
	return conn.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock("+untoldLock+")", q.schema).Scan(&q.whole)
}

// due is when to step next. It is false if that is only once something is heard or waited for.
func (q *quiet) due() (time.Time, bool) {
	switch {
	case q.unused.IsZero():
		return q.next, !q.told || !q.whole
	case q.told:
		return q.unused.Add(unwanted), true
	}
	return time.Time{}, false
}

// heard counts a notification of a transaction of a client.
func (q *quiet) heard(client uint32) {
	now := q.clock()
	if now.Sub(q.window) > window {
		q.window, q.seen, q.clients = now, 0, map[uint32]bool{}
	}
	q.seen++
	q.clients[client] = true
}

// step reports whether there may be something of which nobody has told. wanted says whether
// somebody waits for it.
func (q *quiet) step(ctx context.Context, conn *pgx.Conn, wanted bool) (news bool, err error) {
	now := q.clock()
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if !wanted {
		if q.unused.IsZero() {
			q.unused = now
		}
		if q.told && now.Sub(q.unused) >= unwanted {
			err = q.end(ctx, conn)
		}
		return false, err
	}
	since := q.unused
	q.unused = time.Time{}
	switch {
	case q.told && q.seen >= often && len(q.clients) >= many:
		q.seen = 0
		return false, q.end(ctx, conn)
	case !q.told && (!since.IsZero() || now.Sub(q.began) >= looking):
		return true, q.begin(ctx, conn)
	case q.told && q.whole || now.Before(q.next):
		return false, nil
	case q.told:
		return true, q.ask(ctx, conn)
	}
	q.next = now.Add(interval)
	return true, nil
}
