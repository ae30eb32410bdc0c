// Package slurm launches a program as a batch job of Slurm. It implements [runner.Runner], and
// reaches the machine where Slurm's commands are, such as a login node, by package host. The nodes
// share the file systems of the jobs' folders and of the spool with that machine.
//
// # How a launch is decided
//
// Slurm proves nothing. An sbatch that was cut may have submitted. A controller that was killed
// forgets jobs, runs others twice, and gives their ids to strangers. So files decide, as in package
// runner/internal/spool, and Slurm is only asked where a job is:
//
//	launch.<a>.<n>   who may submit launch n of attempt a, and when that was decided:
//	                 "armed <token> <ms since 1970> <name>"  one launcher
//	                 "revoked <token>"                       nobody
//	settled.<a>.<n>  whether the launch is under way, though nothing of it may have begun:
//	                 "submitted <token> <id>"         it is a job of Slurm
//	                 "revoke <token>"                 nobody knows one: it is to be revoked
//	taken.<a>.<n>    who may start the program:
//	                 "revoked <token>"                nobody
//	                 anything else                    the batch script of that one launcher
//
// Each is a hard link that is made once, except for taken.<a>.<n>, which the batch script creates
// with O_EXCL as its last act before the program. As it may stop in the middle, it first says who
// it is in a file of its own:
//
//	take.<a>.<n>.<token>  "taken <token> <boot> <pid> <start> <locks> <id> <node> <ms> <name>
//	                      <nodes> <partition> <list of nodes>"
//
// A launcher links launch.<a>.<n>, calls sbatch once, and links "submitted". Settle links "revoke"
// if it finds no job of that name, and then "revoked". Whoever loses reads what stands there.
//
// A job of Slurm that is gone before its script took the launch is revoked, and may be launched
// again.
//
// # Job arrays
//
// Launches that come together and ask for the same are submitted as one job array. launch.<a>.<n>
// says which task of it each of them is, before sbatch is called; the batch script has the same
// list, and each task finds its own job's script by it.
//
// # Names in Slurm
//
// The job, or the array, has a random name in Slurm, which is in launch.<a>.<n>. Every answer is
// looked up by that name. What is to be canceled is looked up at that moment, so that nothing is
// done to a job that only has the id. Launches of one array are told apart by their tasks:
// <name>_<task>.
//
// # Jobs that are over
//
// squeue knows a job for some minutes after its end. Where Slurm keeps accounts, sacct is then
// asked, at most once for each squeue, about all jobs that the files do not tell enough of. What
// it says of a job counts as if squeue had said it. While it does not answer, nothing is decided.
//
// # Reruns
//
// Slurm may run the same submission again: after a node failed, after preemption, or by mistake.
// The script then finds its own file take.<a>.<n>.<token>, and is run 1, 2 and so on. It ends what
// is left of the run before on the same node. It does not run a program again that ended by itself,
// or that was killed. Only the end of the newest run counts. A script that cannot make room for its
// end starts nothing. It removes its own file, and was no run. One that stopped before that gets an
// empty room from the next run. A launch that is to run once (see [runner.Plan]) starts its program
// in run 0 alone.
package slurm

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/gather"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/client"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/halt"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/sacct"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// Config configures a Runner.
type Config struct {
	// Host is where Slurm's commands are. Required.
	Host host.Host
	// Spool is the folder for messages of scripts, absolute on the host and on the nodes. Each
	// account has one. Required.
	Spool string
	// Past is the folder for the marks of cleaned jobs; by default the name of Spool followed by
	// ".past".
	Past string
	// Interval is how old an answer of squeue or sacct may be when all launches are looked at; a
	// minute by default.
	Interval time.Duration
	// Soon is the same when somebody waits: because a launch is being ended, or because it has to
	// be known why Slurm ended it; 5 s by default.
	Soon time.Duration
	// Patience bounds each command of Slurm; 20 s by default.
	Patience time.Duration
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
}

// Runner launches jobs of one account of Slurm.
type Runner struct {
	*spool.Spool
	cfg    Config
	client client.Client
	queue  squeue.Queue
	book   sacct.Book
	halter halt.Halter
	doubt  time.Duration // for how long an end is doubted of a job that Slurm says still runs

	orders gather.Queue[*order]
	alone  map[string]bool // for submit: whose directives Slurm does not take for an array

	mu      sync.Mutex
	begun   map[runner.Key]time.Time // guarded by mu: launches that are known to have begun
	cramped map[string]bool          // guarded by mu: tokens of launches for whose revocation there was no room
}

var (
	_ runner.Runner        = (*Runner)(nil)
	_ runner.FolderCleaner = (*Runner)(nil)
	_ runner.Tested        = (*Runner)(nil)
	_ runner.Named         = (*Runner)(nil)
)

