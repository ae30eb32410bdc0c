package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// maxBatch is how many calls one transaction takes.
const maxBatch = 256

// A writer owns the connection that writes.
type writer struct {
	db    *sql.DB
	conn  *sql.Conn
	raw   driver.ConnPrepareContext
	store *Store

	calls  chan *call
	claims chan *call // run after the others of a transaction, so that they see the slots and jobs those set free
	quit   chan struct{}
	done   chan struct{}

	// Only used by the goroutine.
	stmts   map[string]*stmt
	updates map[update]string // their texts
	// held are the rows in custody worker, as they stand in the database: nobody else writes there,
	// so the next change of a job need not read it again.
	held map[job.ID]*row
	// waiting is how many jobs wait in a queue, for the queues that a call has asked for.
	waiting map[place]int
	// limits are the limits of the tenants that a call has asked for.
	limits map[string]limits
	// kept is whether jobs may keep turns while they wait for others. Nearly always none does, and
	// a hand-off need not ask.
	kept bool

	err error // of closing; valid after done
}

// A call is one function inside a transaction.
type call struct {
	ctx  context.Context // only for giving up before the call has begun; it never reaches SQL
	f    func(*tx) error
	err  error
	done chan struct{}
}

func startWriter(ctx context.Context, db *sql.DB, s *Store) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, classify(err)
	}
	w := &writer{
		db: db, conn: conn, store: s,
		calls: make(chan *call, maxBatch), claims: make(chan *call, maxBatch),
		quit: make(chan struct{}), done: make(chan struct{}), stmts: map[string]*stmt{},
		updates: map[update]string{}, held: map[job.ID]*row{},
		waiting: map[place]int{}, limits: map[string]limits{}, kept: true,
	}
	go func() {
		defer close(w.done)
		w.err = errors.Join(
			// Statements are prepared and run on the driver's connection: database/sql's own
			// bookkeeping for each of them would cost a third of the throughput.
			conn.Raw(func(c any) error {
				w.raw = c.(driver.ConnPrepareContext)
				w.run()
				for _, s := range w.stmts {
					s.s.Close()
				}
				return nil
			}),
			conn.Close(), db.Close())
	}()
	return w, nil
}

// do runs f inside a transaction and returns once it is on disk. When ctx ends first the outcome is
// unknown, and f may still run: what it writes may only be read after do has returned nil.
func (s *Store) do(ctx context.Context, f func(*tx) error) error {
	if s.write == nil {
		return job.Errorf(job.Locked, "the data folder was opened for reading only")
	}
	if err := s.Borrowed(ctx); err != nil {
		return err
	}
	return s.write.do(ctx, s.write.calls, f)
}

func (w *writer) do(ctx context.Context, queue chan *call, f func(*tx) error) error {
	c := &call{ctx: ctx, f: f, done: make(chan struct{})}
	select {
	case queue <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		return errClosed
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		select {
		case <-c.done:
			return c.err
		default:
			return errClosed
		}
	}
}

var errClosed = job.Errorf(job.Closed, "the service was closed")

func (w *writer) close() error {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	<-w.done
	return w.err
}

// run serves calls until quit.
func (w *writer) run() {
	memory := newReserve()
	defer memory.close()
	batch := make([]*call, 0, maxBatch)
	for {
		batch = batch[:0]
		var claim *call
		select {
		case c := <-w.calls:
			batch = append(batch, c)
		case c := <-w.claims:
			claim = c
		case <-w.quit:
			return
		}
		runtime.Gosched() // calls that are about to come go along: a commit costs more than they do
		batch = w.gather(batch, w.calls)
		if claim != nil {
			batch = append(batch, claim)
		}
		batch = w.gather(batch, w.claims)
		memory.renew()
		w.transact(batch)
	}
}

