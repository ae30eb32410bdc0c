package engine

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
)

// A Tracer is told of runs and steps. Its methods are called by many goroutines at once. They must
// not block, and they change nothing.
type Tracer interface {
	// Run is called when this process begins with a job that it has claimed. The context that it
	// returns is the parent of all steps. j is valid during the call only. done is called once with
	// the last entry of the change that gives the job away, or with the zero entry if the process
	// lost the job first.
	Run(ctx context.Context, j *job.Job) (_ context.Context, done func(job.Entry))

	// Step is called before each step, with the context of its run. done is called once with the
	// last entry of the step's change, or with the zero entry if there is none.
	Step(ctx context.Context, j *job.Job) (_ context.Context, done func(job.Entry))
}

// untraced is the tracer of an engine without one.
type untraced struct{}

func (untraced) Run(ctx context.Context, _ *job.Job) (context.Context, func(job.Entry)) {
	return ctx, func(job.Entry) {}
}

func (untraced) Step(ctx context.Context, _ *job.Job) (context.Context, func(job.Entry)) {
	return ctx, func(job.Entry) {}
}
