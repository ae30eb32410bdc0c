package postgres_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
)

type order struct {
	Account string `json:"account"`
	N       int    `json:"n"`
}

var (
	plain  = pawl.Task[order, int]{Kind: "plain"}
	unique = pawl.Task[order, int]{Kind: "unique", Unique: pawl.UntilDone("account")}
	sorted = pawl.Task[order, int]{Kind: "sorted", Order: pawl.InOrder("account")}
	bound  = pawl.Task[order, int]{Kind: "bound", Limits: []string{"license"}}
)

// an app is a service and a database of its user beside it.
type app struct {
	*testing.T
	dsn string
	svc *pawl.Service
	db  *pgxpool.Pool
	sql *sql.DB
}

// onlyWakeUps is a service that looks for nothing of which nobody told it.
var onlyWakeUps = pawl.Configure(func(c *service.Config) { c.Lease, c.Sweep = time.Hour, 24*time.Hour })

func start(t *testing.T, options ...pawl.Option) *app {
	a := &app{T: t, dsn: testenv.Postgres(t).Database(t)}
	a.svc = a.open(options...)
	pool, err := pgxpool.ParseConfig(a.dsn)
	a.must(err)
	pool.MaxConns = 16
	if a.db, err = pgxpool.NewWithConfig(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.db.Close)
	if a.sql, err = sql.Open("pgx", a.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.sql.Close() })
	if _, err := a.db.Exec(t.Context(), "CREATE TABLE orders (n int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	return a
}

// open opens a service that handles all of the tasks.
func (a *app) open(options ...pawl.Option) *pawl.Service {
	a.Helper()
	svc, err := pawl.Open(a.Context(), postgres.At(a.dsn),
		append(options, pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))...)
	a.must(err)
	a.Cleanup(func() { svc.Close() })
	for _, task := range []pawl.Task[order, int]{plain, unique, sorted, bound} {
		task.Handle(svc, func(_ context.Context, j *pawl.Job[order]) (int, error) { return j.Args.N, nil })
	}
	return svc
}

func (a *app) run() { a.runs(a.svc) }

// runs runs a service until stop, or the end of the test.
func (a *app) runs(svc *pawl.Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			a.Error(err)
		}
	})
	a.Cleanup(stop)
	return stop
}

// begin begins a transaction that inserts an order.
func (a *app) begin(n int) pgx.Tx {
	a.Helper()
	tx, err := a.db.Begin(a.Context())
	if err == nil {
		_, err = tx.Exec(a.Context(), "INSERT INTO orders VALUES ($1)", n)
	}
	if err != nil {
		a.Fatal(err)
	}
	return tx
}

func (a *app) enqueue(task pawl.Task[order, int], args order, options ...pawl.EnqueueOption) *pawl.Handle[int] {
	a.Helper()
	h, err := task.Enqueue(a.Context(), a.svc, args, options...)
	if err != nil {
		a.Fatal(err)
	}
	return h
}