// Open returns a runner and makes its spool folder. It asks Slurm nothing.
func Open(ctx context.Context, c Config) (*Runner, error) {
	c.Interval = cmp.Or(c.Interval, time.Minute)
	c.Soon = cmp.Or(c.Soon, 5*time.Second)
	c.Patience = cmp.Or(c.Patience, 20*time.Second)
	r := &Runner{
		cfg: c, doubt: maxDoubt,
		begun: map[runner.Key]time.Time{}, cramped: map[string]bool{}, alone: map[string]bool{},
	}
	r.Spool = spool.New(spool.Config{
		Host: c.Host, Dir: c.Spool, PastDir: c.Past, Log: c.Log, Fate: r.known, Scheduled: true,
		Relist: time.Second, Look: doubtful, Alive: r.undecided, Parting: forever, LookAgain: c.Soon, Begun: r.hasBegun,
	})
	r.client.Sh, r.client.Patience = r.Sh, c.Patience
	r.halter = halt.Halter{Queue: &r.queue, Client: &r.client}
	r.queue.Ask, r.queue.Earlier = r.client.Queue, rate.NewLimiter(rate.Every(c.Interval/2), 3)
	r.queue.Unseen = squeue.Unseen
	r.book.Ask, r.book.Interval, r.book.Delay, r.book.Log = r.client.Accounts, c.Interval, maxDoubt, r.Log
	if err := r.Make(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// forever is as long as it takes: undecided says when a message counts.
const forever = 1 << 62

// Traits implements [runner.Runner].
func (r *Runner) Traits() runner.Traits {
	return runner.Traits{Limits: true, Queues: true, Clears: true}
}

// A place is where a launch is: the data of its handle.
type place struct {
	Armed int64  `json:"armed"` // when it was armed, in ms since 1970
	Dir   string `json:"dir"`   // the job's folder
	ID    string `json:"id"`    // of the job in Slurm, for people: another job may have it by now
	Name  string `json:"name"`  // of the job in Slurm, and _<task> for a task of an array
}

// A launch is a handle that was read.
type launch struct {
	runner.Handle
	place
	record sacct.Record // what the accounts say; zero: nothing
	open   bool         // they may yet say something
}

func (l *launch) armed() time.Time { return time.UnixMilli(l.Armed) }

// Name implements [runner.Named].
func (r *Runner) Name(h runner.Handle) string {
	l, err := r.find(h)
	if err != nil || l.ID == "" {
		return ""
	}
	return "Slurm job " + l.ID
}

// find reads a handle. The error is of kind Invalid if it is not one of this runner's host.
func (r *Runner) find(h runner.Handle) (launch, error) {
	l := launch{Handle: h}
	err := r.Find(h, &l.place)
	if err == nil && l.Armed == 0 {
		err = job.Errorf(job.Invalid, "the handle of %s is that of another runner", h.Key)
	}
	return l, err
}

// Settle tells whether a launch was started, and revokes it if it was not.
func (r *Runner) Settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	f, err := r.settle(ctx, k, dir)
	if err != nil {
		return runner.Fate{}, fmt.Errorf("settle the launch: %w", err)
	}
	return f, nil
}

func (r *Runner) settle(ctx context.Context, k runner.Key, dir string) (none runner.Fate, _ error) {
	m, err := spool.NewNames(k, dir)
	if err != nil {
		return none, err
	}
	if f, open, err := r.known(ctx, k, dir); err != nil || !open {
		return f, err
	}
	armed, err := r.Read(ctx, m.Arming())
	if err != nil {
		return none, err
	}
	if armed == nil {
		if err := r.LinkOnce(ctx, m, "settle", "revoked "+m.Token, m.Arming()); err != nil {
			return none, err
		}
		crash.At("slurm.settled")
		if armed, err = r.Read(ctx, m.Arming()); err != nil {
			return none, err
		}
	}
	if armed.Is("revoked", 1) {
		return none, nil
	}
	if len(armed) == 0 { // after a power failure: nothing was submitted before it was durable
		return r.revoke(ctx, k, m, dir)
	}
	if !armed.Is("armed", 3) {
		return none, job.Errorf(job.Corrupt, "%s holds %q", m.Arming(), armed)
	}
	s, err := r.queue.Look(ctx, 0)
	if err != nil {
		return none, err
	}
	if row, ok := s.Find(armed[3]); ok {
		if err := r.LinkOnce(ctx, m, "submitted", "submitted "+armed[1]+" "+row.ID, m.Of("settled")); err != nil {
			return none, err
		}
	}
	return r.revoke(ctx, k, m, dir)
}

// revoke revokes an armed launch unless it is under way.
func (r *Runner) revoke(ctx context.Context, k runner.Key, m spool.Names, dir string) (none runner.Fate, _ error) {
	if err := r.LinkOnce(ctx, m, "revoke", "revoke "+m.Token, m.Of("settled")); err != nil {
		return none, err
	}
	settled, err := r.Read(ctx, m.Of("settled"))
	if err != nil {
		return none, err
	}
	if settled.Is("submitted", 2) {
		f, _, err := r.known(ctx, k, dir)
		return f, err
	}
	return r.shut(ctx, k, m, dir)
}

// shut takes the launch, so that no script can, unless one has.
func (r *Runner) shut(ctx context.Context, k runner.Key, m spool.Names, dir string) (runner.Fate, error) {
	err := r.LinkOnce(ctx, m, "settle", "revoked "+m.Token, m.Taken())
	crash.At("slurm.revoked")
	if err != nil {
		return runner.Fate{}, err
	}
	f, open, err := r.known(ctx, k, dir)
	if err == nil && open {
		err = fmt.Errorf("%s: linked, and not there: %w", m.Taken(), fs.ErrNotExist)
	}
	return f, err
}

// known tells what the files say of a launch. open: it is not settled.
func (r *Runner) known(ctx context.Context, k runner.Key, dir string) (f runner.Fate, open bool, err error) {
	run, err := r.Newest(ctx, k)
	if err != nil {
		return f, false, err
	}
	t, roomed, err := r.Roomed(ctx, k, run) // this counts, also if the program changed the folder
	if err != nil {
		return f, false, err
	}
	m := spool.NamesOf(k, dir, "")
	var launch, taken, settled spool.Words
	for _, f := range []struct {
		name string
		to   *spool.Words
	}{{m.Arming(), &launch}, {m.Taken(), &taken}, {m.Of("settled"), &settled}} {
		if roomed {
			break
		}
		if *f.to, err = r.Read(ctx, f.name); err != nil {
			return runner.Fate{}, false, err
		}
	}
	switch {
	case roomed:
	case launch.Is("revoked", 1), taken.Is("revoked", 1):
		return f, false, nil
	case taken == nil && settled.Is("submitted", 2) && launch.Is("armed", 3):
		at := place{Dir: dir, ID: settled[2], Name: launch[3]}
		if at.Armed, err = strconv.ParseInt(launch[2], 10, 64); err != nil {
			return f, false, job.Errorf(job.Corrupt, "%s holds %q", m.Arming(), launch)
		}
		return runner.Fate{Started: true, Handle: r.Handle(k, settled[1], at)}, false, nil
	case taken == nil:
		return f, true, nil
	case !launch.Is("armed", 3):
		return f, false, job.Errorf(job.Corrupt, "%s holds %q, and %s %q", m.Taken(), taken, m.Arming(), launch)
	default:
		m.Token = launch[1]
		take, err := r.Read(ctx, m.Own("take"))
		if err != nil {
			return f, false, err
		}
		if t, roomed = take.Taker(); !roomed || t.Token != m.Token {
			return f, false, job.Errorf(job.Corrupt, "%s holds %q", m.Own("take"), take)
		}
	}
	at, err := placeOf(t)
	at.Dir = dir
	return runner.Fate{Started: err == nil, Handle: r.Handle(k, t.Token, at)}, false, err
}

// placeOf returns where a launch is that was taken, but for its folder.
func placeOf(t spool.Taker) (at place, err error) {
	if len(t.Rest) > 3 {
		at.ID, at.Name = t.Rest[0], t.Rest[3]
		at.Armed, err = strconv.ParseInt(t.Rest[2], 10, 64)
	}
	return at, err
}

// whereOf says where a launch runs that was taken; "" if its script does not tell.
func whereOf(t spool.Taker) string {
	if len(t.Rest) < 8 {
		return ""
	}
	return squeue.Row{ID: t.Rest[0], Partition: t.Rest[6], Nodes: t.Rest[7]}.Running()
}

// Past tells what the host knows of a job.
func (r *Runner) Past(ctx context.Context, k runner.Key, dir string) (runner.Past, error) {
	return r.PastOf(ctx, k, dir)
}

// Clean leaves a mark, and removes the runner's folder and the launch's messages.
func (r *Runner) Clean(ctx context.Context, k runner.Key, dir string) error {
	return r.CleanFolder(ctx, k, dir, "")
}

// own returns the name of a file in the runner's folder of a launch.
func (l *launch) own(kind string) string {
	return path.Join(l.Dir, runner.Folder, kind+"."+spool.Number(l.Key))
}
