package engine

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
)

// A Tracer looks on while jobs are run. Its methods are called by many goroutines, must not block,
// and change nothing.
type Tracer interface {
	// Run begins what this process does for a job that it has claimed, up to the change that gives
	// it out of its hands. The context is the parent of all its steps. j is valid during the call
	// only. done tells the entry of that change, or the zero entry when the process lost the job
	// first.
	Run(ctx context.Context, j *job.Job) (_ context.Context, done func(job.Entry))

	// Step begins one step, in the context of its run. done tells the entry of the change that the
	// step came to, or the zero entry.
	Step(ctx context.Context, j *job.Job) (_ context.Context, done func(job.Entry))
}

// blind is the tracer of an engine without one.
type blind struct{}

func (blind) Run(ctx context.Context, _ *job.Job) (context.Context, func(job.Entry)) {
	return ctx, func(job.Entry) {}
}

func (blind) Step(ctx context.Context, _ *job.Job) (context.Context, func(job.Entry)) {
	return ctx, func(job.Entry) {}
}
