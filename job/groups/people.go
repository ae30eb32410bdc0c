package groups

import (
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// An Action is what a person wants of a group, or of jobs that are blocked.
type Action string

// The actions.
const (
	TryNow  Action = "try"     // the condition is tested now
	Release Action = "release" // a group goes on as if it had cleared; named jobs go on at once
	GiveUp  Action = "give_up" // the jobs fail, except jobs whose program may still run
)

// Act does what a person wants of a group.
func (g *Group) Act(a Action, by string, rate *job.Limit, now time.Time) {
	switch a {
	case TryNow:
		if g.Clear.IsZero() {
			g.Next, g.Quiet = now, time.Time{}
		}
	case Release:
		g.Result = "released by " + by
		g.clear(now, 0, rate, now)
	case GiveUp:
		g.GivenUp, g.GiverUp = now, by
	}
}

// Change returns the change by which a blocked job obeys a Release or GiveUp. It is a Conflict
// where the job is not blocked, or cannot be given up. A TryNow changes the group and not the job.
func Change(j *job.Job, a Action, by string, now time.Time) (c job.Change, err error) {
	switch {
	case j.State != job.Blocked:
		return c, job.Errorf(job.Conflict, "job %s is not blocked: it is %s", j.ID, j.State)
	case a == Release:
		return job.Released(j, "released by "+by, now), nil
	case a == GiveUp && j.Live:
		return c, mayRun(j)
	}
	return job.GivenUp(j, job.RecoveryGivenUp, "given up by "+by+"; it was blocked by "+string(j.Code)+": "+
		j.Message), nil
}

// mayRun is the error for giving up a job whose program may still run.
func mayRun(j *job.Job) error {
	where := ""
	if j.Machine != "" {
		where = " on machine " + j.Machine
	}
	return job.Errorf(job.Conflict, "job %s cannot be given up: launch %d of it may still run%s; cancel it, "+
		"which ends that first, or with force "+
		"(pawl cancel --force) where that can never be confirmed", j.ID, j.Launch, where)
}

// Tried says how often the group was tested, for the history of a job that waited in vain.
func (g *Group) Tried(now time.Time) string {
	switch {
	case g.Tests == 0:
		return "its group was not tested"
	case g.Tests == 1:
		return fmt.Sprintf("its group was tested once, %v before: %s", now.Sub(g.Tested).Round(time.Second), g.Result)
	}
	return fmt.Sprintf("its group was tested %d times, the last time %v before: %s", g.Tests,
		now.Sub(g.Tested).Round(time.Second), g.Result)
}

// Stands says for people, in one sentence, how the group stands.
func (g *Group) Stands(now time.Time) string {
	ago := func(t time.Time) string { return now.Sub(t).Round(time.Second).String() + " ago" }
	s := "not tested yet"
	switch {
	case !g.GivenUp.IsZero():
		return "given up by " + g.GiverUp + ": its jobs fail"
	case !g.Clear.IsZero() && g.Result != "":
		return "clear since " + ago(g.Clear) + " (" + g.Result + "): its jobs go on one after the other"
	case !g.Clear.IsZero():
		return "clear since " + ago(g.Clear) + ": its jobs go on one after the other"
	case g.Tests == 1:
		s = "tested once, " + ago(g.Tested) + ": " + g.Result
	case g.Tests > 1:
		s = fmt.Sprintf("tested %d times, last %s: %s", g.Tests, ago(g.Tested), g.Result)
	}
	if in := g.Next.Sub(now).Round(time.Second); in > 0 {
		return s + "; tested next in " + in.String() + " by " + g.Block.Tester
	}
	return s + "; about to be tested by " + g.Block.Tester
}

// Why says for the history why jobs of the group go on.
func (g *Group) Why() string {
	if g.Result == "" {
		return string(g.Block.Code) + " has cleared"
	}
	return string(g.Block.Code) + " has cleared: " + g.Result
}
