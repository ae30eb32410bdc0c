// Package runner is the contract for launching a program on a host: as a process, through a
// scheduler, in a container.
//
// Its promise is that a launch starts its program at most once, wherever anybody dies, freezes or
// loses an answer. The caller commits its intent to launch, with a [Key], before it calls
// [Runner.Launch]; whoever finds an intent without an outcome calls [Runner.Settle], which answers
// for ever: started, or revoked. A revoked launch may be followed by another with the next number.
//
// An end is a message: a file in one spool folder per host account, named by [EndName] and read by
// [ParseEnd]. It counts when it is whole, and is deleted by the caller once it has been taken in. A
// kill spares the messenger, so it tells of killed programs too; what leaves no message is found by
// [Runner.Probe].
//
// A program is over when nothing of its launch is alive, whatever session or group that went to:
// see [Runner.Kill].
//
// A host remembers more than a caller may know, whose database may have been restored to an earlier
// point in time. While a job's folder is there, [Runner.Past] tells of the launches in it; when it
// is cleaned a [Mark] stays, and nothing of that job is launched any more.
//
// The package imports package job, package host and the standard library. Backends stand in
// packages of their own (runner/process) and pass the suite in runner/runnertest.
package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// Folder is the name of the runner's own folder within a job's folder. It is made together with the
// job's folder, by who stages the job, and removed with it: a runner never makes it, so that a
// launcher that was frozen until after the cleaning finds nothing to launch in, and a file system
// that is not mounted is not taken for an empty one.
const Folder = ".pawl"

// ErrArmed says that another Launch, or a Settle, of the same key came first. It comes with kind
// [job.Conflict].
var ErrArmed = errors.New("the launch was armed or revoked before")

// ErrRan says that the job was cleaned on this host: its program ran, and is over. It comes with
// kind [job.Conflict].
var ErrRan = errors.New("the job's program ran before, and its folder was cleaned")

// ErrNotArmed says that a launch failed before it was armed: nothing of it is or will be under way.
var ErrNotArmed = errors.New("nothing was launched")

// Runner launches programs on one host.
//
// Workers call Launch, Settle, Past and Clean; watchers call Probe and Forget; both call Kill.
// Every method is safe for concurrent use, by several processes too, and can be repeated.
//
// Errors: a request that cannot be right, such as a handle of another host, is of kind
// [job.Invalid], and nothing was touched. A job whose folder or its [Folder] is not there gives
// [fs.ErrNotExist]. Errors of the host and its files are passed on.
type Runner interface {
	// Launch starts the plan's program, unless the key was launched or revoked before: then the
	// error is [ErrArmed]. Of a job that has a [Mark] nothing is launched: the error is [ErrRan],
	// and nothing was touched. With [ErrNotArmed] nothing of it will ever start, and there is
	// nothing to settle: so it is where there is not even room for that. After any other error than
	// these, Invalid and ErrRan the outcome is open, and Settle tells it.
	//
	// A handle says that the launch is under way. The program still does not run if a Settle that
	// goes on at the same time revokes it.
	Launch(ctx context.Context, k Key, p Plan) (Handle, error)

	// Settle finds out whether a launch was started, and revokes it if it was not. Its answer is
	// final and the same for all who ask: once it is Revoked, no program of this launch ever
	// starts; once it is Started, it is never revoked. An error leaves the outcome open or settled;
	// asked again, Settle tells. dir is the plan's.
	//
	// What was under way when the host lost its power is Started, for it may have run.
	Settle(ctx context.Context, k Key, dir string) (Fate, error)

	// Probe tells what has become of launches, in the order asked, in as few looks at the host as
	// it can. An error says nothing about any of them.
	Probe(ctx context.Context, hs []Handle) ([]Status, error)

	// Kill ends everything that is left of a launch, and answers nil only when nothing of it is
	// alive: it asks to end (SIGTERM), grants the grace, and forces the end (SIGKILL). It returns
	// as soon as nothing is alive. With a grace of 0 it forces at once. It asks once: what the
	// program starts in that moment may not be asked, and lives until the grace is over. If ctx
	// ends first, the error is of kind [job.Unavailable] and says what is still there.
	//
	// What belongs to a launch is known by marks that each program passes on to those that it
	// starts. What shed them all, and what another service started, is not found; what asked to be
	// kept is left alone (see [Remnant]). Where only such is left that cannot be ended, as it
	// belongs to another user, the error is an [*Alive].
	//
	// The messenger is spared while it has an end to tell.
	Kill(ctx context.Context, h Handle, grace time.Duration) error

	// Past tells what the host knows of a job beyond its launch k, whose number may be 0. A job
	// whose folder is not there has no launches. It revokes nothing.
	Past(ctx context.Context, k Key, dir string) (Past, error)

	// Clean removes what the runner keeps for a job: its Folder and this launch's message in the
	// spool. If anything of the job was started, it leaves a [Mark] first. Called once the job's
	// launches are settled and nothing of them is alive, and only when there will be no other.
	Clean(ctx context.Context, k Key, dir string) error

	// Marked returns the jobs that have a mark, in the order in which they were made: at least the
	// newest, so many, or all for 0.
	Marked(ctx context.Context, newest int) ([]job.ID, error)

	// Forget removes marks that are older than age; many stay for up to a day more.
	Forget(ctx context.Context, age time.Duration) error
}

