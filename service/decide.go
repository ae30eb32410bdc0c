package service

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// FinishIn decides, in a transaction of the handler, that the job ends with a result. If the
// transaction commits, what else it wrote and the end of the job are one: the handler is never
// called again for this job, also if the process dies before anybody has heard of the commit. If it
// does not commit, nothing has happened.
//
// The error is of kind Fenced if the process has lost the job, or somebody has canceled it: the
// transaction must be rolled back. After FinishIn the handler commits and returns, with the error
// of the commit. It has nothing more to say of the job. A transaction that is still open then is
// rolled back.
func (t *TaskRun) FinishIn(ctx context.Context, tx Tx, result any) error {
	b, err := json.Marshal(result)
	if err != nil {
		return Permanent(job.Errorf(job.Invalid, "result is not JSON: %w", err))
	}
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return errReturned
	}
	t.deciding = append(t.deciding, tx)
	t.mu.Unlock()
	return tx.Finish(ctx, t.Job.Tenant, t.Job.ID, t.Job.Epoch, b)
}

var (
	errReturned = job.Errorf(job.Conflict, "the handler has returned: it has nothing more to say")
	errDeciding = job.Errorf(job.Conflict, "FinishIn was called, and holds the job: say this before")
)

// decided returns the end of a job that was decided in a transaction, and nil if none was. It is
// called when the handler has returned.
func (t *TaskRun) decided(ctx context.Context) *engine.Outcome {
	if len(t.deciding) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostDeciding)
	defer cancel()
	for _, tx := range t.deciding {
		tx.Rollback(ctx)
	}
	j, err := t.read(ctx)
	if err == nil && j.Result == nil {
		// The server may still be at a commit whose answer was lost: what is written now comes after
		// that.
		if err = t.pass(ctx); err == nil {
			j, err = t.read(ctx)
		}
	}
	switch {
	case err != nil:
		out := engine.Back() // whoever has the job next knows
		return &out
	case j.Result != nil:
		out := engine.Decided(j.Result)
		return &out
	}
	return nil
}

// mostDeciding is how long it takes at most to find out whether a transaction has committed.
const mostDeciding = 10 * time.Second

func (t *TaskRun) read(ctx context.Context) (job.Job, error) {
	return store.FindJob(ctx, t.s.cfg.Store, t.Job.Tenant, t.Job.ID)
}

// pass waits until nobody else has the row of the job.
func (t *TaskRun) pass(ctx context.Context) error {
	answered := make(chan error, 1)
	t.mu.Lock()
	t.report(func(err error) { answered <- err })
	t.mu.Unlock()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
