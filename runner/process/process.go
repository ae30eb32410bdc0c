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
// The launcher's link, and what it holds, are durable before the wrapper starts. What the wrapper writes is not durable,
// for a shell cannot make it so. After a power failure it may be missing although the program ran.
// So if the launcher is of an earlier boot, Settle links "lost" instead of a revocation, and that
// counts as started.
//
// # How the end is told
//
// The wrapper stays beside the program to tell its end, and is not hit by the signals for the
// program. Before the program starts, the wrapper makes a file that has room for the end. It is
// <spool>/.rooms/<message>, and its first line says who took the launch. The end is written there
// first, so that a full disk cannot lose it, and then as the message. Neither file is in the job's
// folder, where a program may change anything: if a room says who took a launch, that counts.
//
// # Which processes belong to a launch
//
// Each launch draws a number. The subshell of its program sets it as its limit of file locks, and
// the wrapper's environment has the launch's token: see [host.Family]. The file
// take.<a>.<n>.<token> has the number too, so later callers find it.
//
// # What stays
//
// When a job's folder is cleaned, the room with its program's exit code is renamed to the job's
// mark, <past>/<day>/<job>. The day is that on which the job was made. So the marks of a day are
// forgotten together, and no folder becomes very large. A launcher looks for the mark first. A
// launcher that looked before the job was cleaned, and then froze, finds no folder to arm in.
package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/gather"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
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
	host     host.Host
	fs       files.FS
	spool    string
	past     string
	log      *slog.Logger
	children children

	mu      sync.Mutex
	watches map[*watch]bool // guarded by mu: those that go on
	caution *caution        // guarded by mu: of the watch that began last; nil: there is none

	orders    gather.Queue[*order]
	questions gather.Queue[*question]
}

var (
	_ runner.Runner    = (*Runner)(nil)
	_ runner.Suspender = (*Runner)(nil)
	_ runner.Sweeper   = (*Runner)(nil)
)

// Open returns a runner and makes its spool folder.
func Open(ctx context.Context, c Config) (*Runner, error) {
	r := &Runner{
		host: c.Host, fs: c.Host.Files(), spool: c.Spool, past: cmp.Or(c.Past, c.Spool+".past"),
		log: cmp.Or(c.Log, slog.Default()), watches: map[*watch]bool{},
	}
	if c.Exits {
		r.children.keys = map[host.Process]runner.Key{}
	}
	// Messages come and go all the time, and rooms stay, as marks.
	err := files.Spread(ctx, r.fs, c.Spool)
	if err == nil {
		err = r.fs.Mkdir(ctx, path.Join(c.Spool, rooms))
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return r, nil
}

// Launch arms a launch and starts its wrapper.
func (r *Runner) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	h, err := r.launch(ctx, k, p)
	if err != nil {
		return runner.Handle{}, fmt.Errorf("%s: %w", k, err)
	}
	return h, nil
}

func (r *Runner) launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	m, err := markers(k, p.Dir)
	if err != nil {
		return runner.Handle{}, err
	}
	booted, err := r.booted(ctx)
	if err != nil {
		return runner.Handle{}, err
	}
	locks, err := r.draw(ctx)
	if err != nil {
		return runner.Handle{}, err
	}
	boot, err := r.host.Boot(ctx)
	if err != nil {
		return runner.Handle{}, err
	}
	ps, done := host.Process{}, false
	if sh := r.shell(); sh != nil {
		text, err := script(k, p, r.spool, m.token, booted, locks, telling)
		if err != nil {
			return runner.Handle{}, err
		}
		if len(text) <= maxText {
			o := &order{names: m, dir: p.Dir, mark: r.markName(k.Job), armed: armed(m.token, boot), text: text}
			if ps, err, done = r.launchFar(ctx, sh, o).launched(); err != nil {
				return runner.Handle{}, err
			}
		}
	}
	if !done {
		text, err := script(k, p, r.spool, m.token, booted, locks, "")
		if err != nil {
			return runner.Handle{}, err
		}
		if ps, err = r.launchByFiles(ctx, k, p.Dir, m, text, armed(m.token, boot)); err != nil {
			return runner.Handle{}, err
		}
	}
	crash.At("launch.started")
	return r.handle(k, m.token, place{Dir: p.Dir, Process: ps, Locks: locks}), nil
}

func armed(token, boot string) string { return "armed " + token + " " + boot }

