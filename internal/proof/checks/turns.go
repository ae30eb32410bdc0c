package checks

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Rightful reports whether it was a worker's own change that ended a run of j under an epoch, by
// its history. Whoever is frozen while others have its job goes on without a turn.
func Rightful(ctx context.Context, j *job.Job, epoch int64, history func(context.Context, job.ID) []store.Event) bool {
	if j.Program() {
		return j.Code != job.Abandoned
	}
	var last store.Event
	for _, e := range history(ctx, j.ID) {
		if e.Sub == 0 && e.Epoch == epoch {
			last = e
		}
	}
	return last.Cause == job.CauseWork
}
