// Package host is the contract for a machine on which programs run: start one, find it again, signal it, reach its
// files and watch a folder.
//
// A program outlives the process that started it. It is found again by its [Process]: the pid alone says nothing
// once it has been given to another, so pid, start time and boot id must all match, everywhere.
//
// The package imports package job, package files and the standard library. Backends stand in packages of their own
// (host/local, host/ssh) and pass the suite in host/hosttest.
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
// Errors: a request that cannot be right is of kind [job.Invalid]; a machine that cannot be reached is of kind
// [job.Unavailable], and says nothing about what runs there. A context that ends gives its error; the call may then
// have happened.
type Host interface {
	// ID names the machine: the same for each process that reaches the same machine, and unlike that of any other.
	ID() string

	// Files is the machine's file system.
	Files() files.FS

	// Boot returns the id of the machine's present boot. It changes when the machine starts anew, and then none of
	// the processes of an earlier boot is alive.
	Boot(ctx context.Context) (string, error)

	// Uptime returns the time since the machine's boot by its boot clock (CLOCK_BOOTTIME), which goes on while the
	// machine sleeps. It is the clock of [Process.Start].
	Uptime(ctx context.Context) (time.Duration, error)

	// Environ returns the environment that programs get beside that of their command, as NAME=value. It is the
	// caller's own copy.
	Environ(ctx context.Context) ([]string, error)

	// Start starts a program that is on its own from then on: leader of its own session and process group, its
	// standard input empty, its outputs written straight to files. Neither the death of the caller nor the loss of
	// the connection ends it, and no descriptor or goroutine is kept for it.
	//
	// It is not idempotent. After an error other than Invalid the program may run: the program itself must be able
	// to find out whether it may (see package runner).
	Start(ctx context.Context, c Command) (Process, error)

	// Inspect tells what has become of processes, in the order asked. It is one look at the machine however many
	// are asked. An error says nothing about any of them.
	Inspect(ctx context.Context, ps []Process) ([]Life, error)

	// Signal sends a signal to what is left of a process: to each member of its session, whichever process group it
	// went to, whether the leader is alive or gone. Nothing left is no error, so it can be repeated. What is
	// started while the signal is being sent may miss it: who wants an end repeats until Inspect says Gone. A
	// process that made itself a session of its own (setsid) is out of reach.
	Signal(ctx context.Context, p Process, sig syscall.Signal) error

	// Watch tells the names that appear in a folder, by creation or by rename; names that begin with a dot are left
	// out. The watch stands when Watch returns: a name that appears afterwards is told, so who lists the folder then
	// misses nothing. A name may be told twice, or be gone again when it is told.
	//
	// The channel is closed when ctx ends, and also when the watch is lost (the folder was removed, the connection
	// broke): then watch anew, and list. A slow reader holds up nobody.
	Watch(ctx context.Context, dir string) (<-chan Event, error)
}

// Accountant is the ability of a host to tell what a program had used.
type Accountant interface {
	// Usage tells what a process that Start started had used when it ended. It is known from when Inspect first says
	// that the leader is dead; asked again, the answer is the same. It is false for what is alive, for what the caller's
	// own process did not start, and for what ended long ago: backends say how many they remember. The machine is not
	// asked.
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

// A Process is a stored reference to a session leader that Start started, or that wrote these numbers itself.
type Process struct {
	PID   int    `json:"pid"`   // also its process group and its session; 0 is a process that nobody knows, and Gone
	Start uint64 `json:"start"` // when it started, in clock ticks of the machine since boot: field 22 of /proc/PID/stat
	Boot  string `json:"boot"`  // the boot it belongs to
}

// ticks is how many clock ticks there are in a second of [Process.Start]: Linux's USER_HZ, which sysconf(_SC_CLK_TCK)
// tells. It is 100 on every machine that Go compiles for (include/asm-generic/param.h; alpha alone has another), whatever
// the kernel's own HZ is.
const ticks = 100

// Started returns when the process started, as the time since boot, rounded down to 10 ms.
func (p Process) Started() time.Duration { return time.Duration(p.Start) * (time.Second / ticks) }

// Usage is what a process had used when it ended, with all of its descendants that were waited for. What was killed
// together with the one that waited for it is not in it.
type Usage struct {
	User    time.Duration `json:"user"`    // processor time of the programs themselves
	System  time.Duration `json:"system"`  // processor time of the kernel on their behalf
	MaxRSS  int64         `json:"max_rss"` // the most memory that any one of them had at a time, in bytes; 0 if unknown
	Read    int64         `json:"read"`    // bytes that came from disks, not from memory; 0 if unknown
	Written int64         `json:"written"` // bytes that were to go to disks; 0 if unknown
}

// Life says what has become of a process and its session.
type Life string

// The lives. A zombie counts as dead.
const (
	Alive    Life = "alive"    // the leader is alive; it may be stopped
	Orphaned Life = "orphaned" // the leader is dead, others of its session are alive
	Gone     Life = "gone"     // nothing of the session is alive
)

// An Event is news of a watched folder.
type Event struct {
	Name     string // of what appeared, without its folder; empty when Overflow is set
	Overflow bool   // names were dropped: list the folder
}
