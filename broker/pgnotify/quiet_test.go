package pgnotify

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// A bench has connections of programs, and one that listens, whose quiet it steps.
type bench struct {
	*testing.T
	dsn  string
	conn *pgx.Conn
	now  time.Time
	quiet
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, dsn: testenv.Postgres(t).Database(t), now: time.Unix(1, 0)}
	b.quiet = quiet{schema: "pawl", clock: func() time.Time { return b.now }}
	b.conn = b.connect()
	return b
}

func (b *bench) connect() *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), b.dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// begin begins a transaction that looks whether it may tell nothing.
func (b *bench) begin(conn *pgx.Conn) (untold bool) {
	b.Helper()
	b.exec(conn, "BEGIN")
	b.exec(conn, "SELECT pg_advisory_xact_lock_shared("+untoldLock+")", "pawl")
	err := conn.QueryRow(b.Context(), "SELECT CASE WHEN pg_try_advisory_lock("+wantedLock+") THEN pg_advisory_unlock("+
		wantedLock+") ELSE false END", "pawl").Scan(&untold)
	if err != nil {
		b.Fatal(err)
	}
	return untold
}

func (b *bench) exec(conn *pgx.Conn, sql string, args ...any) {
	b.Helper()
	if _, err := conn.Exec(b.Context(), sql, args...); err != nil {
		b.Fatal(err)
	}
}

// after lets d pass, and steps.
func (b *bench) after(d time.Duration, wanted bool) (news bool) {
	b.Helper()
	b.now = b.now.Add(d)
	news, err := b.step(b.Context(), b.conn, wanted)
	if err != nil {
		b.Fatal(err)
	}
	return news
}

// A listener that many clients tell often is told nothing for a while, and looks.
func TestQuiet(t *testing.T) {
	b := newBench(t)
	program := b.connect()
	if err := b.listen(t.Context(), b.conn, true); err != nil || !b.told {
		t.Fatal(b.told, err)
	}
	tell := func(n, clients int) {
		for i := range n {
			b.heard(uint32(i % clients))
		}
	}
	for _, few := range []struct{ n, clients int }{{often - 1, many}, {2 * often, many - 1}} {
		tell(few.n, few.clients)
		if b.after(window+time.Millisecond, true); !b.told {
			t.Fatalf("%d notifications of %d clients are too many", few.n, few.clients)
		}
	}
	tell(often-1, many)
	b.now = b.now.Add(2 * window)
	if tell(1, 1); b.seen != 1 {
		t.Errorf("%d notifications in a new window", b.seen)
	}
	tell(often, many)
	if b.after(0, true); b.told || !b.begin(program) {
		t.Fatal("it is told of each of many transactions")
	}
	if b.after(interval/2, true) {
		t.Error("it looks too often")
	}
	if !b.after(interval/2, true) || b.told {
		t.Error("it does not look")
	}
	if !b.after(looking, true) || !b.told || b.whole {
		t.Fatalf("a transaction is under way that tells nothing: told %t, whole %t", b.told, b.whole)
	}
	if !b.after(patience, true) || b.whole {
		t.Error("it does not look for what an open transaction may have written")
	}
	b.exec(program, "COMMIT")
	if !b.after(patience, true) || !b.whole {
		t.Error("it does not look for what a transaction has written that told nothing")
	}
	if _, due := b.due(); due || b.after(time.Hour, true) {
		t.Error("it looks though it is told of all")
	}
	if b.begin(program) {
		t.Error("a transaction does not tell")
	}
}

// While nobody waits, nobody is told. Who begins to wait misses nothing.
func TestNobodyWaits(t *testing.T) {
	b := newBench(t)
	program := b.connect()
	if err := b.listen(t.Context(), b.conn, false); err != nil {
		t.Fatal(err)
	}
	if _, due := b.due(); due || b.after(time.Hour, false) || !b.begin(program) {
		t.Error("it is told, or looks, though nobody waits")
	}
	if !b.after(0, true) || !b.told || b.whole {
		t.Fatalf("somebody waits, and a transaction is under way that tells nothing: told %t, whole %t", b.told, b.whole)
	}
	b.exec(program, "COMMIT")
	if !b.after(interval, true) || !b.whole || b.begin(program) {
		t.Error("it has not looked since that transaction has ended, or the next one tells nothing")
	}
	b.exec(program, "COMMIT")
	if b.after(0, false); !b.told {
		t.Error("it is not told a moment after the last one waited")
	}
	if at, due := b.due(); !due || at.Sub(b.now) > unwanted {
		t.Error("it will be told for ever")
	}
	if b.after(unwanted, false); b.told || !b.begin(program) {
		t.Error("it is told though nobody waits any more")
	}
}

// A broker is told as soon as somebody waits.
func TestWanted(t *testing.T) {
	for name, wait := range map[string]func(*Broker){
		"for events": func(br *Broker) { subscribe(t, br, newsTopic) },
		"at gates":   func(br *Broker) { subscribe(t, br, gateTopic) },
		"for jobs": func(br *Broker) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = br.Wait(ctx, []job.QueueKind{{Queue: "q", Kind: "k"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			br, err := Open(t.Context(), Config{DSN: b.dsn})
			if err != nil {
				t.Fatal(err)
			}
			defer br.Close()
			subscribe(t, br, "another topic")
			program := b.connect()
			untold := func() bool {
				untold := b.begin(program)
				b.exec(program, "COMMIT")
				return untold
			}
			// Do is a turn of the loop that would have it told.
			if err := br.Do(t.Context(), func(context.Context, *pgx.Conn) error { return nil }); err != nil || !untold() {
				t.Errorf("it is told before anybody waits: %v", err)
			}
			wait(br)
			for untold() {
				if t.Context().Err() != nil {
					t.Fatal("it is not told")
				}
			}
		})
	}
}

func subscribe(t *testing.T, br *Broker, topic string) {
	t.Helper()
	s, err := br.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
}
