package postgres

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// In enqueues in a transaction of pgx, which must be one of the database of the service, at the
// isolation level READ COMMITTED. The jobs are there once it commits, and workers are told by that.
// A job that is equal to another one, or has its id, is that job, and fails nothing. Of the options
// of the database only [Schema] counts.
//
// Until the transaction ends it holds the unique keys of its jobs: others that enqueue equal ones
// wait for it. Events of transactions that began after it are not shown before. So commit soon.
func In(tx pgx.Tx, options ...Option) pawl.EnqueueOption {
	return in(options, &transaction{
		query: func(ctx context.Context, text, arg string) (answer string, err error) {
			err = tx.QueryRow(ctx, text, arg).Scan(&answer)
			return answer, err
		},
		rollback: tx.Rollback,
	})
}

// InSQL is [In] for a transaction of database/sql, with any driver that writes parameters as $1.
func InSQL(tx *sql.Tx, options ...Option) pawl.EnqueueOption {
	return in(options, &transaction{
		query: func(ctx context.Context, text, arg string) (answer string, err error) {
			err = tx.QueryRowContext(ctx, text, arg).Scan(&answer)
			return answer, err
		},
		rollback: func(context.Context) error { return tx.Rollback() },
	})
}

func in(options []Option, tx *transaction) pawl.EnqueueOption {
	var o opening
	for _, set := range options {
		set(&o)
	}
	tx.schema = o.schema
	return func(e *pawl.Enqueueing) { e.Tx = tx }
}

// A transaction implements [service.Tx].
type transaction struct {
	schema   string
	query    postgres.Query
	rollback func(context.Context) error
}

func (t *transaction) Submit(ctx context.Context, sub store.Submission) ([]store.Submitted, error) {
	return postgres.Enqueue(ctx, t.schema, t.query, sub)
}

func (t *transaction) Finish(ctx context.Context, tenant string, id job.ID, epoch int64, result json.RawMessage) error {
	return postgres.Finish(ctx, t.schema, t.query, tenant, id, epoch, result)
}

func (t *transaction) Rollback(ctx context.Context) {
	t.rollback(ctx) //nolint:errcheck // it has ended, or ends with its connection
}
