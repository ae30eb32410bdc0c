package sqlite

import (
	"context"
	"database/sql"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A Tx is a transaction in the database of a service. Its methods are those of [sql.Tx] that
// generated code asks for.
type Tx struct {
	tx *sqlite.Tx
	st *sqlite.Store
}

// ExecContext runs a statement, as [sql.Tx] does.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(ctx, query, args...)
}

// QueryContext runs a query.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext runs a query of one row.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

// PrepareContext returns a statement.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return t.tx.PrepareContext(ctx, query)
}

// WithTx runs f in a transaction in the database of a service, which is that of [At]. The program
// may have tables of its own there. The transaction commits if f returns nil, and nothing has
// happened otherwise.
//
//	err := sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO shop_images (name) VALUES (?)", "cat.png")
//		if err != nil {
//			return err
//		}
//		_, err = Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png"}, sqlite.In(tx))
//		return err
//	})
//
// Give tables of your own a prefix, such as shop_. Pawl has tables there, such as jobs, labels and
// events, and a statement that makes or changes a table of such a name is refused.
//
// Everybody else who writes waits for f, so it may take a third of a lease, 5 s by default, and is
// undone then. What f itself writes in other ways would wait, too, and is refused, by the context
// of f: in f, enqueue with [In], and keep checkpoints before.
func WithTx(ctx context.Context, svc *pawl.Service, f func(ctx context.Context, tx *Tx) error) error {
	st, ok := svc.Database().Store.(*sqlite.Store)
	if !ok {
		return job.Errorf(job.Invalid, "sqlite.WithTx: the service is not in a folder: open it with sqlite.At, in a test too; "+
			"on PostgreSQL begin a transaction of your own and use postgres.In")
	}
	if f == nil {
		return job.Errorf(job.Invalid, "sqlite.WithTx: the function is nil: give one that uses the transaction")
	}
	lent := func(ctx context.Context, tx *sqlite.Tx) error { return f(ctx, &Tx{tx, st}) }
	eff, err := st.Lend(ctx, svc.Jobs().Lease()/3, lent)
	if err == nil {
		svc.Jobs().Follow(ctx, eff)
	}
	return err
}

// In enqueues, or finishes a job ([pawl.Job.FinishIn]), in a transaction of [WithTx], which must be
// that of the same service. If the transaction does not commit, there never was a job: forget the
// handle. Do not wait for a result in it.
func In(tx *Tx) pawl.EnqueueOption {
	return func(e *pawl.Enqueueing) {
		e.Tx = func(db *pawl.Database) (pawl.Tx, error) {
			if tx == nil {
				return nil, job.Errorf(job.Invalid, "sqlite.In: the transaction is nil: give the one that WithTx gave")
			}
			if db.Store != store.Store(tx.st) {
				return nil, job.Errorf(job.Invalid, "sqlite.In: the transaction is one of another service: use that which "+
					"WithTx was given")
			}
			return tx.tx, nil
		}
	}
}
