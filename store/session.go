package store

import (
	"slices"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Session is one holder of a lease.
type Session struct {
	ID      job.ID
	Process Process       // that holds it
	Lease   time.Duration // at least MinLease
	// Mode is its mode from the beginning. A process that lost its lease and begins anew keeps its mode.
	Mode Mode
}

// MinLease is the shortest lease.
const MinLease = 10 * time.Millisecond

// A Process is what a session tells of its holder.
type Process struct {
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"` // of its build
	Roles   []Role `json:"roles,omitempty"`
	// Queues, Kinds, Tenants and Machine say whose jobs it claims: of these queues and kinds; of
	// these tenants, or of all where none is named; of no machine, and of this one. Without kinds
	// it claims nothing.
	Queues  []string `json:"queues,omitempty"`
	Kinds   []string `json:"kinds,omitempty"`
	Tenants []string `json:"tenants,omitempty"`
	Machine string   `json:"machine,omitempty"`
	// Slots is how many jobs of each lane it runs at once.
	Slots map[job.Lane]int `json:"slots,omitempty"`
	// Address is the URL at which other processes reach its API; empty: they do not.
	Address string `json:"address,omitempty"`
}

// String names the process for people: host:pid.
func (p *Process) String() string { return p.Host + ":" + strconv.Itoa(p.PID) }

// Serves reports whether the process claims jobs of a line and machine, of some tenant at least.
func (p *Process) Serves(line job.QueueKind, machine string) bool {
	return (machine == "" || machine == p.Machine) && slices.Contains(p.Queues, line.Queue) &&
		slices.Contains(p.Kinds, line.Kind)
}

// ServesTenant reports whether it claims jobs of a tenant.
func (p *Process) ServesTenant(tenant string) bool {
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenant)
}

// A Role is a part that a process plays.
type Role string

// The roles.
const (
	RoleAPI    Role = "api"    // it serves the API at an address
	RoleWorker Role = "worker" // it claims jobs and runs them
	// it looks after time, blocked jobs, dead sessions, what was forgotten, and what is kept no
	// longer
	RoleRecovery Role = "recovery"
	// it watches the programs of its machine, and removes its jobs that are kept no longer
	RoleWatcher Role = "watcher"
)

// Roles lists every role.
var Roles = []Role{RoleAPI, RoleWorker, RoleRecovery, RoleWatcher}

// A Mode is how a session works. An operator sets it; it holds until another is set.
type Mode string

// The modes.
const (
	Work  Mode = ""      // go on as usual
	Drain Mode = "drain" // claim nothing more, and let what runs end
	Stop  Mode = "stop"  // drain, and then end; it is not taken back
)

// Modes lists every mode.
var Modes = []Mode{Work, Drain, Stop}

// SessionInfo is a session as it stands.
type SessionInfo struct {
	ID      job.ID
	Process Process
	Mode    Mode
	Used    map[job.Lane]int // slots in use, as it told last
	// Live says that it has not ended, and that its lease has not run out by the database's clock.
	// One that is neither live nor ended has died, and nobody has taken its jobs yet.
	Live    bool
	Started time.Time
	Renewed time.Time // when it was heard of last
	Until   time.Time // the end of its lease
	Ended   time.Time // zero: it has not
	Crashed bool      // it ended because its lease had run out
	Held    int       // jobs in its custody
	Oldest  HeldJob   // of them: that which it has held for longest; zero: it holds none
}

// HeldJob is a job in custody of a session.
type HeldJob struct {
	Job    job.ID
	Tenant string
	Since  time.Time
}

// Unattended is work that waits for a process that is not there.
type Unattended struct {
	Unserved  []Unserved
	Unwatched []Unwatched
}

// Unserved are jobs that are ready in a line, of one machine or of none, for which no live session
// is there that may claim: one that serves queue, kind, machine and tenant, and was not told to
// drain or to stop.
type Unserved struct {
	QueueKind job.QueueKind
	Machine   string
	Jobs      int       // up to MostUnserved
	Since     time.Time // when the first of these became ready
}

// Unwatched are jobs in custody monitor of a machine where no live session plays the role of the
// watcher: their programs run on there, or have ended meanwhile.
type Unwatched struct {
	Machine string
	Jobs    int // up to MostUnserved
}

// Demand is the ready work of a lane, and who is there to do it.
type Demand struct {
	Ready    int       // ready jobs, of each line up to the slots of all sessions, and one at least
	Sessions []Serving // that claim some of them; none of the lane alone, whose slot no process tells of
}

// Serving is a live session as one of those that share the work of a lane.
type Serving struct {
	ID    job.ID
	Slots int // in the lane
	Held  int // jobs of the lane in its custody
}

// MostUnserved is how many jobs of a line, or of a machine, are counted, and how many of these are
// looked at.
const MostUnserved = 1000

// SessionKept is for how long a session is known after its end; MachineKept is for how long the
// newest one of a machine is that has no session any more.
const (
	SessionKept = time.Hour
	MachineKept = 7 * 24 * time.Hour
)
