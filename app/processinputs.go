package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/app/pattern"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// processInputs resolves the spec and makes the job's folder. Before anything is copied it sees
// that every input can be read and that the archive can be written.
func (k *Kind) processInputs(ctx context.Context, s *program, _ recorder) engine.Outcome {
	if err := k.check(s); err != nil {
		return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
	}
	var all Size
	var absent, unsized []string
	border := k.border()
	for i, in := range s.spec.Inputs {
		var size Size
		from, err := k.origin(ctx, border, s, i)
		if trespass(err) {
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
		}
		if err == nil {
			size, err = k.look(ctx, in, &from)
		}
		if in.Optional && errors.Is(err, fs.ErrNotExist) && !isLink(err) {
			absent = append(absent, in.From)
			continue
		}
		if err != nil {
			return k.inputTrouble(ctx, s, in, err)
		}
		if size.Bytes < 0 {
			size.Bytes, unsized = 0, append(unsized, in.From)
		}
		all.Files, all.Bytes, all.Holes = all.Files+size.Files, sum(all.Bytes, size.Bytes), sum(all.Holes, size.Holes)
	}
	if o := k.writable(ctx, border, s); o != nil {
		return *o
	}
	k.spread(ctx, s.sys.Host.Files(), path.Dir(s.dir))
	if !s.atOnce() {
		if err := k.makeFolder(ctx, s); err != nil {
			return k.trouble(ctx, s, job.StagingFailed, "make the job's folder", k.full(ctx, k.workRoom(s, 0), err))
		}
	}
	crash.At("stage.folder")
	o := k.resolved(s, all)
	var said []string
	if absent != nil {
		said = append(said, "optional and not there: "+strings.Join(absent, ", "))
	}
	if unsized != nil {
		said = append(said, "of a size that its server does not tell: "+strings.Join(unsized, ", "))
	}
	if said != nil {
		o = o.Explain(strings.Join(said, "; "), nil)
	}
	return o
}

// makeFolder makes the job's folder, with that of the runner in it. What the program of an earlier
// attempt left stays, unless it is in the way.
func (k *Kind) makeFolder(ctx context.Context, s *program) error {
	err := files.Unlink(ctx, s.sys.Host.Files(), s.dir, path.Join(s.dir, runner.Folder))
	if err == nil && s.job.Attempt > 1 {
		err = k.clear(ctx, s)
	}
	if err != nil {
		return err
	}
	return s.sys.Host.Files().Mkdir(ctx, path.Join(s.dir, runner.Folder))
}

// openFolder gives Pawl its rights to the job's folder back, if the program of an earlier attempt
// took them away.
func (k *Kind) openFolder(ctx context.Context, s *program) error {
	fsys, inner := s.sys.Host.Files(), path.Join(s.dir, runner.Folder)
	return cmp.Or(files.Unlink(ctx, fsys, s.dir, inner), files.NewWay(fsys, s.dir).Clear(ctx, inner, fs.ModeDir))
}

// clear makes way for the inputs, the logs and Pawl's own files. A folder in the place of a log
// cannot be opened, a pipe there waits for a reader, and a link may lead anywhere.
func (k *Kind) clear(ctx context.Context, s *program) error {
	w, border := files.NewWay(s.sys.Host.Files(), s.dir), k.border()
	var err error
	for _, name := range []string{describedFile, scriptFile, s.spec.Stdout, s.spec.Stderr} {
		err = cmp.Or(err, w.Clear(ctx, path.Join(s.dir, name), 0))
	}
	for i, in := range s.spec.Inputs {
		from, fromErr := k.origin(ctx, border, s, i)
		switch to := path.Join(s.dir, in.To); {
		case fromErr != nil || err != nil:
		case in.InPlace:
			err = w.Clear(ctx, to, fs.ModeSymlink)
		case from.source != nil:
			err = w.Clear(ctx, to, 0)
		default:
			err = w.ClearTree(ctx, from.fs, from.real, to)
		}
	}
	return err
}

// spread makes a folder of jobs' folders, once in the life of the process. Whatever makes a folder
// in it makes this one, too: it is a hint for the file system.
func (k *Kind) spread(ctx context.Context, fsys files.FS, dir string) {
	if _, done := k.spreads.LoadOrStore(dir, true); !done {
		files.Spread(ctx, fsys, dir) //nolint:errcheck // a hint
	}
}

// resolved returns the outcome of PROCESSING_INPUTS.
func (k *Kind) resolved(s *program, staged Size) engine.Outcome {
	s.given.System = s.system() + "@" + s.sys.Host.ID()
	resolved, err := json.Marshal(Resolved{s.given, s.dir, s.results(), s.environ, staged})
	if err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	return engine.Next(job.StagingInputs).Set(job.Patch{Resolved: resolved})
}

