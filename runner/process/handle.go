package process

import (
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// A place is where a launch is on its host: the data of its handle.
type place struct {
	Dir string `json:"dir"` // the job's folder
	// Locks is the limit of file locks that the launch's programs have; 0 if there is none. See
	// [host.Family].
	Locks uint64 `json:"locks"`
	// Process is the wrapper. It is zero if the host lost its power before it was recorded.
	Process host.Process `json:"process"`
}

// taker returns the handle of a launch that was taken.
func (r *Runner) taker(k runner.Key, t spool.Taker, dir string) runner.Handle {
	return r.Handle(k, t.Token, place{Dir: dir, Locks: t.Locks, Process: t.Process})
}

// A launch is a handle that was read.
type launch struct {
	runner.Handle
	place
}

// find reads a handle. The error is of kind Invalid if it is not one of this runner's host.
func (r *Runner) find(h runner.Handle) (launch, error) {
	l := launch{Handle: h}
	return l, r.Find(h, &l.place)
}

// family returns how to recognise the processes of a launch.
func (l *launch) family() host.Family {
	return host.Family{Leader: l.Process, Locks: l.Locks, Launch: l.Token}
}
