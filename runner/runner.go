// Package runner is the contract for launching a program on a host: as a process, through a
// scheduler, or in a container.
//
// It promises that a launch starts its program at most once, even if a process dies, freezes or
// loses an answer on the way. The caller commits its intent to launch, with a [Key], before it
// calls [Runner.Launch]. A caller that finds an intent without an outcome calls [Runner.Settle].
// The answer of Settle is final: the launch was started, or it is revoked. After a revoked launch
// there may be another one, with the next number.
//
// A runner tells the ends of programs by itself: [Runner.Watch] yields each as a [Notice]. An end
// stays until the caller has recorded it and says so with [Runner.Acknowledge]; until then each
// watch tells it anew. How a runner hears of ends is its own matter. Where a launch can leave a
// message in a folder, [EndName] names the message and [ParseEnd] reads it. A kill spares the
// messenger, the process that writes the message, so killed programs leave a message too.
// [Runner.Probe] finds the programs that ended without one.
//
// A watcher reads what programs leave behind. If that ever kills its process, it would kill the
// next one as well. So a runner that reads them in its own process counts the reads that kill it
// against the launch that they were about: after [MaxDeaths] it reads no more of it, and
// [Runner.Probe] says that it is orphaned.
//
// A program is over when no process of its launch is alive, in any session or group. See
// [Runner.Kill].
//
// A host may know more than its caller, whose database may have been restored to an earlier time.
// While a job's folder is there, [Runner.Past] tells of the launches in it. When the folder is
// cleaned, a [Mark] stays, and nothing of that job is launched again.
//
// The package imports package job, package host and the standard library. Backends stand in
// packages of their own, such as runner/process, and pass the suite in runner/runnertest.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// Folder is the name of the runner's own folder in a job's folder. Whoever stages the job makes it
// together with the job's folder, and it is removed together with it. A runner never makes it. So a
// launcher that froze, and goes on after the job was cleaned, finds no place to launch in. And a
// file system that is not mounted is not mistaken for an empty one.
const Folder = ".pawl"

// ErrArmed says that another Launch, or a Settle, of the same key came first. It comes with kind
// [job.Conflict].
var ErrArmed = errors.New("the launch was armed or revoked before")

// ErrRan says that the job was cleaned on this host: its program ran, and is over. It comes with
// kind [job.Conflict].
var ErrRan = errors.New("the job's program ran before, and its folder was cleaned")

// ErrNotArmed says that a launch failed before it was armed: nothing of it is or will be under way.
var ErrNotArmed = errors.New("nothing was launched")

// Refused is the error of [Runner.Launch] when a scheduler says that the request is wrong. The
// launch is revoked.
type Refused struct {
	Code job.Code
	Said string // in the scheduler's own words
	// Field is what to change in the job file; "" if that is not known.
	Field string
}

func (r *Refused) Error() string {
	if r.Field == "" {
		return "refused: " + r.Said
	}
	return "refused: " + r.Said + "; change " + r.Field
}

