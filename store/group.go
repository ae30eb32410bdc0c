package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Group is all jobs of a tenant that are blocked on one condition. Who belongs to it is said by
// the rows of the jobs ([job.Job.Group]). Its own row says when the condition is tested and what
// came of that, and lets jobs go at a rate once it has cleared. It is written under its lock; what
// becomes of it is decided here, for every store.
//
// A group is tested as often as the policies of its jobs say, whichever is the densest, and not
// while who has the trouble asks for no test. When it is found clear, those who had joined before
// that test began go, the oldest first and owner by owner, at moments that are as far apart as the
// rate of releases has them. One that blocks again meanwhile stops that: the condition is tested
// anew, and from then on the pace is half of what it was; it doubles with each second in which
// nobody blocks.
//
// A group with a line closes it: nobody who waits there gets a turn. When the group is clear the
// line opens by and by: the places that it gives to all grow with the pace, which here doubles
// beyond the rate, until the limit has no more, or nobody waits for one.
type Group struct {
	Tenant string    `json:"-"`
	Key    string    `json:"-"`
	Block  job.Block `json:"block"` // of the job that opened it, with its policy
	Opened time.Time `json:"opened"`
	Tests  int       `json:"tests,omitempty"`  // since then, or since it was clear last
	Tested time.Time `json:"tested,omitzero"`  // when the newest test began
	Result string    `json:"result,omitempty"` // what that said
	Next   time.Time `json:"next,omitzero"`    // when it is tested next; zero: it is clear
	Quiet  time.Time `json:"quiet,omitzero"`   // it is not tested before: see [job.Block.After]
	Clear  time.Time `json:"clear,omitzero"`   // when the test began that found it clear; zero: it is not
	May    int       `json:"may,omitempty"`    // where it is clear: how many may still go; negative: all
	// where it is clear: when the next may go; zero: nobody is there who may
	At          time.Time `json:"at,omitzero"`
	Free        time.Time `json:"free,omitzero"`         // nobody goes before: the moment after that of the one that went last
	Pace        int       `json:"pace,omitempty"`        // they go 2^Pace times as fast as the rate says
	PaceChanged time.Time `json:"pace_changed,omitzero"` // when the pace changed last
	Last        string    `json:"last,omitempty"`        // the owner of the job that went last
	Places      int       `json:"places"`                // that its line gives to all together; negative: it closes none
	// who is in it since then, or longer, fails, unless something of it may run; zero: nobody
	GivenUp time.Time `json:"given_up,omitzero"`
	GiverUp string    `json:"giver_up,omitempty"`

	// What follows is no part of the row. [Groups].Groups tells it.

	Jobs   int       `json:"-"` // that belong to it
	Oldest time.Time `json:"-"` // since when the first of them has been blocked
	Behind int       `json:"-"` // jobs that wait in its line
}

// Groups holds the jobs that are BLOCKED: see [Group]. The change that blocks a job
// ([job.Patch.Block]) joins its group, and opens it where it is the first. Jobs leave it by Due, by
// Steer, and by what people wish.
type Groups interface {
	// Tests returns up to limit groups whose test is due, of those that a duty tests
	// ([Group.Duty]), and with them others to which the same answer is enough ([job.Block.Probe]),
	// of all tenants.
	Tests(ctx context.Context, duty string, limit int) (Tests, error)
	// Tested records what tests found, of a holder of duties: Fenced where it does not hold the one
	// of a group any more. It is repeatable. What is clear begins to go: Effects.Due.
	Tested(ctx context.Context, f job.Fence, found []Test) (Effects, error)
	// Steer does what a person wants. Of a group: NotFound where it has no jobs and no line. Of
	// jobs it answers each by its index: NotFound, or Conflict where it is not blocked, or to be
	// given up while something of it may run; one that cannot go on at once, for it waits for a
	// turn, has gone on all the same.
	Steer(ctx context.Context, s Steer) ([]error, Effects, error)
	// Groups returns the groups of a tenant that have jobs, or a line in which somebody waits, by
	// key.
	Groups(ctx context.Context, q GroupQuery) ([]Group, error)
}

// A GroupQuery asks for groups.
type GroupQuery struct {
	Tenant string
	Key    string // empty: all
	Line   string // only those that close the line of this key; empty: all
	Limit  int    // 1 to 1000; 100 by default
	After  string // only keys after this one
}

// Bounds of groups.
const (
	// Patience is for how long after its time a blocked job does not fail yet where a test that was
	// due by then has not been made.
	Patience = time.Minute
	// GroupKept is for how long a group is kept that has no job any more: one that blocks by then
	// slows it down.
	GroupKept = time.Minute

	slowest = -6 // of Pace
	fastest = 20
	hasten  = time.Second // after which Pace grows
)

