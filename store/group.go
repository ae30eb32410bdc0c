package store

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
)

// Groups holds the jobs that are BLOCKED, each in its group ([groups.Group]). The change that
// blocks a job ([job.Patch.Block]) lets it join its group, or opens the group. Jobs leave it by
// Due, by Steer, and by wishes.
type Groups interface {
	// Tests returns up to limit groups, of all tenants, whose test is due and belongs to duty
	// ([groups.Group.Duty]). It adds the groups that the same test answers ([job.Block.Probe]).
	Tests(ctx context.Context, duty string, limit int) (Tests, error)
	// Tested records what tests found. It is Fenced unless f holds the duty of each group. It can
	// be repeated. The jobs of clear groups begin to go: Effects.Due.
	Tested(ctx context.Context, f job.Fence, found []groups.Test) (Effects, error)
	// Steer does what a person wants of a group or of jobs. A group is NotFound if it has no jobs
	// and no line. Each job is answered by its index: NotFound, or Conflict if it is not blocked,
	// or if it should be given up while something of it may run. A job that is released and then
	// waits for a turn counts as gone on.
	Steer(ctx context.Context, s Steer) ([]error, Effects, error)
	// Groups returns the groups of a tenant that have jobs, or a line in which jobs wait, sorted by
	// key.
	Groups(ctx context.Context, q GroupQuery) ([]groups.Group, error)
}

// Tests are the groups whose test is due.
type Tests struct {
	Now  time.Time      // the database's time: when these tests begin
	Due  []groups.Group // groups with jobs or a closed line, and others that the same test answers
	Next time.Time      // when the next of all other groups is due; zero: there is none
}

// A Steer is a call of [Groups].Steer for one group, or for jobs.
type Steer struct {
	Tenant string
	By     string // the principal, for the history
	Want   groups.Action
	Group  string
	Jobs   []job.ID
}

// A GroupQuery asks for groups.
type GroupQuery struct {
	Tenant string
	Key    string // empty: all
	Line   string // only groups that close the line of this key; empty: all
	Limit  int    // 1 to 1000; 100 by default
	After  string // only keys after this one
}

// NoGroup is the error for a group that does not exist.
func NoGroup(key string) error { return job.Errorf(job.NotFound, "there is no group %s", key) }
