package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Tx is the transaction of the writer, lent to a caller. See [Store.Lend].
type Tx struct {
	*sql.Conn // runs the caller's statements in the transaction

	t      *tx
	loan   *loan
	eff    store.Effects
	broken error // the transaction has ended by itself
}

// Lend runs f in a transaction that is the only one that writes at that moment: it commits if f
// returns nil, and nothing has happened otherwise. Calls of others wait for f. After most its
// transaction is undone, whatever f is at.
func (s *Store) Lend(ctx context.Context, most time.Duration, f func(context.Context, *Tx) error) (
	store.Effects, error,
) {
	var x *Tx
	var panicked any
	err := s.do(context.WithoutCancel(ctx), func(t *tx) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x = &Tx{t: t, loan: &loan{conn: t.w.raw}}
		db := sql.OpenDB(x.loan)
		defer db.Close()
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		x.Conn = conn
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, lentKey{}, s), most)
		defer cancel()
		ended := make(chan outcome, 1)
		go func() {
			var out outcome
			defer func() {
				if out.panicked = recover(); out.panicked != nil {
					out.err = errors.New("it panicked")
				}
				ended <- out
			}()
			out.err = f(ctx, x)
		}()
		select {
		case out := <-ended:
			err, panicked = out.err, out.panicked
		case <-ctx.Done():
			err = context.Cause(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				err = job.Errorf(job.Invalid, "a transaction took longer than the %s for which others may wait: "+
					"do what takes time before it", most)
			}
		}
		x.loan.end()
		if err = errors.Join(err, x.broken); err != nil {
			clear(t.w.waiting)
		}
		return err
	})
	if panicked != nil {
		panic(panicked)
	}
	if err != nil {
		return store.Effects{}, err
	}
	return x.eff, nil
}

// lentKey is the key of the store whose transaction was lent, in the context of the borrower. What
// that writes in another way would wait for its own transaction.
type lentKey struct{}

var errBorrower = job.Errorf(job.Invalid, "this would wait for the transaction that it is in: hand sqlite.In(tx) to it, or "+
	"do it before or after WithTx")

// Borrowed returns an error if ctx is that of a function to which the transaction is lent.
func (s *Store) Borrowed(ctx context.Context) error {
	if ctx.Value(lentKey{}) == s {
		return errBorrower
	}
	return nil
}

// An outcome is how the function of a caller ended.
type outcome struct {
	err      error
	panicked any
}

// Submit inserts jobs as [Store.Submit] does. An error has undone the call, and the transaction can
// go on.
func (x *Tx) Submit(_ context.Context, sub store.Submission) (answers []store.Submitted, err error) {
	if err = job.CheckTenant(sub.Tenant); err != nil {
		return nil, err
	}
	eff := x.eff
	err = x.call(func(t *tx) error {
		answers, err = t.submitAll(&sub, &eff)
		return err
	})
	if err != nil {
		return nil, err
	}
	x.eff = eff
	return answers, nil
}

// Finish decides that the job of a worker ends with a result; see [service.Tx].
func (x *Tx) Finish(_ context.Context, tenant string, id job.ID, epoch int64, result json.RawMessage) error {
	return x.call(func(t *tx) error {
		n, err := t.exec(finishIn, document(result), id[:], tenant, epoch)
		delete(t.w.held, id)
		if err == nil && n == 0 {
			err = store.NotDecided(id)
		}
		return err
	})
}

var finishIn = store.SQL(`UPDATE jobs SET result = ?
	WHERE id = ? AND tenant = ? AND epoch = ? AND custody = {Worker} AND wish <> {WishCancel}`)

// Rollback has nothing to do: [Store.Lend] ends the transaction.
func (x *Tx) Rollback(context.Context) {}

// call runs f in the transaction so that its failure undoes only what f did.
func (x *Tx) call(f func(*tx) error) error {
	return x.loan.with(func() error {
		failed, fatal := x.t.w.savepoint(x.t, f)
		if fatal != nil {
			x.broken = fatal
			return classify(fatal)
		}
		return failed
	})
}

// A loan is the writer's connection in the hands of a caller, as a driver of database/sql that has
// one connection. Once it has ended nothing reaches that any more.
type loan struct {
	conn driver.ConnPrepareContext

	mu   sync.Mutex
	over bool
	open []driver.Rows // that were not closed; guarded by mu
}

func (l *loan) with(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return job.Errorf(job.Closed, "the transaction has ended")
	}
	return f()
}

func (l *loan) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, r := range l.open {
		r.Close()
	}
}

// The methods of a driver.
func (l *loan) Connect(context.Context) (driver.Conn, error) { return l, nil }
func (l *loan) Driver() driver.Driver                        { return nil }
func (l *loan) Close() error                                 { return nil }
func (l *loan) Begin() (driver.Tx, error)                    { return nil, errNested }
func (l *loan) Prepare(q string) (driver.Stmt, error)        { return lentStmt{l, q}, nil }