// A Past is what a host knows of a job.
type Past struct {
	Started []Handle // launches that were started, in the order of their numbers
	Open    []Key    // launches that were armed and that nobody has settled: Settle tells
	Mark    *Mark    // nil: the job was not cleaned, or that is forgotten
}

// A Mark is what stays of a job when its Folder is cleaned.
type Mark struct {
	At  time.Time // about when the program ended
	End *End      // of the launch it was cleaned with; nil: it left no exit code. The key's numbers are not known
}

// String says for people what is known.
func (m *Mark) String() string {
	switch {
	case m == nil:
		return "nothing is known of its end"
	case m.End == nil:
		return "it was over by " + m.At.Format(time.RFC3339) + ", without an exit code"
	}
	return fmt.Sprintf("it ended at %s with exit code %d", m.End.Ended.Format(time.RFC3339), m.End.Code)
}

// Suspender is the ability of a runner to stop a program and let it go on. Both calls can be
// repeated; a launch of which nothing is alive is no error.
type Suspender interface {
	Suspend(ctx context.Context, h Handle) error
	Resume(ctx context.Context, h Handle) error
}

// A Key names a launch. Both numbers begin at 1; within an attempt only a launch that was revoked
// is followed by another.
type Key struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Launch  int    `json:"launch"`
}

func (k Key) String() string {
	return fmt.Sprintf("launch %d of attempt %d of job %s", k.Launch, k.Attempt, k.Job)
}

// Check returns an error of kind [job.Invalid] unless k is complete.
func (k Key) Check() error {
	if k.Job.IsZero() || k.Attempt < 1 || k.Launch < 1 {
		return job.Errorf(job.Invalid, "%s: not a complete key", k)
	}
	return nil
}

// A Plan says what to launch. Every text arrives as it is given: no shell reads it on the way.
type Plan struct {
	Dir    string            // the job's folder, absolute; the program's working folder
	Argv   []string          // Argv[0] is looked up in the program's PATH unless it holds a slash
	Env    map[string]string // added to the host's environment for programs; names as in [A-Za-z_][A-Za-z0-9_]*
	Stdout string            // a file, replaced; relative to Dir; its folder must be there
	Stderr string            // the same; may be the same file
}

// A Handle is a stored reference to a launch. It is written as JSON.
type Handle struct {
	Key     Key          `json:"key"`
	Host    string       `json:"host"`    // its id
	Dir     string       `json:"dir"`     // the job's folder
	Token   string       `json:"token"`   // chosen at random by Launch, and repeated by the launch's message
	Process host.Process `json:"process"` // of the messenger; zero if the host lost its power before it was written
	// the limit of file locks of its programs: see [host.Family]; 0 if there is none
	Locks uint64 `json:"locks"`
}

// A Fate is the outcome of a launch.
type Fate struct {
	Started bool   // else it is revoked
	Handle  Handle // of what was started
}

// A Status says what has become of a launch.
type Status struct {
	State State
	End   *End      // set when State is Ended
	Left  []Remnant // what is alive although State is Ended or Orphaned: kill it
	Kept  []Remnant // what is alive and asked to be kept
	// Said is what the runner's own process on the host had to say, for people. It may be set when
	// State is Lost.
	Said string

	// Usage is what the program had used, with all that it and the messenger waited for. Set when
	// State is Ended, if the host is a [host.Accountant] that knows.
	Usage *host.Usage
}

// A Remnant is a process of a launch, or one that a program left behind.
//
// One that has PAWL_KEEP=1 in the environment with which it was started is to outlive the job: a
// cache that serves the next one too, say, or the master of shared connections.
type Remnant struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`           // of its program; hosts may cut it
	User string `json:"user,omitempty"` // whose it is
	Why  string `json:"why,omitempty"`  // it cannot be ended; "" if it can
}

func (r Remnant) String() string {
	s := fmt.Sprintf("%s (pid %d, user %s)", r.Name, r.PID, r.User)
	if r.Why != "" {
		s += ", " + r.Why
	}
	return s
}

// Remnants says for people what there is: up to ten, and how many more.
func Remnants(rs []Remnant) string {
	const most = 10
	var said []string
	for _, r := range rs[:min(len(rs), most)] {
		said = append(said, r.String())
	}
	if len(rs) > most {
		said = append(said, fmt.Sprintf("and %d more", len(rs)-most))
	}
	return strings.Join(said, "; ")
}

// Alive is the error of a kill that ended all that it can end.
type Alive struct{ Left []Remnant }

func (a *Alive) Error() string {
	return "these processes of it cannot be ended: " + Remnants(a.Left)
}

// State is the state of a launch on its host.
type State string

// The states of a launch.
const (
	Active   State = "active"   // it is under way; it may be suspended
	Ended    State = "ended"    // the program ended and its exit code is known
	Orphaned State = "orphaned" // the program, or a part of it, is alive, but nobody waits for its exit code: kill it
	// nothing is alive and no exit code is known. Never a success; Settle tells whether it was
	// started at all
	Lost State = "lost"
	// it cannot be told now: where the evidence would be is not there or unreadable, or the host is
	// another
	Unknown State = "unknown"
)
