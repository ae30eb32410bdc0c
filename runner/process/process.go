// Package process launches a program as a plain process of a host. It implements [runner.Runner]
// and [runner.Suspender], and uses nothing of the machine but package host and its files.
//
// # How a launch is decided
//
// The decision about a launch is two files in [runner.Folder] of the job. Each is made once, and
// never moved or removed. Whoever makes it first has decided, for all and for ever, however long a
// process froze between two steps:
//
//	launch.<a>.<n>  who may start a wrapper for launch n of attempt a:
//	                "armed <token> <boot>"    one launcher
//	                "revoked <token>"         nobody
//	taken.<a>.<n>   who may start the program:
//	                "revoked <token>"         nobody
//	                "lost <token>"            nobody any more: see below
//	                anything else             the wrapper of that one launcher
//
// A launcher, and a caller of Settle, first writes a file of its own, with a random token in its
// name. Then it makes a hard link to it. The link fails if the name exists, so a name always has
// whole content. A wrapper is a shell, which would need another process to make a link. It creates
// taken.<a>.<n> with O_EXCL instead, and might freeze before it writes the content. So before that
// it writes who it is into a file of its own, and readers read this one:
//
//	take.<a>.<n>.<token>  "taken <token> <boot> <pid> <start> <locks>"
//
// A launcher writes the script, links launch.<a>.<n> and starts the wrapper, which runs the script.
// The wrapper's last act before the program is to create taken.<a>.<n>. Settle tries to link a
// revocation to the first name. If a launcher has it, Settle tries the second name. What it then
// reads there is its answer.
//
// The launcher's link, and what it holds, are durable before the wrapper starts. What the wrapper
// writes is not durable, for a shell cannot make it so. After a power failure it may be missing
// although the program ran. So if the launcher is of an earlier boot, Settle links "lost" instead
// of a revocation, and that counts as started.
//
// # How the end is told
//
// The wrapper stays beside the program to tell its end, and is not hit by the signals for the
// program. Package runner/internal/spool says how it tells it, and what stays of a job. A wrapper
// that cannot make room for the end does not take the launch, and Probe says so.
//
// # Which processes belong to a launch
//
// Each launch draws a number. The subshell of its program sets it as its limit of file locks, and
// the wrapper's environment has the launch's token: see [host.Family]. The file
// take.<a>.<n>.<token> has the number too, so later callers find it.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/gather"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// Config configures a Runner.
type Config struct {
	// Host is where programs run. Required.
	Host host.Host
	// Spool is the folder for the messages of ended programs, absolute on the host. Each account
	// has one. Required.
	Spool string
	// Past is the folder for the marks of cleaned jobs, absolute on the host. It is best on the
	// file system of the jobs' folders. Default: the name of Spool followed by ".past".
	Past string
	// Exits says that [Runner.Exited] is called for each child of this process that ends.
	Exits bool
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
}

// Runner launches plain processes on one host.
type Runner struct {
	*spool.Spool
	children children

	orders    gather.Queue[*order]
	questions gather.Queue[*question]

	noted atomic.Pointer[string] // the boot whose machine is written down
	past  sync.Map               // earlier boots of the present machine, each with its present one
}

var (
	_ runner.Runner        = (*Runner)(nil)
	_ runner.FolderCleaner = (*Runner)(nil)
)