// Releases returns the rate at which jobs of a group go, where limit is the one that is set for its
// key, [Group.Rate], or its family; nil: none.
func Releases(limit *job.Limit) *job.Limit {
	if limit != nil {
		return limit
	}
	return &job.Limit{Key: job.RateReleases + "/*", Most: 10, Per: job.Duration(time.Second)}
}

// Rate returns the key of the limit that says how fast jobs of a group go.
func (g *Group) Rate() string { return job.RateReleases + "/" + g.Key }

// OpenGroup returns the group that j opens, which b has blocked.
func OpenGroup(j *job.Job, b *job.Block, now time.Time) *Group {
	g := &Group{Tenant: j.Tenant, Key: j.Group, Block: b.Filled(), Opened: now, Places: -1}
	g.Block.Message, g.Block.After = j.Message, 0
	g.Next = now.Add(g.Block.Policy.Every(0))
	g.quiet(b.After, now)
	g.close()
	return g
}

// Join adds a job that b has blocked, and reports whether the group was clear until now.
func (g *Group) Join(b *job.Block, now time.Time) (again bool) {
	policy := b.Filled().Policy
	if !slices.Equal(policy.Stages, g.Block.Policy.Stages) {
		g.Block.Policy = g.Block.Policy.Denser(policy)
	}
	if g.Block.Line == "" {
		g.Block.Line = b.Line
	}
	if again = !g.Clear.IsZero(); again {
		g.again(now)
		g.Pace, g.PaceChanged = max(slowest, min(g.Pace, 0)-1), now
	}
	if next := now.Add(policy.Every(0)); next.Before(g.Next) {
		g.Next = next
	}
	g.quiet(b.After, now)
	g.close()
	return again
}

// again has the condition tested anew.
func (g *Group) again(now time.Time) {
	g.Clear, g.At, g.May, g.Tests = time.Time{}, time.Time{}, 0, 0
	g.Next = now.Add(g.Block.Policy.Every(0))
	g.quiet(0, now)
	g.close()
}

// quiet has nothing tested for so long from now on, as was asked for, and not before the end of
// what was asked for earlier.
func (g *Group) quiet(after job.Duration, now time.Time) {
	if until := now.Add(time.Duration(after)); after > 0 && until.After(g.Quiet) {
		g.Quiet = until
	}
	if !g.Next.IsZero() && g.Next.Before(g.Quiet) {
		g.Next = g.Quiet
	}
}

func (g *Group) close() {
	if g.Block.Line != "" {
		g.Places = 0
	}
}

// A Test is what came of the test of a group.
type Test struct {
	Tenant, Key string
	Began       time.Time // as [Tests].Now said
	Clear       bool
	May         int           // where it is clear: how many jobs may go before it is tested again; 0: all
	Result      string        // what it said, for people
	After       time.Duration // where it is not: how long it is not to be tested again, for so was asked for
}

// Record notes what a test found, and reports whether that is news: what is older than what is
// known, or repeated, changes nothing.
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
		return true // another one came to be due meanwhile: somebody wants to know anew
	}
	// Tests keep to the times at which they are due, however long they take: so a job has as many
	// as its policy says.
	every := g.Block.Policy.Every(g.Tests)
	if g.Next = g.Next.Add(every); !g.Next.After(now) || g.Next.After(now.Add(every)) {
		g.Next = now.Add(every)
	}
	g.quiet(job.Duration(t.After), now)
	return true
}

func (g *Group) clear(since time.Time, may int, rate *job.Limit, now time.Time) {
	g.Pace, g.PaceChanged = min(g.Pace, 0), now
	g.Clear, g.At, g.Next = since, g.first(rate, now), time.Time{}
	if g.May = may; may <= 0 {
		g.May = -1
	}
	g.open(rate)
}

// first returns the moment of the first that goes, where none has gone since the time now: not
// before the one after that of the last one that went, and that is no farther off than the rate has
// them apart.
func (g *Group) first(rate *job.Limit, now time.Time) time.Time {
	switch next := now.Add(g.gap(rate)); {
	case g.Free.After(next):
		return next
	case g.Free.After(now):
		return g.Free
	}
	return now
}

// FreeIn returns in how long the rate lets the next of its jobs go, whatever else it waits for; 0:
// at once.
func (g *Group) FreeIn(rate *job.Limit, now time.Time) time.Duration {
	if !g.At.IsZero() {
		return max(0, g.At.Sub(now))
	}
	cleared := *g
	cleared.Pace = min(g.Pace, 0)
	return cleared.first(rate, now).Sub(now)
}

