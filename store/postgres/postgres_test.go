package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// What is drawn at random is drawn more often where a store is made in a millisecond; here a
// database takes a second.
func TestMain(m *testing.M) {
	testenv.Draws(2, 4, 30)
	testenv.Main(m)
}

// TestStore has only the rights that a service needs.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newLender(func(dsn string) (*postgres.Store, error) {
		return postgres.Open(t.Context(), dsn, postgres.Options{})
	}).lend)
}

// TestTenants is without the second wall: row security is not for those who own the tables.
func TestTenants(t *testing.T) {
	t.Parallel()
	storetest.Tenants(t, func(t *testing.T) (store.Store, storetest.Clock) {
		dsn := clocked(t)
		return open(t, dsn, postgres.Options{}), newClock(t, dsn)
	})
}

// open opens a store that is closed with the test.
func open(t *testing.T, dsn string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func migrate(t testing.TB, dsn, schema string) {
	t.Helper()
	m, err := postgres.NewMigrator(dsn, schema)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A clock is the clock of one database, which goes on by itself and can be moved forward.
type clock struct {
	t    *testing.T
	conn *pgx.Conn
}

// A lender lends stores, each like a new one. What it lends a test it lends the next, with the
// connections: of all that a test of the suite costs, most would be the plans of these.
type lender struct {
	open  func(dsn string) (*postgres.Store, error)
	bases chan *base
}

// A base is a database with the connections to it.
type base struct {
	dsn   string
	admin *pgx.Conn
	store *postgres.Store // nil: it was closed
}

func newLender(open func(dsn string) (*postgres.Store, error)) *lender {
	return &lender{open, make(chan *base, 64)}
}

// back leaves a base to the next test.
func (l *lender) back(b *base) error {
	if _, err := b.admin.Exec(context.Background(), wipe); err != nil {
		return err // nobody has it after this one
	}
	select {
	case l.bases <- b:
	default: // enough of them
	}
	return nil
}

// lend returns a store and the clock of its database.
func (l *lender) lend(t *testing.T) (store.Store, storetest.Clock) {
	t.Helper()
	var b *base
	select {
	case b = <-l.bases:
	default:
		dsn := newClocked(t)
		admin, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		b = &base{dsn: dsn, admin: admin}
	}
	var err error
	if b.store == nil {
		b.store, err = l.open(granted(t, b.dsn))
	} else {
		b.store, err = b.store.Again(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &lent{Store: b.store, t: t, from: l, base: b}
	t.Cleanup(s.Over)
	return s, &opener{&clock{t, b.admin}, s}
}

// An opener opens more stores beside one that is lent, as other processes do.
type opener struct {
	*clock
	lent *lent
}

func (o *opener) Open(t *testing.T) store.Store {
	t.Helper()
	s, err := o.lent.from.open(granted(t, o.lent.base.dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A lent store is on a base.
type lent struct {
	*postgres.Store
	t    *testing.T
	from *lender
	base *base
	once sync.Once
}

// HasEvents says that a job has n events of users. Long tests write them, one after the other.
func (l *lent) HasEvents(ctx context.Context, id job.ID, n int) error {
	_, err := l.base.admin.Exec(ctx, `UPDATE pawl.jobs SET told = $2 WHERE id = $1`, [16]byte(id), n)
	return err
}

// HasRecoveries says that a job was interrupted n times. Long tests interrupt it, time by time.
func (l *lent) HasRecoveries(ctx context.Context, id job.ID, n int) error {
	_, err := l.base.admin.Exec(ctx, `UPDATE pawl.jobs SET recoveries = $2 WHERE id = $1`, [16]byte(id), n)
	return err
}

// Close closes the connections, too.
func (l *lent) Close() error {
	err := l.Store.Close()
	l.once.Do(func() {
		l.base.store = nil
		err = errors.Join(err, l.from.back(l.base))
	})
	return err
}

// Over is Close where the next test is to have the connections.
func (l *lent) Over() {
	l.once.Do(func() {
		l.Leave()
		if err := l.from.back(l.base); err != nil {
			l.t.Error(err)
		}
	})
}

// wipe makes a database as it was.
var wipe = func() string {
	const tables = "specs, labels, jobs, ended, events, prerequisites, unique_keys, followups, idempotency, sessions, duties, resources, " +
		"limits, turns, turns_owed, served, moments, groups, lines_owed"
	statements := "UPDATE public.shift SET by = '0';"
	for table := range strings.SplitSeq(tables, ", ") {
		statements += "DELETE FROM pawl." + table + ";"
	}
	return statements
}()

// clean are databases with the schema and a clock that can be moved, which other tests of this
// process have left: to make one takes longer than most tests, and to drop one longer still.
var clean = make(chan string, 64)

// newClocked makes a database with the schema and a clock that can be moved.
func newClocked(t *testing.T) string {
	t.Helper()
	server := testenv.Postgres(t)
	name := "clocked_" + job.NewID().Short()
	server.CreateDatabase(t, name, model(t, server))
	dsn := server.DSN(name)
	grant(t, dsn)
	return dsn
}

// clocked returns such a database for a test.
func clocked(t *testing.T) string {
	t.Helper()
	var dsn string
	select {
	case dsn = <-clean:
	default:
		dsn = newClocked(t)
	}
	t.Cleanup(func() {
		execute(t, dsn, wipe)
		select {
		case clean <- dsn:
		default: // enough of them
		}
	})
	return dsn
}

var modelled struct {
	sync.Mutex
	name string
}

// model returns the name of a furnished database. A copy of it is made in a tenth of the time.
func model(t *testing.T, server *testenv.Server) string {
	t.Helper()
	modelled.Lock()
	defer modelled.Unlock()
	if modelled.name == "" {
		server.CreateDatabase(t, "clocked_model", "")
		furnish(t, server.DSN("clocked_model"))
		modelled.name = "clocked_model"
	}
	return modelled.name
}

// furnish gives an empty database the schema and a clock that can be moved.
func furnish(t *testing.T, dsn string) {
	t.Helper()
	migrate(t, dsn, "")
	execute(t, dsn, `CREATE TABLE public.shift (by interval NOT NULL); INSERT INTO public.shift VALUES ('0'); GRANT SELECT ON public.shift TO public;
		CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp() + (SELECT by FROM public.shift)'`)
	execute(t, dsn, later)
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatal(err)
	}
}

func newClock(t *testing.T, dsn string) *clock {
	t.Helper()
	return &clock{t, connect(t, dsn)}
}

func (c *clock) Advance(d time.Duration) {
	if _, err := c.conn.Exec(context.Background(), `UPDATE public.shift SET by = by + $1::interval`, d); err != nil {
		c.t.Error(err)
	}
}