// Open returns a runner and makes its spool folder.
func Open(ctx context.Context, c Config) (*Runner, error) {
	r := &Runner{}
	r.Spool = spool.New(spool.Config{
		Host: c.Host, Dir: c.Spool, PastDir: c.Past, Log: c.Log, Fate: r.known, Alive: r.wrappers,
	})
	if c.Exits {
		r.children.keys = map[host.Process]runner.Key{}
	}
	if err := r.Make(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Traits implements [runner.Runner]: it has no scheduler.
func (r *Runner) Traits() runner.Traits { return runner.Traits{} }

// wrappers reports which wrappers are alive.
func (r *Runner) wrappers(ctx context.Context, _ []*runner.End, taken []spool.Words) ([]bool, error) {
	ps := make([]host.Process, len(taken))
	for i, w := range taken {
		t, _ := w.Taker()
		ps[i] = t.Process
	}
	return r.Host.Alive(ctx, ps)
}

// Launch arms a launch and starts its wrapper.
func (r *Runner) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	m, err := spool.NewNames(k, p.Dir)
	if err != nil {
		return runner.Handle{}, err
	}
	booted, err := r.booted(ctx)
	if err != nil {
		return runner.Handle{}, err
	}
	locks, err := r.Locks(ctx)
	if err != nil {
		return runner.Handle{}, err
	}
	boot, err := r.Host.Boot(ctx)
	if err != nil {
		return runner.Handle{}, err
	}
	if err := r.note(ctx, boot); err != nil {
		return runner.Handle{}, err
	}
	ps, done := host.Process{}, false
	if sh := r.Shell(); sh != nil {
		text, err := r.script(k, p, m.Token, booted, locks, telling)
		if err != nil {
			return runner.Handle{}, err
		}
		if len(text) <= maxText {
			o := &order{Names: m, dir: p.Dir, mark: r.MarkName(k.Job), armed: armed(m.Token, boot), text: text}
			if ps, err, done = r.launchFar(ctx, sh, o).launched(); err != nil {
				return runner.Handle{}, err
			}
		}
	}
	if !done {
		text, err := r.script(k, p, m.Token, booted, locks, "")
		if err != nil {
			return runner.Handle{}, err
		}
		if ps, err = r.launchByFiles(ctx, k, p.Dir, m, text, armed(m.Token, boot)); err != nil {
			return runner.Handle{}, err
		}
	}
	crash.At("launch.started")
	return r.Handle(k, m.Token, place{Dir: p.Dir, Process: ps, Locks: locks}), nil
}

func armed(token, boot string) string { return "armed " + token + " " + boot }

// launchByFiles launches step by step.
func (r *Runner) launchByFiles(ctx context.Context, k runner.Key, dir string, m spool.Names, text, armed string,
) (none host.Process, _ error) {
	if marked, err := r.Marks(ctx, k.Job); err != nil || marked {
		return none, cmp.Or(err, job.Errorf(job.Conflict, "%w", runner.ErrRan))
	}
	// The script may hold secrets. It need not be durable: what runs it does not outlive the boot
	// either.
	if err := r.FS.Put(ctx, m.Own("run"), strings.NewReader(text),
		files.PutOptions{Mode: 0o600, NoSync: true}); err != nil {
		return none, spool.NotArmed(err)
	}
	if err := r.Write(ctx, m.Own("arm"), armed); err != nil {
		return none, spool.NotArmed(err)
	}
	crash.At("launch.armfile")
	if err := r.FS.Link(ctx, m.Own("arm"), m.Arming()); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return none, job.Errorf(job.Conflict, "%w", runner.ErrArmed)
		}
		return none, err
	}
	crash.At("launch.armed")
	born := r.children.start()
	ps, err := r.Host.Start(ctx, host.Command{
		// The script's name is relative to Dir: users meet it in what the shell says of a program
		// that is not there.
		Argv: []string{"/bin/sh", path.Join(runner.Folder, path.Base(m.Own("run")))}, Dir: dir,
		Stdout: m.Own("log"), Stderr: m.Own("log"),
		Env: []string{host.LaunchVariable + "=" + m.Token},
	})
	if exited := born(ps, k); exited {
		r.Spool.Exited(k)
	}
	return ps, err
}

// booted returns when the host was booted, by the clock of this process. With it and the host's
// uptime the wrapper knows the time. Asking for the time would take a process.
func (r *Runner) booted(ctx context.Context) (time.Time, error) {
	uptime, err := r.Host.Uptime(ctx)
	return time.Now().Add(-uptime), err
}

// Settle tells whether a launch was started, and revokes it if it was not.
func (r *Runner) Settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	f, err := r.settle(ctx, k, dir)
	if err != nil {
		return runner.Fate{}, fmt.Errorf("settle the launch: %w", err)
	}
	return f, nil
}

