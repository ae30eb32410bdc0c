package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl"
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
	return in(options, func(ctx context.Context, text, arg string) (answer string, err error) {
		err = tx.QueryRow(ctx, text, arg).Scan(&answer)
		return answer, err
	})
}

// InSQL is [In] for a transaction of database/sql, with any driver that writes parameters as $1.
func InSQL(tx *sql.Tx, options ...Option) pawl.EnqueueOption {
	return in(options, func(ctx context.Context, text, arg string) (answer string, err error) {
		err = tx.QueryRowContext(ctx, text, arg).Scan(&answer)
		return answer, err
	})
}

func in(options []Option, query func(ctx context.Context, text, arg string) (string, error)) pawl.EnqueueOption {
	var o opening
	for _, set := range options {
		set(&o)
	}
	return func(e *pawl.Enqueueing) {
		e.Through = func(ctx context.Context, sub store.Submission) ([]store.Submitted, error) {
			return postgres.Enqueue(ctx, o.schema, query, sub)
		}
	}
}
