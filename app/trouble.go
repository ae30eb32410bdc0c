package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"strconv"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// TesterSpace is the name of the tester that asks whether "bytes" bytes are free on the volume of
// the folder "path", and can be written. With "watch" that is on the machine of that watch.
const TesterSpace = "space"

// A room is where a step puts files.
type room struct {
	fs files.FS
	// root is a folder that many jobs share. The folder of one job would make a group for each job.
	root string
	// need is how many bytes the job needs, as far as that is known. What the step has copied is
	// removed before it tries again.
	need int64
	// system is the system whose programs put files there, too. They wait while there is no room;
	// empty: there are none.
	system string
	own    hold   // the job that needs the room
	watch  string // the watch of the system whose files these are; empty: those of this machine
}

// workRoom returns the room for the jobs' folders. While it is full, no more programs come there.
func (k *Kind) workRoom(s *program, need int64) room {
	r := room{fs: s.sys.Host.Files(), root: s.sys.Work, need: need, system: s.system(), own: s.hold()}
	if elsewhere(s.job) {
		r.watch = s.job.Watch
	}
	return r
}

// resultRoom returns the room for the results of a job.
func (k *Kind) resultRoom(ctx context.Context, s *program, need int64) room {
	top, watch := files.Volume(ctx, s.depot, s.to), ""
	if s.far != nil {
		watch = s.far.sys.Watch
	}
	switch work := k.workRoom(s, need); {
	case work.watch == watch && top == files.Volume(ctx, work.fs, work.root):
		return work // programs write there too
	case s.own():
		top = k.cfg.Archive
	}
	return room{fs: s.depot, root: top, need: need, own: s.hold(), watch: watch}
}

// TesterMachine asks whether the machine gives Pawl descriptors and processes again.
const TesterMachine = "machine"

// shortage blocks a job until the machine gives again what it lacked. The test runs on that
// machine.
func shortage(err error) *job.Block {
	return &job.Block{Code: job.MachineExhausted, Message: files.Reason(err), Tester: TesterMachine}
}

// unlaunched says what a launcher lacked that gave up, if that comes back. Otherwise it is nil.
func (k *Kind) unlaunched(ctx context.Context, s *program) error {
	e := cmp.Or(s.progress.End, &runner.End{})
	in, full := strings.CutPrefix(e.NotStarted, runner.NoRoom)
	switch {
	case e.NotStarted == runner.CannotFork:
		return shortage(errors.New(e.NotStarted))
	case full:
		r, of := k.workRoom(s, 0), syscall.ENOSPC
		r.root = cmp.Or(strings.TrimPrefix(in, runner.NoRoomIn), r.root)
		if space, _ := r.space(ctx); space.ReadOnly {
			of = syscall.EROFS
		}
		return k.full(ctx, r, fmt.Errorf(runner.GaveUp+"%w", of))
	}
	return nil
}

// noRoom reports whether a file system took nothing, because it is full or can only be read.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS) }

// full returns err. If err says that the file system or the machine is full, or that the file
// system can only be read, it returns the block.
func (k *Kind) full(ctx context.Context, r room, err error) error {
	if job.Shortage(err) {
		return shortage(err)
	}
	code := job.FilesystemFull
	switch {
	case errors.Is(err, syscall.EROFS):
		code = job.FilesystemReadOnly
	case !noRoom(err):
		return err
	}
	if _, statErr := r.fs.Stat(ctx, r.root); statErr != nil { // there was not even room for it
		r.root = files.Volume(ctx, r.fs, r.root)
	}
	b := &job.Block{Code: code, Message: files.Reason(err), Tester: TesterSpace, Params: map[string]string{"path": r.root}}
	if r.watch != "" {
		b.Params[ParamWatch] = r.watch
	}
	others := k.copying(r.own) // first: a copy that goes meanwhile counts twice, not never
	space, known := r.space(ctx)
	need := roughly(r.need)
	if known && need > space.Size {
		need = r.need
	}
	// A file system on which there is hardly any room is in everybody's way. Where there is some,
	// and too little for this job, the others go on. Room that is taken by halves of copies may
	// soon be free.
	if r.system != "" && (!known || space.NoFile || space.ReadOnly || sum(space.Free, others) < Reserve(space.Size)) {
		need = Reserve(space.Size)
		// a group closes one line: systems that share a file system have one each
		b.Line, b.Params["system"] = job.SystemKey(r.system), r.system
	} else {
		b.Apart = true
	}
	b.Params["bytes"] = strconv.FormatInt(need, 10)
	return b
}

