package host

import "github.com/pawl-jobs/pawl/job"

// A Trouble is why a machine, or the scheduler on it, cannot be reached. It says nothing about what
// runs there. Its kind is [job.Unavailable].
type Trouble struct {
	// Code is the condition: job.HostUnknown to job.ToolsMissing, or one of a scheduler.
	Code job.Code
	Err  error // what happened
	// Ask is what to ask a scheduler that answers, and takes no job like this for now. Nil: it does
	// not answer.
	Ask map[string]string
}

// Error says what happened.
func (t *Trouble) Error() string { return t.Err.Error() }

// Unwrap returns the cause, as an error of kind [job.Unavailable].
func (t *Trouble) Unwrap() error { return &job.Error{Kind: job.Unavailable, Err: t.Err} }