// open gives out as many places of the line as jobs may go within a second, and as many as there
// are at the fastest.
func (g *Group) open(rate *job.Limit) {
	if g.Places >= 0 && g.May < 0 {
		if g.Places = int((hasten + g.gap(rate) - 1) / g.gap(rate)); g.Places >= job.MaxTurns || g.Pace == fastest {
			g.Places = -1
		}
	}
}

// gap is how far apart the moments are at which jobs go.
func (g *Group) gap(rate *job.Limit) time.Duration {
	if g.Pace < 0 {
		return rate.Every() << -g.Pace
	}
	return max(time.Microsecond, (rate.Every() >> g.Pace).Truncate(time.Microsecond))
}

// Allow returns how many jobs may go at the time now, up to limit. Moments that were missed are
// lost.
func (g *Group) Allow(rate *job.Limit, now time.Time, limit int) int {
	if g.Clear.IsZero() {
		return 0
	}
	top := 0
	if g.Block.Line != "" {
		top = fastest
	}
	for g.Pace < top && !now.Before(g.PaceChanged.Add(hasten)) {
		g.Pace, g.PaceChanged = g.Pace+1, g.PaceChanged.Add(hasten)
	}
	g.open(rate)
	if g.At.IsZero() || now.Before(g.At) {
		return 0
	}
	if missed := now.Add(-job.Lateness); g.At.Before(missed) {
		g.At = missed
	}
	n := 1 + int(now.Sub(g.At)/g.gap(rate))
	if g.May >= 0 {
		n = min(n, g.May)
	}
	return min(n, limit)
}

// Rerate notes that another rate may hold from now on: the next job goes no later than a job would
// that follows one which goes now. It reports whether that is earlier than it would have gone.
func (g *Group) Rerate(rate *job.Limit, now time.Time) bool {
	next := now.Add(g.gap(rate))
	if !g.At.After(next) {
		return false
	}
	g.At = next
	return true
}

// Went notes that n jobs went, and the owner of the last of them. left says whether there are more
// who may go, and later whether some are there who joined too late for that.
func (g *Group) Went(rate *job.Limit, n int, last string, left, later bool, now time.Time) {
	if g.Clear.IsZero() {
		return
	}
	if n > 0 {
		g.Last, g.At = last, g.At.Add(time.Duration(n)*g.gap(rate))
		g.Free = g.At
		if g.May > 0 {
			g.May -= n
		}
	}
	switch {
	case left && g.May != 0:
	case left, later:
		g.again(now)
	default: // who waits in its line may go, too
		g.At, g.May = time.Time{}, -1
		g.open(rate)
	}
}

// Wake returns when there is something to do for a group that is no test; zero: not before somebody
// joins it, or a test is over.
func (g *Group) Wake() time.Time {
	switch wake := g.At; {
	case !g.GivenUp.IsZero():
		return g.GivenUp
	case g.Clear.IsZero():
		return time.Time{}
	case g.Places >= 0 && g.May < 0 && (wake.IsZero() || g.PaceChanged.Add(hasten).Before(wake)):
		return g.PaceChanged.Add(hasten)
	default:
		return wake
	}
}

// Waits returns since when a group that is not clear has waited for that at most: it was found
// clear last by then, or opened.
func (g *Group) Waits() time.Time {
	if g.PaceChanged.After(g.Opened) {
		return g.PaceChanged
	}
	return g.Opened
}

// Lapses reports whether a job of the group fails at the time now, whose deadline
// ([job.Job.Deadline]) is until. As long as a test is due that was due by then it does not: that
// one may find that it can go on.
func (g *Group) Lapses(until, now time.Time) bool {
	tested := g.Next.After(until) || !now.Before(until.Add(Patience))
	return !until.IsZero() && !until.After(now) && g.Clear.IsZero() && tested
}

// Fails returns when a job of the group that fails at until does so at the latest as far as is
// known; zero: never, or it goes before.
func (g *Group) Fails(until time.Time) time.Time {
	switch {
	case until.IsZero(), !g.Clear.IsZero():
		return time.Time{}
	case g.Next.After(until):
		return until
	}
	return until.Add(Patience)
}

// Tried says what was done about the condition, for the history of a job that waited for it in
// vain.
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

// Stands says in one sentence what becomes of the group, for people.
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