// launchByFiles launches step by step.
func (r *Runner) launchByFiles(ctx context.Context, k runner.Key, dir string, m names, text, armed string,
) (none host.Process, _ error) {
	if marked, err := r.marked(ctx, k.Job); err != nil || marked {
		return none, cmp.Or(err, job.Errorf(job.Conflict, "%w", runner.ErrRan))
	}
	// The script may hold secrets. It need not be durable: what runs it does not outlive the boot
	// either.
	if err := r.fs.Put(ctx, m.own("run"), strings.NewReader(text),
		files.PutOptions{Mode: 0o600, NoSync: true}); err != nil {
		return none, &notArmed{err}
	}
	if err := r.write(ctx, m.own("arm"), armed); err != nil {
		return none, &notArmed{err}
	}
	crash.At("launch.armfile")
	if err := r.fs.Link(ctx, m.own("arm"), m.launch()); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return none, job.Errorf(job.Conflict, "%w", runner.ErrArmed)
		}
		return none, err
	}
	crash.At("launch.armed")
	born := r.children.start()
	ps, err := r.host.Start(ctx, host.Command{
		// The script's name is relative to Dir: users meet it in what the shell says of a program
		// that is not there.
		Argv: []string{"/bin/sh", path.Join(runner.Folder, path.Base(m.own("run")))}, Dir: dir,
		Stdout: m.own("log"), Stderr: m.own("log"),
		Env: []string{host.LaunchVariable + "=" + m.token},
	})
	if exited := born(ps, k); exited {
		r.exited(ps, k)
	}
	return ps, err
}

// draw returns a number for a launch, or 0 if there is no room for numbers. The number is below the
// limit of the host, so that its programs can set it. If this process itself runs in a launch, the
// number also differs from that of its launch.
func (r *Runner) draw(ctx context.Context) (uint64, error) {
	limit, err := r.host.LockLimit(ctx)
	if err != nil || limit < 1<<20 {
		return 0, err
	}
	limit = min(limit, 1<<62) // some shells count with a sign
	return limit/2 + mathrand.Uint64N(limit/2), nil
}

// notArmed is [runner.ErrNotArmed], and says why.
type notArmed struct{ error }

func (e *notArmed) Unwrap() []error { return []error{e.error, runner.ErrNotArmed} }

// booted returns when the host was booted, by the clock of this process. With it and the host's
// uptime the wrapper knows the time. Asking for the time would take a process.
func (r *Runner) booted(ctx context.Context) (time.Time, error) {
	uptime, err := r.host.Uptime(ctx)
	return time.Now().Add(-uptime), err
}

// Settle tells whether a launch was started, and revokes it if it was not.
func (r *Runner) Settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	f, err := r.settle(ctx, k, dir)
	if err != nil {
		return runner.Fate{}, fmt.Errorf("settle %s: %w", k, err)
	}
	return f, nil
}

func (r *Runner) settle(ctx context.Context, k runner.Key, dir string) (runner.Fate, error) {
	m, err := markers(k, dir)
	if err != nil {
		return runner.Fate{}, err
	}
	if h, ok, err := r.roomed(ctx, k, dir); err != nil || ok { // this counts, also if the program changed the folder
		return runner.Fate{Started: ok, Handle: h}, err
	}
	if taken, err := r.read(ctx, m.taken()); err != nil || taken != nil {
		return r.fate(ctx, k, dir, taken, err)
	}

	revoked := "revoked " + m.token
	if err := r.write(ctx, m.own("settle"), revoked); err != nil {
		return runner.Fate{}, err
	}
	err = r.fs.Link(ctx, m.own("settle"), m.launch())
	crash.At("settle.linked")
	if err == nil {
		return runner.Fate{}, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return runner.Fate{}, err
	}
	launch, err := r.read(ctx, m.launch())
	if err != nil {
		return runner.Fate{}, err
	}
	if launch.is("revoked", 1) {
		return runner.Fate{}, nil
	}
	empty := launch != nil && len(launch) == 0 // after a power failure: it was not started, see carryOut
	if !empty && !launch.is("armed", 2) {
		return runner.Fate{}, job.Errorf(job.Corrupt, "%s holds %q", m.launch(), launch)
	}

	boot, err := r.host.Boot(ctx)
	if err != nil {
		return runner.Fate{}, err
	}
	if !empty && launch[2] != boot {
		if err := r.write(ctx, m.own("settle"), "lost "+launch[1]); err != nil {
			return runner.Fate{}, err
		}
	}
	err = r.fs.Link(ctx, m.own("settle"), m.taken())
	crash.At("settle.revoked")
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return runner.Fate{}, err
	}
	taken, err := r.read(ctx, m.taken())
	if err == nil && taken == nil {
		err = fmt.Errorf("%s: linked, and not there: %w", m.taken(), fs.ErrNotExist)
	}
	return r.fate(ctx, k, dir, taken, err)
}

