// Package job is the domain: what a job is, where it may stand, how it may move, and what follows
// from it.
//
// It is pure: no I/O, no clock and nothing but the standard library. The tables of edges and
// places, the gate's decision ([Next]), the turning of a change by a wish ([Divert], [Obey]) and what
// a change owes to other jobs ([Owes]) stand here once, for every store and every loop.
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

	Place           // state and custody
	Epoch    int64  `json:"epoch"`            // raised by each change of custody: the fence
	N        int64  `json:"n"`                // number of the newest event
	Session  ID     `json:"session,omitzero"` // who holds it in custody worker
	Claim    ID     `json:"claim,omitzero"`   // the call that claimed it
	Resume   State  `json:"resume,omitempty"`
	Group    string `json:"group,omitempty"` // of a blocked job: all that wait for the same, see [Block.Group]
	Wish     Wish   `json:"wish,omitempty"`
	WishedBy string `json:"wished_by,omitempty"` // who made the newest wish

	Queue    string `json:"queue"`
	Machine  string `json:"machine,omitempty"` // only processes of this machine may claim it; empty: any
	Lane     Lane   `json:"lane"`
	Priority int    `json:"priority"` // 0 (first) to 9

	Attempt     int `json:"attempt"` // from 1
	MaxAttempts int `json:"max_attempts"`
	Recoveries  int `json:"recoveries"` // runs after a crash or a block, of all attempts
	// crashes of sessions that held it, since one outlived a step of it; see [AloneAt]
	Suspect int  `json:"suspect"`
	Launch  int  `json:"launch"` // number of the newest launch intent, of all attempts; 0: none
	Live    bool `json:"live"`   // an intent stands and the end of that launch is not known

	Created time.Time `json:"created"`
	// when it entered its custody; of one in custody gate that waits in a line: since when it has
	// waited for its turns
	Since time.Time `json:"since"`
	Due   time.Time `json:"due,omitzero"`
	// of a blocked job: then it fails, unless what blocks it has cleared; zero: never. See
	// [Job.Deadline]
	Until time.Time `json:"until,omitzero"`
	Ended time.Time `json:"ended,omitzero"`

	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`

	Parent ID       `json:"parent,omitzero"`
	Needs  int      `json:"needs,omitempty"` // prerequisites that have not ended
	Ties   Ties     `json:"-"`
	Limits []string `json:"limits,omitempty"` // keys under a limit, in their order
	Order  string   `json:"order,omitempty"`  // the key in whose order it stands
	Rank   string   `json:"-"`                // where; see [Spec.Rank]
	Line   string   `json:"line,omitempty"`   // the key in whose line it waits for its turn
	// how often it stood at the head of a line and met another key that was full
	Passed     int               `json:"-"`
	ExternalID string            `json:"external_id,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Notes      json.RawMessage   `json:"notes,omitempty"`
	Hidden     bool              `json:"hidden,omitempty"` // left out of lists
	Trace      string            `json:"trace,omitempty"`  // the trace in which it was submitted, as a W3C traceparent

	Request  json.RawMessage `json:"request,omitempty"`  // the spec as it was given
	Resolved json.RawMessage `json:"resolved,omitempty"` // written once, by the first PROCESSING_INPUTS
	Work     json.RawMessage `json:"work,omitempty"`     // the kind's own notes
	Result   json.RawMessage `json:"result,omitempty"`
}

// Program reports whether the job runs a program, and is not a task.
func (j *Job) Program() bool { return j.Kind == KindApp }

// Stem returns the name; of a name that a job got because it was given none, what comes before the
// end of the id.
func (j *Job) Stem() string {
	if end := j.ID.Short(); strings.HasSuffix(j.Name, "-"+end) {
		return strings.TrimSuffix(j.Name, end)
	}
	return j.Name
}

// Deadline returns when j, which is blocked, fails unless what blocks it has cleared; zero: never.
// It has none as long as something of it may run: nobody could say of it that it has failed.
func (j *Job) Deadline() time.Time {
	if j.Live {
		return time.Time{}
	}
	return j.Until
}

// Guard returns the guard of a change that goes out from j as it is.
func (j *Job) Guard(f Fence) Guard {
	return Guard{Place: j.Place, Epoch: j.Epoch, N: j.N, Fence: f, Limited: j.Ties&TieLimited != 0}
}

// Progress is how far a long step has come. It is told while it lasts and kept nowhere.
type Progress struct {
	What  string `json:"what"`            // "staging inputs" or "archiving"
	Done  int64  `json:"done"`            // bytes
	Total int64  `json:"total,omitempty"` // bytes; 0: not known
}

// A QueueKind is where ready jobs wait: one queue and kind.
type QueueKind struct {
	Queue, Kind string
}

// Ties are what ties a job to other rows: a job without any pays nothing for them.
type Ties int

// The ties.
const (
	TieDependants  Ties = 1 << iota // jobs wait for its end
	TieUniqueStart                  // it holds keys until it starts
	TieUniqueDone                   // it holds keys until it ends
)

// A Wish is what a person wants of a job.
type Wish string

// The wishes. Resume is granted or refused at once and never stands on a row.
const (
	WishCancel Wish = "cancel"
	WishPause  Wish = "pause"
	WishResume Wish = "resume"
)
