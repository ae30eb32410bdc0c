package job

import (
	"encoding/json"
	"time"
)

// A Fence names who decided a change outside the database. The store checks it in the statement
// that writes the change: a fence that is no longer the newest is refused.
//
// A fence has either a Session, or a Duty and its Term. The zero Fence stands for a change that
// follows from rows and the database's clock alone, and is decided with the row locked.
type Fence struct {
	Session ID     // the session that holds the job
	Duty    string // the name of a duty
	Term    int64  // of the duty: raised by each change of its holder
}

// Actor returns the fence as history keeps it: the id of the session, or the name of the duty.
func (f Fence) Actor() string {
	switch {
	case !f.Session.IsZero():
		return f.Session.String()
	case f.Duty != "":
		return f.Duty
	}
	return ""
}

// Decides reports whether the holder of f may decide on j. A session decides on the jobs that it
// holds, a duty on programs that run and on blocked jobs. On all other jobs nobody outside the
// database decides.
func (f Fence) Decides(j *Job) bool {
	switch j.Custody {
	case Worker:
		return !f.Session.IsZero() && f.Session == j.Session
	case Monitor, Recovery:
		return f.Duty != ""
	}
	return false
}

// A Guard says where a change starts. A store applies the change only if the row is still there.
type Guard struct {
	Place Place
	Epoch int64
	N     int64
	Fence Fence

	// Limited is no condition. It tells the store that the job was under limits when it was there.
	Limited bool
}

// An Entry is one step of a path: one history row.
type Entry struct {
	State   State           `json:"state"`
	Code    Code            `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"` // evidence, for people and programs
}

// A Patch is what a change records on the row besides its place. The zero Patch records nothing.
type Patch struct {
	Intent   bool // a launch is about to begin: Launch + 1, and Live
	Over     bool // the newest launch has ended, or is revoked for ever: not Live
	Retry    bool // Attempt + 1
	Recovery bool // Recoveries + 1
	Crash    bool // Suspect + 1: the session died while it held the job
	Clear    bool // Suspect = 0: its process outlived a step of it
	// Turns is the tie whose turns the job gets. They replace those that it has, but TieOrder is
	// added to them. TieLimited alone takes all turns away.
	Turns Ties

	// Session and Claim are set by a claim. They take the job into custody worker.
	Session ID
	Claim   ID
	// Delay is how long the job waits in a gate: its due time is the database's now + Delay.
	Delay time.Duration
	// Resume is the state in which work goes on after BLOCKED or PAUSED.
	Resume State
	// Block says what blocks the job. It is set if the change goes to custody recovery, and only
	// then.
	Block *Block

	Resolved json.RawMessage // written once: a later one is ignored
	Result   json.RawMessage // nil keeps the present one
}

// A Change is the only way in which a job moves. It takes the job from one place along a path of
// states to another place. The job passes the states before the last one in the custody that it
// comes from.
//
// The id of a change is (Job, From.Epoch, From.N). A change that is repeated gets the answer that
// it got the first time.
type Change struct {
	Job  ID
	From Guard
	// Path has an entry for each row of history. Its first state may be that of From: then only the
	// custody changes, or something is recorded. Without a path the change is a report.
	Path []Entry
	To   Custody
	Set  Patch
	Work json.RawMessage // the kind's progress; nil keeps the present one
	// Was is for a report: the work in whose place it puts its own. If other work is there, the
	// report is a conflict. Nil stands for any work; empty, and not nil, for none.
	Was []byte
}

// Join returns one change that stands for a and then b. b starts where a ends, and a stays in its
// custody.
func Join(a, b Change) Change {
	path := append(append(make([]Entry, 0, len(a.Path)+len(b.Path)), a.Path...), b.Path...)
	set := b.Set
	set.Intent = a.Set.Intent || b.Set.Intent
	set.Over = b.Set.Over || a.Set.Over && !b.Set.Intent // the newest launch counts
	set.Retry = a.Set.Retry || b.Set.Retry
	set.Recovery = a.Set.Recovery || b.Set.Recovery
	set.Crash = a.Set.Crash || b.Set.Crash
	set.Clear = a.Set.Clear || b.Set.Clear
	if a.Set.Resolved != nil {
		set.Resolved = a.Set.Resolved
	}
	if set.Result == nil {
		set.Result = a.Set.Result
	}
	work := b.Work
	if work == nil {
		work = a.Work
	}
	return Change{Job: a.Job, From: a.From, Path: path, To: b.To, Set: set, Work: work, Was: a.Was}
}

