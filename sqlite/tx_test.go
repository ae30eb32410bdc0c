package sqlite_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
	"github.com/pawl-jobs/pawl/store"
)

type order struct {
	N int `json:"n"`
}

var plain = pawl.Task[order, int]{Kind: "plain", Unique: pawl.UntilDone("n")}

func open(t *testing.T, options ...pawl.Option) *pawl.Service {
	t.Helper()
	options = append(options, pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	svc, err := pawl.Open(t.Context(), sqlite.At(t.TempDir()), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	table(t, svc)
	return svc
}

// table makes the table of the program.
func table(t *testing.T, svc *pawl.Service) {
	t.Helper()
	err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE orders (n INTEGER PRIMARY KEY, at TEXT NOT NULL)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, svc *pawl.Service) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// orders returns how many orders there are.
func orders(t *testing.T, svc *pawl.Service) (n int) {
	t.Helper()
	err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func insert(ctx context.Context, tx *sqlite.Tx, n int) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", n, time.Now())
	return err
}

// A job is there if its transaction commits, and was never there if it does not.
func TestCommitAndRollback(t *testing.T) {
	svc := open(t)
	plain.Handle(svc, func(_ context.Context, j *pawl.Job[order]) (int, error) { return j.Args.N, nil })
	run(t, svc)
	var h *pawl.Handle[int]
	refused := errors.New("no")
	for n, want := range map[int]error{1: nil, 2: refused} {
		err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) (err error) {
			if err = insert(ctx, tx, n); err == nil {
				var made *pawl.Handle[int]
				made, err = plain.Enqueue(ctx, svc, order{n}, sqlite.In(tx))
				if n == 1 {
					h = made
				}
			}
			return errors.Join(err, want)
		})
		if !errors.Is(err, want) {
			t.Fatalf("order %d: %v", n, err)
		}
	}
	if got, err := h.Wait(t.Context()); got != 1 || err != nil {
		t.Errorf("its result is %d: %v", got, err)
	}
	if n := orders(t, svc); n != 1 {
		t.Errorf("there are %d orders", n)
	}
	page, err := svc.Jobs().List(t.Context(), store.Query{})
	if err != nil || len(page.Jobs) != 1 {
		t.Errorf("there are %d jobs: %v", len(page.Jobs), err)
	}
}

// A transaction goes on after an enqueue that was refused, and what that did is undone.
func TestRefusedEnqueue(t *testing.T) {
	svc := open(t)
	wrong := pawl.Task[order, int]{Kind: "plain", Queue: "no such queue"}
	err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
		if err := insert(ctx, tx, 1); err != nil {
			return err
		}
		if _, err := wrong.Enqueue(ctx, svc, order{1}, sqlite.In(tx)); job.KindOf(err) != job.Invalid {
			t.Errorf("the answer is %v", err)
		}
		if _, err := plain.Enqueue(ctx, svc, order{1}, sqlite.In(tx), pawl.WithID("a")); err != nil {
			t.Error(err)
		}
		if _, err := plain.Enqueue(ctx, svc, order{2}, sqlite.In(tx), pawl.WithID("a")); job.KindOf(err) != job.Conflict {
			t.Errorf("the answer is %v", err)
		}
		h, err := plain.Enqueue(ctx, svc, order{1}, sqlite.In(tx))
		if err != nil || !h.Existed {
			t.Errorf("an equal job is %+v: %v", h, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := svc.Jobs().List(t.Context(), store.Query{})
	if err != nil || len(page.Jobs) != 1 || orders(t, svc) != 1 {
		t.Errorf("there are %d jobs and %d orders: %v", len(page.Jobs), orders(t, svc), err)
	}
}

// One that holds everybody up is undone, and can do nothing afterwards.
func TestTooLong(t *testing.T) {
	svc := open(t, pawl.Configure(func(c *service.Config) { c.Options.Lease = 3 * time.Second }))
	over, late := make(chan int), make(chan error)
	err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
		if err := insert(ctx, tx, 1); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT n FROM orders")
		if err != nil {
			return err
		}
		<-ctx.Done()
		go func() {
			<-over
			rows.Close()
			_, err := tx.ExecContext(context.WithoutCancel(ctx), "INSERT INTO orders VALUES (2, '')")
			late <- err
		}()
		<-make(chan int) // it does not listen
		return nil
	})
	close(over)
	if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "longer than the 1s") {
		t.Errorf("the answer is %v", err)
	}
	if err := <-late; err == nil {
		t.Error("what came after the end was done")
	}
	if n := orders(t, svc); n != 0 {
		t.Errorf("there are %d orders", n)
	}
}

