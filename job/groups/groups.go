// Package groups decides when blocked jobs go on.
//
// A group is all jobs of a tenant that are blocked on one condition, such as a host that cannot be
// reached. [job.Job.Group] says which one a job belongs to. The group has a row of its own, which
// says when the condition is tested and what came of that. A store reads that row under its lock,
// calls the functions of this package, and writes what they have made of it. Nothing here reads or
// writes anything.
//
//   - Tests. A group is tested as often as the densest policy of its jobs says. Where the blocked
//     party asked for quiet ([job.Block.After]) it is left alone until then.
//   - Release. Once a test finds the group clear, the jobs go that had joined before the test
//     began: owner by owner, the oldest first, spread out by a rate ([Rate]).
//   - Pace. If a job blocks again while others go, the group is tested anew, and from then on its
//     jobs go half as fast. The pace doubles again with each second in which no job blocks.
//   - Lines. A group may close the line of a limit: then no job gets a turn there. When the group
//     is clear the line opens step by step, as the pace grows; here it may grow beyond the rate,
//     until the limit itself is the bound or nobody waits any more.
//
// The package imports package job and the standard library.
package groups

import (
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Group is the row of a group, and what a query counts of it. Times are the database's.
type Group struct {
	Tenant string `json:"-"`
	Key    string `json:"-"`
	// Block is that of the job that opened the group; where it has AnyCode, code and message are
	// the newest. The policy is the densest of all its jobs.
	Block  job.Block `json:"block"`
	Opened time.Time `json:"opened"`

	Tests  int       `json:"tests,omitempty"`  // how many, since it was opened or was clear last
	Tested time.Time `json:"tested,omitzero"`  // when the newest test began
	Result string    `json:"result,omitempty"` // what that test said
	Next   time.Time `json:"next,omitzero"`    // when it is tested next; zero: it is clear
	Quiet  time.Time `json:"quiet,omitzero"`   // until when it is left alone: see [job.Block.After]

	Clear time.Time `json:"clear,omitzero"` // when the test began that found it clear; zero: it is not
	May   int       `json:"may,omitempty"`  // of a clear group: how many jobs may still go; negative: all
	At    time.Time `json:"at,omitzero"`    // of a clear group: when the next job goes; zero: no job may go
	// Free is when the moment after the last one that went is free: no job goes before that.
	Free time.Time `json:"free,omitzero"`

	Pace        int       `json:"pace,omitempty"`        // jobs go 2^Pace times as fast as the rate says
	PaceChanged time.Time `json:"pace_changed,omitzero"` // when Pace changed last
	Last        string    `json:"last,omitempty"`        // the owner of the job that went last
	Places      int       `json:"places"`                // of its line, for all jobs together; negative: it closes none

	// GivenUp is when GiverUp gave the group up: jobs that are in it since then or longer fail,
	// unless something of them may still run. Zero: nobody did.
	GivenUp time.Time `json:"given_up,omitzero"`
	GiverUp string    `json:"giver_up,omitempty"`

	// The rest is not part of the row: a query counts it.

	Jobs   int       `json:"-"` // jobs that belong to it
	Oldest time.Time `json:"-"` // since when the first of them is blocked
	Behind int       `json:"-"` // jobs that wait in its line
}

const (
	// LateTestGrace is how long a job that has waited for too long does not fail yet, while a test
	// is late that was due before.
	LateTestGrace = time.Minute

	// Kept is how long a group is kept without jobs: a job that blocks by then slows it down.
	Kept = time.Minute
)

// RecoveryDuty is the duty of the tests that every process can make which plays the role of
// recovery.
const RecoveryDuty = "recovery"

// Open returns the group that j opens, which b has blocked.
func Open(j *job.Job, b *job.Block, now time.Time) *Group {
	g := &Group{Tenant: j.Tenant, Key: j.Group, Block: b.Filled(), Opened: now, Places: -1}
	g.Block.Message, g.Block.After = j.Message, 0
	g.Next = now.Add(g.Block.Policy.Every(0))
	g.quiet(b.After, now)
	g.closeLine()
	return g
}

// Join adds a job that b has blocked. It reports whether the group was clear until now.
func (g *Group) Join(b *job.Block, now time.Time) (wasClear bool) {
	policy := b.Filled().Policy
	if !slices.Equal(policy.Stages, g.Block.Policy.Stages) {
		g.Block.Policy = g.Block.Policy.Denser(policy)
	}
	if g.Block.Line == "" {
		g.Block.Line = b.Line
	}
	if g.Block.AnyCode {
		g.Block.Code, g.Block.Message = b.Code, job.Text(b.Message)
	}
	if wasClear = !g.Clear.IsZero(); wasClear {
		g.testAgain(now)
		g.Pace, g.PaceChanged = max(slowest, min(g.Pace, 0)-1), now
	}
	if next := now.Add(policy.Every(0)); next.Before(g.Next) {
		g.Next = next
	}
	g.quiet(b.After, now)
	g.closeLine()
	return wasClear
}

// testAgain makes a clear group one that is not.
func (g *Group) testAgain(now time.Time) {
	g.Clear, g.At, g.May, g.Tests, g.Result = time.Time{}, time.Time{}, 0, 0, ""
	g.Next = now.Add(g.Block.Policy.Every(0))
	g.quiet(0, now)
	g.closeLine()
}

// quiet leaves the group alone for a time from now on, and at least as long as was asked for
// before.
func (g *Group) quiet(after job.Duration, now time.Time) {
	if until := now.Add(time.Duration(after)); after > 0 && until.After(g.Quiet) {
		g.Quiet = until
	}
	if !g.Next.IsZero() && g.Next.Before(g.Quiet) {
		g.Next = g.Quiet
	}
}

func (g *Group) closeLine() {
	if g.Block.Line != "" {
		g.Places = 0
	}
}

// A Test is what a test of a group found.
type Test struct {
	Tenant, Key string
	Began       time.Time // the database's time before the test
	Clear       bool
	May         int           // if it is clear: how many jobs may go before the next test; 0: all
	Result      string        // what it said, for people
	After       time.Duration // if it is not: for how long the group asked to be left alone
}

// Record writes a test down. It reports whether the test tells anything new: one that is older than
// the newest, or repeated, changes nothing.
func (g *Group) Record(t *Test, rate *job.Limit, now time.Time) bool {
	if !g.Clear.IsZero() || !t.Began.After(g.Tested) || t.Began.Before(g.Opened) {
		return false
	}
	g.Tested, g.Result = t.Began, job.Text(t.Result)
	g.Tests++
	if t.Clear {
		g.clear(t.Began, t.May, rate, now)
		return true
	}
	if g.Next.After(t.Began) && !g.Next.After(now) {
		return true // the next test became due meanwhile: it was asked for again
	}
	// Tests keep to the times at which they are due, however long each takes: so there are as many
	// as the policy says.
	every := g.Block.Policy.Every(g.Tests)
	if g.Next = g.Next.Add(every); !g.Next.After(now) || g.Next.After(now.Add(every)) {
		g.Next = now.Add(every)
	}
	g.quiet(job.Duration(t.After), now)
	return true
}

// clear says that jobs may go which are blocked since a time or longer.
func (g *Group) clear(since time.Time, may int, rate *job.Limit, now time.Time) {
	g.Pace, g.PaceChanged = min(g.Pace, 0), now
	g.Clear, g.At, g.Next = since, g.first(rate, now), time.Time{}
	if g.May = may; may <= 0 {
		g.May = -1
	}
	g.openLine(rate)
}

// Duty returns the duty whose holder tests the group.
func (g *Group) Duty() string { return DutyOf(g.Block.Tester, g.Block.Machine) }

// DutyOf returns the duty of the tests that a tester makes on a machine; "" is any machine. A
// tester whose name begins with "go/" is a function that only some processes have: it has a duty of
// its own.
func DutyOf(tester, machine string) string {
	duty := RecoveryDuty
	if len(tester) > 3 && tester[:3] == "go/" {
		duty += "/" + tester
	}
	if machine != "" {
		duty += "@" + machine
	}
	return duty
}

// Lapses reports whether a job of the group fails at the time now, because it has waited until its
// deadline ([job.Job.Deadline]). While a test is late that was due by then, it does not fail before
// LateTestGrace is over: the test may find that it can go on.
func (g *Group) Lapses(deadline, now time.Time) bool {
	tested := g.Next.After(deadline) || !now.Before(deadline.Add(LateTestGrace))
	return !deadline.IsZero() && !deadline.After(now) && g.Clear.IsZero() && tested
}

// Fails returns when a job with a deadline fails if no test finds the group clear; zero: never.
func (g *Group) Fails(deadline time.Time) time.Time {
	switch {
	case deadline.IsZero(), !g.Clear.IsZero():
		return time.Time{}
	case g.Next.After(deadline):
		return deadline
	}
	return deadline.Add(LateTestGrace)
}

// Idle reports whether a group without jobs, in whose line nobody waits, need not be kept any
// longer. That it is tested does not keep it: tests go on as long as it closes a line.
func (g *Group) Idle(now time.Time) bool {
	last := slices.MaxFunc([]time.Time{g.Opened, g.PaceChanged, g.Clear}, time.Time.Compare)
	return !now.Before(last.Add(Kept))
}

// BlockedSince returns since when a group that is not clear has been blocked: since it was opened,
// or was clear last.
func (g *Group) BlockedSince() time.Time {
	if g.PaceChanged.After(g.Opened) {
		return g.PaceChanged
	}
	return g.Opened
}
