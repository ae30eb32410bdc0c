package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestPooler has the rights of [TestStore].
func TestPooler(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	through := testenv.Postgres(t).Pooler(t, 3, password)
	pooled := func(dsn string) (*postgres.Store, error) {
		return postgres.Open(t.Context(), through(dsn), postgres.Options{Pooled: true})
	}
	if testenv.Long() {
		storetest.Calls(t, newLender(pooled).lend)
	}
	t.Run("every statement", func(t *testing.T) {
		dsn := clocked(t)
		s, err := pooled(dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		makeEveryCall(t, s, dsn)
		storetest.Check(t, s, acme)
	})
	_, err := postgres.Open(t.Context(), through(clocked(t)), postgres.Options{})
	if job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), "say --db-pooled") {
		t.Errorf("as if there were no pooler: %v", err)
	}
}

// ownServer starts a server for what happens to one, and returns the name of a migrated database
// there.
func ownServer(t *testing.T) (server *testenv.Server, dsn string) {
	t.Helper()
	testenv.Postgres(t) // skips where there is none
	server, err := testenv.StartUnsynced(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	server.CreateDatabase(t, "jobs", "")
	dsn = server.DSN("jobs")
	migrate(t, dsn, "")
	return server, dsn
}

func TestRestart(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	server, dsn := ownServer(t)
	s := open(t, dsn, postgres.Options{})
	const lease = time.Hour
	alive, dead := begin(t, s, lease), begin(t, s, store.MinLease)
	submit(t, s, newTasks(10)...)
	held := claim(t, s, alive, 5)

	server.Kill()
	if _, _, err := s.Submit(t.Context(), store.Submission{Tenant: acme, Jobs: newTasks(1)}); job.KindOf(err) != job.Unavailable {
		t.Errorf("a submission while the database is down: %v", err)
	}
	if _, err := s.List(t.Context(), store.Query{Tenant: acme}); job.KindOf(err) != job.Unavailable {
		t.Errorf("a list while the database is down: %v", err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The lease of this session is over, but nobody could renew it meanwhile.
	if _, err := s.Renew(t.Context(), store.Renew{Session: dead, Lease: lease}); job.KindOf(err) != job.Fenced {
		t.Errorf("renewed an expired session: %v", err)
	}
	if n, _, err := s.Expire(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("expired %d jobs, %v", n, err)
	}
	as, _, _, err := s.Apply(t.Context(), finishes(held, alive), nil)
	if err != nil || as[0].Outcome != store.OK {
		t.Errorf("%+v, %v", as, err)
	}
	if n := len(claim(t, s, alive, 10)); n != 5 {
		t.Errorf("%d jobs were left", n)
	}
	storetest.Check(t, s, acme)
}

// TestNothingExpiresAfterTrouble has sessions run out while nobody could renew them.
// TestCursorsOutliveACrash has a server crash that had given ids to transactions which wrote
// nothing. It forgets those, and gives them to whoever writes next: that must be behind the cursors
// of before.
func TestCursorsOutliveACrash(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	server, dsn := ownServer(t)
	s := open(t, dsn, postgres.Options{})
	submit(t, s, newTasks(1)...)
	server.Psql(t, "postgres", "-c", "alter system set wal_writer_delay = '10s'", "-c", "select pg_reload_conf()")
	submit(t, s, newTasks(1)...)
	server.Psql(t, "jobs", "-c", "do 'begin for i in 1..50 loop perform pg_current_xact_id(); rollback; end loop; end'")
	events := func(q store.EventQuery) store.Events {
		t.Helper()
		q.Tenant = acme
		es, err := s.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return es
	}
	end, read := events(store.EventQuery{End: true}), events(store.EventQuery{})
	read = events(store.EventQuery{Cursor: read.Cursor}) // there is nothing more
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := submit(t, s, newTasks(1)...)[0]
	for what, cursor := range map[string]string{"of the end": end.Cursor, "of a page without events": read.Cursor} {
		if got := events(store.EventQuery{Cursor: cursor}).Events; len(got) != 1 || got[0].Job != id {
			t.Errorf("behind the cursor %s are %d events, and one was written since", what, len(got))
		}
	}
}

// TestUnsettled has somebody who may write events and cannot be seen to have a transaction id yet:
// he may have any that is open.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, foreign, writer := open(t, dsn, postgres.Options{}), connect(t, dsn), connect(t, dsn)
	cursor := ""
	seen := func(what string, jobs int, unsettled bool) {
		t.Helper()
		es, err := s.Events(t.Context(), store.EventQuery{Tenant: acme, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		if len(es.Events) != jobs || es.Unsettled != unsettled {
			t.Errorf("%s: %d events, unsettled: %t; want %d, %t", what, len(es.Events), es.Unsettled, jobs, unsettled)
		}
		cursor = es.Cursor
	}
	must(t, foreign, "BEGIN")
	must(t, foreign, "SELECT pg_current_xact_id()")
	submit(t, s, newTask())
	seen("beside a transaction of somebody else", 1, false)
	must(t, writer, "BEGIN")
	must(t, writer, "SELECT pg_advisory_xact_lock_shared($1)", s.Writers())
	for known, jobs := range map[string]int{"": 0, cursor: 1} {
		es, err := s.Events(t.Context(), store.EventQuery{Tenant: acme, Known: known})
		if err != nil || len(es.Events) != jobs || !es.Unsettled {
			t.Errorf("from the first event, with %q known: %d events, unsettled: %t, %v; want %d", known, len(es.Events), es.Unsettled, err, jobs)
		}
	}
	submit(t, s, newTask())
	seen("beside one who may write", 0, true)
	must(t, writer, "SELECT pg_current_xact_id()")
	// Whether his events are still to come depends on the ids that tests beside this one have used
	// since.
	es, err := s.Events(t.Context(), store.EventQuery{Tenant: acme, Cursor: cursor})
	if err != nil || len(es.Events) != 1 {
		t.Errorf("beside one who is known to write later: %d events, %v; want 1", len(es.Events), err)
	}
	cursor = es.Cursor
	submit(t, s, newTask())
	seen("beside one who writes", 0, true)
	must(t, writer, "ROLLBACK")
	seen("after him", 1, false)
}

// TestNothingIsReadFromAStandby: it may not know of what was accepted.
func TestNothingIsReadFromAStandby(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	server, dsn := ownServer(t)
	s := open(t, dsn, postgres.Options{})
	id := submit(t, s, newTask())[0]
	if err := server.Demote(t.Context()); err != nil {
		t.Fatal(err)
	}
	read := map[string]func() error{
		"job":    func() error { _, err := store.FindJob(t.Context(), s, acme, id); return err },
		"list":   func() error { _, err := s.List(t.Context(), store.Query{Tenant: acme}); return err },
		"count":  func() error { _, err := s.Count(t.Context(), acme, nil); return err },
		"events": func() error { _, err := s.Events(t.Context(), store.EventQuery{Tenant: acme}); return err },
		"find":   func() error { _, err := s.Find(t.Context(), store.FindQuery{IDs: []job.ID{id}}); return err },
	}
	for call, f := range read {
		if err := anew(f); job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s on a standby: %v", call, err)
		}
	}
	server.Psql(t, "postgres", "-c", "select pg_promote()")
	for call, f := range read {
		if err := f(); err != nil {
			t.Errorf("%s on a server that was promoted: %v", call, err)
		}
	}
}

func TestNothingExpiresAfterTrouble(t *testing.T) {
	t.Parallel()
	t.Run("of a process that could not reach the database", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		gate := newGate(t, dsn)
		s, other := open(t, gate.dsn, postgres.Options{}), open(t, dsn, postgres.Options{})
		session := begin(t, s, time.Minute)
		submit(t, s, newTask())
		claim(t, s, session, 1)
		newClock(t, dsn).Advance(2 * time.Minute)
		gate.cut(true)
		if _, _, err := s.Expire(t.Context(), 10); job.KindOf(err) != job.Unavailable {
			t.Errorf("expire without a database: %v", err)
		}
		gate.cut(false)
		var n int
		if err := anew(func() (err error) { n, _, err = s.Expire(t.Context(), 10); return err }); err != nil || n != 0 {
			t.Errorf("expired %d jobs, %v", n, err)
		}
		if n, _, err := other.Expire(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("a process that had no trouble expired %d jobs, %v", n, err)
		}
	})
	t.Run("of one whose renewal had no answer", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
		session, dead := begin(t, s, time.Hour), begin(t, s, time.Minute)
		submit(t, s, newTask())
		claim(t, s, dead, 1)
		newClock(t, dsn).Advance(2 * time.Minute)
		must(t, admin, "BEGIN; SELECT FROM pawl.sessions WHERE lease = '1 hour' FOR UPDATE")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.Renew(ctx, store.Renew{Session: session, Lease: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a renewal that waits: %v", err)
		}
		must(t, admin, "COMMIT")
		if n, _, err := s.Expire(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("expired %d jobs, %v", n, err)
		}
	})
	t.Run("of one that has just begun", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, clock := open(t, dsn, postgres.Options{}), newClock(t, dsn)
		submit(t, s, newTask())
		claim(t, s, begin(t, s, time.Minute), 1)
		clock.Advance(2 * time.Minute)
		fresh := open(t, dsn, postgres.Options{})
		clock.Advance(time.Minute - 10*time.Second)
		if n, _, err := fresh.Expire(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("within a lease %d jobs were taken, %v", n, err)
		}
		clock.Advance(10 * time.Second)
		if n, _, err := fresh.Expire(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("after a lease %d jobs were taken, %v", n, err)
		}
	})
	t.Run("of more than half of all sessions at once", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, clock := open(t, dsn, postgres.Options{}), newClock(t, dsn)
		submit(t, s, newTasks(4)...)
		for range 4 {
			claim(t, s, begin(t, s, time.Minute), 1)
		}
		clock.Advance(time.Minute + time.Second)
		if n, _, err := s.Expire(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("at once %d jobs were taken, %v", n, err)
		}
		clock.Advance(20 * time.Second)
		if n, _, err := s.Expire(t.Context(), 10); err != nil || n != 4 {
			t.Errorf("a renewal later %d jobs were taken, %v", n, err)
		}
	})
}

