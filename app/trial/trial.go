// Package trial tries whether jobs can run on a system, for `pawl systems check`.
package trial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A Trial tries what jobs need of a system. What it makes there is in a folder of its own, with a
// spool of its own, so that no watcher and no [app.Report] meets it.
type Trial struct {
	System *app.System
	// Root is the folder in which the folders of the system are.
	Root string
	// Runner returns a runner like that of the system, with other folders.
	Runner func(ctx context.Context, spool, past string) (runner.Runner, error)
	// Check gets what is found.
	Check *job.SystemCheck
	// Remedy says what to do about a step that failed, for a code if there is one.
	Remedy func(step string, c job.Code) string
	// Wait is how long a program may take to start, to end and to tell its end; 30 s by default.
	Wait time.Duration
	// Resources are what the program asks a scheduler for.
	Resources job.Resources

	id   job.ID
	dir  string // what it makes is there
	told bool   // the end of its program was told
}

// Bounds of a trial.
const (
	maxSkew    = time.Minute // by which the clock of a system may be wrong
	maxTrial   = time.Hour   // after which nobody works any more in the folder of one
	trialGrace = 5 * time.Second
	// trialProgram reads a file that was written from here: a node may not see it. Programs among the
	// inputs of a job can start only where the file system lets files be executed.
	trialProgram = `read -r id <../probe && [ "$id" = "$0" ] || { echo "it does not see the work folder"; exit 1; } >&2
but=; echo '#!/bin/sh' >x && chmod +x x &&
{ ./x 2>/dev/null || but="; files of the work folder cannot be executed (noexec): "\
"give them to an interpreter, such as [sh, x.sh]"; }
echo "$$${SLURMD_NODENAME:+ on node $SLURMD_NODENAME, which sees the work folder}$but"; : >begun; exec sleep 600`
)

// Run tries all from the work folder on.
func (t *Trial) Run(ctx context.Context) {
	t.Wait = cmp.Or(t.Wait, 30*time.Second)
	t.id = job.NewID()
	t.dir = path.Join(t.Root, "check", t.id.String())
	works := t.folder(ctx)
	t.space(ctx)
	if works {
		t.program(ctx)
	}
	t.undo(ctx)
}

// fail notes that a step failed.
func (t *Trial) fail(step string, code job.Code, err error, advice string) {
	code = cmp.Or(CodeOf(err), code)
	if advice == "" {
		advice = t.Remedy(step, code)
	}
	t.Check.Fail(step, code, files.Reason(err), advice)
}

// CodeOf returns the condition that an error of a host or of its files tells; empty: none.
func CodeOf(err error) job.Code {
	if t, ok := errors.AsType[*host.Trouble](err); ok {
		return t.Code
	}
	switch {
	case errors.Is(err, syscall.EROFS):
		return job.FilesystemReadOnly
	case errors.Is(err, syscall.ENOSPC):
		return job.FilesystemFull
	case errors.Is(err, syscall.EDQUOT):
		return job.DiskQuotaExceeded
	case job.KindOf(err) == job.Unavailable:
		return job.ConnectionLost
	}
	return ""
}

// folder sees that files can be made in the work folder, and reads the clock from one.
func (t *Trial) folder(ctx context.Context) bool {
	fsys := t.System.Host.Files()
	t.sweep(ctx)
	err := fsys.Mkdir(ctx, path.Join(t.dir, "job", runner.Folder))
	name := path.Join(t.dir, "probe")
	before := time.Now()
	if err == nil {
		err = fsys.Put(ctx, name, strings.NewReader(t.id.String()+"\n"), files.PutOptions{})
	}
	after := time.Now()
	var info fs.FileInfo
	if err == nil {
		info, err = fsys.Stat(ctx, name)
	}
	if err != nil {
		t.fail(job.CheckWork, "", err, "")
		return false
	}
	t.Check.OK(job.CheckWork, t.Root+" can be written to")
	at := info.ModTime() // of some file systems a whole second
	skew := max(before.Truncate(time.Second).Sub(at), at.Sub(after), 0)
	what := "behind"
	if at.After(after) {
		what = "ahead"
	}
	switch said := fmt.Sprintf("it is %s %s", skew.Round(time.Second), what); {
	case skew > maxSkew:
		t.Check.Fail(job.CheckClock, "", said, "set the clock there by NTP, or that of this machine: programs and "+
			"files would be of the wrong time")
	case skew < time.Second:
		t.Check.OK(job.CheckClock, "it is within a second of the clock here")
	default:
		t.Check.OK(job.CheckClock, said)
	}
	return true
}

