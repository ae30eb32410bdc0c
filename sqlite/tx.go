package sqlite

import (
	"context"
	"database/sql"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A Tx is a transaction in the database of a service.
type Tx struct{ tx *sqlite.Tx }

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

// PrepareContext returns a statement. The four methods are what generated code asks for.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return t.tx.PrepareContext(ctx, query)
}

// WithTx runs f in a transaction in the database of a service, which is that of [At]. The program
// may have tables of its own there. The transaction commits if f returns nil, and nothing has
// happened otherwise. Everybody else who writes waits for f, so it may take a third of a lease, 5 s
// by default, and is undone then. What f itself writes elsewhere would wait, too: in f, enqueue
// with [In], and keep checkpoints before.
func WithTx(ctx context.Context, svc *pawl.Service, f func(ctx context.Context, tx *Tx) error) error {
	st, ok := svc.Database().Store.(*sqlite.Store)
	if !ok {
		return job.Errorf(job.Invalid, "sqlite.WithTx: the service is not in a folder: on PostgreSQL begin a transaction "+
			"of your own and use postgres.In")
	}
	lent := func(ctx context.Context, tx *sqlite.Tx) error { return f(ctx, &Tx{tx}) }
	eff, err := st.Lend(ctx, svc.Jobs().Lease()/3, lent)
	if err == nil {
		svc.Jobs().Follow(ctx, eff)
	}
	return err
}

// In enqueues, or finishes a job, in a transaction of [WithTx].
func In(tx *Tx) pawl.EnqueueOption { return func(e *pawl.Enqueueing) { e.Tx = tx.tx } }
