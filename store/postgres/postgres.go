// Package postgres is the store on a PostgreSQL database, version 15 or newer. Any number of
// processes on any number of machines may use it.
//
// A call is one transaction. It is sent in one piece: its statements go together, and their answers
// come together. It takes two pieces if package job decides on rows that must be locked first: for
// wishes, follow-ups, expiry, and submissions with keys or prerequisites. So the number of round
// trips does not depend on the number of jobs, which travel as arrays.
//
// All calls take locks in the same order: the session or the idempotency key, queues, the gate of a
// tenant, jobs by id, specs by id, unique keys, external ids, groups of blocked jobs. So calls do
// not deadlock. If PostgreSQL reports a deadlock or a failure to serialize, the call is repeated a
// few times.
//
// Times that decide anything are those of the database's clock.
package postgres

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl/store"
)

// Options configure a store. The zero value works.
type Options struct {
	// Schema is the schema of Pawl's tables. Default: "pawl".
	Schema string
	// Pooled is for a connection through a pooler in transaction mode. The store then relies on
	// nothing that outlasts a transaction, neither settings nor prepared statements. That costs
	// throughput.
	Pooled bool
	// Like says how to connect, in place of the DSN; nil: as that says.
	Like *pgxpool.Config
	// Conns is how many connections calls may use at the same time; 8 by default. Readers is how
	// many more the lists of jobs may use; 4 by default.
	Conns, Readers int
	// Renewals runs f on a connection that soon notices when the database is gone, such as the one
	// that listens for wake-ups. If the connection was made with [Params], a renewal needs no more
	// statements. Default: renewals use the connections of other calls.
	Renewals func(ctx context.Context, f func(context.Context, *pgx.Conn) error) error
	// Log receives what operators should know. Default: [slog.Default].
	Log *slog.Logger
}

// Store implements [store.Store].
type Store struct {
	o       Options
	config  *pgxpool.Config
	pool    *pgxpool.Pool
	readers *pgxpool.Pool
	texts   sync.Map // SQL with the schema's name by SQL without
	opened  time.Time
	turning atomic.Bool // the tasks that finished last were under limits
	limited sync.Map    // limitKeys by tenant, as they were
	since   time.Time   // the database's clock when it was first reached
	id      string      // of the tables, for transactions of others

	refusedPlain sync.Map // when enqueuePlain was last refused, by tenant

	// when a call had last no answer of a database that serves, in microseconds since opened; 0:
	// never
	failed atomic.Int64

	trips      atomic.Int64
	statements atomic.Int64
	closed     atomic.Bool
}

var _ store.Store = (*Store)(nil)

// defaultSchema is the schema's name in the texts of this package.
const defaultSchema = "pawl"