// Report returns the change by which the worker of a job keeps work, in place of what was kept
// before. It writes no history, and raises neither epoch nor number.
func Report(id ID, from Guard, work json.RawMessage) Change {
	return Change{Job: id, From: from, To: Worker, Work: work}
}

// Reports reports whether the change is one that [Report] makes.
func (c *Change) Reports() bool { return len(c.Path) == 0 }

// Replaces reports whether a report that passes its guard may take the place of work.
func (c *Change) Replaces(work json.RawMessage) bool {
	return c.Was == nil || string(c.Was) == string(work)
}

// checkReport is Check for a report.
func (c *Change) checkReport() error {
	s := &c.Set
	if c.From.Place.Custody != Worker || c.To != Worker || c.Work == nil ||
		s.Intent || s.Over || s.Retry || s.Recovery || s.Crash || s.Clear || s.Turns != 0 || s.Delay != 0 ||
		s.Resume != "" || s.Block != nil || s.Resolved != nil || s.Result != nil {
		return Errorf(Internal, "change of job %s: empty path, and more than a report of its worker", c.Job)
	}
	return nil
}

// Last returns the last entry of the path. A report has none.
func (c *Change) Last() *Entry { return &c.Path[len(c.Path)-1] }

// Target returns the place that the change asks for. A gate or a wish may lead elsewhere.
func (c *Change) Target() Place { return Place{c.Last().State, c.To} }

// Check reports the first rule that c breaks. Its error is of kind [Internal] and a defect of the
// code that made c.
func (c *Change) Check() error {
	if c.Reports() {
		return c.checkReport()
	}
	at := c.From.Place
	for i, e := range c.Path {
		if !Edge(at.State, e.State) {
			return Errorf(Internal, "change of job %s: no edge from %s to %s", c.Job, at.State, e.State)
		}
		at.State = e.State
		if i == len(c.Path)-1 {
			at.Custody = c.To
		}
		if !at.Legal() {
			return Errorf(Internal, "change of job %s: %s is no legal place", c.Job, at)
		}
		if e.Code != "" && !e.Code.Known() {
			return Errorf(Internal, "change of job %s: unknown code %s", c.Job, e.Code)
		}
	}
	if c.To == None && c.Last().Code == "" {
		return Errorf(Internal, "change of job %s: %s without a code", c.Job, at.State)
	}
	if (c.To == Recovery) != (c.Set.Block != nil) {
		return Errorf(Internal, "change of job %s: to %s, and what blocks it is said: %t", c.Job, at,
			c.Set.Block != nil)
	}
	if c.Set.Block != nil {
		if err := c.Set.Block.Check(); err != nil {
			return Errorf(Internal, "change of job %s: %w", c.Job, err)
		}
	}
	r := c.Set.Resume
	// the gate sends it to WAITING if it lacks a turn
	resumes := Resumable(r) && Edge(at.State, r) && (at.State == Paused || r != Waiting)
	if (at.State == Blocked || at.State == Paused) && !resumes {
		return Errorf(Internal, "change of job %s: work cannot go on in %q after %s", c.Job, r, at.State)
	}
	return nil
}

// A Cause says what made a change, or wrote an event.
type Cause string

// The causes.
const (
	CauseSubmit   Cause = "submit"
	CauseClaim    Cause = "claim"
	CauseWork     Cause = "work"     // a worker, a watcher or a tester
	CauseDiverted Cause = "diverted" // the same, and a wish changed where it went
	CauseDue      Cause = "due"      // its time came
	CauseExpired  Cause = "expired"  // the session that held it died
	CauseWish     Cause = "wish"     // a person wished it
	CausePaid     Cause = "paid"     // a follow-up of another job
	CauseTurn     Cause = "turn"     // it got its turn
	CauseClear    Cause = "clear"    // what blocked it is over, or lasted too long
	CauseUser     Cause = "user"     // no change: a user wrote an event
	CauseJob      Cause = "job"      // no change: the running job wrote an event
)

// An Event is one row of history. A change has a number N, from 1 without gaps, and Sub 0. An event
// that a user or the job itself wrote after that change has the same N, and a Sub from 1 without
// gaps.
type Event struct {
	Job     ID              `json:"job"`
	N       int64           `json:"n"`
	Sub     int64           `json:"sub,omitempty"`
	Name    string          `json:"name,omitempty"` // what a user or the job called it; see [CustomEvent]
	Epoch   int64           `json:"epoch"`          // of the row before the change
	State   State           `json:"state"`
	Custody Custody         `json:"custody"`
	At      time.Time       `json:"at"`
	Cause   Cause           `json:"cause"`
	Actor   string          `json:"actor,omitempty"` // a session, a duty or a principal
	Code    Code            `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}
