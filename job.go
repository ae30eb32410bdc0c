package pawl

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// The causes with which the context of a handler ends; see [context.Cause].
var (
	ErrCanceled    = service.ErrCanceled    // somebody canceled the job
	ErrPaused      = service.ErrPaused      // somebody paused it
	ErrInterrupted = service.ErrInterrupted // the process stops; the job goes on elsewhere
	ErrLeaseLost   = service.ErrLeaseLost   // another process may have the job now
	ErrTimedOut    = service.ErrTimedOut    // the run took longer than Timeout
	ErrStalled     = service.ErrStalled     // the run gave no sign of life for Stall
)

// A Job is one job in the hands of its handler.
type Job[A any] struct {
	*service.TaskRun
	Args A
}

// ID returns the id of the job.
func (j *Job[A]) ID() job.ID { return j.TaskRun.Job.ID }

// Attempt returns which attempt this is, from 1. A crash, an interruption or a snooze costs none.
func (j *Job[A]) Attempt() int { return j.TaskRun.Job.Attempt }

// Recoveries returns how often a crash or a condition interrupted the job, in all attempts.
func (j *Job[A]) Recoveries() int { return j.TaskRun.Job.Recoveries }

// Progress tells people how far the handler has come: done of total, 0 if the total is not known.
// Only the newest is kept. The database is told once a second at most.
func (j *Job[A]) Progress(done, total int64, what string) {
	j.TaskRun.Progress(job.Progress{What: what, Done: done, Total: total})
}

// Log writes a line into the history of the job, for people. A job has up to
// [job.MaxJobEvents] such lines. It is refused once the process has lost the job.
func (j *Job[A]) Log(ctx context.Context, format string, args ...any) error {
	return j.AddEvent(ctx, job.CustomEvent{Name: "log", Message: fmt.Sprintf(format, args...)})
}

// FinishIn decides, in a transaction of the handler, that the job ends with a result: what else the
// transaction writes and the end of the job are one, exactly once. in is postgres.In or
// sqlite.In of the transaction:
//
//	err = j.FinishIn(ctx, postgres.In(tx), thumb)
//	if err != nil {
//		return thumb, err
//	}
//	return thumb, tx.Commit(ctx)
//
// See [service.TaskRun.FinishIn].
func (j *Job[A]) FinishIn(ctx context.Context, in EnqueueOption, result any) error {
	e := Enqueueing{Spec: &job.Spec{}}
	in(&e)
	if e.Tx == nil {
		return job.Errorf(job.Invalid, "FinishIn: this option names no transaction: give postgres.In(tx) or sqlite.In(tx)")
	}
	return j.TaskRun.FinishIn(ctx, e.Tx, result)
}

// Fail marks an error that another attempt would not mend: the job ends as FAILED at once. Fail of
// nil is nil.
func Fail(err error) error { return service.Permanent(err) }

// Snooze is the error of a handler that wants to be called again after d, in the same attempt.
// Meanwhile the job is WAITING, and holds no turns.
func Snooze(d time.Duration) error { return service.Snooze(d) }

// Cancel is the error of a handler whose job is not wanted any more. The job ends as CANCELED.
func Cancel(reason string) error { return service.Cancel(reason) }

// Block is the error of a handler that met a condition which may clear by itself, such as a
// service that is away. The job is BLOCKED until a tester, asked with params, says that the
// condition has cleared. Then its handler is called again, in the same attempt. All jobs with the
// same tester and params are tested together. See [service.Block] and [Service.Tester].
func Block(condition, tester string, params map[string]string) error {
	return service.Block(condition, tester, params)
}

// Tester registers a function that finds out whether a condition has cleared: it returns nil then.
// Jobs that name "go/" and its name in [Block] wait for that. It must be called before Run.
func (s *Service) Tester(name string, test func(ctx context.Context, params map[string]string) error) {
	service.HandleTester(s.jobs, name, test)
}