// fate judges what taken.<a>.<n> holds.
func (r *Runner) fate(ctx context.Context, k runner.Key, dir string, taken mark, err error) (runner.Fate, error) {
	if err != nil || taken.is("revoked", 1) {
		return runner.Fate{}, err
	}
	if taken.is("lost", 1) {
		return runner.Fate{Started: true, Handle: r.handle(k, taken[1], place{Dir: dir})}, nil
	}
	m := names{folder: path.Join(dir, runner.Folder), number: number(k)}
	launch, err := r.read(ctx, m.launch())
	if err != nil {
		return runner.Fate{}, err
	}
	if !launch.is("armed", 2) {
		return runner.Fate{}, job.Errorf(job.Corrupt, "%s holds %q, and %s %q", m.taken(), taken, m.launch(), launch)
	}
	m.token = launch[1]
	take, err := r.read(ctx, m.own("take"))
	if err != nil {
		return runner.Fate{}, err
	}
	if token, at, ok := take.taker(); ok && token == m.token {
		at.Dir = dir
		return runner.Fate{Started: true, Handle: r.handle(k, token, at)}, nil
	}
	if boot, err := r.host.Boot(ctx); err != nil || launch[2] != boot { // it did not outlive a power failure
		return runner.Fate{Started: err == nil, Handle: r.handle(k, m.token, place{Dir: dir})}, err
	}
	return runner.Fate{}, job.Errorf(job.Corrupt, "%s holds %q", m.own("take"), take)
}

// Clean leaves a mark, and removes the runner's folder and the launch's message.
func (r *Runner) Clean(ctx context.Context, k runner.Key, dir string) error {
	return r.Sweep(ctx, k, dir, "")
}

// Sweep implements [runner.Sweeper].
func (r *Runner) Sweep(ctx context.Context, k runner.Key, dir, folder string) error {
	err := k.Check()
	if err == nil {
		err = r.remember(ctx, k, dir)
	}
	crash.At("archive.marked")
	if err == nil {
		err = r.forgetLaunches(ctx, k, dir, folder)
	}
	if err != nil {
		return fmt.Errorf("clean %s: %w", k, err)
	}
	return nil
}

// forgetLaunches removes what is kept of a job's launches, but its mark, and a folder, if one is
// named. k is the last launch.
func (r *Runner) forgetLaunches(ctx context.Context, k runner.Key, dir, folder string) error {
	names, err := r.rooms(ctx, k)
	names = append(names, path.Join(r.spool, runner.EndName(k, 0)))
	all := append(slices.Clone(names), path.Join(dir, runner.Folder))
	if folder != "" {
		all = append(all, folder)
	}
	if files.RemoveAll(ctx, r.fs, all...) == nil {
		return err
	}
	err = errors.Join(err, files.RemoveAll(ctx, r.fs, names...), r.unmake(ctx, dir))
	if err == nil && folder != "" {
		err = r.fs.Remove(ctx, folder)
	}
	return err
}

// unmake removes the runner's folder of a job. The program may have shut the job's folder.
func (r *Runner) unmake(ctx context.Context, dir string) error {
	name := path.Join(dir, runner.Folder)
	err := r.fs.Remove(ctx, name)
	m, ok := r.fs.(files.Moder)
	if err == nil || !ok || !errors.Is(err, fs.ErrPermission) && job.KindOf(err) != job.Conflict {
		return err
	}
	info, statErr := r.fs.Stat(ctx, dir)
	if statErr != nil || m.Chmod(ctx, dir, info.Mode()|0o700) != nil {
		return err
	}
	return r.fs.Remove(ctx, name)
}

// names are the file names of one launch, and of one launcher or settler of it.
type names struct {
	folder, number, token string
}

func markers(k runner.Key, dir string) (names, error) {
	if err := errors.Join(k.Check(), files.Check(dir)); err != nil {
		return names{}, err
	}
	return names{folder: path.Join(dir, runner.Folder), number: number(k), token: rand.Text()}, nil
}

func number(k runner.Key) string { return fmt.Sprintf("%d.%d", k.Attempt, k.Launch) }

func (n names) launch() string { return path.Join(n.folder, "launch."+n.number) }
func (n names) taken() string  { return path.Join(n.folder, "taken."+n.number) }

// own returns a name that only this launcher or settler writes.
func (n names) own(kind string) string { return path.Join(n.folder, kind+"."+n.number+"."+n.token) }

// A mark is the content of a file of a launch, in words. The first word says what it means.
type mark []string

func (m mark) is(word string, more int) bool { return len(m) == more+1 && m[0] == word }

// mostWords is the most bytes in such a file.
const mostWords = 4096

// taker reads who took a launch.
func (m mark) taker() (token string, at place, ok bool) {
	if !m.is("taken", 5) {
		return "", place{}, false
	}
	at.Process.Boot = m[2]
	_, err := fmt.Sscan(strings.Join(m[3:], " "), &at.Process.PID, &at.Process.Start, &at.Locks)
	return m[1], at, err == nil
}

// write writes a file that is to be linked to the name that counts.
func (r *Runner) write(ctx context.Context, name, words string) error {
	return r.fs.Put(ctx, name, strings.NewReader(words+"\n"), files.PutOptions{Passing: true})
}

// read returns what a name holds, nil if it is not there.
func (r *Runner) read(ctx context.Context, name string) (mark, error) {
	b, err := files.ReadFile(ctx, r.fs, name, mostWords)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(mark{}, strings.Fields(string(b))...), nil
}