// Open connects to the database dsn, which is written as for libpq: a URL, or words such as
// "host=db dbname=jobs". The schema must exist; see [Migrator]. The error is of kind
// [job.Unavailable] if the database cannot be reached or has an older schema, and [job.Newer] if a
// later version made the schema.
func Open(ctx context.Context, dsn string, o Options) (_ *Store, err error) {
	s, err := connect(dsn, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.checkVersion(ctx); err != nil {
		return nil, err
	}
	return s, s.begin(ctx)
}

// settings of every connection. Every statement of a call finds its rows by a key that it is given,
// so there is one right plan, and none is better with other statistics.
var settings = map[string]string{
	// planned once for a connection, and not for each list of arguments
	"plan_cache_mode":                 "force_generic_plan",
	"enable_seqscan":                  "off", // a penalty, not a ban: tables without an index are still read
	"enable_hashjoin":                 "off",
	"enable_mergejoin":                "off",
	"max_parallel_workers_per_gather": "0",
	"jit":                             "off", // it starts at an estimated cost, and estimates of arrays are wide
}

// limits keep a client that was cut off in the middle of a transaction from holding rows for long,
// and end long waits for a lock. After a wait a statement must see the rows as they are then, and
// calls write, whatever the defaults of the database are.
var limits = map[string]string{
	"default_transaction_isolation":       "read committed",
	"default_transaction_read_only":       "off",
	"idle_in_transaction_session_timeout": "15s",
	"lock_timeout":                        "10s",
	"job.tenant":                          everyone,
}

// Params returns the run-time parameters that all connections of a store have. The connection of
// [Options.Renewals] should have them too.
func Params() map[string]string {
	all := maps.Clone(settings)
	maps.Copy(all, limits)
	return all
}

// settled reports whether a connection was made with the settings of a store.
func settled(conn *pgx.Conn) bool {
	theirs := conn.Config().RuntimeParams
	for k, v := range Params() {
		if theirs[k] != v {
			return false
		}
	}
	return true
}

// connect makes the pools. It does no I/O.
func connect(dsn string, o Options) (*Store, error) {
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if o.Conns == 0 {
		o.Conns = 8
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Store{o: o, opened: time.Now()}
	config, err := parse(dsn, o.Like)
	if err != nil {
		return nil, err
	}
	s.config = config
	if s.pool, err = s.newPool(o.Conns, pgx.QueryExecModeCacheStatement, settings, limits); err != nil {
		return nil, err
	}
	if s.readers, err = s.newPool(o.Readers, pgx.QueryExecModeCacheDescribe, forLists, limits); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) newPool(conns int, mode pgx.QueryExecMode, params ...map[string]string) (*pgxpool.Pool, error) {
	c := s.config.Copy()
	c.MaxConns, c.ShouldPing = int32(conns), shouldPing
	c.ConnConfig.DefaultQueryExecMode = mode
	if s.o.Pooled {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	} else {
		for _, some := range params {
			for k, v := range some {
				c.ConnConfig.RuntimeParams[k] = v
			}
		}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return pool, nil
}

// prelude are the first queries of a transaction.
func (s *Store) prelude(t *tx) (qs []*query) {
	switch {
	case t.bare:
		qs = append(qs, do(pooledPrelude, t.tenant))
	case t.tenant != everyone:
		qs = append(qs, as(t.tenant))
	}
	switch {
	case !t.writes:
	case t.tenant == everyone:
		qs = append(qs, do("SELECT pg_advisory_xact_lock_shared($1)", s.writers()))
	default:
		qs = append(qs, do(s.sql(shareSubmissions), t.tenant, s.writers()))
	}
	return qs
}

// as makes row security show the rest of a transaction the rows of one tenant, or those of
// everyone.
func as(tenant string) *query { return do("SELECT set_config('job.tenant', $1, true)", tenant) }

// writers is the key of the lock that all writers of events share; see [horizon]. It has 32 bits.
func (s *Store) writers() int64 { return writersOf(s.o.Schema) }

func writersOf(schema string) int64 {
	return int64(crc32.ChecksumIEEE([]byte("pawl events of " + schema)))
}

const pooledPrelude = `SELECT set_config('job.tenant', $1, true), set_config('lock_timeout', '10s', true),
	set_config('idle_in_transaction_session_timeout', '15s', true), set_config('jit', 'off', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
		set_config('enable_mergejoin', 'off', true),
	set_config('max_parallel_workers_per_gather', '0', true)`

// sql returns a text with the name of the schema.
func (s *Store) sql(text string) string {
	if s.o.Schema == defaultSchema {
		return text
	}
	if t, ok := s.texts.Load(text); ok {
		return t.(string)
	}
	t := inSchema(text, s.o.Schema)
	s.texts.Store(text, t)
	return t
}

func inSchema(text, schema string) string {
	return strings.ReplaceAll(text, defaultSchema+".", pgx.Identifier{schema}.Sanitize()+".")
}

// Close implements [store.Store]. Sessions that are still open expire.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.pool.Close()
		s.readers.Close()
	}
	return nil
}

// Statements returns how many SQL statements have been sent, including those that begin and end
// transactions, change settings or take locks.
func (s *Store) Statements() int64 { return s.statements.Load() }

// RoundTrips returns how often calls have waited for an answer of the database.
func (s *Store) RoundTrips() int64 { return s.trips.Load() }