// sweep removes what trials have left whose process was killed.
func (t *Trial) sweep(ctx context.Context) {
	fsys, root := t.System.Host.Files(), path.Dir(t.dir)
	names, _ := files.Names(ctx, fsys, root)
	for _, name := range names {
		if id, err := job.ParseID(name); err == nil && time.Since(id.Made()) > maxTrial {
			fsys.Remove(ctx, path.Join(root, name)) //nolint:errcheck // the next trial tries again
		}
	}
}

// space sees that there is room for more.
func (t *Trial) space(ctx context.Context) {
	sizer, ok := t.System.Host.Files().(files.Sizer)
	if !ok {
		t.Check.Skip("its file system does not tell", job.CheckSpace)
		return
	}
	s, err := sizer.Space(ctx, t.Root)
	seen := fmt.Sprintf("%s of %s free", app.Quantity(s.Free), app.Quantity(s.Size))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Check.Skip("its file system does not tell", job.CheckSpace)
	case err != nil:
		t.fail(job.CheckSpace, "", err, "")
	case s.NoFile:
		t.fail(job.CheckSpace, job.FilesystemFull, errors.New("no further file fits: it has no inode left"), "")
	case s.Free < app.Reserve(s.Size):
		t.fail(job.CheckSpace, job.FilesystemFull, errors.New(seen), "")
	default:
		t.Check.OK(job.CheckSpace, seen)
	}
}