// Runner launches programs on one host.
//
// Workers call Launch, Settle, Past and Clean. Watchers call Watch, Acknowledge, Probe, Suspend,
// Resume and Forget. Both call Kill.
// Several goroutines and several processes may call every method at once, and every call can be
// repeated.
//
// Errors: a request that cannot be right, such as a handle of another host, is of kind
// [job.Invalid]; then nothing was touched. If the job's folder, or the runner's [Folder] in it, is
// missing, the error is [io/fs.ErrNotExist]. Errors of the host and of its files are passed on.
// Errors of Launch and Settle do not name the launch: callers say what they are about.
type Runner interface {
	// Launch starts the plan's program, once for each key. Its errors:
	//
	//   - [ErrArmed]: the key was launched or revoked before.
	//   - [ErrRan]: the job has a [Mark]; nothing was touched.
	//   - [ErrNotArmed]: nothing of it will ever start, and there is nothing to settle. This is
	//     the error if there is no room even to arm the launch.
	//   - Kind [job.Invalid]: nothing was touched.
	//   - Any other error leaves the outcome open. Settle tells it.
	//
	// A handle says that the launch is under way. A Settle that runs at the same time may still
	// revoke it, and then the program does not run.
	Launch(ctx context.Context, k Key, p Plan) (Handle, error)

	// Settle finds out whether a launch was started, and revokes it if it was not. All callers get
	// the same answer, for ever: a revoked launch never starts its program, and a started launch is
	// never revoked. After an error the outcome may be open or settled; ask again. dir is that of
	// the plan.
	//
	// A launch that was under way when the host lost its power counts as started, since it may have
	// run.
	Settle(ctx context.Context, k Key, dir string) (Fate, error)

	// Traits says what the runner does by itself. It asks nobody.
	Traits() Traits

	// Watch tells what becomes of launches until ctx ends. The first batch has all ends that were
	// told before and are not acknowledged; it may be empty. Each later batch has what came since.
	// A slow reader holds up nobody. A notice may be told twice.
	//
	// The channel is closed when ctx has ended. It is also closed when the watch is lost: then
	// watch again. Whoever ends ctx reads on until the channel is closed, so that the runner can
	// note that the watch ended in good order.
	Watch(ctx context.Context) (<-chan []Notice, error)

	// Acknowledge says that ends are recorded, by the names in their notices. They are not told
	// again. It takes one request, however many names there are, and can be repeated.
	Acknowledge(ctx context.Context, names []string) error

	// Told lists the ends that were told and are not acknowledged: only their keys and names.
	Told(ctx context.Context) ([]Notice, error)

	// Probe tells the states of launches, in the order asked. It looks at the host as rarely
	// as it can. An error says nothing about any of them.
	Probe(ctx context.Context, hs []Handle) ([]Status, error)

	// Kill ends all that is left of a launch. It returns nil only when none of it is alive. It
	// sends SIGTERM, waits for the grace, and then sends SIGKILL; with a grace of 0 it sends
	// SIGKILL at once. It returns as soon as nothing is alive. It sends SIGTERM only once: a
	// process that the program starts at that moment may miss it, and then lives until the grace is
	// over. If ctx ends first, the error is of kind [job.Unavailable] and says what is still alive.
	//
	// Kill knows the processes of a launch by marks that each program passes on to its children. It
	// does not find a process that shed all of its marks, or one that another service started. It
	// leaves alone a process that asks to be kept (see [Remnant]). If the only processes left
	// belong to another user, or cannot be ended for another reason, the error is an [*Alive].
	//
	// Kill spares the messenger while it has an end to tell.
	Kill(ctx context.Context, h Handle, grace time.Duration) error

	// Suspend stops all processes of a launch, and returns nil only when it is known that they stand
	// still, or that nothing of the launch is alive. One that is Queued does not begin before Resume.
	// If processes of it may not be signaled, and all others were, the error is an [*Alive] with
	// these. A runner that cannot do it returns an error that says so to people.
	Suspend(ctx context.Context, h Handle) error

	// Resume lets go on what Suspend stopped. Its errors are those of Suspend.
	Resume(ctx context.Context, h Handle) error

	// Past tells what the host knows of a job beyond its launch k: its later launches and its mark.
	// The launch number of k may be 0, for all launches. A job whose folder is missing has no
	// launches. Past revokes nothing.
	Past(ctx context.Context, k Key, dir string) (Past, error)

	// Clean removes what the runner keeps for a job: its [Folder], and the message of launch k. If
	// any launch of the job was started, it first leaves a [Mark]. The caller has settled all
	// launches of the job, knows that nothing of them is alive, and will launch nothing more.
	Clean(ctx context.Context, k Key, dir string) error

	// Marked returns the ids of jobs that have a mark, sorted, which is the order in which the jobs
	// were made. It returns at least the newest ones, as many as newest says, and all for 0.
	Marked(ctx context.Context, newest int) ([]job.ID, error)

	// Forget removes marks that are older than age, and ends that nobody has acknowledged for as long.
	// Many of them stay for up to a day more.
	Forget(ctx context.Context, age time.Duration) error
}