// Why says why a job goes on.
func (g *Group) Why() string {
	if g.Result == "" {
		return string(g.Block.Code) + " has cleared"
	}
	return string(g.Block.Code) + " has cleared: " + g.Result
}

// Idle reports whether a group that has no jobs, and in whose line nobody waits, is kept no longer.
// Tests do not keep it: they go on while it closes a line.
func (g *Group) Idle(now time.Time) bool {
	last := slices.MaxFunc([]time.Time{g.Opened, g.PaceChanged, g.Clear}, time.Time.Compare)
	return !now.Before(last.Add(GroupKept))
}

// Duty returns the duty whose holder tests a group: that of all, that of a machine where it is to
// be tested there, or that of those who know its tester. See [TestsOf].
func (g *Group) Duty() string { return TestsOf(g.Block.Tester, g.Block.Machine) }

// RecoveryDuty is the duty of testing what every process can test that plays [RoleRecovery].
const RecoveryDuty = "recovery"

// TestsOf returns the duty of tests by a tester on a machine; a tester whose name begins with "go/"
// is a function that only some processes have.
func TestsOf(tester, machine string) string {
	duty := RecoveryDuty
	if len(tester) > 3 && tester[:3] == "go/" {
		duty += "/" + tester
	}
	if machine != "" {
		duty += "@" + machine
	}
	return duty
}

// Tests are the groups whose test is due.
type Tests struct {
	Now  time.Time // of the database: that is when these tests begin
	Due  []Group   // that have jobs, or a line that is closed; and those to which the same answer is enough
	Next time.Time // when the next of the others is due; zero: none is
}

// A GroupAction is what a person wants of groups and of blocked jobs.
type GroupAction string

// What there is to be wanted.
const (
	TryNow GroupAction = "try" // the condition is tested now
	// they go on, at the rate of releases, as if it had cleared; jobs that are named do so at once
	Release GroupAction = "release"
	GiveUp  GroupAction = "give_up" // they fail, but for those of which something may still run
)

// A Steer is a call of [Groups].Steer: for a group, or for jobs.
type Steer struct {
	Tenant string
	By     string // the principal, for the history
	Want   GroupAction
	Group  string
	Jobs   []job.ID
}

// Steer does what a person wants of a group.
func (g *Group) Steer(s *Steer, rate *job.Limit, now time.Time) {
	switch s.Want {
	case TryNow:
		if g.Clear.IsZero() {
			g.Next, g.Quiet = now, time.Time{}
		}
	case Release:
		g.Result = "released by " + s.By
		g.clear(now, 0, rate, now)
	case GiveUp:
		g.GivenUp, g.GiverUp = now, s.By
	}
}

// Steered returns the change that a person wants of a blocked job, and NotFound or Conflict where
// there is none to be made. TryNow is for its group.
func (s *Steer) Steered(j *job.Job, now time.Time) (c job.Change, err error) {
	switch {
	case j.State != job.Blocked:
		return c, job.Errorf(job.Conflict, "job %s is not blocked: it is %s", j.ID, j.State)
	case s.Want == Release:
		return job.Released(j, "released by "+s.By, now), nil
	case s.Want == GiveUp && j.Live:
		return c, mayRun(j)
	}
	return job.GivenUp(j, job.RecoveryGivenUp, "given up by "+s.By+"; it was blocked by "+string(j.Code)+": "+
		j.Message), nil
}

// mayRun is the error for who gives up a job of which something may still run.
func mayRun(j *job.Job) error {
	where := ""
	if j.Machine != "" {
		where = " on machine " + j.Machine
	}
	return job.Errorf(job.Conflict, "job %s cannot be given up: launch %d of it may still run%s; cancel it, "+
		"which ends that first, or with force "+
		"(pawl cancel --force) where that can never be confirmed", j.ID, j.Launch, where)
}

// NoGroup is the error for a group that is not there.
func NoGroup(key string) error { return job.Errorf(job.NotFound, "there is no group %s", key) }

// In returns up to n jobs in the turn in which they go: owner by owner, from the one after last on,
// and of each the oldest first. Each list has the jobs of one owner, the oldest first; owners are
// their names, sorted.
func In[J any](owners []string, jobs map[string][]J, last string, n int) (in []J, of string) {
	of = last
	first, _ := slices.BinarySearch(owners, last+"\x00")
	for round := 0; len(in) < n; round++ {
		before := len(in)
		for i := range owners {
			owner := owners[(first+i)%len(owners)]
			if list := jobs[owner]; round < len(list) && len(in) < n {
				in, of = append(in, list[round]), owner
			}
		}
		if len(in) == before {
			break
		}
	}
	return in, of
}
