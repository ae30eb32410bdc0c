// Package host is the contract for a machine on which programs run: start one, find it again,
// signal it, reach its files and watch a folder.
//
// A program outlives the process that started it. It is found again by its [Process]: the pid alone
// says nothing once it has been given to another, so pid, start time and boot id must all match,
// everywhere.
//
// The package imports package job, package files and the standard library. Backends stand in
// packages of their own (host/local, host/ssh) and pass the suite in host/hosttest.
package host

import (
	"context"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
)

// Host is one account on one machine.
//
// Runners and watchers call it, from many goroutines at once; every method is safe for that.
//
// Errors: a request that cannot be right is of kind [job.Invalid]; a machine that cannot be reached
// is of kind [job.Unavailable], and says nothing about what runs there. A context that ends gives
// its error; the call may then have happened.
type Host interface {
	// ID names the machine: the same for each process that reaches the same machine, and unlike
	// that of any other.
	ID() string

	// Files is the machine's file system.
	Files() files.FS

	// Boot returns the id of the machine's present boot. It changes when the machine starts anew,
	// and then none of the processes of an earlier boot is alive.
	Boot(ctx context.Context) (string, error)

	// Uptime returns the time since the machine's boot by its boot clock (CLOCK_BOOTTIME), which
	// goes on while the machine sleeps. It is the clock of [Process.Start].
	Uptime(ctx context.Context) (time.Duration, error)

	// Environ returns the environment that programs get beside that of their command, as
	// NAME=value. It is the caller's own copy.
	Environ(ctx context.Context) ([]string, error)

	// Start starts a program that is on its own from then on: leader of its own session and process
	// group, its standard input empty, its outputs written straight to files. Neither the death of
	// the caller nor the loss of the connection ends it, and no descriptor or goroutine is kept for
	// it. It ignores no signal only because the caller does.
	//
	// It is not idempotent. After an error other than Invalid the program may run: the program
	// itself must be able to find out whether it may (see package runner).
	Start(ctx context.Context, c Command) (Process, error)

	// Alive reports which processes are alive, in the order asked, whatever has become of their
	// sessions. An error says nothing about any of them.
	Alive(ctx context.Context, ps []Process) ([]bool, error)

	// Members finds what is alive of families, in the order asked: one look at the machine, however
	// many are asked. A look that finds nobody proves that nobody was alive when it ended: what is
	// started while it goes on is found as well. The members of a family stand in the order in
	// which they were started: a signal for all of them then reaches a script before what it runs,
	// and the script does not go on to its next line. An error says nothing about any of them.
	Members(ctx context.Context, fs []Family) ([][]Member, error)

	// Signal sends a signal to each of the processes. One that is gone is no error, so it can be
	// repeated. Where a process may not be signaled, the others are, and the error is
	// [syscall.EPERM].
	Signal(ctx context.Context, ps []Process, sig syscall.Signal) error

	// LockLimit returns the limit of file locks (RLIMIT_LOCKS) that programs start with, the
	// largest number for none. See [Family].
	LockLimit(ctx context.Context) (uint64, error)

	// Watch tells the names that appear in a folder, by creation or by rename; names that begin
	// with a dot are left out. The watch stands when Watch returns: a name that appears afterwards
	// is told, so who lists the folder then misses nothing. A name may be told twice, or be gone
	// again when it is told.
	//
	// The channel is closed when ctx ends, and also when the watch is lost (the folder was removed,
	// the connection broke): then watch anew, and list. A slow reader holds up nobody.
	Watch(ctx context.Context, dir string) (<-chan Event, error)
}

// Accountant is the ability of a host to tell what a program had used.
type Accountant interface {
	// Usage tells what a process that Start started had used when it ended. It is known from when
	// Alive first says that it is not; asked again, the answer is the same. It is false for what is
	// alive, for what the caller's own process did not start, and for what ended long ago: backends
	// say how many they remember. The machine is not asked.
	Usage(p Process) (Usage, bool)
}

// A Command says what to start. All paths are absolute slash paths of the machine.
type Command struct {
	Argv   []string // Argv[0] is a path; it is not looked up
	Dir    string   // the working folder
	Env    []string // NAME=value, added to the host's own environment for programs; the last of a name counts
	Stdout string   // a file, made with mode 0644 less the umask if it is not there, and appended to
	Stderr string   // the same; may be the same file
}

// A Process is a stored reference to a session leader that Start started, or that wrote these
// numbers itself.
type Process struct {
	PID   int    `json:"pid"`   // also its process group and its session; 0 is a process that nobody knows, and Gone
	Start uint64 `json:"start"` // when it started, in clock ticks of the machine since boot: field 22 of /proc/PID/stat
	Boot  string `json:"boot"`  // the boot it belongs to
}

// ticks is how many clock ticks there are in a second of [Process.Start]: Linux's USER_HZ, which
// sysconf(_SC_CLK_TCK) tells. It is 100 on every machine that Go compiles for
// (include/asm-generic/param.h; alpha alone has another), whatever the kernel's own HZ is.
const ticks = 100

// Started returns when the process started, as the time since boot, rounded down to 10 ms.
func (p Process) Started() time.Duration { return time.Duration(p.Start) * (time.Second / ticks) }

// Usage is what a process had used when it ended, with all of its descendants that were waited for.
// What was killed together with the one that waited for it is not in it.
type Usage struct {
	User    time.Duration `json:"user"`    // processor time of the programs themselves
	System  time.Duration `json:"system"`  // processor time of the kernel on their behalf
	MaxRSS  int64         `json:"max_rss"` // the most memory that any one of them had at a time, in bytes; 0 if unknown
	Read    int64         `json:"read"`    // bytes that came from disks, not from memory; 0 if unknown
	Written int64         `json:"written"` // bytes that were to go to disks; 0 if unknown
}

// A Family says by what the processes of a launch are known. Children inherit all three marks, and
// each can be shed: setsid(2) leaves the session, env -i drops the variable, and root may raise the
// limit. A process belongs to the family if it bears one of them.
type Family struct {
	// Leader is the leader of the session in which they were started. It is no member. Of a leader
	// of an earlier boot nothing is alive. Who was seen in the session may not be looked at for
	// other marks, so each family has a leader.
	Leader Process
	// Locks is a number that its programs have as their limit of file locks. Linux has not used
	// that limit since 2.4.25; it still passes it on to each child, and only root raises it. 0:
	// there is no such number.
	Locks uint64
	// Launch is the value of the variable [LaunchVariable] in the environment with which a program
	// was started; "": none.
	Launch string
}

// The variables that say to which launch a process belongs, and that it is to outlive it.
const (
	LaunchVariable = "PAWL_LAUNCH"
	KeepVariable   = "PAWL_KEEP" // "1": whoever ends what is left of a launch leaves the process alone
)

// A Member is a living process of a family. A zombie is dead.
type Member struct {
	Process
	Parent   int    // the pid of its parent
	Name     string // of its program, as far as the machine tells: Linux cuts it to 15 bytes
	User     string // whose it is: a name, or a number where there is none
	State    byte   // as in /proc/PID/stat: 'T' is stopped, 'D' does not even listen to SIGKILL
	Numbered bool   // it has the family's limit of file locks
	Kept     bool   // its environment says so: see [KeepVariable]
}

// An Event is news of a watched folder.
type Event struct {
	Name     string // of what appeared, without its folder; empty when Overflow is set
	Overflow bool   // names were dropped: list the folder
}
