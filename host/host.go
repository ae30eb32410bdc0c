// Package host is the contract for a machine on which programs run: start a program, find it again,
// signal it, reach its files and watch a folder.
//
// A program outlives the process that started it. A [Process] finds it again. The pid alone proves
// nothing, because the kernel gives a pid to another process later. So pid, start time and boot id
// must all match, everywhere.
//
// The package imports package job, package files and the standard library. Backends stand in
// packages of their own, such as host/local, and pass the suite in host/hosttest.
package host

import (
	"context"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
)

// Host is one account on one machine.
//
// Runners and watchers call it from many goroutines at once. Every method is safe for that.
//
// Errors: a request that cannot be right is of kind [job.Invalid]. A machine that cannot be reached
// is of kind [job.Unavailable]; that says nothing about what runs there. When a context ends, its
// error is returned; the call may have happened.
type Host interface {
	// ID names the machine. All processes that reach the same machine see the same id, and no other
	// machine has it.
	ID() string

	// Files returns the machine's file system.
	Files() files.FS

	// Boot returns the id of the machine's present boot. It changes when the machine starts anew.
	// No process of an earlier boot is alive.
	Boot(ctx context.Context) (string, error)

	// Machine returns what the machine calls itself, in words of which the first one is for people.
	// With another boot it tells a machine that was started anew from another machine at the same
	// address. It is empty where that is not known.
	Machine(ctx context.Context) (string, error)

	// Uptime returns the time since the machine's boot. Its clock is CLOCK_BOOTTIME, which goes on
	// while the machine sleeps. [Process.Start] is told by the same clock.
	Uptime(ctx context.Context) (time.Duration, error)

	// Environ returns the environment that every program gets, as NAME=value. That of its command
	// is added to it. The caller may change the slice.
	Environ(ctx context.Context) ([]string, error)

	// Start starts a program that is on its own from then on. It leads its own session and process
	// group, its standard input is empty, and its outputs go straight to files. It lives on when
	// the caller dies or the connection is lost. The host keeps no descriptor and no goroutine for
	// it. A signal that the caller ignores is not ignored by the program.
	//
	// Start is not idempotent. After any error but Invalid the program may run, so the program
	// itself must find out whether it may (see package runner).
	Start(ctx context.Context, c Command) (Process, error)

	// Alive reports which processes are alive, in the order asked. It does not look at their
	// sessions. An error says nothing about any of them.
	Alive(ctx context.Context, ps []Process) ([]bool, error)

	// Members finds the living processes of families, in the order asked. It takes one look at the
	// machine, however many families are asked for. A look that finds nobody proves that nobody was
	// alive when it ended: processes that start while it goes on are found as well.
	//
	// The members of a family are ordered by when they started. So a signal for all of them reaches
	// a script before the programs that the script runs, and the script does not go on to its next
	// line. An error says nothing about any of the families.
	Members(ctx context.Context, fs []Family) ([][]Member, error)

	// Signal sends a signal to each of the processes. It can be repeated: a process that is gone is
	// no error. If the caller may not signal one of them, the others get the signal and the error
	// is [syscall.EPERM].
	Signal(ctx context.Context, ps []Process, sig syscall.Signal) error

	// LockLimit returns the limit of file locks (RLIMIT_LOCKS) with which programs start. It is the
	// largest number if there is no limit. [Family] says what it is for.
	LockLimit(ctx context.Context) (uint64, error)

	// Watch tells the names that appear in a folder, by creation or by rename. It leaves out names
	// that begin with a dot. When Watch returns, the watch is in place: a caller that then lists
	// the folder misses nothing. A name may be told twice, or be gone by the time it is told. A
	// host that looks from time to time does not tell a name that came and went between two looks.
	// If the folder has a [Bell], such a host looks when that rings, and once a second.
	//
	// The channel is closed when ctx ends. It is also closed when the watch is lost, because the
	// folder was removed or the connection broke: then watch again, and list. A slow reader holds
	// up nobody.
	Watch(ctx context.Context, dir string) (<-chan Event, error)
}

// Accountant is a host that can tell what a program used.
type Accountant interface {
	// Usage returns what a process used until it ended. It knows the processes that the caller's
	// own process started, from the moment when Alive says that they are dead. From then on its
	// answer stays the same. It returns false for a living process, for one that another process
	// started, and for one that ended too long ago: each backend says how many it remembers. Usage
	// does not ask the machine.
	Usage(p Process) (Usage, bool)
}