func (r *Runner) settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	m, err := spool.NewNames(k, dir)
	if err != nil {
		return runner.Fate{}, err
	}
	if t, ok, err := r.Roomed(ctx, k, 0); err != nil || ok { // this counts, also if the program changed the folder
		return runner.Fate{Started: ok, Handle: r.taker(k, t, dir)}, err
	}
	if taken, err := r.Read(ctx, m.Taken()); err != nil || taken != nil {
		return r.fate(ctx, k, dir, taken, err)
	}

	revoked := "revoked " + m.Token
	if err := r.Write(ctx, m.Own("settle"), revoked); err != nil {
		return runner.Fate{}, err
	}
	err = r.FS.Link(ctx, m.Own("settle"), m.Arming())
	crash.At("settle.linked")
	if err == nil {
		return runner.Fate{}, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return runner.Fate{}, err
	}
	launch, err := r.Read(ctx, m.Arming())
	if err != nil {
		return runner.Fate{}, err
	}
	if launch.Is("revoked", 1) {
		return runner.Fate{}, nil
	}
	empty := launch != nil && len(launch) == 0 // after a power failure: it was not started, see carryOut
	if !empty && !launch.Is("armed", 2) {
		return runner.Fate{}, job.Errorf(job.Corrupt, "%s holds %q", m.Arming(), launch)
	}

	boot, err := r.Host.Boot(ctx)
	if err != nil {
		return runner.Fate{}, err
	}
	if !empty && launch[2] != boot {
		if err := r.here(ctx, launch[2]); err != nil {
			return runner.Fate{}, err
		}
		if err := r.Write(ctx, m.Own("settle"), "lost "+launch[1]); err != nil {
			return runner.Fate{}, err
		}
	}
	err = r.FS.Link(ctx, m.Own("settle"), m.Taken())
	crash.At("settle.revoked")
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return runner.Fate{}, err
	}
	taken, err := r.Read(ctx, m.Taken())
	if err == nil && taken == nil {
		err = fmt.Errorf("%s: linked, and not there: %w", m.Taken(), fs.ErrNotExist)
	}
	return r.fate(ctx, k, dir, taken, err)
}

// known tells what is known of a launch that has a launch.<a>.<n>.
func (r *Runner) known(ctx context.Context, k runner.Key, dir string) (f runner.Fate, open bool, err error) {
	m := spool.NamesOf(k, dir, "")
	taken, err := r.Read(ctx, m.Taken())
	if err != nil {
		return f, false, err
	}
	if taken == nil {
		armed, err := r.Read(ctx, m.Arming())
		return f, err == nil && !armed.Is("revoked", 1), err
	}
	f, err = r.fate(ctx, k, dir, taken, nil)
	return f, false, err
}

// fate judges what taken.<a>.<n> holds.
func (r *Runner) fate(ctx context.Context, k runner.Key, dir string, taken spool.Words, err error,
) (runner.Fate, error) {
	if err != nil || taken.Is("revoked", 1) {
		return runner.Fate{}, err
	}
	if taken.Is("lost", 1) {
		return runner.Fate{Started: true, Handle: r.Handle(k, taken[1], place{Dir: dir})}, nil
	}
	m := spool.NamesOf(k, dir, "")
	launch, err := r.Read(ctx, m.Arming())
	if err != nil {
		return runner.Fate{}, err
	}
	if !launch.Is("armed", 2) {
		return runner.Fate{}, job.Errorf(job.Corrupt, "%s holds %q, and %s %q", m.Taken(), taken, m.Arming(), launch)
	}
	m.Token = launch[1]
	take, err := r.Read(ctx, m.Own("take"))
	if err != nil {
		return runner.Fate{}, err
	}
	if t, ok := take.Taker(); ok && t.Token == m.Token {
		return runner.Fate{Started: true, Handle: r.taker(k, t, dir)}, nil
	}
	if err := r.here(ctx, launch[2]); err != nil {
		return runner.Fate{}, err
	}
	if boot, err := r.Host.Boot(ctx); err != nil || launch[2] != boot { // it did not outlive a power failure
		return runner.Fate{Started: err == nil, Handle: r.Handle(k, m.Token, place{Dir: dir})}, err
	}
	return runner.Fate{}, job.Errorf(job.Corrupt, "%s holds %q", m.Own("take"), take)
}

// Clean leaves a mark, and removes the runner's folder and the launch's message.
func (r *Runner) Clean(ctx context.Context, k runner.Key, dir string) error {
	return r.CleanFolder(ctx, k, dir, "")
}

// Past tells what the host knows of a job.
func (r *Runner) Past(ctx context.Context, k runner.Key, dir string) (runner.Past, error) {
	if r.unknown(ctx, k, dir) {
		return runner.Past{}, nil
	}
	return r.PastOf(ctx, k, dir)
}
