package store

import (
	"slices"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Session is a process with a lease.
type Session struct {
	ID      job.ID
	Process Process       // the process
	Lease   time.Duration // at least MinLease
	// Mode is the mode with which the session begins. A process that lost its lease and begins
	// again keeps its mode.
	Mode Mode
}

// MinLease is the shortest lease of a session.
const MinLease = 10 * time.Millisecond

// A Process is what a session tells about its process.
type Process struct {
	// Worker is the name of a worker that is no process of Pawl and claims by calls. Empty: it is a
	// process of Pawl.
	Worker  string `json:"worker,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"` // the version of its build
	Roles   []Role `json:"roles,omitempty"`
	// Queues, Kinds, Tenants and Machine say whose jobs it claims: jobs of these queues and kinds,
	// of these tenants, and of this machine or of none. Without Tenants it claims jobs of all
	// tenants, without Kinds it claims none.
	Queues  []string `json:"queues,omitempty"`
	Kinds   []string `json:"kinds,omitempty"`
	Tenants []string `json:"tenants,omitempty"`
	Machine string   `json:"machine,omitempty"`
	// Reads says, by kind, which arguments of tasks it can read. Of a kind that is not there it has
	// said nothing.
	Reads map[string]Reads `json:"reads,omitempty"`
	// Slots is how many jobs of each lane it runs at the same time.
	Slots map[job.Lane]int `json:"slots,omitempty"`
	// Address is the URL at which other processes reach its API; empty: they cannot.
	Address string `json:"address,omitempty"`
	// Silent holds the watches of this process whose machine does not answer, by the name of the
	// duty ([job.WatchDuty]).
	Silent map[string]Silence `json:"silent,omitempty"`
}

// Reads says which arguments of a kind a process can read: those of versions up to Version, but for
// those that its build has failed to read.
type Reads struct {
	Version int    `json:"version"`
	Build   string `json:"build"` // the same in processes that read alike
}

// A Silence says since when a machine does not answer.
type Silence struct {
	Since   time.Time `json:"since"`
	Message string    `json:"message,omitempty"` // what was tried last, and what came of it
}

// String names the process for people, as host:pid, or a worker by its name.
func (p *Process) String() string {
	if p.Worker != "" {
		return p.Worker
	}
	return p.Host + ":" + strconv.Itoa(p.PID)
}

// Serves reports whether the process claims jobs of a queue and kind that belong to machine, or to
// no machine if that is empty. It does not look at tenants.
func (p *Process) Serves(at job.QueueKind, machine string) bool {
	return (machine == "" || machine == p.Machine) && slices.Contains(p.Queues, at.Queue) &&
		slices.Contains(p.Kinds, at.Kind)
}

// ServesTenant reports whether the process claims jobs of a tenant.
func (p *Process) ServesTenant(tenant string) bool {
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenant)
}

// A Role is a part that a process plays.
type Role string

// The roles.
const (
	RoleAPI    Role = "api"    // it serves the API at its Address
	RoleWorker Role = "worker" // it claims jobs and runs them
	// RoleRecovery: it looks after due times, blocked jobs, dead sessions, forgotten follow-ups,
	// and jobs that need not be kept.
	RoleRecovery Role = "recovery"
	// RoleWatcher: it watches the programs of its machine, and removes jobs of the machine that
	// need not be kept.
	RoleWatcher Role = "watcher"
)

// Roles lists every role.
var Roles = []Role{RoleAPI, RoleWorker, RoleRecovery, RoleWatcher}

// A Mode is how a session works. An operator sets it. It holds until another one is set.
type Mode string

// The modes.
const (
	Work  Mode = ""      // go on as usual
	Drain Mode = "drain" // claim nothing more, and let running jobs end
	Stop  Mode = "stop"  // drain, and then end; it cannot be taken back
)

// Modes lists every mode.
var Modes = []Mode{Work, Drain, Stop}

// SessionInfo is the state of a session.
type SessionInfo struct {
	ID      job.ID
	Process Process
	Mode    Mode
	Used    map[job.Lane]int // slots in use, as the session last reported
	// Live says that the session has not ended, and that its lease has not run out by the
	// database's clock. A session that is neither live nor ended has died, and its jobs have not
	// been taken yet.
	Live    bool
	Started time.Time
	Renewed time.Time // when it was last renewed
	Until   time.Time // the end of its lease
	Ended   time.Time // zero: it has not ended
	Crashed bool      // it ended because its lease ran out
	Held    int       // how many jobs it holds
	Oldest  HeldJob   // the job that it has held for longest; zero: it holds none
}

// HeldJob is a job in the custody of a session.
type HeldJob struct {
	Job    job.ID
	Tenant string
	Since  time.Time
}

// Unattended is work that waits for a process that is missing, or for the end of a transaction.
type Unattended struct {
	Unserved  []Unserved
	Unwatched []Unwatched
	Open      []OpenTransaction // the oldest first, MostUnserved at most
}

// An OpenTransaction has written jobs or ends of jobs, and has been open for longer than LongOpen.
// Whoever submits an equal job waits for its end, and nobody reads events that are newer. Only a
// store in whose database others enqueue in transactions of their own has any.
type OpenTransaction struct {
	PID         int // of its server process
	Application string
	Since       time.Time // when it began
}

// LongOpen is how long a transaction is open before it is named.
const LongOpen = 30 * time.Second

// Unserved are ready jobs of a queue and kind, and of one machine or of none, that no live session
// may claim. A session may claim a job if it serves its queue, kind, machine and tenant, and was
// not told to drain or to stop.
type Unserved struct {
	QueueKind job.QueueKind
	Machine   string
	Jobs      int       // up to MostUnserved
	Since     time.Time // when the first of them became ready
}

// Unwatched are jobs in custody monitor of a watch whose duty no live session holds. Their programs
// run, or have ended.
type Unwatched struct {
	Watch string // see [job.WatchDuty]
	Jobs  int    // up to MostUnserved
}

// Demand is the ready work of a lane, and the sessions that can do it.
type Demand struct {
	// Ready counts ready jobs. It counts each queue and kind up to the slots of all sessions, and
	// at least 1.
	Ready int
	// Sessions may claim some of these jobs. It is empty for [job.LaneAlone], whose slot no process
	// reports.
	Sessions []Serving
}

// Serving is a live session that shares the work of a lane.
type Serving struct {
	ID    job.ID
	Slots int // its slots in the lane
	Held  int // how many jobs of the lane it holds
}

// MostUnserved is the most jobs of a queue and kind, or of a machine, that are read and counted.
const MostUnserved = 1000

// SessionKept is how long a session is remembered after its end. MachineKept is how long the newest
// session of a machine is remembered after its end, if the machine has no other.
const (
	SessionKept = time.Hour
	MachineKept = 7 * 24 * time.Hour
)
