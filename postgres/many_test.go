package postgres_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/postgres"
)

// A program whose own pool goes through PgBouncer enqueues in transactions of pgx and database/sql.
func TestThroughPgBouncer(t *testing.T) {
	a := start(t)
	through, err := url.Parse(testenv.Postgres(t).Pooler(t, 2, "")(a.db.Config().ConnString()))
	a.must(err)
	q := through.Query()
	q.Set("default_query_exec_mode", "exec") // a connection of its own has nobody
	through.RawQuery = q.Encode()
	pool, err := pgxpool.New(t.Context(), through.String())
	a.must(err)
	defer pool.Close()
	old, err := sql.Open("pgx", through.String())
	a.must(err)
	defer old.Close()
	a.db.Close()
	a.db = pool
	a.run()
	for n := range 6 {
		tx := a.begin(n)
		_, err := tx.Exec(t.Context(), "SELECT set_config('job.tenant', 'of the caller', true)")
		a.must(err)
		h := a.enqueue(unique, order{fmt.Sprint("pgx", n), n}, postgres.In(tx))
		again := a.enqueue(unique, order{fmt.Sprint("pgx", n), n}, postgres.In(tx))
		if again.ID != h.ID || !again.Existed {
			t.Errorf("an equal job is %s, want %s", again.ID, h.ID)
		}
		var tenant string // what enqueue sets for its statements is as it was before
		a.must(tx.QueryRow(t.Context(), "SELECT current_setting('job.tenant', true)").Scan(&tenant))
		if tenant != "of the caller" {
			t.Errorf("the transaction has the tenant %q", tenant)
		}
		a.must(tx.Commit(t.Context()))
		if got, err := h.Wait(t.Context()); got != n || err != nil {
			t.Errorf("%d, %v; want %d", got, err, n)
		}
		in, err := old.BeginTx(t.Context(), nil)
		a.must(err)
		_, err = in.ExecContext(t.Context(), "INSERT INTO orders VALUES ($1)", 100+n)
		a.must(err)
		h = a.enqueue(plain, order{"sql", n}, postgres.InSQL(in), pawl.WithLabel("way", "sql"))
		if n%2 == 1 {
			a.must(in.Rollback())
			if _, err := h.Job(t.Context()); err == nil {
				t.Error("a job is there after a rollback")
			}
			continue
		}
		a.must(in.Commit())
		if got, err := h.Wait(t.Context()); got != n || err != nil {
			t.Errorf("%d, %v; want %d", got, err, n)
		}
	}
}

// child runs a test in a process of its own, which finds the database in a variable.
func (a *app) child(test, variable string) (c *exec.Cmd, out *bufio.Scanner) {
	a.Helper()
	c = exec.Command(os.Args[0], "-test.run=^"+test+"$")
	c.Env, c.Stderr = append(os.Environ(), variable+"="+a.db.Config().ConnString()), os.Stderr
	pipe, err := c.StdoutPipe()
	a.must(err)
	a.must(c.Start())
	return c, bufio.NewScanner(pipe)
}

// client opens a service that only enqueues, and a connection beside it.
func client(t *testing.T, dsn string) (*pawl.Service, *pgx.Conn) {
	svc, err := pawl.Open(t.Context(), postgres.At(dsn), pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return svc, conn
}

// A process dies with an open transaction: its job was never there, and who waited for it goes on.
func TestProcessDiesWithATransaction(t *testing.T) {
	const variable = "PAWL_TEST_OPEN_DSN"
	if dsn := os.Getenv(variable); dsn != "" {
		svc, conn := client(t, dsn)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := unique.Enqueue(t.Context(), svc, order{"ada", 1}, postgres.In(tx))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(h.ID)
		select {} // until it is killed
	}
	a := start(t)
	c, out := a.child("TestProcessDiesWithATransaction", variable)
	if !out.Scan() {
		t.Fatal("the process has ended")
	}
	first := out.Text()
	second := make(chan *pawl.Handle[int])
	go func() { second <- a.enqueue(unique, order{"ada", 2}) }()
	a.awaitBlocked()
	a.must(c.Process.Kill())
	if h := <-second; h.ID.String() == first || h.Existed {
		t.Errorf("job %s, existed %t; the process that died had %s", h.ID, h.Existed, first)
	}
	c.Wait()
}

// Many processes enqueue one unique key at once, in transactions and without, round after round.
func TestOneKeyOfManyProcesses(t *testing.T) {
	const variable = "PAWL_TEST_MANY_DSN"
	processes, rounds := 8, 10
	if testenv.Long() {
		processes, rounds = 64, 200
	}
	ctx := t.Context()
	if dsn := os.Getenv(variable); dsn != "" {
		svc, conn := client(t, dsn)
		for r := range rounds {
			if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", 1000+r); err != nil { // until it begins
				t.Fatal(err)
			}
			var h *pawl.Handle[int]
			var err error
			if (os.Getpid()+r)%2 == 0 {
				h, err = unique.Enqueue(ctx, svc, order{fmt.Sprint(r), os.Getpid()})
			} else {
				err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
					h, err = unique.Enqueue(ctx, svc, order{fmt.Sprint(r), os.Getpid()}, postgres.In(tx))
					return err
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println(h.ID, h.Existed)
		}
		return
	}
	a := start(t)
	gate, err := a.db.Acquire(ctx)
	a.must(err)
	defer gate.Release()
	_, err = gate.Exec(ctx, "SELECT pg_advisory_lock(1000 + r) FROM generate_series(0, $1 - 1) r", rounds)
	a.must(err)
	var outs []*bufio.Scanner
	for range processes {
		c, out := a.child("TestOneKeyOfManyProcesses", variable)
		defer c.Wait()
		defer c.Process.Kill()
		outs = append(outs, out)
	}
	for r := range rounds {
		_, err := gate.Exec(ctx, "SELECT pg_advisory_unlock($1)", 1000+r)
		a.must(err)
		made, ids := 0, map[string]bool{}
		for i, out := range outs {
			var id string
			var existed bool
			if !out.Scan() {
				t.Fatalf("process %d has ended in round %d", i, r)
			}
			if _, err := fmt.Sscan(out.Text(), &id, &existed); err != nil {
				t.Fatalf("process %d in round %d: %q", i, r, out.Text())
			}
			if ids[id] = true; !existed {
				made++
			}
		}
		if made != 1 || len(ids) != 1 {
			t.Errorf("round %d made %d jobs, and its callers know %d", r, made, len(ids))
		}
	}
}
