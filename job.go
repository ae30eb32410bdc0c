package pawl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
)

// The causes with which the context of a handler ends; see [context.Cause]. A handler may return
// the cause.
var (
	ErrCanceled    = service.ErrCanceled    // somebody canceled the job
	ErrPaused      = service.ErrPaused      // somebody paused it
	ErrInterrupted = service.ErrInterrupted // the process stops; the job goes on elsewhere
	ErrLeaseLost   = service.ErrLeaseLost   // another process may have the job now
	ErrTimedOut    = service.ErrTimedOut    // the run took longer than Timeout
	ErrStalled     = service.ErrStalled     // the run gave no sign of life for Stall
)

// A Job is one job in the hands of its handler. Its methods are safe for concurrent use, and write
// nothing once the process has lost the job.
type Job[A any] struct {
	*service.TaskRun // j.Job is the row as it was when this run began, with labels and times
	Args             A
	s                *Service
	deadline         time.Time
}

// ID returns the id of the job.
func (j *Job[A]) ID() job.ID { return j.TaskRun.Job.ID }

// Attempt returns which attempt this is, from 1. A crash, an interruption or a snooze costs none.
func (j *Job[A]) Attempt() int { return j.TaskRun.Job.Attempt }

// Recoveries returns how often a crash or a condition interrupted the job, in all attempts.
func (j *Job[A]) Recoveries() int { return j.TaskRun.Job.Recoveries }

// Deadline returns when the time of this run is over, as Timeout of [Task] says; zero: never.
func (j *Job[A]) Deadline() time.Time { return j.deadline }

// Checkpoint keeps state for the next run of the job, after a crash, an interruption or an error.
// It is written as JSON, up to 1 MiB. Checkpoint returns when that is durable. After an error the
// handler must stop: the process has lost the job. Each call costs a commit, so keep one every few
// seconds of work rather than for each item.
func (j *Job[A]) Checkpoint(ctx context.Context, state any) error {
	return j.TaskRun.Checkpoint(ctx, state)
}

// Restore reads the state that [Job.Checkpoint] kept last, in this run or an earlier one, into what
// state points to. found is false if there is none.
func (j *Job[A]) Restore(state any) (found bool, err error) { return j.TaskRun.Restore(state) }

// Heartbeat says that the handler goes on, where [Task] has a Stall. It costs nothing. It returns
// the cause for which the handler must stop, if there is one.
func (j *Job[A]) Heartbeat(ctx context.Context) error { return j.TaskRun.Heartbeat(ctx) }

// Progress tells people how far the handler has come: done of total, 0 if the total is not known.
// what says what is counted, such as "images". Only the newest is kept. The database is told once a
// second at most. [service.Service.View] of [Service.Jobs] shows it.
func (j *Job[A]) Progress(done, total int64, what string) {
	j.TaskRun.Progress(job.Progress{What: what, Done: done, Total: total})
}

// Log writes a line into the history of the job, for people. A job has up to
// [job.MaxJobEvents] (10,000) such lines. It is refused once the process has lost the job.
func (j *Job[A]) Log(ctx context.Context, format string, args ...any) error {
	return j.AddEvent(ctx, job.CustomEvent{Name: "log", Message: fmt.Sprintf(format, args...)})
}

// FinishIn decides, in a transaction of the handler, that the job ends with a result: what else the
// transaction writes and the end of the job are one, exactly once. in is postgres.In,
// postgres.InSQL or sqlite.In of the transaction. It is the last thing before the commit, and the
// handler returns what the commit returns:
//
//	if err := j.FinishIn(ctx, postgres.In(tx), thumb); err != nil {
//		return thumb, err
//	}
//	return thumb, tx.Commit(ctx)
//
// The result given here counts, not the one that the handler returns. If the transaction commits,
// the handler is never called again for this job, also if the process dies at once. If it does not
// commit, nothing has happened, and the error fails the attempt. The error of FinishIn is of kind
// [job.Fenced] if the process has lost the job, or somebody has canceled it: roll back.
func (j *Job[A]) FinishIn(ctx context.Context, in EnqueueOption, result any) error {
	e := Enqueueing{Spec: &job.Spec{}}
	if in != nil {
		in(&e)
	}
	tx, err := e.tx(j.s)
	if err != nil {
		return err
	}
	if tx == nil {
		return job.Errorf(job.Invalid, "FinishIn: this option names no transaction: give postgres.In(tx) or sqlite.In(tx)")
	}
	return j.TaskRun.FinishIn(ctx, tx, result)
}

// Fail marks an error that another attempt would not mend: the job ends as FAILED at once. Fail of
// nil is nil.
func Fail(err error) error { return service.Permanent(err) }

// Snooze is the error of a handler that wants to be called again after d, in the same attempt.
// Meanwhile the job is WAITING, and holds no turns. A d of zero or less calls it again at once.
func Snooze(d time.Duration) error { return service.Snooze(d) }

// Cancel is the error of a handler whose job is not wanted any more. The job ends as CANCELED.
func Cancel(reason string) error { return service.Cancel(reason) }

// Block is the error of a handler that met a condition which may clear by itself, such as a
// service that is away. The job is BLOCKED until a tester, asked with params, says that the
// condition has cleared. Then its handler is called again, in the same attempt:
//
//	svc.Tester("carrier", func(ctx context.Context, params map[string]string) error {
//		return ping(ctx)
//	})
//	return Label{}, pawl.Block("the carrier is away", "carrier", nil)
//
// tester is the name of [Service.Tester], or of another tester that [service.Block] takes. All jobs
// with the same tester and params are tested together: first after 10 s, then less and less often.
// A job whose condition has not cleared within two days fails. A recovery policy can say otherwise.
func Block(condition, tester string, params map[string]string) error {
	return service.Block(condition, tester, params)
}

// Tester registers a function that finds out whether a condition has cleared: it returns nil then.
// Jobs that name it in [Block] wait for that. It is called by one process at a time of those that
// have registered it. pawl show calls it go/NAME. Tester panics after [Service.Run], or if the name
// is there already.
func (s *Service) Tester(name string, test func(ctx context.Context, params map[string]string) error) {
	switch {
	case name == "":
		panic("pawl: a tester has no name: give it one, such as shop")
	case test == nil:
		panic("pawl: tester " + name + " is nil")
	case s.testers[name]:
		panic("pawl: tester " + name + " is there already: call Tester once for each name")
	case s.running.Load() != nil:
		panic("pawl: Tester " + name + " after Run: register testers before Run")
	}
	s.testers[name] = true
	service.HandleTester(s.jobs, name, test)
}

// known returns the error of a handler with the full name of a tester of this service.
func (s *Service) known(err error) error {
	var b *job.Block
	if errors.As(err, &b) && s.testers[b.Tester] {
		b.Tester = recovery.FuncPrefix + b.Tester
	}
	return err
}