// What would end the transaction of others is refused.
func TestSteers(t *testing.T) {
	svc := open(t)
	for _, q := range []string{
		"COMMIT", " rollback;", "BEGIN\nIMMEDIATE", "Savepoint x", "PRAGMA journal_mode = OFF",
		"-- it\nCOMMIT", "/* it */ COMMIT", "SELECT 1; COMMIT",
	} {
		err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, q)
			return err
		})
		if job.KindOf(err) != job.Invalid {
			t.Errorf("%q: the answer is %v", q, err)
		}
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("the panic is %v", p)
			}
		}()
		sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
			insert(ctx, tx, 1)
			panic("boom")
		})
	}()
	if n := orders(t, svc); n != 0 {
		t.Errorf("there are %d orders", n)
	}
}

// The effects of a handler and the end of its job are one.
func TestFinishIn(t *testing.T) {
	svc := open(t)
	calls := map[int]int{}
	plain.Handle(svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
		calls[j.Args.N]++
		first := j.Attempt() == 1
		err := sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
			if err := insert(ctx, tx, j.Args.N); err != nil {
				return err
			}
			if err := j.FinishIn(ctx, sqlite.In(tx), 10*j.Args.N); err != nil {
				return err
			}
			if j.Args.N == 2 && first {
				return errors.New("not yet")
			}
			return nil
		})
		if j.Args.N == 3 {
			err = errors.New("it says that it failed, after the commit")
		}
		return 0, err
	})
	run(t, svc)
	for n := 1; n <= 3; n++ {
		task := plain
		task.Retry = &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Base: job.Duration(time.Millisecond)}}
		h, err := task.Enqueue(t.Context(), svc, order{n})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Wait(t.Context()); got != 10*n || err != nil {
			t.Errorf("the result of %d is %d: %v", n, got, err)
		}
	}
	if n := orders(t, svc); n != 3 {
		t.Errorf("there are %d orders", n)
	}
	if calls[1] != 1 || calls[2] != 2 || calls[3] != 1 {
		t.Errorf("the handler was called %v", calls)
	}
}

