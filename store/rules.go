package store

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// What every store decides alike, from what it has read.

// Note adds what the new place of a job means for others.
func (e *Effects) Note(j *job.Job) {
	switch j.Custody {
	case job.Ready:
		if line := (job.QueueKind{Queue: j.Queue, Kind: j.Kind}); e.Fresh != nil {
			e.Fresh = append(e.Fresh, Fresh{j.ID, line})
		} else {
			e.Announce(line)
		}
	case job.Gate:
		e.Soon(j.Due)
	case job.Monitor:
		e.Watch = once(e.Watch, j.Machine)
	case job.Recovery:
		e.Tests = true
		e.Soon(j.Deadline())
	}
}

// Joined notes what [Group.Join] told of a job.
func (e *Effects) Joined(b *job.Block, again bool) {
	if again {
		e.Past = append(e.Past, Passage{Code: b.Code, What: IsReblocked})
	}
}

// Passed notes what became of a job that is blocked by a change, or was until then.
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

// Also adds what another part of the same call means.
func (e *Effects) Also(more *Effects) {
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

// Soon notes a time at which something is due.
func (e *Effects) Soon(t time.Time) {
	if !t.IsZero() && (e.Due.IsZero() || t.Before(e.Due)) {
		e.Due = t
	}
}

// Claiming says that a claim follows in the same call: who gets ready until then may be claimed
// along, and is no news for others.
func (e *Effects) Claiming() { e.Fresh = []Fresh{} }

// Claimed names the lines of those who got ready and were not claimed.
func (e *Effects) Claimed(jobs []job.Job) {
	claimed := make(map[job.ID]bool, len(jobs))
	for i := range jobs {
		claimed[jobs[i].ID] = true
	}
	for _, f := range e.Fresh {
		if !claimed[f.Job] {
			e.Announce(f.Line)
		}
	}
	e.Fresh = nil
}

// NewerCursor is the error of a reader of events who has read further than the database goes.
func NewerCursor() error {
	return job.Errorf(job.Invalid, "this cursor is newer than the database, which was restored to an earlier "+
		"point in time: "+
		"read from the first event, or only those to come (end)")
}

// Announce adds a line that has ready jobs.
func (e *Effects) Announce(l job.QueueKind) { e.Ready = once(e.Ready, l) }

// Tell adds who hears of a wish for a job, also where the wish takes the job from them.
func (e *Effects) Tell(j *job.Job) {
	switch j.Custody {
	case job.Worker:
		e.Held = once(e.Held, j.Session)
	case job.Monitor:
		e.Watch = once(e.Watch, j.Machine)
	}
}

func once[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

// Once returns the claim with each queue, kind and job named once: a line that is read twice has
// its jobs twice.
func (c Claim) Once() Claim {
	c.Queues, c.Kinds, c.Jobs = distinct(c.Queues), distinct(c.Kinds), distinct(c.Jobs)
	return c
}

// distinct returns list with the first of those that are equal.
func distinct[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}

// NoJob is the error for a job that is not there.
func NoJob(id job.ID) error { return job.Errorf(job.NotFound, "there is no job %s", id) }

// NoSession is the error for a session that would have to live.
func NoSession(id job.ID) error {
	return job.Errorf(job.Fenced, "session %s has ended: begin a new one", id)
}

// NoResource is the error for a document that is not there.
func NoResource(kind, name string) error {
	return job.Errorf(job.NotFound, "there is no %s %s", kind, name)
}

// NoLimit is the error for a limit that is not there.
func NoLimit(key string) error { return job.Errorf(job.NotFound, "no limit is set for %s", key) }

// Digest tells a call from another one under the same idempotency key.
func (s *Submission) Digest() []byte {
	h := sha256.New()
	for i := range s.Jobs {
		h.Write(s.Jobs[i].Fingerprint[:])
	}
	return h.Sum(nil)
}

// Field is the column by which a list is sorted first; empty where it has the order of submission
// alone.
func (s Sort) Field() string {
	switch s {
	case LastEnded, FirstEnd:
		return "ended"
	case ByName, ByNameRev:
		return "stem"
	}
	return ""
}

// Descends reports whether a list goes from the highest down.
func (s Sort) Descends() bool { return s[0] == '-' }

// Within is a limit that a query gave: a standard one where it gave none, and no more than most.
func Within(n, standard, most int) int {
	if n <= 0 {
		return standard
	}
	return min(n, most)
}

// Strongest returns each prerequisite once: with the need that meets both where one stands twice.
func Strongest(after []After) []After {
	var all []After
	for _, a := range after {
		i := slices.IndexFunc(all, func(b After) bool { return a.Job == b.Job })
		switch {
		case i < 0:
			all = append(all, a)
		case a.Need == job.NeedFinished:
			all[i].Need = a.Need
		}
	}
	return all
}

// Allowed says why an event may not be written to a job.
func (n *NewEvent) Allowed(j *job.Job) error {
	switch {
	case j.State.Terminal():
		return job.Errorf(job.Conflict, "job %s has already ended %s", j.ID, j.State)
	case n.Cause == job.CauseUser:
		return nil
	case j.Program() && !(j.Live && n.Launch == j.Launch):
		return job.Errorf(job.Conflict, "launch %d of job %s is not the one that runs", n.Launch, j.ID)
	case !j.Program() && !(j.Custody == job.Worker && n.Epoch == j.Epoch):
		return job.Errorf(job.Conflict, "what runs of job %s in epoch %d has lost it: it stands at %s in epoch %d",
			j.ID, n.Epoch, j.Place, j.Epoch)
	}
	return nil
}

// Compare orders by tenant and state, as Overdue goes through what is kept.
func (k Kept) Compare(other Kept) int {
	return cmp.Or(strings.Compare(k.Tenant, other.Tenant), strings.Compare(string(k.State), string(other.State)))
}

// ReadyIn is how many jobs of a lane are ready in a line of a machine, or of none.
type ReadyIn struct {
	QueueKind job.QueueKind
	Machine   string
	Lane      job.Lane
	Jobs      int
}

// Claimant is a live session that was not told to drain or to stop, with how many jobs of each lane
// it holds.
type Claimant struct {
	ID      job.ID
	Process Process
	Held    map[job.Lane]int
}

// Demands makes the answer of [Reader.Demand] from what there is.
func Demands(c Claim, ready []ReadyIn, claimants []Claimant) map[job.Lane]Demand {
	all := map[job.Lane]Demand{}
	for lane, n := range c.Slots {
		if n > 0 {
			all[lane] = demand(lane, c, ready, claimants)
		}
	}
	return all
}

func demand(lane job.Lane, c Claim, ready []ReadyIn, claimants []Claimant) (d Demand) {
	for _, r := range ready {
		if r.Lane == lane {
			d.Ready += r.Jobs
		}
	}
	for _, s := range claimants {
		p := &s.Process
		serves := slices.ContainsFunc(ready,
			func(r ReadyIn) bool { return r.Lane == lane && r.Jobs > 0 && p.Serves(r.QueueKind, r.Machine) })
		tenants := len(c.Tenants) == 0 || slices.ContainsFunc(c.Tenants, p.ServesTenant)
		if serves && tenants && p.Slots[lane] > 0 {
			d.Sessions = append(d.Sessions, Serving{ID: s.ID, Slots: p.Slots[lane], Held: s.Held[lane]})
		}
	}
	return d
}
