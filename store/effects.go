package store

import (
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Effects say what a committed call means for others.
type Effects struct {
	Ready []job.QueueKind // the queues and kinds that got ready jobs
	Owed  bool            // there are follow-ups to pay now
	Later bool            // there are follow-ups that may wait for [FollowUpDelay]
	Tests bool            // a group must be tested, maybe earlier than was known
	// Due is when the first job is due that this call blocked or put behind a schedule gate. After
	// [Jobs].Due it is when the first of all such jobs is due. Zero: there is none.
	Due   time.Time
	Held  []job.ID  // sessions that have a new mode, or a wish for one of their jobs
	Watch []string  // the watches that must look: a job came to custody monitor, or has a wish there
	Past  []Passage // what happened to jobs that were blocked, by this call or before it
	// Fresh holds the jobs that became ready in this call while its claim is still to come; nil: no
	// claim is to come. AfterClaim moves the queues and kinds of those that were not claimed to
	// Ready.
	Fresh []Fresh
}

// A Passage is what happened to a job that is or was blocked.
type Passage struct {
	Code   job.Code // the condition
	What   Passing
	Waited time.Duration // how long it was blocked
}

// A Passing is what can happen to a blocked job.
type Passing string

// What can happen to blocked jobs. A job that is canceled or paused has none of these.
const (
	IsBlocked   Passing = "blocked"
	IsReblocked Passing = "reblocked" // in addition: its group was clear
	IsReleased  Passing = "released"
	HasFailed   Passing = "failed"
)

// A Fresh is a job that became ready.
type Fresh struct {
	Job       job.ID
	QueueKind job.QueueKind
}

// FollowUpDelay is how long follow-ups wait that do not keep a job from going on. Those that come
// meanwhile are paid together.
const FollowUpDelay = 50 * time.Millisecond

// Add adds what the new place of j means for others.
func (e *Effects) Add(j *job.Job) {
	switch j.Custody {
	case job.Ready:
		if at := (job.QueueKind{Queue: j.Queue, Kind: j.Kind}); e.Fresh != nil {
			e.Fresh = append(e.Fresh, Fresh{j.ID, at})
		} else {
			e.Announce(at)
		}
	case job.Gate:
		e.Soon(j.Due)
	case job.Monitor:
		e.Watch = once(e.Watch, j.Watch)
	case job.Recovery:
		e.Tests = true
		e.Soon(j.Deadline())
	}
}

// Merge adds the effects of another part of the same call.
func (e *Effects) Merge(more *Effects) {
	for _, l := range more.Ready {
		e.Announce(l)
	}
	for _, s := range more.Held {
		e.Held = once(e.Held, s)
	}
	for _, m := range more.Watch {
		e.Watch = once(e.Watch, m)
	}
	e.Owed, e.Tests, e.Later = e.Owed || more.Owed, e.Tests || more.Tests, e.Later || more.Later
	e.Past = append(e.Past, more.Past...)
	e.Soon(more.Due)
}

// Announce adds a queue and kind that has ready jobs.
func (e *Effects) Announce(at job.QueueKind) { e.Ready = once(e.Ready, at) }

// Soon adds a time at which a job is due.
func (e *Effects) Soon(t time.Time) {
	if !t.IsZero() && (e.Due.IsZero() || t.Before(e.Due)) {
		e.Due = t
	}
}

// Tell adds the session or the watcher that holds a job, because it must hear of a wish for the
// job. The wish may even take the job from it.
func (e *Effects) Tell(j *job.Job) {
	switch j.Custody {
	case job.Worker:
		e.Held = once(e.Held, j.Session)
	case job.Monitor:
		e.Watch = once(e.Watch, j.Watch)
	}
}

// Passed adds what happened to a job that a change has blocked, or that was blocked before the
// change.
func (e *Effects) Passed(before, after *job.Job) {
	p := Passage{Code: before.Code, Waited: after.Since.Sub(before.Since)}
	switch {
	case after.State == job.Blocked && before.State != job.Blocked:
		p = Passage{Code: after.Code, What: IsBlocked}
	case before.State != job.Blocked, after.State == job.Blocked, after.State == job.Paused,
		after.State == job.Canceled:
		return
	case after.State == job.Failed:
		p.What = HasFailed
	default:
		p.What = IsReleased
	}
	e.Past = append(e.Past, p)
}

// Joined adds that a job is blocked again, if its group was clear. wasClear is the answer of
// [groups.Group.Join].
func (e *Effects) Joined(b *job.Block, wasClear bool) {
	if wasClear {
		e.Past = append(e.Past, Passage{Code: b.Code, What: IsReblocked})
	}
}

// BeforeClaim says that a claim follows in the same call. It may take jobs that become ready before
// it, so they are no news for others yet.
func (e *Effects) BeforeClaim() { e.Fresh = []Fresh{} }

// AfterClaim announces the queues and kinds of the jobs that became ready since BeforeClaim and
// were not claimed.
func (e *Effects) AfterClaim(claimed []job.Job) {
	taken := make(map[job.ID]bool, len(claimed))
	for i := range claimed {
		taken[claimed[i].ID] = true
	}
	for _, f := range e.Fresh {
		if !taken[f.Job] {
			e.Announce(f.QueueKind)
		}
	}
	e.Fresh = nil
}

// once returns list with v in it once.
func once[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}