// No other attempt would make JSON of a result.
func TestFinishInWithoutJSON(t *testing.T) {
	svc := open(t)
	plain.Handle(svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
		return 0, sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
			return j.FinishIn(ctx, sqlite.In(tx), make(chan int))
		})
	})
	run(t, svc)
	h, err := plain.Enqueue(t.Context(), svc, order{1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	if ended, ok := errors.AsType[*pawl.Ended](err); !ok || ended.State != job.Failed ||
		!strings.Contains(ended.Message, "result is not JSON") {
		t.Error(err)
	}
	if j, err := h.Job(t.Context()); err != nil || j.Attempt != 1 {
		t.Errorf("attempt %d, %v", j.Attempt, err)
	}
}

// What would wait for the transaction that it is in is refused at once, not after the time of that.
func TestBorrower(t *testing.T) {
	svc := open(t)
	other := open(t)
	err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
		_, plainly := plain.Enqueue(ctx, svc, order{1})
		_, cancel := svc.Jobs().Cancel(ctx, job.NewID())
		nested := sqlite.WithTx(ctx, svc, func(context.Context, *sqlite.Tx) error { return nil })
		for name, err := range map[string]error{"enqueue": plainly, "cancel": cancel, "WithTx": nested} {
			if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "hand sqlite.In(tx) to it") {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := plain.Enqueue(ctx, other, order{1})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A checkpoint in the transaction of its handler would wait for it as well.
func TestBorrowerKeepsNoCheckpoint(t *testing.T) {
	svc := open(t)
	task := pawl.Task[order, int]{Kind: "borrower"}
	task.Handle(svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
		if err := j.Checkpoint(ctx, 1); err != nil {
			return 0, err
		}
		return 1, sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
			if err := j.Checkpoint(ctx, 2); job.KindOf(err) != job.Invalid ||
				!strings.Contains(err.Error(), "before or after WithTx") {
				t.Errorf("%v", err)
			}
			return nil
		})
	})
	if n, err := pawltest.Work(t, svc, task, order{1}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := plain.Enqueue(t.Context(), svc, order{1}, sqlite.In(nil))
	const want = "sqlite.In: the transaction is nil: give the one that WithTx gave"
	if job.KindOf(err) != job.Invalid || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// A program whose table has the name of one of Pawl's is told, also if it says IF NOT EXISTS.
func TestTablesOfPawl(t *testing.T) {
	svc := open(t)
	for q, name := range map[string]string{
		"CREATE TABLE IF NOT EXISTS labels (id TEXT)": "labels", `create table "Jobs"(id)`: "jobs", "DROP TABLE main.events": "events",
		"ALTER TABLE [turns] ADD x": "turns", "CREATE TEMP TABLE `lines` (n)": "lines",
		"CREATE TABLE shop_a (n);\n-- more\nCREATE VIRTUAL TABLE sessions USING fts5(n)": "sessions",
		"DELETE FROM jobs": "jobs", "/* x */ UPDATE OR IGNORE main.'jobs' SET state = 'x'": "jobs", "WITH x AS (SELECT 1) INSERT INTO specs SELECT * FROM x": "specs",
		"CREATE TRIGGER shop_t AFTER INSERT ON jobs BEGIN SELECT 1; END":                             "jobs",
		"CREATE TRIGGER shop_t AFTER INSERT ON orders BEGIN DELETE FROM turns; END":                  "turns",
		"CREATE UNIQUE INDEX shop_i ON jobs (id)":                                                    "jobs",
		"CREATE TRIGGER shop_t AFTER INSERT ON orders BEGIN UPDATE orders SET n = n; END":            "",
		"INSERT INTO orders SELECT 900, 'x' WHERE 'DELETE FROM jobs' <> 'it''s; COMMIT' -- ; COMMIT": "",
		"CREATE TABLE shop_labels (jobs TEXT)":                                                       "", "CREATE INDEX labels_n ON orders (n)": "", "CREATE VIEW jobs_of AS SELECT 1": "",
	} {
		err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, q)
			return err
		})
		if name == "" && err != nil || name != "" && (err == nil ||
			err.Error() != name+" is a table of Pawl: give yours another name, with a prefix such as app_"+name) {
			t.Errorf("%s: %v", q, err)
		}
	}
	err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error { // the list has them all
		rows, err := tx.QueryContext(ctx, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			if name == "orders" || strings.HasPrefix(name, "shop_") {
				continue
			}
			if _, err := tx.ExecContext(ctx, "DROP TABLE "+name); err == nil {
				t.Errorf("table %s may be dropped", name)
			}
		}
		return rows.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNoFolder(t *testing.T) {
	for _, dir := range []string{"", "postgres://shop@localhost/shop"} {
		_, err := pawl.Open(t.Context(), sqlite.At(dir))
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "is no folder: give a path such as data") {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// The words of an error are for programs, which have no flags.
func TestFolderInUse(t *testing.T) {
	dir := t.TempDir()
	svc, err := pawl.Open(t.Context(), sqlite.At(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	_, err = pawl.Open(t.Context(), sqlite.At(dir))
	if job.KindOf(err) != job.Locked || !strings.HasSuffix(err.Error(), ": wait for it, stop it, or use another folder") ||
		!strings.Contains(err.Error(), "data folder "+dir+" is in use by process ") {
		t.Error(err)
	}
}
