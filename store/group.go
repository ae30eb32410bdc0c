package store

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
)

// Groups holds the jobs that are BLOCKED, each in its group ([groups.Group]). The change that
// blocks a job ([job.Patch.Block]) joins its group, or opens it. Jobs leave it by Due, by Steer,
// and by what people wish.
type Groups interface {
	// Tests returns up to limit groups, of all tenants, whose test is due and is the task of a duty
	// ([groups.Group.Duty]); and with them other groups that the same test answers
	// ([job.Block.Probe]).
	Tests(ctx context.Context, duty string, limit int) (Tests, error)
	// Tested records what tests found. It is Fenced unless the fence holds the duty of each group.
	// It is repeatable. Jobs of groups that are clear begin to go: Effects.Due.
	Tested(ctx context.Context, f job.Fence, found []groups.Test) (Effects, error)
	// Steer does what a person wants of a group or of jobs. A group is NotFound if it has no jobs
	// and no line. Jobs are answered each by its index: NotFound; or Conflict, if the job is not
	// blocked, or is to be given up while something of it may run. A job that is released and then
	// waits for a turn has gone on.
	Steer(ctx context.Context, s Steer) ([]error, Effects, error)
	// Groups returns the groups of a tenant that have jobs, or a line in which jobs wait, by key.
	Groups(ctx context.Context, q GroupQuery) ([]groups.Group, error)
}

// Tests are the groups whose test is due.
type Tests struct {
	Now  time.Time      // of the database: when these tests begin
	Due  []groups.Group // that have jobs or a closed line; and others that the same test answers
	Next time.Time      // when the next of all other groups is due; zero: none is
}

// A Steer is a call of [Groups].Steer: for one group, or for jobs.
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

// NoGroup is the error for a group that is not there.
func NoGroup(key string) error { return job.Errorf(job.NotFound, "there is no group %s", key) }