func (a *app) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// A job is there if its transaction commits, and was never there if it does not.
func TestCommitAndRollback(t *testing.T) {
	a := start(t)
	a.run()
	ctx := t.Context()

	tx := a.begin(1)
	h := a.enqueue(plain, order{"ada", 1}, postgres.In(tx), pawl.WithLabel("shop", "north"), pawl.WithPriority(2))
	if _, err := h.Job(ctx); job.KindOf(err) != job.NotFound {
		t.Errorf("before the commit: %v", err)
	}
	a.must(tx.Commit(ctx))
	if n, err := h.Wait(ctx); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	j, err := h.Job(ctx)
	if err != nil || j.Labels["shop"] != "north" || j.Priority != 2 || !strings.HasPrefix(j.Name, "plain-") {
		t.Errorf("%+v, %v", j, err)
	}

	tx = a.begin(2)
	h = a.enqueue(plain, order{"ada", 2}, postgres.In(tx))
	a.must(tx.Rollback(ctx))
	if _, err := h.Job(ctx); job.KindOf(err) != job.NotFound {
		t.Errorf("after a rollback: %v", err)
	}

	old, err := a.sql.BeginTx(ctx, nil)
	a.must(err)
	hs, err := plain.EnqueueAll(ctx, a.svc, []order{{"ada", 3}, {"eve", 4}}, postgres.InSQL(old))
	a.must(err)
	a.must(old.Commit())
	for i, h := range hs {
		if n, err := h.Wait(ctx); n != 3+i || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// What is taken fails nothing: the caller gets the job that is there, and its transaction goes on.
func TestConflictsFailNothing(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	there := a.enqueue(unique, order{"ada", 1})
	named := a.enqueue(plain, order{"ada", 1}, pawl.WithID("invoice-1"))

	tx := a.begin(1)
	if h := a.enqueue(unique, order{"ada", 2}, postgres.In(tx)); h.ID != there.ID || !h.Existed {
		t.Errorf("an equal job is %s, existed %t, want %s", h.ID, h.Existed, there.ID)
	}
	first := a.enqueue(unique, order{"eve", 3}, postgres.In(tx))
	if h := a.enqueue(unique, order{"eve", 4}, postgres.In(tx)); h.ID != first.ID || first.Existed {
		t.Errorf("an equal job of the same transaction is %s, want %s", h.ID, first.ID)
	}
	if h := a.enqueue(plain, order{"ada", 1}, pawl.WithID("invoice-1"), postgres.In(tx)); h.ID != named.ID {
		t.Errorf("a job of the same id is %s, want %s", h.ID, named.ID)
	}
	_, err := plain.Enqueue(ctx, a.svc, order{"eve", 9}, pawl.WithID("invoice-1"), postgres.In(tx))
	if job.KindOf(err) != job.Conflict {
		t.Errorf("another job of the same id: %v", err)
	}
	for _, wrong := range []pawl.EnqueueOption{pawl.WithKey("once"), pawl.WithPriority(17)} {
		if _, err := plain.Enqueue(ctx, a.svc, order{"eve", 9}, wrong, postgres.In(tx)); job.KindOf(err) != job.Invalid {
			t.Errorf("%v, want kind invalid", err)
		}
	}
	a.must(tx.Commit(ctx)) // after all that
	a.run()
	if n, err := first.Wait(ctx); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := there.Wait(ctx); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// An equal job that is enqueued elsewhere waits for the transaction, and then knows what became of
// it.
func TestEqualJobWaitsForTheTransaction(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits %t", commits), func(t *testing.T) {
			a := start(t)
			tx := a.begin(1)
			first := a.enqueue(unique, order{"ada", 1}, postgres.In(tx))
			second := make(chan *pawl.Handle[int])
			go func() { second <- a.enqueue(unique, order{"ada", 2}) }()
			a.awaitBlocked()
			if commits {
				a.must(tx.Commit(t.Context()))
			} else {
				a.must(tx.Rollback(t.Context()))
			}
			h := <-second
			if same := h.ID == first.ID; same != commits || h.Existed != commits {
				t.Errorf("the same job: %t, existed %t", same, h.Existed)
			}
		})
	}
}

