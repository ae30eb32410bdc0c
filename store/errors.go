package store

import "github.com/pawl-jobs/pawl/job"

// NoJob is the error for a job that does not exist.
func NoJob(id job.ID) error { return job.Errorf(job.NotFound, "there is no job %s", id) }

// NoSession is the error for a session that is not alive.
func NoSession(id job.ID) error {
	return job.Errorf(job.Fenced, "session %s has ended: begin a new one", id)
}

// NoResource is the error for a document that does not exist.
func NoResource(kind, name string) error {
	return job.Errorf(job.NotFound, "there is no %s %s", kind, name)
}

// NoQueue is the error for a queue that has no document and would need one.
func NoQueue(queue string) error {
	return job.Errorf(job.Invalid, "queue %s is unknown: give one that pawl get queues lists, or make it", queue)
}

// NoLimit is the error for a limit that is not set.
func NoLimit(key string) error { return job.Errorf(job.NotFound, "no limit is set for %s", key) }
