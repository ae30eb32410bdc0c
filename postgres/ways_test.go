package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/postgres"
)

// A way is how a program comes to its transactions.
type way struct {
	name           string
	standard, pool bool // by database/sql; through PgBouncer
}

var ways = []way{
	{"pgx", false, false},
	{"database_sql", true, false},
	{"pgx_through_PgBouncer", false, true},
	{"database_sql_through_PgBouncer", true, true},
}

// A transaction has inserted an order.
type transaction struct {
	in               pawl.EnqueueOption
	commit, rollback func() error
}

// open returns what begins transactions in this way.
func (w way) open(t *testing.T, dsn string) func(ctx context.Context, n int) (transaction, error) {
	const insert = "INSERT INTO orders VALUES ($1)"
	if w.standard {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return func(ctx context.Context, n int) (transaction, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err == nil {
				_, err = tx.ExecContext(ctx, insert, n)
			}
			return transaction{postgres.InSQL(tx), tx.Commit, tx.Rollback}, err
		}
	}
	db, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return func(ctx context.Context, n int) (transaction, error) {
		tx, err := db.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, insert, n)
		}
		of := context.WithoutCancel(ctx)
		return transaction{
			postgres.In(tx),
			func() error { return tx.Commit(of) },
			func() error { return tx.Rollback(of) },
		}, err
	}
}

// dsn is how a program comes to a database in this way.
func (w way) dsn(t *testing.T, direct string) string {
	if !w.pool {
		return direct
	}
	through, err := url.Parse(testenv.Postgres(t).Pooler(t, 2, "")(direct))
	if err != nil {
		t.Fatal(err)
	}
	q := through.Query()
	q.Set("default_query_exec_mode", "exec") // no connection is its own
	through.RawQuery = q.Encode()
	return through.String()
}

// Transactions commit, roll back, stay open while others want the same key, decide the end of a
// job, or lose their process, in whatever way the program comes to them.
func TestTransactionsOfEachWay(t *testing.T) {
	const variable = "PAWL_TEST_WAY"
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil { // the process that dies
		dsn := os.Getenv("PAWL_TEST_WAY_DSN")
		svc, _ := client(t, os.Getenv("PAWL_TEST_WAY_DIRECT"))
		tx, err := ways[n].open(t, dsn)(t.Context(), 900+n)
		if err != nil {
			t.Fatal(err)
		}
		h, err := unique.Enqueue(t.Context(), svc, order{"dies" + ways[n].name, 1}, tx.in)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(h.ID)
		select {} // until it is killed
	}
	a := start(t)
	ctx := t.Context()
	decides := map[string]pawl.Task[order, int]{}
	begins := map[string]func(context.Context, int) (transaction, error){}
	dsns := map[string]string{}
	for _, w := range ways {
		dsns[w.name] = w.dsn(t, a.dsn)
		begin := w.open(t, dsns[w.name])
		decides[w.name], begins[w.name] = often("decides."+w.name), begin
		decides[w.name].Handle(a.svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
			tx, err := begin(ctx, j.Args.N)
			if err != nil {
				return 0, err
			}
			if err := j.FinishIn(ctx, tx.in, j.Args.N); err != nil {
				return 0, err
			}
			if j.Attempt() == 1 {
				tx.rollback()
				return 0, fmt.Errorf("not yet")
			}
			return 0, tx.commit()
		})
	}
	a.run()
	for i, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			b := *a
			b.T = t
			begin := func(n int) transaction {
				tx, err := begins[w.name](ctx, 10*n+i)
				b.must(err)
				return tx
			}
			tx := begin(1)
			h := b.enqueue(plain, order{N: 1}, tx.in)
			if _, err := h.Job(ctx); job.KindOf(err) != job.NotFound {
				t.Errorf("before the commit: %v", err)
			}
			b.must(tx.commit())
			if n, err := h.Wait(ctx); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}

			tx = begin(2)
			h = b.enqueue(plain, order{N: 2}, tx.in)
			b.must(tx.rollback())
			if _, err := h.Job(ctx); job.KindOf(err) != job.NotFound {
				t.Errorf("after a rollback: %v", err)
			}

			tx = begin(3)
			first := b.enqueue(unique, order{"open" + w.name, 1}, tx.in, pawl.After(time.Hour)) // else it may have ended
			second := make(chan *pawl.Handle[int])
			go func() { second <- b.enqueue(unique, order{"open" + w.name, 2}) }()
			b.awaitBlocked()
			b.must(tx.commit())
			if h := <-second; h.ID != first.ID || !h.Existed {
				t.Errorf("an equal job is %s, existed %t; want %s", h.ID, h.Existed, first.ID)
			}

			if n, err := b.enqueue(decides[w.name], order{N: 500 + i}).Wait(ctx); n != 500+i || err != nil {
				t.Errorf("it ended in its transaction with %d, %v", n, err)
			}

			t.Setenv(variable, strconv.Itoa(i))
			t.Setenv("PAWL_TEST_WAY_DIRECT", a.dsn)
			t.Setenv("PAWL_TEST_WAY_DSN", dsns[w.name])
			c, out := b.child("TestTransactionsOfEachWay", "PAWL_TEST_WAY_DIRECT")
			if !out.Scan() {
				t.Fatal("the process has ended")
			}
			lost := out.Text()
			go func() { second <- b.enqueue(unique, order{"dies" + w.name, 2}) }()
			b.awaitBlocked()
			b.must(c.Process.Kill())
			if h := <-second; h.ID.String() == lost || h.Existed {
				t.Errorf("job %s, existed %t; the process that died had %s", h.ID, h.Existed, lost)
			}
			c.Wait()
		})
	}
	if n := a.orders(); n != 3*len(ways) { // of what committed: two by hand, one by a handler
		t.Errorf("there are %d orders", n)
	}
}

// Jobs under a limit go on while a transaction is open that has one of them: it holds no turn.
func TestOpenTransactionAndALimit(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	a.must(a.svc.Jobs().SetLimit(ctx, job.Limit{Key: "license", Most: 1}))
	a.run()
	tx := a.begin(1)
	late := a.enqueue(bound, order{N: 1}, postgres.In(tx))
	for n := range 3 {
		if got, err := a.enqueue(bound, order{N: 10 + n}).Wait(ctx); got != 10+n || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	}
	a.must(tx.Commit(ctx))
	if got, err := late.Wait(ctx); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}