// copying returns how many bytes the steps under way have copied, without those of one job.
func (k *Kind) copying(but hold) (all int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for h, p := range k.progress {
		if h != but {
			all = sum(all, p.Done)
		}
	}
	return all
}

// space returns the size of a room and how much is free in it; false: not known.
func (r room) space(ctx context.Context) (files.Space, bool) {
	s, can := r.fs.(files.Sizer)
	if !can {
		return files.Space{}, false
	}
	space, err := s.Space(ctx, r.root)
	return space, err == nil
}

// Reserve is how much is free on a file system that is not full: a hundredth of it, 1 to 64 MiB.
func Reserve(size int64) int64 { return min(max(size/100, 1<<20), 64<<20) }

// fits reports whether need fits into an empty room, if that is known. If not, size is what there
// is.
func (r room) fits(ctx context.Context) (size int64, fits bool) {
	space, known := r.space(ctx)
	return space.Size, !known || r.need <= space.Size
}

// roughly rounds n up, by a quarter at most and to a mebibyte at least. So jobs with about the same
// needs wait together.
func roughly(n int64) int64 {
	const least = 1 << 20
	if n <= least {
		return least
	}
	unit := int64(1) << (bits.Len64(uint64(n-1)) - 3)
	return (n + unit - 1) / unit * unit
}

// trouble returns the outcome of a step that failed at what. code is for a failure that is no
// block.
func (k *Kind) trouble(ctx context.Context, s *program, code job.Code, what string, err error) engine.Outcome {
	if ctx.Err() != nil {
		return engine.Back()
	}
	what += ": " + files.Reason(err)
	if job.Shortage(err) {
		err = shortage(err)
	}
	if b := silent(s.job, err); b != nil {
		b.Message = what
		return engine.Block(b)
	}
	if b := job.Blocking(err); b != nil {
		// it was found out here, and other machines may have other troubles
		b.Message, b.Machine = what, s.job.Machine
		return engine.Block(b)
	}
	if errors.Is(err, syscall.EDQUOT) {
		return engine.Fail(job.Entry{Code: job.DiskQuotaExceeded, Message: what})
	}
	return engine.Retry(job.Entry{Code: code, Message: what})
}

// faulty returns the outcome of a step that fails the same way each time, unless it met a shortage.
func (k *Kind) faulty(ctx context.Context, s *program, code job.Code, err error) engine.Outcome {
	if ctx.Err() != nil || job.KindOf(err) == job.Unavailable {
		return k.trouble(ctx, s, code, "look at the job", err)
	}
	return engine.Fail(job.Entry{Code: code, Message: err.Error()})
}

// inputTrouble returns the outcome of a step that failed at an input.
func (k *Kind) inputTrouble(ctx context.Context, s *program, in job.Input, err error) engine.Outcome {
	code, what := job.StagingFailed, nameOf(in)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, what = job.InputMissing, what+" is not there"
		_, far, _ := job.OnSystem(in.From)
		if at, ok := errors.AsType[*fs.PathError](err); ok && ctx.Err() == nil &&
			(at.Path == in.From || "file://"+at.Path == in.From || at.Path == far) {
			return engine.Retry(job.Entry{Code: code, Message: what})
		}
	case errors.Is(err, fs.ErrPermission), isLink(err), job.KindOf(err) == job.Invalid:
		code, what = job.InputUnreadable, what+" cannot be read"
	}
	return k.trouble(ctx, s, code, what, err)
}

// nameOf returns what messages call an input.
func nameOf(in job.Input) string {
	if in.Name != "" {
		return fmt.Sprintf("input %s (%s)", in.Name, in.From)
	}
	return "input " + in.From
}

func isLink(err error) bool { return errors.As(err, new(*files.LinkError)) }