// program launches a program, and ends it.
func (t *Trial) program(ctx context.Context) {
	fsys, dir, spool := t.System.Host.Files(), path.Join(t.dir, "job"), path.Join(t.dir, "ends")
	r, err := t.Runner(ctx, spool, path.Join(t.dir, "past"))
	if err != nil {
		t.fail(job.CheckLaunch, "", err, "")
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var told <-chan []runner.Notice
	begun, err := t.System.Host.Watch(ctx, dir)
	if err == nil {
		told, err = r.Watch(ctx)
	}
	defer func() {
		cancel()
		if told != nil {
			for range told { // until the runner is done
			}
		}
	}()
	if err != nil {
		t.fail(job.CheckLaunch, "", err, "")
		return
	}
	key := runner.Key{Job: t.id, Attempt: 1, Launch: 1}
	h, err := r.Launch(ctx, key, runner.Plan{
		Dir: dir, Argv: t.System.Argv([]string{"/bin/sh", "-c", trialProgram, t.id.String()}, ""),
		Stdout: "stdout", Stderr: "stderr", Resources: t.Resources,
	})
	if err != nil {
		t.fail(job.CheckLaunch, job.LaunchFailed, err, "")
		return
	}
	// Whatever comes, nothing of it stays.
	defer func() {
		r.Kill(context.WithoutCancel(ctx), h, 0) //nolint:errcheck // it ends by itself after ten minutes
	}()
	why := ""
	over := func() bool {
		why = runner.Why(ctx, r, h)
		return strings.HasPrefix(why, runner.Over+runner.GaveUp) // of a program that ended somebody tells
	}
	switch t.await(ctx, begun, told, over) {
	case "begun":
	case "told":
		t.broken(ctx, dir)
		return
	case "over":
		t.fail(job.CheckLaunch, job.LaunchFailed, fmt.Errorf("the program has not begun%s", why),
			"look at what the message names, and at the limits of the account there (ulimit -a)")
		return
	default:
		over()
		t.fail(job.CheckLaunch, job.LaunchFailed, fmt.Errorf("the program has not begun within %s%s", t.Wait, why),
			"look at shell and profile of the system: they may wait for something")
		return
	}
	out, _ := files.ReadFile(ctx, fsys, path.Join(dir, "stdout"), 64<<10)
	t.Check.OK(job.CheckLaunch, "a program runs as process "+lastLine(out))
	states, err := r.Probe(ctx, []runner.Handle{h})
	switch {
	case err != nil:
		t.fail(job.CheckAlive, "", err, "")
		return
	case states[0].State != runner.Active:
		t.fail(job.CheckAlive, "", fmt.Errorf("it is %s", states[0].State),
			"look what ends programs of the account: their ends would be lost, too")
		return
	}
	t.Check.OK(job.CheckAlive, "it is found by its marks")
	limit, enough := context.WithTimeout(ctx, t.Wait)
	defer enough()
	if err := r.Kill(limit, h, trialGrace); err != nil {
		t.fail(job.CheckEnd, "", err, "end it on the host; a job there could not be canceled")
		return
	}
	t.Check.OK(job.CheckEnd, "SIGTERM ended it")
	ended := time.Now()
	if is := t.await(ctx, nil, told, nil); is != "told" {
		err := fmt.Errorf("no message came within %s", t.Wait)
		if is == "deaf" {
			err = fmt.Errorf("no message can come any more: %s cannot be watched, or is gone", spool)
		}
		t.fail(job.CheckTold, "", err,
			"look at the file system of the work folder: ends would be noticed once in a minute only")
		return
	}
	t.told = true
	late := max(time.Since(ended).Round(time.Millisecond), time.Millisecond)
	t.Check.OK(job.CheckTold, fmt.Sprintf("its message came %s later", late))
}

// broken tells of a program that has ended before it began.
func (t *Trial) broken(ctx context.Context, dir string) {
	said := "and nothing of it can be read"
	if b, err := files.ReadFile(ctx, t.System.Host.Files(), path.Join(dir, "stderr"), 64<<10); err == nil {
		said = "and its last words were: " + lastLine(b)
	}
	t.fail(job.CheckLaunch, job.LaunchFailed, fmt.Errorf("it ended before it began, %s", said),
		"look at shell and profile of the system: they come before each program")
}

// lastLine returns the last line of an output; the profile of a system may print some before it.
func lastLine(b []byte) string {
	b = bytes.TrimSpace(b)
	return strings.ToValidUTF8(string(b[bytes.LastIndexByte(b, '\n')+1:]), "?")
}

// await waits until the program has "begun", or its end is "told"; empty: neither comes in time.
// Nobody tells of a launcher that gave up: with over, which looks, it may also be "over". It is
// "deaf" if nobody listens any more.
func (t *Trial) await(ctx context.Context, begun <-chan host.Event, told <-chan []runner.Notice, over func() bool,
) string {
	late, look := time.NewTimer(t.Wait), time.NewTicker(t.Wait/10)
	defer late.Stop()
	defer look.Stop()
	for begun != nil || told != nil {
		select {
		case e, ok := <-begun:
			switch {
			case !ok:
				begun = nil
			case e.Name == "begun":
				return "begun"
			}
		case news, ok := <-told:
			if !ok {
				told = nil
			}
			for _, n := range news {
				if n.Key.Job == t.id && n.End != nil {
					return "told"
				}
			}
		case <-look.C:
			if over != nil && over() {
				return "over"
			}
		case <-late.C:
			return ""
		case <-ctx.Done():
			return ""
		}
	}
	return "deaf"
}

// undo removes all that was made. Of a step that failed it says nothing more.
func (t *Trial) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.Wait)
	defer cancel()
	fsys := t.System.Host.Files()
	err := fsys.Remove(ctx, t.dir)
	if err == nil {
		if _, err = fsys.Stat(ctx, t.dir); errors.Is(err, fs.ErrNotExist) {
			err = nil
		} else if err == nil {
			err = fmt.Errorf("%s is still there", t.dir)
		}
	}
	switch {
	case err != nil:
		t.fail(job.CheckClean, "", err, "remove "+t.dir+" there")
	case t.told:
		t.Check.OK(job.CheckClean, "nothing of it is left")
	}
}
