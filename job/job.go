// Package job is the domain: what a job is, where it may stand, how it moves, and what follows from
// a move.
//
// A user submits a [Spec]. It becomes a [Job], which is one row of the database. The [Place] of a
// job has two parts: its [State] says how far it has come, its [Custody] says who is responsible
// for it now. Each [Change] takes the job from one place to another, and is an [Event] of its
// history. A [Block] is trouble that may clear, a [Wish] is what a person wants of the job, and a
// [Limit] says how many jobs run at once.
//
// The package is pure: no I/O, no clock and nothing but the standard library. The tables of states
// and places, the gate ([Next]), the effect of wishes ([Divert], [Obey]) and the debts of a change
// ([Owes]) are here once, for every store and every loop.
package job

import (
	"encoding/json"
	"strings"
	"time"
)

// KindApp is the built-in kind: a program on an execution system. Every other kind is a task.
const KindApp = "app"

// A Job is one row: the truth about one job.
type Job struct {
	ID     ID     `json:"id"`
	Tenant string `json:"tenant"`
	Owner  string `json:"owner"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	App    string `json:"app,omitempty"` // the registered app that it runs

	Place           // its state and custody
	Epoch    int64  `json:"epoch"`               // raised by each change of custody: a fencing token
	N        int64  `json:"n"`                   // the number of its newest event
	Session  ID     `json:"session,omitzero"`    // in custody worker: the process that holds it
	Claim    ID     `json:"claim,omitzero"`      // in custody worker: the call that claimed it
	Resume   State  `json:"resume,omitempty"`    // of a blocked or paused job: where work goes on
	Group    string `json:"group,omitempty"`     // of a blocked job: the key of its group, see [Block.Group]
	Wish     Wish   `json:"wish,omitempty"`      // what a person wants and has not got yet
	WishedBy string `json:"wished_by,omitempty"` // who made the newest wish

	Queue    string `json:"queue"`
	Machine  string `json:"machine,omitempty"` // the only machine that may claim it; empty: any
	Watch    string `json:"watch,omitempty"`   // of a program: the watch that looks after it while it runs
	Lane     Lane   `json:"lane"`
	Priority int    `json:"priority"` // 0 (first) to 9

	Attempt     int `json:"attempt"`      // from 1
	MaxAttempts int `json:"max_attempts"` // attempts in all
	Recoveries  int `json:"recoveries"`   // how often a crash or a block interrupted it, in all attempts
	// Suspect counts crashes in a row: of sessions that held the job when they died.
	Suspect int  `json:"suspect"`
	Launch  int  `json:"launch"` // the number of its newest launch, in all attempts; 0: none
	Live    bool `json:"live"`   // that launch was intended, and its end is not known

	Created time.Time `json:"created"`
	// Since is when the job entered its custody. For a job that waits in a line it is when it began
	// to wait for its turns.
	Since time.Time `json:"since"`
	Due   time.Time `json:"due,omitzero"` // when its gate opens
	// Until is when a blocked job fails if the block has not cleared. The zero time stands for
	// never. While something of the job may run, it does not fail.
	Until time.Time `json:"until,omitzero"`
	Ended time.Time `json:"ended,omitzero"`

	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`

	Parent ID       `json:"parent,omitzero"` // the job that it is a part of
	Needs  int      `json:"needs,omitempty"` // how many prerequisites have not ended
	Ties   Ties     `json:"-"`
	Limits []string `json:"limits,omitempty"` // the keys that it takes turns of, sorted
	Order  string   `json:"order,omitempty"`  // the key of the order in which it stands
	Rank   string   `json:"-"`                // where it stands in the order; see [Spec.Rank]
	Line   string   `json:"line,omitempty"`   // the key for whose turn it waits
	// Passed counts how often the job was at the head of a line and had to move to that of another
	// key.
	Passed     int               `json:"-"`
	ExternalID string            `json:"external_id,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Notes      json.RawMessage   `json:"notes,omitempty"`
	Hidden     bool              `json:"hidden,omitempty"` // lists leave it out
	Trace      string            `json:"trace,omitempty"`  // the trace of its submission, as a W3C traceparent

	Request  json.RawMessage `json:"request,omitempty"`  // the spec as it was given
	Resolved json.RawMessage `json:"resolved,omitempty"` // the spec as it runs; written once
	Work     json.RawMessage `json:"work,omitempty"`     // what the kind keeps to go on after a crash
	Result   json.RawMessage `json:"result,omitempty"`   // what a task returned, or how a program ended
}

// Program reports whether the job runs a program. Otherwise it is a task.
func (j *Job) Program() bool { return j.Kind == KindApp }

// Stem returns the name of j. If the name was made by [Spec.Defaults], it returns the part before
// the id, such as "wc-".
func (j *Job) Stem() string {
	if end := j.ID.Short(); strings.HasSuffix(j.Name, "-"+end) {
		return strings.TrimSuffix(j.Name, end)
	}
	return j.Name
}

// Deadline returns when j, which is blocked, fails if the block has not cleared. The zero time
// stands for never. A job has no deadline while something of it may run: nobody could say that it
// has failed.
func (j *Job) Deadline() time.Time {
	if j.Live {
		return time.Time{}
	}
	return j.Until
}

// Guard returns the guard of a change that starts from j as it is.
func (j *Job) Guard(f Fence) Guard {
	return Guard{Place: j.Place, Epoch: j.Epoch, N: j.N, Fence: f, Limited: j.Ties&TieLimited != 0}
}

// MaxWhat is how many bytes [Progress.What] has at most.
const MaxWhat = 255

// Progress says how far a long step has come. It is told while the step lasts. Only the newest is
// kept.
type Progress struct {
	What  string `json:"what"`            // "staging inputs" or "archiving"; of what runs what it says
	Done  int64  `json:"done"`            // bytes; of what runs what it counts
	Total int64  `json:"total,omitempty"` // of the same; 0: not known
}

// WatchDuty returns the name of the duty to look after the programs of a watch. One process has it.
func WatchDuty(watch string) string { return "watch/" + watch }

// A QueueKind is where ready jobs wait: one queue and kind.
type QueueKind struct {
	Queue, Kind string
}

// Ties are flags that say what ties a job to other rows: jobs that wait for it, keys that it holds,
// turns that it has. A job without ties pays nothing for them.
type Ties int

// The ties of every job. Those of a job under limits are in turn.go.
const (
	TieDependants  Ties = 1 << iota // jobs wait for its end
	TieUniqueStart                  // it holds keys until it starts
	TieUniqueDone                   // it holds keys until it ends
)

// A Wish is what a person wants of a job.
type Wish string

// The wishes. A resume is granted or refused at once. It never stands on a row.
const (
	WishCancel Wish = "cancel"
	WishPause  Wish = "pause"
	WishResume Wish = "resume"
)

// Suspended reports whether a program is known to stand still: its watcher's message m says so.
func Suspended(c Custody, m string) bool { return c == Monitor && strings.HasPrefix(m, "suspended") }
