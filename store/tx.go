package store

import "github.com/pawl-jobs/pawl/job"

// NotDecided is the error of a transaction that cannot decide how a job ends.
func NotDecided(id job.ID) error {
	return job.Errorf(job.Fenced,
		"job %s is not in the hands of this run any more, or was canceled: roll the transaction back", id)
}