// check checks a spec after its macros were replaced.
func (k *Kind) check(s *program) error {
	names := map[string]string{"stdout": s.spec.Stdout, "stderr": s.spec.Stderr}
	for i, in := range s.spec.Inputs {
		names[fmt.Sprintf("inputs[%d].to", i)] = in.To
		if _, _, far := job.OnSystem(in.From); far || k.source(in.From) != nil {
			continue
		}
		if _, err := files.Path(in.From); err != nil {
			return fmt.Errorf("input %w", err)
		}
	}
	for field, name := range names {
		if _, err := s.inside(field, name); err != nil {
			return err
		}
	}
	return pattern.Check(s.spec.Archive)
}

// trespass reports whether an error says that a spec names a place that is not for its job.
func trespass(err error) bool {
	_, ok := errors.AsType[*job.SpecError](err)
	return ok
}

// look sees that an input can be read, without reading it, and returns its size. Bytes below 0
// stand for a size that is not known.
func (k *Kind) look(ctx context.Context, in job.Input, from *origin) (Size, error) {
	if from.source != nil {
		bytes, err := from.source.Stat(ctx, from.name)
		return Size{Files: 1, Bytes: bytes}, err
	}
	info, err := from.fs.Stat(ctx, from.name)
	switch {
	case err != nil:
		return Size{}, from.fault(from.dangling(ctx, err))
	case in.InPlace:
		return Size{}, nil
	case !info.IsDir():
		if err := regular(from.name, info); err != nil {
			return Size{}, err
		}
		return Size{1, info.Size(), info.Size() - files.Allocated(info)}, from.readable(ctx, from.name)
	case in.SHA256 != "":
		return Size{}, job.Errorf(job.Invalid,
			"it is a folder, and sha256 is the sum of a file: remove sha256, or name a file")
	}
	var size Size
	err = files.Tree(ctx, from.fs, from.name, func(e files.Entry) error {
		reportAt(ctx, e.Path)
		switch {
		case e.Err != nil:
			if l, ok := errors.AsType[*files.LinkError](e.Err); ok && l.Folder != "" {
				return nil
			}
			return e.Err
		case e.Info.Mode().IsRegular():
			size.add(e.Info.Size(), e.Info.Size()-files.Allocated(e.Info))
			return from.readable(ctx, e.Path)
		}
		return nil
	})
	return size, from.fault(err)
}

// dangling returns err. If the input is a link that leads nowhere, it returns an error that says
// so.
func (o *origin) dangling(ctx context.Context, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, resolveErr := files.Resolve(ctx, o.fs, o.name)
	if at, ok := errors.AsType[*fs.PathError](resolveErr); ok && at.Path != o.name {
		return &fs.PathError{Op: "follow", Path: at.Path, Err: fs.ErrNotExist}
	}
	return err
}

func (o *origin) readable(ctx context.Context, name string) error {
	f, err := o.fs.Open(ctx, name)
	if err != nil {
		return o.fault(err)
	}
	return f.Close()
}

// writable sees that the folder that the user named for the archive can take it, before a program
// runs for hours. It returns nil if it can.
func (k *Kind) writable(ctx context.Context, border *border, s *program) *engine.Outcome {
	a := s.spec.Archive
	if a.To == "" || a.On == job.ArchiveNever {
		return nil
	}
	reportAt(ctx, s.results())
	var o engine.Outcome
	err := border.reach(ctx, s)
	if err == nil {
		err = border.outside(ctx, s, s.to)
	}
	if trespass(err) {
		o = engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
		return &o
	}
	if err == nil && !a.Overwrite {
		if _, err := s.depot.Stat(ctx, path.Join(s.to, ManifestFile)); err == nil {
			o = engine.Fail(job.Entry{Code: job.ArchiveExists, Message: fmt.Sprintf(
				"archive.to: %s/%s is there already: the folder holds the archive of another job", s.results(), ManifestFile)})
			return &o
		}
	}
	if err == nil {
		err = k.try(ctx, border, s)
	}
	if err != nil {
		o = k.trouble(ctx, s, job.ArchiveFailed, "archive.to "+s.results()+" cannot be written", s.faultOf(err))
		return &o
	}
	return nil
}

// try makes a folder where the copies of an archive will be, and removes it. Meanwhile there is a
// marker, as for copies: after a crash here the job may be canceled before it runs again.
func (k *Kind) try(ctx context.Context, border *border, s *program) error {
	own, marker := s.sys.Host.Files(), s.sys.marker(s.job.ID)
	if err := own.Mkdir(ctx, marker); err != nil {
		return k.full(ctx, k.workRoom(s, 0), err)
	}
	folder := path.Join(s.to, staging(s.job.ID)+"try")
	err := border.mkdir(ctx, s, folder)
	if err == nil {
		crash.At("archive.tried")
		err = s.depot.Remove(ctx, folder)
	}
	if ctx.Err() != nil {
		return err // the folder may be there
	}
	if err != nil {
		err = k.full(ctx, k.resultRoom(ctx, s, 0), err)
	}
	return cmp.Or(err, own.Remove(ctx, marker))
}
