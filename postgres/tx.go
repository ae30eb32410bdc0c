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
// isolation level READ COMMITTED. It is for [pawl.Job.FinishIn], too, at any level.
//
//	tx, err := pool.Begin(ctx) // a pool of your own, to the same database
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback(ctx)
//	_, err = tx.Exec(ctx, "INSERT INTO images (name) VALUES ($1)", "cat.png")
//	if err != nil {
//		return err
//	}
//	_, err = Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png"}, postgres.In(tx))
//	if err != nil {
//		return err
//	}
//	return tx.Commit(ctx)
//
// The jobs are there once it commits, and workers are told by that. If it rolls back, there never
// were any: forget the handles. Do not wait for a result before the commit. A job that is equal to
// another one, or has its id, is that job, and fails nothing.
//
// Until the transaction ends it holds the unique keys of its jobs: others that enqueue equal ones
// wait for it. Events of transactions that began after it are not shown before. So commit soon.
func In(tx pgx.Tx) pawl.EnqueueOption {
	return in("In", &transaction{
		query: func(ctx context.Context, text string, args ...any) (answer string, err error) {
			err = tx.QueryRow(ctx, text, args...).Scan(&answer)
			return answer, err
		},
		rollback: func(ctx context.Context) error { return tx.Rollback(ctx) },
	}, tx == nil)
}

// InSQL is [In] for a transaction of database/sql, with any driver that writes parameters as $1.
func InSQL(tx *sql.Tx) pawl.EnqueueOption {
	return in("InSQL", &transaction{
		query: func(ctx context.Context, text string, args ...any) (answer string, err error) {
			err = tx.QueryRowContext(ctx, text, args...).Scan(&answer)
			return answer, err
		},
		rollback: func(context.Context) error { return tx.Rollback() },
	}, tx == nil)
}

func in(name string, tx *transaction, none bool) pawl.EnqueueOption {
	return func(e *pawl.Enqueueing) {
		e.Tx = func(db *pawl.Database) (pawl.Tx, error) {
			st, ok := db.Store.(*postgres.Store)
			if !ok {
				return nil, job.Errorf(job.Invalid, "postgres.%s: the service is not on PostgreSQL: open it with "+
					"postgres.At, in a test too; in a folder use sqlite.WithTx and sqlite.In", name)
			}
			if none {
				return nil, job.Errorf(job.Invalid, "postgres.%s: the transaction is nil: give the one that Begin returned", name)
			}
			bound := *tx
			bound.store = st
			return &bound, nil
		}
	}
}

// A transaction implements [pawl.Tx].
type transaction struct {
	store    *postgres.Store
	query    postgres.Query
	rollback func(context.Context) error
}

func (t *transaction) Submit(ctx context.Context, sub store.Submission) ([]store.Submitted, error) {
	return t.store.Enqueue(ctx, t.query, sub)
}

func (t *transaction) Finish(ctx context.Context, tenant string, id job.ID, epoch int64, result json.RawMessage) error {
	return t.store.Finish(ctx, t.query, tenant, id, epoch, result)
}

func (t *transaction) Rollback(ctx context.Context) {
	t.rollback(ctx) //nolint:errcheck // it has ended, or ends with its connection
}