var errNested = job.Errorf(job.Invalid, "this is a transaction already: it commits when its function returns nil")

// ExecContext implements [driver.ExecerContext]. No context reaches SQLite, where it would end the
// whole transaction.
func (l *loan) ExecContext(_ context.Context, q string, args []driver.NamedValue) (r driver.Result, err error) {
	err = l.with(func() error {
		if err := steers(q); err != nil {
			return err
		}
		r, err = l.conn.(driver.ExecerContext).ExecContext(context.Background(), q, args)
		return err
	})
	return r, err
}

// QueryContext implements [driver.QueryerContext].
func (l *loan) QueryContext(_ context.Context, q string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = l.with(func() error {
		if err := steers(q); err != nil {
			return err
		}
		r, err := l.conn.(driver.QueryerContext).QueryContext(context.Background(), q, args)
		if err == nil {
			l.open = append(l.open, r)
			rows = &lentRows{r, l}
		}
		return err
	})
	return rows, err
}

// A lentStmt is a statement of a loan. It is only prepared when it runs.
type lentStmt struct {
	*loan
	q string
}

func (s lentStmt) Close() error  { return nil }
func (s lentStmt) NumInput() int { return -1 }

// The older forms of a driver, which database/sql does not use.
func (s lentStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s lentStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.loan.ExecContext(ctx, s.q, args)
}

func (s lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.loan.QueryContext(ctx, s.q, args)
}

// steers refuses statements that steer transactions or the connection, or change what is Pawl's.
func steers(q string) error {
	q = withoutWords(q)
	if name := ownTable(q); name != "" {
		return job.Errorf(job.Invalid, "%s is a table of Pawl: give yours another name, with a prefix such as app_%s", name, name)
	}
	all := strings.Split(q, ";")
	if triggerRE.MatchString(q) { // its body has statements of its own, and an END
		all = all[:1]
	}
	for _, q := range all {
		word, _, _ := strings.Cut(strings.Join(strings.Fields(strings.ToUpper(q)), " "), " ")
		switch word {
		case "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "ATTACH", "DETACH", "VACUUM":
			return job.Errorf(job.Invalid, "%s is not for a transaction that others share: return an error to undo it", word)
		}
	}
	return nil
}

// wordsRE matches comments, texts and names in quotes.
var wordsRE = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?(?:\*/|$)|'(?:[^']|'')*'|"(?:[^"]|"")*"`)

// withoutWords returns a statement without its comments and texts. A single word in quotes stays:
// SQLite takes it for a name where there has to be one.
func withoutWords(q string) string {
	return wordsRE.ReplaceAllStringFunc(q, func(found string) string {
		switch {
		case found[0] == '-', found[0] == '/':
			return " "
		case wordRE.MatchString(found):
			return found
		}
		return "''"
	})
}

var wordRE = regexp.MustCompile(`^.\w+.$`)

// own are the names of Pawl's tables.
var own = []string{
	"duties", "events", "followups", "goose_db_version", "groups", "idempotency", "jobs", "labels", "limits", "lines",
	"moments", "prerequisites", "resources", "served", "sessions", "specs", "turns", "unique_keys", "walks",
}

// tableRE matches where a statement makes, changes or removes a table or a view, or rows of one.
var tableRE = regexp.MustCompile(`(?i)\b(?:` +
	`(?:CREATE|ALTER|DROP)\s+(?:(?:TEMP|TEMPORARY|VIRTUAL)\s+)?(?:TABLE|VIEW)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?` +
	`|CREATE\s+(?:\w+\s+)?(?:INDEX|TRIGGER)\s[^;]*?\sON\s+` +
	`|(?:INSERT|REPLACE)\s+(?:OR\s+\w+\s+)?INTO\s+|UPDATE\s+(?:OR\s+\w+\s+)?|DELETE\s+FROM\s+)` +
	`(?:["'\x60\[]?(?:main|temp)["'\x60\]]?\s*\.\s*)?["'\x60\[]?(\w+)`)

var triggerRE = regexp.MustCompile(`(?i)^\s*CREATE\s+(?:TEMP\s+|TEMPORARY\s+)?TRIGGER\b`)

// ownTable returns the table of Pawl that a statement would change; empty: none.
func ownTable(q string) string {
	for _, m := range tableRE.FindAllStringSubmatch(q, -1) {
		if name := strings.ToLower(m[1]); slices.Contains(own, name) {
			return name
		}
	}
	return ""
}

// lentRows are rows of a loan.
type lentRows struct {
	driver.Rows
	l *loan
}

func (r *lentRows) Next(dest []driver.Value) error {
	return r.l.with(func() error { return r.Rows.Next(dest) })
}

func (r *lentRows) Close() error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.l.over {
		return nil // it was closed at the end
	}
	for i := range r.l.open {
		if r.l.open[i] == r.Rows {
			r.l.open = append(r.l.open[:i], r.l.open[i+1:]...)
			return r.Rows.Close()
		}
	}
	return nil
}