// Shell is a host on which each call costs a round trip, and which does the work of many calls in
// one. Its callers do the same by the methods of [Host] where a host is no Shell.
type Shell interface {
	// Run runs a script of /bin/sh with stdin as its standard input, and returns what it printed
	// and its exit code. What it prints to its standard error is dropped. It runs in a subshell of
	// a shell with the environment of [Host.Environ], one script at a time.
	//
	// A script runs as a whole or not at all: one that is cut on its way does not begin. After an
	// error of kind [job.Unavailable], or when ctx has ended, nobody knows whether it has run, or
	// still does. It must end soon, since others wait: a host gives up a script that takes long. A
	// program that it leaves behind must not hold its standard output.
	//
	// What users gave must be quoted words of the script. No part of it is ever in an argument list
	// or an environment, unless the script itself puts it there. A script with a NUL byte is of
	// kind [job.Invalid].
	Run(ctx context.Context, script string, stdin []byte) (out []byte, code int, err error)
}

// A Command says what to start. All paths are absolute slash paths of the machine.
type Command struct {
	Argv   []string // Argv[0] is a path; it is not looked up
	Dir    string   // the working folder
	Env    []string // NAME=value, added to [Host.Environ]; if a name is there twice, the last one counts
	Stdout string   // a file to append to; made with mode 0644 less the umask if it is not there
	Stderr string   // the same; may be the same file
}

// A Process is a stored reference to a session leader. Start started it, or it wrote these numbers
// itself.
type Process struct {
	// PID is also its process group and its session. A process with PID 0 is one that nobody knows;
	// it is never alive.
	PID int `json:"pid"`
	// Start is when it started, in clock ticks of the machine since boot: field 22 of
	// /proc/PID/stat.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"` // the id of the boot in which it started
}

// ticks is how many clock ticks there are in a second of [Process.Start]: Linux's USER_HZ, which
// sysconf(_SC_CLK_TCK) tells. It is 100 on every machine that Go compiles for
// (include/asm-generic/param.h; only alpha has another), and does not depend on the kernel's HZ.
const ticks = 100

// Started returns when the process started, as the time since boot, rounded down to 10 ms.
func (p Process) Started() time.Duration { return time.Duration(p.Start) * (time.Second / ticks) }

// Usage is what a process used until it ended. It includes its descendants, as far as each was
// waited for by its parent. It leaves out a descendant that was killed together with its parent.
type Usage struct {
	User   time.Duration `json:"user"`   // processor time of the programs themselves
	System time.Duration `json:"system"` // processor time of the kernel on their behalf
	// MaxRSS is the peak memory of the one process among them that had the most, in bytes; 0 if
	// unknown.
	MaxRSS int64 `json:"max_rss"`
	// Read is how many bytes came from disks, not from memory; 0 if unknown.
	Read int64 `json:"read"`
	// Written is how many bytes were written towards disks; 0 if unknown.
	Written int64 `json:"written"`
}

// A Family says how to recognise the processes of a launch. There are three marks, and a process
// belongs to the family if it has one of them. Children inherit all three. A process can shed each
// of them: setsid(2) leaves the session, env -i drops the variable, and root may raise the limit.
type Family struct {
	// Leader is the leader of the session in which the launch started. It is not itself a member.
	// The family of a leader of an earlier boot has no living member. Every family has a leader,
	// since a host may skip the other marks of a process that it finds in the leader's session.
	Leader Process
	// Locks is a number that the programs have as their limit of file locks; 0 if there is none.
	// Linux has not used that limit since 2.4.25, but passes it on to each child, and only root can
	// raise it.
	Locks uint64
	// Launch is the value that [LaunchVariable] had in a program's environment when it started; ""
	// if there is none.
	Launch string
}

// Environment variables of programs that Pawl launches.
const (
	// LaunchVariable says to which launch a process belongs.
	LaunchVariable = "PAWL_LAUNCH"
	// KeepVariable, if it is "1", keeps the process alive when the rest of its launch is ended.
	KeepVariable = "PAWL_KEEP"
)

// A Member is a living process of a family. A zombie counts as dead.
type Member struct {
	Process
	Parent   int    // the pid of its parent
	Name     string // the name of its program, as the machine tells it: Linux cuts it to 15 bytes
	User     string // the name of its user, or the number of a user without a name
	State    byte   // as in /proc/PID/stat: 'T' is stopped, 'D' cannot even be killed
	Numbered bool   // it has the family's Locks
	Kept     bool   // its environment has [KeepVariable]
}

// Bell is the name of a named pipe in a watched folder. Whoever has put something there rings by
// writing a line to it.
const Bell = ".bell"

// An Event is news of a watched folder.
type Event struct {
	Name     string // the name that appeared, without its folder; empty if Overflow is set
	Overflow bool   // names were dropped: list the folder to find them
}
