package host

import "github.com/pawl-jobs/pawl/job"

// The codes of a [Trouble]: why a machine cannot be reached. The list is closed.
const (
	HostUnknown     job.Code = "HOST_UNKNOWN"     // nobody knows an address for its name
	HostUnreachable job.Code = "HOST_UNREACHABLE" // no way leads to its address
	HostRefused     job.Code = "HOST_REFUSED"     // it takes no connections
	HostTimeout     job.Code = "HOST_TIMEOUT"     // it does not answer in time
	HostKeyUnknown  job.Code = "HOST_KEY_UNKNOWN" // nobody has said which host keys to trust
	HostKeyChanged  job.Code = "HOST_KEY_CHANGED" // it has another host key than the trusted ones
	LoginFailed     job.Code = "LOGIN_FAILED"     // it does not let the account in
	ChannelRefused  job.Code = "CHANNEL_REFUSED"  // it lets the account in, and grants no session
	ConnectionLost  job.Code = "CONNECTION_LOST"  // the connection broke while it was in use
	ShellBroken     job.Code = "SHELL_BROKEN"     // its shell ends, or does not answer
)

// A Trouble is why a machine cannot be reached. It says nothing about what runs there. Its kind is
// [job.Unavailable].
type Trouble struct {
	Code job.Code // one of those above
	Err  error    // what happened
}

// Error says what happened.
func (t *Trouble) Error() string { return t.Err.Error() }

// Unwrap returns the cause, as an error of kind [job.Unavailable].
func (t *Trouble) Unwrap() error { return &job.Error{Kind: job.Unavailable, Err: t.Err} }
