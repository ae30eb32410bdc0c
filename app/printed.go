package app

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Programs say things by lines on their stdout: see package printed. The watcher reads the outputs
// of running programs for events, one after the other. The step that archives reads the rest, and
// keeps the last checkpoint for the next attempt.

// listenGap is the time between two rounds through the outputs of the programs of this machine.
// Those of others are looked at as often as the programs themselves.
const listenGap = 5 * time.Second

// checkpointVariable is where a program finds the last checkpoint of an attempt before it.
const checkpointVariable = "PAWL_CHECKPOINT"

// An ear is what this process knows of the outputs of the programs of one watch.
type ear struct {
	printed.Readers
	busy atomic.Bool // a round is under way; where a file system hangs, it may outlast its term
}

func (k *Kind) ear(watch string) *ear {
	e, _ := k.ears.LoadOrStore(watch, &ear{})
	return e.(*ear)
}

// outputIn opens the stdout of a program in the files of its system.
func (s *program) outputIn(fsys files.FS) printed.Open {
	dir, name := s.dir, s.spec.Stdout
	return func(ctx context.Context) (io.ReadSeekCloser, int64, error) {
		reportAlive(ctx)
		r, info, err := jobfolder.Open(ctx, jobfolder.Guard(fsys, dir), dir, path.Clean(name))
		if err != nil {
			return nil, 0, err
		}
		return r, info.Size(), nil
	}
}

// outputSize tells how long the stdout of a program is.
func (s *program) outputSize() func(context.Context) (int64, error) {
	fsys, name := s.sys.Host.Files(), path.Join(s.dir, s.spec.Stdout)
	return func(ctx context.Context) (int64, error) {
		info, err := fsys.Stat(ctx, name)
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
}

// listen begins a round through the outputs of the running programs, one after the other, unless
// the round before is still under way.
func (x *watch) listen(ctx context.Context) {
	e := x.kind.ear(x.sys.Watch)
	if !e.busy.CompareAndSwap(false, true) {
		return
	}
	running := map[printed.Launch]bool{}
	var jobs []job.Job
	for _, w := range x.all() {
		if w.row.State == job.Running {
			running[printed.LaunchOf(&w.row)] = true
			jobs = append(jobs, w.row)
		}
	}
	e.Keep(running)
	go func() {
		defer e.busy.Store(false)
		for some := range slices.Chunk(jobs, 500) { // as in readRows
			x.follow(ctx, e, some)
		}
	}()
}

// listenToEnd reads the rest of the output of a program that was ended. It gives up when nothing
// moves, because the file system may hang.
func (x *watch) listenToEnd(ctx context.Context, j job.Job) {
	ctx, over := context.WithCancel(ctx)
	hangs := time.AfterFunc(x.kind.cfg.Leave, over)
	defer hangs.Stop()
	go func() {
		defer over()
		e, l := x.kind.ear(x.sys.Watch), printed.LaunchOf(&j)
		for x.meet(ctx, e, []job.Job{j}) != nil { // the store cannot be reached
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
		r := e.Get(l)
		if r == nil {
			return
		}
		_, err := r.Finish(ctx, l, nil, func(ctx context.Context, n job.CustomEvent) error {
			defer hangs.Reset(x.kind.cfg.Leave)
			return x.held.AddEvent(ctx, &j, n)
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
			x.kind.cfg.Log.Warn("the output of a program was not read to its end", "job", j.ID, "error", err)
		}
	}()
	<-ctx.Done()
}

// follow reads on in the outputs of programs, and writes the events that are new. What it misses
// is found the next time.
func (x *watch) follow(ctx context.Context, e *ear, jobs []job.Job) {
	if err := x.meet(ctx, e, jobs); err != nil {
		return
	}
	for _, j := range jobs {
		l := printed.LaunchOf(&j)
		if r := e.Get(l); r != nil && ctx.Err() == nil {
			err := r.Follow(ctx, l, func(ctx context.Context, n job.CustomEvent) error { return x.held.AddEvent(ctx, &j, n) })
			if err != nil && ctx.Err() == nil {
				x.kind.cfg.Log.Debug("the output of a program was not read", "job", j.ID, "error", err)
			}
		}
	}
}

// meet finds the outputs of jobs that are met for the first time.
func (x *watch) meet(ctx context.Context, e *ear, jobs []job.Job) error {
	var ids []job.ID
	for i := range jobs {
		if e.Get(printed.LaunchOf(&jobs[i])) == nil {
			ids = append(ids, jobs[i].ID)
		}
	}
	if len(ids) == 0 {
		return ctx.Err()
	}
	rows, err := x.store.Find(ctx, store.FindQuery{IDs: ids})
	if err != nil {
		return err
	}
	for i := range rows {
		if s, err := x.kind.open(ctx, &rows[i]); err == nil && s.sys.Host != nil {
			e.Add(printed.LaunchOf(&rows[i]), printed.NewReader(s.outputSize(), s.outputIn(s.sys.Host.Files())))
		}
	}
	return nil
}

// lastWords reads the rest of what the program has printed. It writes the events, and records the
// last checkpoint before anything else becomes of the attempt. It returns an outcome if the step
// cannot go on.
func (k *Kind) lastWords(ctx context.Context, s *program, record recorder, tell printed.Tell,
) (o engine.Outcome, stop bool) {
	if s.progress.Handle == nil || s.progress.Manifest != nil {
		return o, false
	}
	l := printed.LaunchOf(s.job)
	r := k.ear(s.sys.Watch).Take(l)
	if r == nil {
		r = printed.NewReader(nil, nil)
	}
	fsys := s.sys.Host.Files()
	if s.verdict().Code == job.NormalCompletion || s.job.Attempt >= s.job.MaxAttempts { // its results are next
		fsys = s.load(ctx)
	}
	point, err := r.Finish(ctx, l, s.outputIn(fsys), tell)
	told, untold := jobfolder.Checkpoint(ctx, jobfolder.Guard(fsys, s.dir), s.dir, l.Launch)
	if told != "" {
		point = told
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = untold
	}
	crash.At("archive.heard")
	switch {
	case ctx.Err() != nil:
		return engine.Back(), true
	case err == nil:
	case silent(s.job, err) != nil, job.Blocking(err) != nil, job.Shortage(err):
		return k.trouble(ctx, s, job.ArchiveFailed, "read what the program has printed", err), true
	default:
		k.cfg.Log.Warn("what a program has printed cannot be read", "job", s.job.ID, "error", err)
	}
	if point == "" || point == s.progress.Checkpoint {
		return o, false
	}
	s.progress.Checkpoint = point
	if record(job.Entry{Message: "checkpoint: " + point}, s.progress.encode()) != nil {
		return engine.Back(), true
	}
	return o, false
}
