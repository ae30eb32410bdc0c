// Package pgnotify is the broker between processes that share a PostgreSQL database: LISTEN and
// NOTIFY.
//
// Whoever announces or publishes never waits for the database. What is to be told waits in memory,
// where announcements of one line and empty messages on one topic are merged, until the sender has
// told it: the first at once, what comes then at most every 2 ms, many in one statement, and an
// empty message on one topic again at most every 20 ms. The receivers of this process do not wait
// for that; they are told at once, and the echo of a process's own notifications is left out.
//
// A NOTIFY is a transaction of its own and writes nothing, because all transactions of a cluster
// that notify commit one after the other. Messages of up to 1 KiB travel in it. Larger ones lie in
// the table messages of the schema, from which whoever publishes further ones removes those older
// than a minute. Every role that may connect to the database can listen: what is secret does not
// belong into a message.
//
// One connection listens. When it is lost nobody knows what was not heard, so once it is back every
// line that was ever waited for counts as announced, and every subscription is told that it lost
// messages. An idle broker sends no statement at all: that a listener is dead is found by the calls
// of [Broker.Do], such as the renewal of a lease, and in the end by TCP.
package pgnotify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
)

// DDL makes the one table that a broker needs, in the schema that is first in search_path: the
// contents of messages that are too large for a notification. The broker's role needs USAGE on the
// schema, and SELECT, INSERT, DELETE and, for the locks, UPDATE on the table.
//
// The table is unlogged, because a message is a hint: after a crash or a failover it is empty, and
// every receiver has been told that it lost messages.
const DDL = `CREATE UNLOGGED TABLE messages (
	id      uuid        PRIMARY KEY, -- of version 7, made by the publisher
	content bytea       NOT NULL,
	at      timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// Config configures a broker.
type Config struct {
	// DSN is the database, as a URL or as keywords and values, for the connection that listens. It
	// has to lead to PostgreSQL itself: a pooler that hands out connections by the transaction lets
	// nobody listen.
	DSN string
	// Params are run-time parameters of the connection that listens, for those who use it by
	// [Broker.Do].
	Params map[string]string
	// Pool sends the notifications. It may go through a pooler; through one that hands out
	// connections by the transaction with [pgx.QueryExecModeExec]. Nil: the connection that listens
	// also sends.
	Pool *pgxpool.Pool
	// Schema holds the table messages; "pawl" by default. Brokers of one schema hear each other.
	Schema string
	// Log takes what goes wrong and mends itself; [slog.Default] by default.
	Log *slog.Logger
}

// Broker implements [broker.Broker].
type Broker struct {
	hub      *hub
	sender   *sender
	listener *listener
	close    func()
	parting  time.Duration
}

var _ broker.Broker = (*Broker)(nil)

// parting is how long Close lets the sender tell what it has not told yet.
const parting = time.Second

// Open connects to the database and listens. The broker lives until Close, whatever becomes of ctx.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	if cfg.Schema == "" {
		cfg.Schema = "pawl"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	conn, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, job.Errorf(job.Invalid, "listen on the database: %w", err)
	}
	if len(cfg.Schema) > maxIdentifier {
		return nil, job.Errorf(job.Invalid,
			"the schema %q has a name of more than %d bytes, which PostgreSQL would cut: give a shorter one",
			cfg.Schema, maxIdentifier)
	}
	b := &Broker{hub: newHub(), parting: parting}
	b.sender = newSender(cfg, b.Do)
	b.listener = newListener(cfg, conn, b.hub, b.sender.name)
	first, err := b.listener.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen on the database: %w", err)
	}
	listening, stopListening := context.WithCancel(context.Background())
	sending, stopSending := context.WithCancel(context.Background())
	go b.listener.run(listening, first)
	go b.sender.run(sending)
	b.close = sync.OnceFunc(func() {
		b.hub.close()
		late := time.AfterFunc(b.parting, stopSending)
		close(b.sender.closing)
		<-b.sender.done
		late.Stop()
		stopSending()
		stopListening()
		<-b.listener.done
	})
	return b, nil
}

// Close tells what has not been told yet, for a second at most, and ends every connection and
// goroutine of the broker. Calls that wait, and later ones, answer Closed.
func (b *Broker) Close() { b.close() }

// Announce implements [broker.Broker]. Lines that others cannot be told of are an error: Invalid
// for those with names that are too long for a notification, Unavailable when too much waits for a
// database that cannot be reached.
func (b *Broker) Announce(_ context.Context, lines ...job.QueueKind) error {
	b.hub.announce(lines)
	notes := make([]note, len(lines))
	for i, l := range lines {
		notes[i] = lineNote(l)
	}
	return b.sender.add(notes...)
}

// Wait implements [broker.Broker].
func (b *Broker) Wait(ctx context.Context, lines []job.QueueKind) ([]job.QueueKind, error) {
	return b.hub.wait(ctx, lines)
}

// Publish implements [broker.Broker]. Its errors are those of Announce; a message is at most 16
// MiB.
func (b *Broker) Publish(_ context.Context, topic string, message []byte) error {
	b.hub.deliver(topic, message)
	return b.sender.add(messageNote(topic, message))
}

// Subscribe implements [broker.Broker].
func (b *Broker) Subscribe(_ context.Context, topic string) (broker.Subscription, error) {
	return b.hub.subscribe(topic)
}

// Do runs f on the connection that listens, which goes on listening: what arrives meanwhile is told
// after f. So the success of f proves that the broker hears. One f runs at a time, each should be
// short, and has to leave the connection as it found it: outside a transaction and with every
// result read. When there is no connection, Do waits for one until ctx ends, and answers
// Unavailable then.
//
// The error is that of f. If f's context ended while a statement was under way, or the connection
// broke, the broker connects anew.
func (b *Broker) Do(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) error {
	return b.listener.do(ctx, f)
}

var errClosed = job.Errorf(job.Closed, "the broker is closed")

// fault gives an error of the database its kind.
func fault(err error) error {
	if pooler(err) {
		return job.Errorf(job.Unavailable, "this is a pooler, through which nobody can listen: name the database "+
			"without it with --db-listen, and say --db-pooled: %w", err)
	}
	if lasting(err) {
		return job.Errorf(job.Invalid, "%w", err)
	}
	return job.Errorf(job.Unavailable, "%w", err)
}

// pooler reports whether a connection was refused as poolers in transaction mode refuse one with
// settings.
func pooler(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "08P01" &&
		strings.HasPrefix(refused.Message, "unsupported startup parameter")
}

// lasting reports whether the server has refused a statement or a connection in a way that will not
// go away by itself.
func lasting(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || len(refused.Code) != 5 {
		return false
	}
	// The connection; an unlogged table on a standby; read-only, as that is; rolled back; memory,
	// disk, connections or the queue of notifications used up; busy or not taking connections;
	// starting, stopping or canceled; the server's own system.
	return !slices.Contains([]string{"08", "0A", "25", "40", "53", "54", "55", "57", "58"}, refused.Code[:2])
}