// awaitBlocked waits until some transaction of the database waits for another one.
func (a *app) awaitBlocked() {
	a.Helper()
	for blocked := false; !blocked; {
		err := a.db.QueryRow(a.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity s
			WHERE s.datname = current_database() AND cardinality(pg_blocking_pids(s.pid)) > 0)`).Scan(&blocked)
		a.must(err)
	}
}

// What waits for a turn or for its time goes on soon after the commit, long before a process looks
// by itself.
func TestTheGateHearsOfACommit(t *testing.T) {
	a := start(t, onlyWakeUps)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	a.must(a.svc.Jobs().SetLimit(ctx, job.Limit{Key: "license", Most: 1}))
	a.run()
	if _, err := a.enqueue(bound, order{"ada", 1}).Wait(ctx); err != nil { // it has begun
		t.Fatal(err)
	}
	tx := a.begin(1)
	hs := []*pawl.Handle[int]{
		a.enqueue(bound, order{"ada", 2}, postgres.In(tx)),
		a.enqueue(plain, order{"ada", 3}, postgres.In(tx), pawl.After(10*time.Millisecond)),
	}
	a.must(tx.Commit(ctx))
	for _, h := range hs {
		if _, err := h.Wait(ctx); err != nil {
			t.Error(err)
		}
	}
}

// wanted reports whether a listener wants to be told of jobs (broker/pgnotify).
func (a *app) wanted() (wanted bool) {
	a.must(a.db.QueryRow(a.Context(),
		"SELECT NOT pg_try_advisory_xact_lock(hashtextextended('pawl/wanted/pawl', 0))").Scan(&wanted))
	return wanted
}

// tellOften tells the listeners so often, by transactions of so many clients, that they want to be
// told no more.
func (a *app) tellOften(ctx context.Context) {
	a.Helper()
	for {
		var all []pgx.Tx
		for range 4 {
			tx, err := a.db.Begin(ctx)
			a.must(err)
			for i := range 3 {
				a.enqueue(pawl.Task[order, int]{Kind: fmt.Sprintf("other%d", i)}, order{"ada", 1}, postgres.In(tx))
			}
			all = append(all, tx)
		}
		for _, tx := range all {
			a.must(tx.Commit(ctx))
		}
		for range 50 { // a listener may be slow to hear
			if !a.wanted() {
				return
			}
		}
	}
}

// ears returns a function that says how often transactions have told of plain jobs since the last
// call.
func (a *app) ears(ctx context.Context) func() int {
	conn, err := a.db.Acquire(ctx)
	a.must(err)
	a.Cleanup(conn.Release)
	_, err = conn.Exec(ctx, `LISTEN "pawl/pawl"`)
	a.must(err)
	return func() (times int) {
		a.Helper()
		_, err = conn.Exec(ctx, `NOTIFY "pawl/pawl", 'the end'`)
		a.must(err)
		for {
			n, err := conn.Conn().WaitForNotification(ctx)
			a.must(err)
			switch n.Payload {
			case "sql.0 jobs default plain":
				times++
			case "the end":
				return times
			}
		}
	}
}

// A listener that was told often is told nothing for a while, and looks. It finds the jobs of all
// transactions that tell nothing, also of one that commits when it is told again.
func TestTransactionsThatTellNothing(t *testing.T) {
	a := start(t, onlyWakeUps)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	told := a.ears(ctx)
	a.run()
	for n, silent := 0, 0; silent < 3; n += 2 {
		a.tellOften(ctx)
		first, second := a.begin(n), a.begin(n+1)
		hs := []*pawl.Handle[int]{
			a.enqueue(plain, order{"ada", 1}, postgres.In(first)), a.enqueue(plain, order{"ada", 2}, postgres.In(second)),
		}
		a.must(first.Commit(ctx))
		if !testenv.Until(ctx, a.wanted) {
			t.Fatal("no listener wants to be told again")
		}
		a.must(second.Commit(ctx))
		for _, h := range hs {
			if _, err := h.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if told() == 0 {
			silent++
		}
	}
}

// A process that begins beside a transaction that tells nothing finds its job.
func TestBeginningBesideATransaction(t *testing.T) {
	a := start(t, onlyWakeUps)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	told := a.ears(ctx)
	for n, silent := 0, false; !silent; n++ {
		if !testenv.Until(ctx, func() bool { return !a.wanted() }) {
			t.Fatal("a listener wants to be told though nobody waits")
		}
		tx := a.begin(n)
		late := a.enqueue(plain, order{"ada", 2}, postgres.In(tx))
		stop := a.runs(a.open(onlyWakeUps))
		if _, err := a.enqueue(plain, order{"ada", 1}).Wait(ctx); err != nil { // it has begun, and has looked
			t.Fatal(err)
		}
		a.must(tx.Commit(ctx))
		if _, err := late.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		stop()
		silent = told() == 0
	}
}

// Limits and orders hold for jobs of transactions, also a limit that is set while one is open.
func TestLimitsAndOrders(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	a.must(a.svc.Jobs().SetLimit(ctx, job.Limit{Key: "license", Most: 1}))
	tx := a.begin(1)
	var hs []*pawl.Handle[int]
	for n := range 3 {
		hs = append(hs, a.enqueue(bound, order{"ada", n}, postgres.In(tx)), a.enqueue(sorted, order{"ada", n}, postgres.In(tx)))
	}
	later := a.enqueue(plain, order{"ada", 7}, postgres.In(tx), pawl.After(time.Hour))
	a.must(tx.Commit(ctx))
	for _, h := range hs {
		if j, err := h.Job(ctx); err != nil || j.State != job.Waiting || j.Line == "" {
			t.Errorf("%s is %s in line %q, %v", j.Name, j.State, j.Line, err)
		}
	}
	j, err := later.Job(ctx)
	if err != nil || j.State != job.Waiting || j.Due.Before(j.Created.Add(time.Hour)) {
		t.Errorf("%s, due %v, %v", j.State, j.Due, err)
	}
	a.run()
	for _, h := range hs {
		if _, err := h.Wait(ctx); err != nil {
			t.Error(err)
		}
	}
	u, err := a.svc.Jobs().Limit(ctx, "license")
	if err != nil || u.InUse != 0 || u.Waiting != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

// A reader of events misses none of a transaction that was open while others committed.
func TestEventsOfALateCommit(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	tx := a.begin(1) // it has its id now
	before := a.enqueue(plain, order{"ada", 1})
	seen := a.read("")
	if !seen.has(before.ID) {
		t.Fatal("the first job is not there")
	}
	late := a.enqueue(plain, order{"ada", 2}, postgres.In(tx))
	after := a.enqueue(plain, order{"ada", 3})
	seen = a.read(seen.cursor)
	a.must(tx.Commit(ctx))
	rest := a.read(seen.cursor)
	for name, id := range map[string]job.ID{"late": late.ID, "after": after.ID} {
		if !seen.has(id) && !rest.has(id) {
			t.Errorf("the event of job %s was missed", name)
		}
	}
}

// An open transaction holds up who reads the events of all jobs. It holds up nobody who asks for
// one other job: its history is whole, a worker that says its end again is answered as it was, and
// who waits for it, or follows its events, hears of its end.
func TestOpenTransactionAndOtherJobs(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	task := pawl.Task[order, int]{Kind: "elsewhere"}
	follow := func(id job.ID, seen chan<- string) {
		for e, err := range a.svc.Jobs().News(ctx, service.NewsQuery{Job: id}) {
			if err != nil {
				t.Error(err)
			}
			seen <- string(e.State)
		}
		close(seen)
	}
	before, during := make(chan string, 9), make(chan string, 9)
	early := a.enqueue(task, order{"ada", 0})
	go follow(early.ID, before)
	if got := <-before; got != "PENDING" {
		t.Error(got)
	}
	tx := a.begin(1)
	a.enqueue(plain, order{"ada", 1}, postgres.In(tx))
	h := a.enqueue(task, order{"ada", 2})
	go follow(h.ID, during)
	waited := make(chan error, 1)
	go func() { // it waits before the job ends
		n, err := h.Wait(ctx)
		if n != 7 {
			err = errors.Join(err, fmt.Errorf("the result is %d", n))
		}
		waited <- err
	}()
	session, err := claims.SessionOf(strings.Repeat("x", claims.MinSecret))
	a.must(err)
	desk := a.svc.Jobs().Claims()
	over, cancel := context.WithCancel(ctx)
	cancel() // it does not wait
	ask := claims.Ask{Kinds: []string{"elsewhere"}, Slots: 2, Lease: job.Duration(time.Hour)}
	got, err := desk.Claim(ctx, over, session, ask)
	a.must(err)
	var reports []claims.Report
	for _, j := range got.Jobs {
		r, err := claims.Finish(claims.Held{ID: j.ID, Epoch: j.Epoch}, []byte("7"))
		a.must(err)
		reports = append(reports, r)
	}
	for range 2 {
		answers, err := desk.Report(ctx, session, reports)
		if err != nil || len(answers) != 2 || !answers[0].OK || answers[0].State != job.Finished || !answers[1].OK {
			t.Errorf("%+v, %v", answers, err)
		}
	}
	if es, err := a.svc.Jobs().History(ctx, h.ID); err != nil || len(es) != 3 {
		t.Errorf("%d events, %v", len(es), err)
	}
	if n, err := h.Wait(ctx); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	a.must(<-waited)
	for seen, want := range map[<-chan string]string{before: " RUNNING FINISHED", during: " PENDING RUNNING FINISHED"} {
		states := ""
		for state := range seen {
			states += " " + state
		}
		if states != want {
			t.Errorf("%s was followed, and not%s", states, want)
		}
	}
	a.must(tx.Rollback(ctx))
}

// readings are events that were read, and where the next begin.
type readings struct {
	jobs   map[job.ID]bool
	cursor string
}

func (r readings) has(id job.ID) bool { return r.jobs[id] }

func (a *app) read(cursor string) readings {
	a.Helper()
	r := readings{map[job.ID]bool{}, cursor}
	closed := make(chan struct{})
	close(closed)
	for e, err := range a.svc.Jobs().News(a.Context(), service.NewsQuery{Cursor: cursor, Until: closed}) {
		a.must(err)
		r.jobs[e.Job], r.cursor = true, e.Cursor
	}
	return r
}

// A transaction of another isolation level cannot see what was taken meanwhile.
func TestIsolation(t *testing.T) {
	a := start(t)
	tx, err := a.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	a.must(err)
	defer tx.Rollback(t.Context())
	_, err = plain.Enqueue(t.Context(), a.svc, order{"ada", 1}, postgres.In(tx))
	if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "READ COMMITTED") {
		t.Errorf("%v", err)
	}
}

// Two transactions that take their keys in different orders: the one that PostgreSQL fails is told
// to begin again, and the other one goes on.
func TestDeadlock(t *testing.T) {
	a := start(t)
	ended := make(chan error, 2)
	var both sync.WaitGroup
	both.Add(2)
	for _, accounts := range [][]string{{"ada", "bob"}, {"bob", "ada"}} {
		go func() {
			ended <- pgx.BeginFunc(t.Context(), a.db, func(tx pgx.Tx) error {
				_, err := unique.Enqueue(t.Context(), a.svc, order{accounts[0], 1}, postgres.In(tx))
				both.Done()
				both.Wait()
				if err == nil {
					_, err = unique.Enqueue(t.Context(), a.svc, order{accounts[1], 1}, postgres.In(tx))
				}
				return err
			})
		}()
	}
	one, two := <-ended, <-ended
	failed := cmp.Or(one, two)
	if one != nil && two != nil || job.KindOf(failed) != job.Unavailable || !strings.Contains(fmt.Sprint(failed),
		"the transaction was refused to avoid a deadlock or a conflict: roll it back, and do all of it again: ") {
		t.Errorf("%v, %v", one, two)
	}
}

// A transaction that can have no jobs of the service says so, and not that the service is in
// trouble.
func TestTransactionElsewhere(t *testing.T) {
	a := start(t)
	other, err := pgx.Connect(t.Context(), testenv.Postgres(t).DSN("postgres"))
	a.must(err)
	defer other.Close(t.Context())
	tx, err := other.Begin(t.Context())
	a.must(err)
	_, err = plain.Enqueue(t.Context(), a.svc, order{"ada", 1}, postgres.In(tx))
	if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(),
		"the database of the transaction has no jobs in schema pawl: begin it in the database of the service") {
		t.Errorf("in another database: %v", err)
	}
	wrong := start(t) // another service, which has jobs of its own
	tx, err = wrong.db.Begin(t.Context())
	a.must(err)
	defer tx.Rollback(t.Context())
	const own = "the database of the transaction has jobs of its own in schema pawl: begin it in the database of the service"
	_, err = plain.Enqueue(t.Context(), a.svc, order{"ada", 1}, postgres.In(tx))
	if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), own) {
		t.Errorf("in the database of another service: %v", err)
	}
	ending := pawl.Task[order, int]{Kind: "ending"}
	ending.Handle(a.svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
		tx, err := wrong.db.Begin(ctx)
		if err != nil {
			return 0, err
		}
		return 0, pawl.Fail(j.FinishIn(ctx, postgres.In(tx), 1))
	})
	h := a.enqueue(ending, order{"ada", 7})
	a.run()
	if _, err := h.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("an end in the database of another service: %v", err)
	}
	tx, err = a.db.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
	a.must(err)
	defer tx.Rollback(t.Context())
	_, err = plain.Enqueue(t.Context(), a.svc, order{"ada", 1}, postgres.In(tx))
	if job.KindOf(err) != job.Unavailable || !strings.HasPrefix(err.Error(), "the transaction takes no writes: begin it as one that") {
		t.Errorf("in one that reads: %v", err)
	}
}

// A program in another language enqueues with a statement of SQL.
func TestEnqueueInSQL(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	type answer struct {
		id       string
		existed  bool
		conflict *string
	}
	enqueue := func(doc string) (as []answer, err error) {
		rows, err := a.db.Query(ctx, "SELECT job::text, existed, conflict FROM pawl.enqueue($1::jsonb) ORDER BY i", doc)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (x answer, err error) {
			return x, row.Scan(&x.id, &x.existed, &x.conflict)
		})
	}
	as, err := enqueue(`{"by": "shop", "jobs": [
		{"kind": "plain", "args": {"account": "ada", "n": 5}, "priority": 1, "labels": {"shop": "north"}},
		{"kind": "plain", "args": {"account": "ada", "n": 6}, "unique": {"key": "ada"}, "external_id": "six"},
		{"kind": "plain", "args": {"account": "eve", "n": 7}, "unique": {"key": "ada"}},
		{"kind": "sorted", "args": {"n": 8}, "order": {"key": "ada"}, "delay": "1h30m", "name": "eight", "notes": {"a": 1},
			"retry": {"max_attempts": 3}, "limits": ["license"]}]}`)
	a.must(err)
	if len(as) != 4 || as[2].id != as[1].id || !as[2].existed || as[0].existed {
		t.Fatalf("%+v", as)
	}
	ids := make([]job.ID, len(as))
	for i, x := range as {
		ids[i], err = job.ParseID(x.id)
		a.must(err)
	}
	j, err := a.svc.Jobs().Job(ctx, ids[0])
	if err != nil || j.Owner != "shop" || j.Priority != 1 || j.Labels["shop"] != "north" || j.Name != "plain-"+j.ID.Short() ||
		j.ID.Made().Before(time.Now().Add(-time.Hour)) || j.ID[6]>>4 != 7 {
		t.Errorf("%+v, %v", j, err)
	}
	j, err = a.svc.Jobs().Job(ctx, ids[3])
	if err != nil || j.Name != "eight" || j.MaxAttempts != 3 || j.Order != "order/ada" || j.State != job.Waiting ||
		j.Due.Sub(j.Created) != 90*time.Minute || string(j.Notes) != `{"a": 1}` {
		t.Errorf("%+v, %v", j, err)
	}
	as, err = enqueue(`{"jobs": [{"kind": "plain", "args": {"n": 60}, "external_id": "six"}]}`)
	if err != nil || as[0].conflict == nil || *as[0].conflict != "external_id" || as[0].id != ids[1].String() {
		t.Errorf("%+v, %v", as, err)
	}
	for want, doc := range map[string]string{
		"command: is not a field of a task": `{"jobs": [{"kind": "plain", "command": ["true"], "shell": 1}]}`,
		"kind: give the name":               `{"jobs": [{"args": 1}]}`,
		"app is a program":                  `{"jobs": [{"kind": "app"}]}`,
		"queue: nightly is unknown":         `{"jobs": [{"kind": "plain", "queue": "nightly"}]}`,
		"unique: give a key, or a list":     `{"jobs": [{"kind": "plain", "unique": {"args": ["a"], "key": "a"}}]}`,
		"order: give a key, or a list":      `{"jobs": [{"kind": "plain", "order": {"by": "due"}}]}`,
		"order.by: give created, due, or a": `{"jobs": [{"kind": "plain", "order": {"key": "a", "by": "args."}}]}`,
		"order.by: args.n is neither a": `{"jobs": [{"kind": "plain", "args": {"n": []},
			"order": {"key": "a", "by": "args.n"}}]}`,
		"limits: give a list of 16":         `{"jobs": [{"kind": "plain", "limits": "gpu"}]}`,
		"limits: user/ada begins with user": `{"jobs": [{"kind": "plain", "limits": ["user/ada"]}]}`,
		"limits: of/{n} finds no text, whole number, true or false in the field n of args": `{"jobs": [{"kind": "plain",
			"args": {"n": 1.5}, "limits": ["of/{n}"]}]}`,
		"priority: give 0 to 9":                              `{"jobs": [{"kind": "plain", "priority": 10}]}`,
		"priority: give 0 to":                                `{"jobs": [{"kind": "plain", "priority": "1"}]}`,
		"labels: give texts":                                 `{"jobs": [{"kind": "plain", "labels": {"order": 17}}]}`,
		"labels: give texts under":                           `{"jobs": [{"kind": "plain", "labels": {"a b": "c"}}]}`,
		"labels: give texts under names":                     `{"jobs": [{"kind": "plain", "labels": ["a"]}]}`,
		"name: give up to 128":                               `{"jobs": [{"kind": "plain", "name": "a\u0001b"}]}`,
		"delay: give a duration":                             `{"jobs": [{"kind": "plain", "delay": "5 minutes"}]}`,
		"delay: give a duration with units":                  `{"jobs": [{"kind": "plain", "delay": 90}]}`,
		"not_before: give a time":                            `{"jobs": [{"kind": "plain", "not_before": "tomorrow"}]}`,
		"unique.until: give start, done or":                  `{"jobs": [{"kind": "plain", "unique": {"key": "a", "until": "end"}}]}`,
		"retry.max_attempts: give 1 to 1000":                 `{"jobs": [{"kind": "plain", "retry": {"max_attempts": 0}}]}`,
		"jobs: give a list of tasks":                         `{"tasks": [{"kind": "plain"}]}`,
		"jobs: give a list of":                               `{"jobs": ["plain"]}`,
		"tenant: give a name of":                             `{"tenant": 7, "jobs": [{"kind": "plain"}]}`,
		"by: give 1 to 128 print":                            `{"by": 7, "jobs": [{"kind": "plain"}]}`,
		"give the fields tenant, by and jobs, and no others": `{"tennant": "lab", "jobs": [{"kind": "plain"}]}`,
		"tenant: give a name":                                `{"tenant": "a b", "jobs": [{"kind": "plain"}]}`,
		"by: give 1 to 128 printable":                        `{"by": "", "jobs": [{"kind": "plain"}]}`,
		"by: give 1 to 128":                                  `{"by": "a\u0001", "jobs": [{"kind": "plain"}]}`,
		"owner: give up to 128 printable":                    `{"jobs": [{"kind": "plain", "owner": "` + strings.Repeat("a", 129) + `"}]}`,
		"unique.key: give up to 255":                         `{"jobs": [{"kind": "plain", "unique": {"key": "a\nb"}}]}`,
		"unique.alone: belongs to until":                     `{"jobs": [{"kind": "plain", "unique": {"key": "a", "alone": true}}]}`,
		"labels.a: give up to 255":                           `{"jobs": [{"kind": "plain", "labels": {"a": "b\tc"}}]}`,
		"args: keep them to 1048576 bytes":                   `{"jobs": [{"kind": "plain", "args": "` + strings.Repeat("a", job.MaxArgs) + `"}]}`,
		"notes: keep them to 65536 bytes":                    `{"jobs": [{"kind": "plain", "notes": "` + strings.Repeat("a", job.MaxNotes) + `"}]}`,
	} {
		if _, err := enqueue(doc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
	a.run()
	for i, want := range []int{5, 6} {
		if n, err := plain.Find(a.svc, ids[i]).Wait(ctx); n != want || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// The transaction writes into the schema of its service, and a nil one is told.
func TestSchemaOfTheService(t *testing.T) {
	dsn := testenv.Postgres(t).Database(t)
	quiet := pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil)))
	svc, err := pawl.Open(t.Context(), postgres.At(dsn, postgres.Schema("work")), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	db, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var h *pawl.Handle[int]
	err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		h, err = plain.Enqueue(t.Context(), svc, order{"ada", 1}, postgres.In(tx))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if j, err := h.Job(t.Context()); err != nil || j.Kind != "plain" {
		t.Errorf("%s, %v", j.Kind, err)
	}
	for name, none := range map[string]pawl.EnqueueOption{"In": postgres.In(nil), "InSQL": postgres.InSQL(nil)} {
		_, err := plain.Enqueue(t.Context(), svc, order{"ada", 1}, none)
		want := "postgres." + name + ": the transaction is nil: give the one that Begin returned"
		if job.KindOf(err) != job.Invalid || err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}

// The connections of a service that is like a pool have what the program set beside the DSN, also
// what it sets before each connection.
func TestLike(t *testing.T) {
	config, err := pgxpool.ParseConfig(testenv.Postgres(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	right := config.ConnConfig.Copy()
	config, err = pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Fallbacks = right.Host, right.Port, right.Fallbacks
	config.ConnConfig.TLSConfig, config.ConnConfig.Database = right.TLSConfig, right.Database
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.User, c.Password = right.User, right.Password
		c.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
		return nil
	}
	var mu sync.Mutex
	called := map[string]bool{} // by what and the name of the connection
	note := func(what, of string) {
		mu.Lock()
		defer mu.Unlock()
		called[what+" of "+of] = true
	}
	config.ConnConfig.RuntimeParams["work_mem"] = "7MB"
	config.ConnConfig.AfterNetConnect = func(_ context.Context, c *pgconn.Config, conn net.Conn) (net.Conn, error) {
		note("AfterNetConnect", c.RuntimeParams["application_name"])
		return conn, nil
	}
	config.ConnConfig.ValidateConnect = func(_ context.Context, c *pgconn.PgConn) error {
		note("ValidateConnect", c.ParameterStatus("application_name"))
		return nil
	}
	config.ConnConfig.Config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		rows, err := c.Exec(ctx, "SHOW work_mem").ReadAll()
		if err == nil {
			note(string(rows[0].Rows[0][0]), c.ParameterStatus("application_name"))
		}
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	svc, err := pawl.Open(t.Context(), postgres.Like(pool), pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := plain.Enqueue(t.Context(), svc, order{"ada", 1}, postgres.In(tx))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if n, err := svc.Jobs().Count(t.Context(), job.Filter{}); err != nil || n.States[job.Pending] != 1 {
		t.Errorf("%v, %v", n, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"AfterNetConnect", "ValidateConnect", "7MB"} {
		if !called[want+" of pawl listener"] {
			t.Errorf("%s is missing of %v", want, called)
		}
	}
}

func TestWrongSources(t *testing.T) {
	for want, at := range map[string]pawl.Source{
		"postgres.Like: the pool is nil: give the one that pgxpool.New returned": postgres.Like(nil),
		"postgres.Conns(-1): give 1 or more":                                     postgres.At("", postgres.Conns(-1)),
		"postgres.At: an option is nil: leave it out":                            postgres.At("", nil, postgres.Conns(2)),
	} {
		if _, err := pawl.Open(t.Context(), at); job.KindOf(err) != job.Invalid || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