// A Past is what a host knows of a job.
type Past struct {
	Started []Handle // launches that were started, in the order of their numbers
	Open    []Key    // launches that were armed and not yet settled: call Settle
	Mark    *Mark    // nil: the job was not cleaned, or its mark was forgotten
}

// A Mark is the record that stays on the host when a job's [Folder] is cleaned.
type Mark struct {
	// At is about when the program ended.
	At time.Time
	// End is the end of the launch that was cleaned, or nil if it left no exit code. The numbers in
	// its Key are not known.
	End *End
}

// String tells people what the mark says.
func (m *Mark) String() string {
	switch {
	case m == nil:
		return "nothing is known of its end"
	case m.End == nil:
		return "it was over by " + m.At.Format(time.RFC3339) + ", without an exit code"
	}
	return fmt.Sprintf("it ended at %s with exit code %d", m.End.Ended.Format(time.RFC3339), m.End.Code)
}

// Tested is a runner whose scheduler may be away while its host answers.
type Tested interface {
	// Test returns nil if the scheduler answers. With what a [host.Trouble] asked, it returns nil if
	// the scheduler takes such a job. Otherwise the error is a [host.Trouble].
	Test(ctx context.Context, ask map[string]string) error
}

// Named is a runner whose scheduler has names of its own for launches.
type Named interface {
	// Name returns by what people find a launch in the scheduler, such as "Slurm job 1234_7"; "" if
	// that is not known.
	Name(h Handle) string
}

// A Key names a launch. Both numbers begin at 1. Within an attempt, another launch follows only if
// the one before was revoked.
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

// A Plan says what to launch. Every text reaches the program as it is: no shell expands it.
type Plan struct {
	Dir    string            // the job's folder, absolute; the program's working folder
	Argv   []string          // Argv[0] is looked up in the program's PATH unless it has a slash
	Env    map[string]string // added to [host.Host.Environ]; names match [A-Za-z_][A-Za-z0-9_]*
	Stdout string            // a file that is replaced; relative to Dir; its folder must exist
	Stderr string            // the same; may be the same file
	// Resources is what the program asks for, with defaults. A runner without a scheduler grants
	// what there is.
	Resources job.Resources
	// Once says that the program does not run again where a scheduler runs the launch again by
	// itself. That ends with NotStarted [RanAgain].
	Once bool
}

// A Handle is a stored reference to a launch.
type Handle struct {
	Key  Key
	Host string // the id of the host
	// Token is chosen at random by Launch. An end of the launch repeats it.
	Token string
	// Data is what the runner needs to find the launch again: a JSON object, which only that runner
	// reads. Its names are sorted, and are not those of the other fields.
	Data string
}

// MarshalJSON writes one object with the names of Data in it.
func (h Handle) MarshalJSON() ([]byte, error) {
	all := map[string]any{}
	if h.Data != "" {
		var own map[string]json.RawMessage
		if err := json.Unmarshal([]byte(h.Data), &own); err != nil {
			return nil, fmt.Errorf("data of %s: %w", h.Key, err)
		}
		for name, v := range own {
			all[name] = v
		}
	}
	all["key"], all["host"], all["token"] = h.Key, h.Host, h.Token
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Handle) UnmarshalJSON(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name, to := range map[string]any{"key": &h.Key, "host": &h.Host, "token": &h.Token} {
		if v, there := all[name]; there {
			if err := json.Unmarshal(v, to); err != nil {
				return fmt.Errorf("%s of a launch: %w", name, err)
			}
		}
		delete(all, name)
	}
	own, err := json.Marshal(all)
	h.Data = string(own)
	return err
}

// A Notice is news of a launch.
type Notice struct {
	Key  Key
	Name string // of the end, for [Runner.Acknowledge]; "": there is nothing to acknowledge
	// End is nil if it is not known: what tells it is damaged, or only somebody saw that the
	// program is gone. Then Probe tells what has become of the launch.
	End *End
	// Look says that the end counts only when Probe finds nothing of the launch alive: processes
	// that the program left may go on writing.
	Look bool
}