// A clock that was an hour fast is put right. What a dead process has is not forgotten for that
// hour.
func TestClockIsPutBack(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, clock := open(t, dsn, postgres.Options{}), newClock(t, dsn)
	renewed := func(session job.ID) store.Renewal {
		t.Helper()
		a, err := s.Renew(t.Context(), store.Renew{Session: session, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	expired := func(want int) {
		t.Helper()
		if n, _, err := s.Expire(t.Context(), 10); err != nil || n != want {
			t.Errorf("%d jobs were taken, %v; want %d", n, err, want)
		}
	}
	clock.Advance(5 * time.Minute) // since the process reached the database
	submit(t, s, newTasks(2)...)
	clock.Advance(time.Hour)
	alive, dead := begin(t, s, time.Minute), begin(t, s, time.Minute)
	claim(t, s, alive, 1)
	claim(t, s, dead, 1)
	clock.Advance(-time.Hour)
	if a := renewed(alive); a.NextExpiry.IsZero() || a.NextExpiry.After(a.Now) {
		t.Errorf("at %s the next expiry is expected at %s: it is to be looked at now", a.Now, a.NextExpiry)
	}
	expired(0)
	if a := renewed(alive); !a.NextExpiry.After(a.Now) || a.NextExpiry.After(a.Now.Add(time.Minute)) {
		t.Errorf("at %s the next expiry is expected at %s: it comes within a lease", a.Now, a.NextExpiry)
	}
	clock.Advance(40 * time.Second)
	renewed(alive)
	expired(0)
	clock.Advance(30 * time.Second)
	expired(1)
	renewed(alive)
}

// A process that came while the clock was fast has been there for long when the clock is put right.
func TestClockWasFastAtFirst(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	clock := newClock(t, dsn)
	clock.Advance(time.Hour)
	s := open(t, dsn, postgres.Options{})
	alive, dead := begin(t, s, time.Minute), begin(t, s, time.Minute)
	submit(t, s, newTask())
	claim(t, s, dead, 1)
	clock.Advance(-time.Hour)
	for range 3 {
		if _, err := s.Renew(t.Context(), store.Renew{Session: alive, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		n, _, err := s.Expire(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			return
		}
		clock.Advance(40 * time.Second)
	}
	t.Error("what a dead process has is not taken")
}

func TestServerThatIsSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := postgres.Open(t.Context(), "postgres://u:x@"+l.Addr().String()+"/jobs?sslmode=disable&connect_timeout=1", postgres.Options{}); job.KindOf(err) != job.Unavailable {
		t.Errorf("%v", err)
	}
}

// TestExpiresAfterRefusal has a call refused in many ways: only those that say that nobody is
// served keep the jobs of a dead session from being taken.
func TestExpiresAfterRefusal(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := clocked(t)
	admin, clock, other := connect(t, dsn), newClock(t, dsn), open(t, dsn, postgres.Options{})
	must(t, admin, `CREATE TABLE public.refusal (code text);
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE c text; BEGIN
			SELECT code INTO c FROM public.refusal;
			IF FOUND THEN RAISE EXCEPTION USING ERRCODE = c, MESSAGE = 'refused'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON pawl.specs FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	t.Cleanup(func() {
		execute(t, dsn, "DROP TRIGGER refuse ON pawl.specs; DROP FUNCTION public.refuse; DROP TABLE public.refusal")
	})
	for code, served := range map[string]bool{
		"57014": true, // statement_timeout
		"55P03": true, // lock_timeout
		"25P03": true,
		"42501": true,
		"42P01": true,
		"40P01": true, // again and again
		"40001": true,
		"58030": true,
		"08006": false,
		"53200": false,
		"57P01": false,
		"57P03": false,
		"25006": false, // a standby
		"0A000": false, // the same, where a transaction asks to write
	} {
		s := open(t, dsn, postgres.Options{})
		submit(t, s, newTask())
		claim(t, s, begin(t, s, time.Minute), 1)
		clock.Advance(2 * time.Minute)
		must(t, admin, "INSERT INTO public.refusal VALUES ($1)", code)
		if _, _, err := s.Submit(t.Context(), store.Submission{Tenant: acme, Jobs: newTasks(1)}); job.KindOf(err) != job.Unavailable {
			t.Errorf("%s: a submission: %v", code, err)
		}
		must(t, admin, "DELETE FROM public.refusal")
		if n, _, err := s.Expire(t.Context(), 10); err != nil || (n == 1) != served {
			t.Errorf("%s: %d jobs were taken, %v", code, n, err)
		}
		if _, _, err := other.Expire(t.Context(), 10); err != nil {
			t.Error(err)
		}
	}
}

// TestStandby has the server of an open store become a standby, as a primary does that another one
// replaced.
func TestStandby(t *testing.T) {
	t.Parallel()
	testenv.Postgres(t) // skips where there is none
	for name, o := range map[string]postgres.Options{"directly": {}, "through a pooler": {Pooled: true}} {
		t.Run(name, func(t *testing.T) {
			if o.Pooled {
				testenv.Aside(t)
			}
			t.Parallel()
			server, err := testenv.StartUnsynced(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Stop)
			replacement := clocked(t)
			database := parsed(t, replacement).Database
			server.CreateDatabase(t, database, "")
			dsn := server.DSN(database)
			furnish(t, dsn)
			grant(t, dsn)
			way := dsn
			if o.Pooled {
				way = server.Pooler(t, 3, password)(dsn)
			}
			gate := newGate(t, granted(t, way))
			s := open(t, gate.dsn, o)
			other := open(t, dsn, postgres.Options{})
			alive, dead := begin(t, s, time.Hour), begin(t, s, time.Minute)
			submit(t, s, newTasks(4)...)
			held := claim(t, s, alive, 1)
			claim(t, s, dead, 1)

			if err := server.Demote(t.Context()); err != nil {
				t.Fatal(err)
			}
			for call, f := range map[string]func() error{
				"submit": func() error {
					_, _, err := s.Submit(t.Context(), store.Submission{Tenant: acme, Jobs: newTasks(1)})
					return err
				},
				"apply": func() error { _, _, _, err := s.Apply(t.Context(), finishes(held, alive), nil); return err },
				"claim": func() error { _, err := s.Claim(t.Context(), asking(alive, 1)); return err },
				"renew": func() error {
					_, err := s.Renew(t.Context(), store.Renew{Session: alive, Lease: time.Hour})
					return err
				},
				"due":    func() error { _, _, err := s.Due(t.Context(), 10); return err },
				"expire": func() error { _, _, err := s.Expire(t.Context(), 10); return err },
				"open": func() error {
					other, err := postgres.Open(t.Context(), gate.dsn, o)
					if err == nil {
						other.Close()
					}
					return err
				},
			} {
				if err := anew(f); job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), "standby") {
					t.Errorf("%s on a standby: %v", call, err)
				}
			}

			gate.lead(replacement)
			submit(t, s, newTask()) // no connection to the standby is used again

			server.Psql(t, "postgres", "-c", "select pg_promote()")
			gate.cut(true)
			gate.lead(way)
			gate.cut(false)
			newClock(t, dsn).Advance(2 * time.Minute)
			expired := 0
			expire := func() (err error) { expired, _, err = s.Expire(t.Context(), 10); return err }
			if err := anew(expire); err != nil || expired != 0 {
				t.Errorf("after it was cut off the process expired %d jobs, %v", expired, err)
			}
			if n, _, err := other.Expire(t.Context(), 10); err != nil || n != 1 {
				t.Errorf("one that has not noticed expired %d jobs, %v", n, err)
			}
			if as, _, _, err := s.Apply(t.Context(), finishes(held, alive), nil); err != nil || as[0].Outcome != store.OK {
				t.Errorf("%+v, %v", as, err)
			}
			if n := len(claim(t, s, alive, 10)); n != 3 {
				t.Errorf("%d jobs were left", n)
			}
			storetest.Check(t, s, acme)
		})
	}
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	admin := connect(t, dsn)
	role := "few_" + job.NewID().Short()
	must(t, admin, "CREATE ROLE "+role+" LOGIN SUPERUSER PASSWORD 'x'") // owner of nothing
	t.Cleanup(func() { execute(t, dsn, "DROP ROLE "+role) })
	must(t, admin, "ALTER ROLE "+role+" NOSUPERUSER CONNECTION LIMIT 1")
	must(t, admin, "GRANT ALL ON SCHEMA pawl TO "+role+"; GRANT ALL ON ALL TABLES IN SCHEMA pawl TO "+role+"; GRANT ALL ON public.shift TO "+role)
	t.Cleanup(func() { execute(t, dsn, "DROP OWNED BY "+role) })
	at := strings.Index(dsn, "@")
	theirs := "postgres://" + role + ":x" + dsn[at:]
	taken := connect(t, theirs)
	if _, err := postgres.Open(t.Context(), theirs, postgres.Options{}); job.KindOf(err) != job.Unavailable {
		t.Errorf("%v", err)
	}
	taken.Close(t.Context())
	for {
		s, err := postgres.Open(t.Context(), theirs, postgres.Options{Conns: 1})
		if job.KindOf(err) == job.Unavailable {
			continue // the server has not noticed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		submit(t, s, newTask())
		s.Close()
		return
	}
}

// TestSerialization has the database refuse transactions as it does to avoid a conflict.
func TestSerialization(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
	must(t, admin, `CREATE SEQUENCE public.tries;
		CREATE FUNCTION public.trip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('public.tries') <= 3 THEN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'could not serialize'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER trip BEFORE INSERT ON pawl.specs FOR EACH ROW EXECUTE FUNCTION public.trip()`)
	t.Cleanup(func() {
		execute(t, dsn, "DROP TRIGGER trip ON pawl.specs; DROP FUNCTION public.trip; DROP SEQUENCE public.tries")
	})
	ids := submit(t, s, newTask())
	if j, err := store.FindJob(t.Context(), s, acme, ids[0]); err != nil || j.State != job.Pending {
		t.Errorf("%+v, %v", j.Place, err)
	}
	must(t, admin, "ALTER SEQUENCE public.tries RESTART MINVALUE -1000 START -1000; SELECT setval('public.tries', -1000)")
	if _, _, err := s.Submit(t.Context(), store.Submission{Tenant: acme, Jobs: newTasks(1)}); job.KindOf(err) != job.Unavailable {
		t.Errorf("a submission that is refused again and again: %v", err)
	}
}

// TestShortLeaseOnASlowServer has the database take longer over the beginning of a session than its
// lease lasts: it has begun.
func TestShortLeaseOnASlowServer(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	s := open(t, dsn, postgres.Options{})
	must(t, connect(t, dsn), `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$;
		CREATE TRIGGER slow AFTER INSERT ON pawl.sessions FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	session := store.Session{ID: job.NewID(), Lease: store.MinLease}
	if err := s.Begin(t.Context(), session); err != nil {
		t.Errorf("a session with the shortest lease: %v", err)
	}
	if err := s.Begin(t.Context(), session); job.KindOf(err) != job.Fenced {
		t.Errorf("a beginning repeated after the lease: %v, want fenced", err)
	}
}

// TestEra shows that events go on in a cluster whose transactions are counted anew, as after a
// restore from a dump.
func TestEra(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
	submit(t, s, newTasks(2)...)
	must(t, admin, "UPDATE pawl.events SET ord = ord + 1000000000; UPDATE pawl.jobs SET ord = ord + 1000000000; UPDATE pawl.era SET base = base + 1000000000")
	before, err := s.Events(t.Context(), store.EventQuery{Tenant: acme})
	if err != nil || len(before.Events) != 2 {
		t.Fatalf("%d events, %v", len(before.Events), err)
	}
	// A reader has read on for a million transactions, which are lost.
	const shift = "UPDATE pawl.events SET ord = ord + %[1]d; UPDATE pawl.jobs SET ord = ord + %[1]d; UPDATE pawl.era SET base = base + %[1]d"
	must(t, admin, fmt.Sprintf(shift, 1_000_000))
	lost, err := s.Events(t.Context(), store.EventQuery{Tenant: acme, End: true})
	if err != nil {
		t.Fatal(err)
	}
	must(t, admin, fmt.Sprintf(shift, -1_000_000))
	must(t, admin, "UPDATE pawl.era SET base = 0") // what the cluster counts is a billion less now
	t.Cleanup(func() { execute(t, dsn, "UPDATE pawl.era SET base = 0") })
	restored := open(t, dsn, postgres.Options{})
	id := submit(t, restored, newTask())[0]
	after, err := restored.Events(t.Context(), store.EventQuery{Tenant: acme, Cursor: before.Cursor})
	if err != nil || len(after.Events) != 1 || after.Events[0].Job != id {
		t.Errorf("%d events, %v", len(after.Events), err)
	}
	// Who has read what is lost would miss what comes.
	if es, err := restored.Events(t.Context(), store.EventQuery{Tenant: acme, Cursor: lost.Cursor}); job.KindOf(err) != job.Invalid || len(es.Events) > 0 {
		t.Errorf("from a cursor that is newer than the database: %d events, %v", len(es.Events), err)
	}
}

// TestRoundTrips counts how often calls wait for the database, with few jobs and with many.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s := open(t, dsn, postgres.Options{Conns: 1})
	through(t, s) // statements are prepared
	for _, n := range []int{1, 700} {
		session := begin(t, s, time.Minute)
		want := func(call string, trips int64, f func()) {
			t.Helper()
			before := s.RoundTrips()
			f()
			if got := s.RoundTrips() - before; got != trips {
				t.Errorf("%s of %d jobs: %d round trips, want %d", call, n, got, trips)
			}
		}
		var ids []job.ID
		var jobs []job.Job
		want("submit", 1, func() { ids = submit(t, s, newTasks(n)...) })
		want("claim", 1, func() { jobs = claim(t, s, session, n) })
		want("apply", 1, func() {
			if _, _, _, err := s.Apply(t.Context(), finishes(jobs, session), nil); err != nil {
				t.Fatal(err)
			}
		})
		want("find", 1, func() {
			if found, err := s.Find(t.Context(), store.FindQuery{IDs: ids}); err != nil || len(found) != n {
				t.Fatalf("%d, %v", len(found), err)
			}
		})
		want("renew", 1, func() {
			if _, err := s.Renew(t.Context(), store.Renew{Session: session, Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
		})
		want("due", 1, func() {
			if _, _, err := s.Due(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		})
		ids = submit(t, s, newTasks(n)...)
		want("wish", 2, func() {
			if _, _, err := s.Wish(t.Context(), store.Wish{Tenant: acme, Wish: job.WishCancel, Jobs: ids}); err != nil {
				t.Fatal(err)
			}
		})
		want("expire", 2, func() {
			if _, _, err := s.Expire(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		})
		want("pay", 2, func() {
			if _, _, err := s.Pay(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		})
		if _, err := s.End(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
}

// anew makes a call until it meets no connection of before: it succeeds, or a standby refuses it.
func anew(f func() error) error {
	err := f()
	for try := 0; job.KindOf(err) == job.Unavailable && !strings.Contains(err.Error(), "standby") && try < 100; try++ {
		err = f()
	}
	return err
}

// A gate is a proxy before a server that can be cut, and led to another one.
type gate struct {
	dsn string
	t   *testing.T

	mu     sync.Mutex // guards what follows
	server string     // its address
	closed bool
	conns  map[net.Conn]bool
}

func newGate(t *testing.T, dsn string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, conns: map[net.Conn]bool{}}
	g.lead(dsn)
	g.dsn = strings.Replace(dsn, "@"+g.server+"/", "@"+l.Addr().String()+"/", 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			server := g.server
			g.mu.Unlock()
			up, err := net.Dial("tcp", server)
			if err != nil || !g.add(c, up) {
				c.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{c, up}, {up, c}} {
				wg.Go(func() {
					io.Copy(pair[0], pair[1]) // until one of them is closed
					pair[0].Close()
					pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.cut(true)
		wg.Wait()
	})
	return g
}

func (g *gate) add(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.closed {
			c.Close()
		} else {
			g.conns[c] = true
		}
	}
	return !g.closed
}

// lead has connections that are made from now on lead to the server of another connection string.
func (g *gate) lead(dsn string) {
	config := parsed(g.t, dsn)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.server = net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// cut closes every connection and takes no more, until it is called with false.
func (g *gate) cut(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	for c := range g.conns {
		c.Close()
		delete(g.conns, c)
	}
}

// TestSubmittedTwiceAtOnce: of two that submit the same external id the second is answered with the
// job of the first, which is nothing to warn of.
func TestSubmittedTwiceAtOnce(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	var log bytes.Buffer
	s := open(t, dsn, postgres.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	admin, first := connect(t, dsn), connect(t, dsn)
	id := submit(t, s, newTask())[0]
	must(t, first, "BEGIN")
	second := newTask()
	second.Job.ExternalID = "order-17"
	must(t, first, "UPDATE pawl.specs SET external_id = 'order-17', fingerprint = $2 WHERE id = $1", [16]byte(id), second.Fingerprint[:]) // as if it were submitted so only now
	var answers []store.Submitted
	failed := make(chan error, 1)
	go func() {
		var err error
		answers, _, err = s.Submit(t.Context(), store.Submission{Tenant: acme, By: "ann", Jobs: []store.New{second}})
		failed <- err
	}()
	untilWaiting(t, admin, 1)
	must(t, first, "COMMIT")
	if err := <-failed; err != nil || len(answers) != 1 || answers[0].ID != id {
		t.Errorf("the second is answered with %+v, %v; want job %s", answers, err, id)
	}
	if text := log.String(); !strings.Contains(text, "level=DEBUG msg=\"a call met another one and is made again\"") || strings.Contains(text, "level=WARN") {
		t.Errorf("the log has\n%s", text)
	}
}
