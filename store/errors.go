package store

import (
	"errors"

	"github.com/pawl-jobs/pawl/job"
)

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

// ErrVersion is in the Conflict of a document that is not at the version that was given.
var ErrVersion = errors.New("read it and send its version")

// OtherVersion is the error for a document that is not at a version; 0: it is there, and must not
// be.
func OtherVersion(kind, name string, version int64) error {
	if version == 0 {
		return job.Errorf(job.Conflict, "%s %s exists: %w", kind, name, ErrVersion)
	}
	return job.Errorf(job.Conflict, "%s %s is not at version %d: %w", kind, name, version, ErrVersion)
}

// InUse is the error of [Resources] for a document that jobs need which have not ended.
func InUse(kind, name string) error {
	return job.Errorf(job.Conflict,
		"%s %s has jobs that have not ended: wait for them or cancel them, or disable the %[1]s", kind, name)
}

// NoQueue is the error for a queue that has no document and would need one.
func NoQueue(queue string) error {
	return job.Errorf(job.Invalid, "queue %s is unknown: give one that pawl get queues lists, or make it", queue)
}

// NoLimit is the error for a limit that is not set.
func NoLimit(key string) error { return job.Errorf(job.NotFound, "no limit is set for %s", key) }