func (w *writer) gather(batch []*call, from chan *call) []*call {
	for len(batch) < maxBatch {
		select {
		case c := <-from:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// transact runs calls in one transaction and answers them after its commit.
func (w *writer) transact(calls []*call) {
	t := &tx{w: w, now: w.store.now().UTC().Truncate(time.Microsecond), lease: w.store.lease(), owing: map[spot]bool{}}
	err := w.control("BEGIN IMMEDIATE")
	switch {
	case err != nil:
	case len(calls) == 1:
		err = w.only(t, calls[0])
	default:
		err = w.each(t, calls)
	}
	if err != nil {
		w.forget()
		clear(w.waiting)
		w.control("ROLLBACK") //nolint:errcheck // the transaction may have been rolled back by SQLite already
	}
	for _, c := range calls {
		if err != nil {
			c.err = classify(err)
		}
		close(c.done)
	}
}

// only runs the one call of a transaction, and ends that. It needs no savepoint, for which SQLite
// would copy each page that the call changes. What it returns fails the transaction.
func (w *writer) only(t *tx, c *call) error {
	if c.err = c.ctx.Err(); c.err != nil {
		return w.control("ROLLBACK")
	}
	failed := t.call(c.f)
	if failed == nil {
		t.settle()
		return w.control("COMMIT")
	}
	w.forget()
	if err := w.control("ROLLBACK"); err != nil {
		return failed // an error of the disk has ended the transaction by itself
	}
	c.err = classify(failed)
	return nil
}

// each runs the calls of a transaction one after the other, and commits it. What it returns fails
// the transaction.
func (w *writer) each(t *tx, calls []*call) (err error) {
	for _, c := range calls {
		if c.err = c.ctx.Err(); c.err != nil {
			continue
		}
		if c.err, err = w.savepoint(t, c.f); err != nil {
			return err
		}
	}
	return w.control("COMMIT")
}

// savepoint runs f so that its failure undoes only what f did. It returns f's error, and one that
// fails the whole transaction.
func (w *writer) savepoint(t *tx, f func(*tx) error) (failed, fatal error) {
	if err := w.control("SAVEPOINT call"); err != nil {
		return nil, err
	}
	if failed = t.call(f); failed == nil {
		t.settle()
		return nil, w.control("RELEASE call")
	}
	w.forget()
	if err := w.control("ROLLBACK TO call"); err != nil {
		// An error of the disk ends the whole transaction by itself, and is what all its calls hear
		// of.
		if _, ofDriver := driverError(failed); ofDriver {
			return failed, failed
		}
		return failed, err
	}
	return classify(failed), w.control("RELEASE call")
}

// forget forgets what is known of rows: some of them were undone.
func (w *writer) forget() {
	clear(w.held)
	clear(w.limits)
	w.kept = true
}

// remember keeps a row that was read or written as long as a worker has the job.
func (w *writer) remember(r *row) {
	if r.Custody == job.Worker {
		w.held[r.ID] = r
		return
	}
	delete(w.held, r.ID)
}

// updateOf returns the text of an update.
func (w *writer) updateOf(u update) string {
	q, ok := w.updates[u]
	if !ok {
		q = u.String()
		w.updates[u] = q
	}
	return q
}

// control runs a statement that only steers the transaction.
func (w *writer) control(q string) error {
	s, err := w.prepare(q)
	if err != nil {
		return err
	}
	_, err = s.run(nil)
	return err
}

func (w *writer) prepare(q string) (*stmt, error) {
	if s, ok := w.stmts[q]; ok {
		return s, nil
	}
	p, err := w.raw.PrepareContext(context.Background(), q)
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", q, err)
	}
	s := &stmt{s: p}
	w.stmts[q] = s
	return s, nil
}

// A stmt is a prepared statement with room for its arguments.
type stmt struct {
	s    driver.Stmt
	args []driver.NamedValue
}

func (s *stmt) bind(args []any) []driver.NamedValue {
	if s.args == nil {
		s.args = make([]driver.NamedValue, len(args))
		for i := range s.args {
			s.args[i].Ordinal = i + 1
		}
	}
	for i, a := range args {
		s.args[i].Value = a
	}
	return s.args
}

func (s *stmt) run(args []any) (driver.Result, error) {
	return s.s.(driver.StmtExecContext).ExecContext(context.Background(), s.bind(args))
}

// A tx is a transaction of the writer, for one call after the other.
type tx struct {
	w     *writer
	now   time.Time // the database's time, as it keeps it
	lease time.Time // the clock of leases

	waiting  changes          // written by flush
	moved    map[place]int    // how many more jobs wait in queues since the call began
	turning  turnBatch        // written by flush
	owing    map[spot]bool    // to which the call has written down that turns are owed
	returned map[spot]bool    // turns that an apply hands on when it is through; nil: they are owed
	joined   map[spot]*joined // groups that an apply writes when it is through; nil: they are written at once
}

// call runs f, and writes what it leaves waiting.
func (t *tx) call(f func(*tx) error) error {
	t.waiting.jobs, t.turning.jobs = t.waiting.jobs[:0], t.turning.jobs[:0]
	clear(t.owing)
	clear(t.moved)
	if err := f(t); err != nil {
		return err
	}
	return t.flush()
}

// exec runs a statement, after the changes that wait, and returns how many rows it changed.
func (t *tx) exec(q string, args ...any) (int64, error) {
	if err := t.flush(); err != nil {
		return 0, err
	}
	return t.run(q, args...)
}

// run runs a statement and returns how many rows it changed. Arguments are values that the driver
// takes as they are.
func (t *tx) run(q string, args ...any) (int64, error) {
	s, err := t.w.prepare(q)
	if err != nil {
		return 0, err
	}
	t.w.store.statements.Add(1)
	r, err := s.run(args)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// insert runs a statement that inserts a row or none, and returns the row's number.
func (t *tx) insert(q string, args ...any) (seq int64, inserted bool, err error) {
	s, err := t.w.prepare(q)
	if err != nil {
		return 0, false, err
	}
	t.w.store.statements.Add(1)
	r, err := s.run(args)
	if err != nil {
		return 0, false, err
	}
	n, err := r.RowsAffected()
	if err != nil || n == 0 {
		return 0, false, err
	}
	seq, err = r.LastInsertId()
	return seq, true, err
}

// query runs a statement and calls each for every row. The row is only valid during the call.
func (t *tx) query(q string, each func(row []driver.Value) error, args ...any) error {
	if err := t.flush(); err != nil {
		return err
	}
	s, err := t.w.prepare(q)
	if err != nil {
		return err
	}
	t.w.store.statements.Add(1)
	rows, err := s.s.(driver.StmtQueryContext).QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return err
	}
	defer rows.Close()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// exists reports whether a query has a row.
func (t *tx) exists(q string, args ...any) (found bool, err error) {
	err = t.query(q, func([]driver.Value) error { found = true; return nil }, args...)
	return found, err
}
