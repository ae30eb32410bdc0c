// Package pgnotify is the broker between processes that share a PostgreSQL database. It uses LISTEN
// and NOTIFY.
//
// Announce and Publish never wait for the database. They put a notification into memory, and the
// sender sends it. While it waits there, announcements of one queue and kind are merged, and so are
// empty messages on one topic. The sender sends the first notification at once, then at most every
// 2 ms, many in one statement. It sends empty messages on one topic at most every 20 ms. Receivers
// in the same process hear at once, without the database, and the broker drops the echo of its own
// notifications.
//
// Each NOTIFY is a transaction of its own that writes nothing, because transactions that notify
// commit one after the other in the whole cluster. A message of up to 1 KiB travels in its
// notification. A larger one is a row in the table messages of the schema. A publisher that adds
// such a row removes those that are older than a minute. Every role that may connect to the
// database can listen, so a message must not hold a secret.
//
// Transactions of programs that enqueue jobs notify too, unless they are many or nobody waits: see
// quiet.go.
//
// One connection listens. When it is lost, notifications may be missed. So when it is back, every
// queue and kind that was ever waited for counts as announced, and every subscription signals Lost.
// An idle broker sends no statement. It notices a dead connection by the calls of [Broker.Do], such
// as the renewal of a lease, and in the end by TCP.
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

// DDL creates the one table that a broker needs, in the first schema of search_path. It has the
// content of messages that are too large for a notification. The broker's role needs USAGE on the
// schema, and SELECT, INSERT, DELETE and (for locks) UPDATE on the table.
//
// The table is unlogged, because a message is a hint. After a crash or a failover the table is
// empty, and every receiver has been told that it lost messages.
const DDL = `CREATE UNLOGGED TABLE messages (
	id      uuid        PRIMARY KEY, -- of version 7, made by the publisher
	content bytea       NOT NULL,
	at      timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// Config configures a broker.
type Config struct {
	// DSN is the database for the connection that listens, as a URL or as keywords and values.
	// Required. It must reach PostgreSQL itself, since nobody can listen through a pooler in
	// transaction mode.
	DSN string
	// Like says how the connection that listens is made, in place of DSN; nil: as that says.
	Like *pgxpool.Config
	// Params are run-time parameters of the connection that listens. [Broker.Do] runs with them.
	Params map[string]string
	// Pool sends the notifications. It may use a pooler; if that is in transaction mode, the pool
	// must use [pgx.QueryExecModeExec]. Default: the connection that listens also sends.
	Pool *pgxpool.Pool
	// Schema has the table messages. Brokers with the same schema hear each other. Default: "pawl".
	Schema string
	// Log receives failures that the broker recovers from. Default: [slog.Default].
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

func connOf(cfg Config) (*pgx.ConnConfig, error) {
	if cfg.Like != nil {
		return cfg.Like.ConnConfig.Copy(), nil
	}
	return pgx.ParseConfig(cfg.DSN)
}

// Open connects to the database and listens. The broker works until Close, even after ctx has
// ended. A DSN or schema that cannot be right is of kind [job.Invalid].
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	if cfg.Schema == "" {
		cfg.Schema = "pawl"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	conn, err := connOf(cfg)
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

// Close sends what still waits, for a second at most, and ends all connections and goroutines of
// the broker. Calls that wait, and all later calls, return an error of kind [job.Closed], and
// subscriptions signal Lost. Close can be called again.
func (b *Broker) Close() { b.close() }

// Announce implements [broker.Broker]. After an error other processes may not hear of it. The error
// is of kind [job.Invalid] if a name is too long for a notification, and [job.Unavailable] if too
// much already waits for a database that cannot be reached.
func (b *Broker) Announce(_ context.Context, where ...job.QueueKind) error {
	b.hub.announce(where)
	batch := make([]announcement, len(where))
	for i, l := range where {
		batch[i] = ofJobs(l)
	}
	return b.sender.add(batch...)
}

// Wait implements [broker.Broker].
func (b *Broker) Wait(ctx context.Context, where []job.QueueKind) ([]job.QueueKind, error) {
	return b.hub.wait(ctx, where)
}

// Publish implements [broker.Broker]. Its errors are those of Announce. A message has at most 16
// MiB.
func (b *Broker) Publish(_ context.Context, topic string, message []byte) error {
	b.hub.deliver(topic, message)
	return b.sender.add(ofMessage(topic, message))
}

// Subscribe implements [broker.Broker].
func (b *Broker) Subscribe(_ context.Context, topic string) (broker.Subscription, error) {
	return b.hub.subscribe(topic)
}

// Do runs f on the connection that listens. The connection goes on listening, and what arrives
// meanwhile is delivered after f. So a success of f proves that the broker hears. One f runs at a
// time, and should be short. It must leave the connection outside a transaction and with every
// result read. If there is no connection, Do waits for one. When ctx ends before there is one, the
// error is of kind [job.Unavailable].
//
// Otherwise the error is that of f. If the context of f ended during a statement, or the connection
// broke, the broker connects again.
func (b *Broker) Do(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) error {
	return b.listener.do(ctx, f)
}

var errClosed = job.Errorf(job.Closed, "the service was closed")

// fault gives an error of the database its kind.
func fault(err error) error {
	if pooler(err) {
		return job.Errorf(job.Unavailable, "this is a pooler, and LISTEN does not work through one: name the database "+
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