// MaxDeaths is how many reads of what a launch left may kill the process that reads: as often as a
// job may kill its worker while it is the only suspect.
const MaxDeaths = job.PoisonAt - job.AloneAt

// Traits are what a runner does by itself.
type Traits struct {
	// Limits: it ends a program whose time is over, as [Plan.Resources] says. Otherwise its caller
	// does that.
	Limits bool
	// Queues: launches wait in a queue before they begin, and Probe tells that.
	Queues bool
	// Clears: it ends what a program leaves behind, as soon as the program ends. So nothing is left,
	// and nothing can be kept.
	Clears bool
}

// Launched is the state of a job whose program was launched.
func (t Traits) Launched() job.State {
	if t.Queues {
		return job.Queued
	}
	return job.Running
}

// A Fate is the outcome of a launch.
type Fate struct {
	Started bool   // false: the launch is revoked
	Handle  Handle // the launch, if it was started
}

// A Status is the state of a launch, with what is known of its end and of its processes.
type Status struct {
	State State
	End   *End      // set when State is Ended; or Active, while its cause is not known
	Left  []Remnant // processes still alive although State is Ended or Orphaned: kill them
	Kept  []Remnant // processes alive that ask to be kept
	// Said is the output of the runner's own process on the host, for people. It may be set when
	// State is Lost. With Cause, these are the words of the scheduler.
	Said string
	// Cause is why a scheduler ended it; "" if that is not known, or if it ended by itself. It may be
	// set when State is Ended or Lost.
	Cause job.Code
	// Reason says for people why the launch is Queued; or where it is Active, by the words of a
	// scheduler. "" if that is not known.
	Reason string
	// Vague says that a launch is Queued and the scheduler may soon say why, or more about it.
	Vague bool
	// Expected is when a launch that is Queued is expected to begin; zero if that is not known.
	Expected time.Time
	// Started is when the launch began, by the clock of the calling process, and by how long it has
	// been under way by the host's clock. It may be set when State is Active or Orphaned.
	Started time.Time

	// Usage is what the program used, together with all that it and the messenger waited for. It is
	// set when State is Ended, if the host is a [host.Accountant] and knows it.
	Usage *host.Usage
}

// A Remnant is a process that is still alive when its program has ended.
//
// A process that was started with PAWL_KEEP=1 in its environment asks to be kept: it is to outlive
// the job. Examples are a cache that serves the next job too, and the master of shared connections.
type Remnant struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`           // the name of its program; hosts may cut it
	User string `json:"user,omitempty"` // its user
	Why  string `json:"why,omitempty"`  // why it cannot be ended; "" if it can
}

func (r Remnant) String() string {
	s := fmt.Sprintf("%s (pid %d, user %s)", r.Name, r.PID, r.User)
	if r.Why != "" {
		s += ", " + r.Why
	}
	return s
}

// Remnants describes processes for people: the first ten, and how many more there are.
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

// Alive is the error of [Runner.Kill] when it ended all that it could, and the processes in Left
// live on.
type Alive struct{ Left []Remnant }

func (a *Alive) Error() string {
	return "these processes of it cannot be ended: " + Remnants(a.Left)
}

// State is the state of a launch on its host.
type State string

// The states of a launch.
const (
	// Queued: it waits for its turn. See [Traits].
	Queued State = "queued"
	// Active: it is under way. It may be suspended.
	Active State = "active"
	// Ended: the program ended, and its exit code is known.
	Ended State = "ended"
	// Orphaned: the program, or a part of it, is alive, but nothing waits for its exit code. Kill
	// it.
	Orphaned State = "orphaned"
	// Lost: nothing is alive, and no exit code is known. This is never a success. Settle tells
	// whether the program was started at all.
	Lost State = "lost"
	// Dropped: a scheduler has forgotten it before it began. It is revoked: the next launch may
	// follow, of the same attempt.
	Dropped State = "dropped"
	// Unknown: the state cannot be told now. The place of the evidence is missing or unreadable, or
	// the launch is on another host.
	Unknown State = "unknown"
)
