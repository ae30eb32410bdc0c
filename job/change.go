package job

import (
	"encoding/json"
	"time"
)

// A Fence names who decided a change outside the database; the store checks it in the statement
// that writes. One of Session and Duty is set; the zero Fence stands for a change decided by rows
// and the database's clock alone, under the row's lock.
type Fence struct {
	Session ID
	Duty    string
	Term    int64
}

// Actor returns the fence as a history row keeps it.
func (f Fence) Actor() string {
	switch {
	case !f.Session.IsZero():
		return f.Session.String()
	case f.Duty != "":
		return f.Duty
	}
	return ""
}

// Decides reports whether the holder of f may decide on j: a session on the jobs it holds, a duty
// on those that run or are blocked. On all others nobody decides from outside the database.
func (f Fence) Decides(j *Job) bool {
	switch j.Custody {
	case Worker:
		return !f.Session.IsZero() && f.Session == j.Session
	case Monitor, Recovery:
		return f.Duty != ""
	}
	return false
}

// A Guard says where a change goes out from. A store applies the change only where the row still
// stands there.
type Guard struct {
	Place Place
	Epoch int64
	N     int64
	Fence Fence

	// Limited is no condition, but news for a store: the job was under limits when it stood there.
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
	Intent   bool // the next launch is about to be armed: Launch + 1, and Live
	Over     bool // the newest launch is known to have ended, or to be revoked for ever
	Retry    bool // Attempt + 1
	Recovery bool // Recoveries + 1
	Crash    bool // Suspect + 1: the session died while it held the job
	Clear    bool // Suspect = 0: its process has outlived a step of it
	// it gets the turns that this tie stands for, in place of those that it has; that of its order
	// beside them
	Turns Ties

	// Session and Claim take the job into custody worker.
	Session ID
	Claim   ID
	// Delay puts the job's due time at the database's now + Delay when it goes to a gate.
	Delay time.Duration
	// Resume is where work goes on after BLOCKED or PAUSED.
	Resume State
	// Block says why a job becomes BLOCKED. It is there where the change takes it to custody
	// recovery, and nowhere else.
	Block *Block

	Resolved json.RawMessage // written once: later ones are ignored
	Result   json.RawMessage
}

// A Change is the only way in which anything happens to a job. It goes from one place along a path
// of states to another; the states before the last are passed in the custody it comes from. Its id
// is (Job, From.Epoch, From.N): a repeated change is answered as it was the first time.
type Change struct {
	Job  ID
	From Guard
	Path []Entry // at least one; Path[0].State may be From.Place.State: a change of custody, or something recorded
	To   Custody
	Set  Patch
	Work json.RawMessage // the kind's own notes; nil leaves them as they are
}

// Join returns the one change that stands for a and then b, which goes out from where a ends. a
// stays in its custody.
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
	return Change{Job: a.Job, From: a.From, Path: path, To: b.To, Set: set, Work: work}
}

// Last returns the entry that the change ends with.
func (c *Change) Last() *Entry { return &c.Path[len(c.Path)-1] }

// Target returns the place that the change asks for.
func (c *Change) Target() Place { return Place{c.Last().State, c.To} }

// Check reports the first rule of the two tables that c breaks. Its error is of kind [Internal]:
// whoever made c has a defect.
func (c *Change) Check() error {
	if len(c.Path) == 0 {
		return Errorf(Internal, "change of job %s: empty path", c.Job)
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
	// there the gate sends it, where it lacks a turn
	resumes := Resumable(r) && Edge(at.State, r) && (at.State == Paused || r != Waiting)
	if (at.State == Blocked || at.State == Paused) && !resumes {
		return Errorf(Internal, "change of job %s: work cannot go on in %q after %s", c.Job, r, at.State)
	}
	return nil
}

// A Cause says what made a change.
type Cause string

// The causes.
const (
	CauseSubmit   Cause = "submit"
	CauseClaim    Cause = "claim"
	CauseWork     Cause = "work"     // a worker, a watcher or a tester
	CauseDiverted Cause = "diverted" // the same, diverted by a wish
	CauseDue      Cause = "due"      // its time came
	CauseExpired  Cause = "expired"  // its session died
	CauseWish     Cause = "wish"     // a person
	CausePaid     Cause = "paid"     // a follow-up of another job
	CauseTurn     Cause = "turn"     // its turn came
	CauseClear    Cause = "clear"    // what blocked it is over, or has lasted for too long
	CauseUser     Cause = "user"     // no change: an event that a user wrote
	CauseJob      Cause = "job"      // no change: an event that the running job itself wrote
)

// An Event is one row of history. What a change did has a number N, from 1 without gaps, and Sub 0.
// What users and the job itself wrote between two changes has the number of the first of these and
// a Sub, from 1 without gaps.
type Event struct {
	Job     ID              `json:"job"`
	N       int64           `json:"n"`
	Sub     int64           `json:"sub,omitempty"`
	Name    string          `json:"name,omitempty"` // of what a user or the job wrote; see [Note]
	Epoch   int64           `json:"epoch"`          // of the row before the change
	State   State           `json:"state"`
	Custody Custody         `json:"custody"`
	At      time.Time       `json:"at"`
	Cause   Cause           `json:"cause"`
	Actor   string          `json:"actor,omitempty"` // session, duty or principal
	Code    Code            `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}
