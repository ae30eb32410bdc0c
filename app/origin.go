package app

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
)

// An origin is where an input comes from.
type origin struct {
	source files.Source // of a URL of the web; nil: it is a file or a folder
	fs     files.FS     // that has it
	name   string       // its URL, or its path as the spec names it
	real   string       // the path with its links followed
	sys    *System      // that has it; nil: the machine of the service
}

// origin returns where an input comes from. The error is a [job.SpecError] if inputs may not come
// from there.
func (k *Kind) origin(ctx context.Context, border *border, s *program, i int) (o origin, err error) {
	from := s.spec.Inputs[i].From
	reportAt(ctx, from)
	if source := k.source(from); source != nil {
		return origin{source: source, name: from}, nil
	}
	if system, name, ok := job.OnSystem(from); ok {
		return border.onSystem(ctx, s.job.Tenant, place{inputField(i), from}, system, name, s.seen(s.given.Inputs[i].From))
	}
	o.fs = k.cfg.Files
	if o.name, err = files.Path(from); err == nil {
		o.real, err = border.input(ctx, s.job.Tenant, place{inputField(i), o.name})
	}
	return o, err
}

// seen reports whether the system of a location was there before: the submission looks at those
// without macros, and PROCESSING_INPUTS at all.
func (s *program) seen(given string) bool {
	return s.job.State != job.ProcessingInputs || !strings.Contains(given, "${")
}

// on reports whether an input is on a system.
func (o *origin) on(y *System) bool { return o.sys != nil && o.sys.Watch == y.Watch }

// fault marks an error of the machine that has an input: it need not be that of the job.
func (o *origin) fault(err error) error {
	if err == nil || o.sys == nil {
		return err
	}
	return &sourceError{o.sys.Watch, err}
}

// A sourceError is trouble with the system of a watch, which has an input of a job or its archive.
type sourceError struct {
	watch string
	error
}

func (e *sourceError) Unwrap() error { return e.error }

// A farSide is a system that has inputs or takes results, for one step of a job.
type farSide struct {
	doc   job.System
	sys   *System
	roots []string // the folders that jobs can name, with their links followed
	own   string   // the folder in which Pawl has its own there, with its links followed
}

// farSide returns the system of a place. If it was seen and is gone, the error is a [job.Block]: it
// may be made again.
func (b *border) farSide(ctx context.Context, tenant string, p place, system string, seen bool) (*farSide, error) {
	if y := b.far[system]; y != nil {
		return y, nil
	}
	if b.k.cfg.Remote == nil {
		return nil, job.Errorf(job.Unavailable, "this process reaches no systems")
	}
	y := &farSide{}
	var err error
	switch y.doc, err = b.k.cfg.Remote.Document(ctx, tenant, system); {
	case job.KindOf(err) == job.NotFound && seen:
		return nil, recovery.Disabled(system, err.Error())
	case job.KindOf(err) == job.NotFound:
		return nil, wrong(p, "is on a system that is unknown", "give one that pawl get systems lists, or make it")
	case err != nil:
		return nil, err
	}
	if y.doc.Host.Kind == job.HostSSH && len(y.doc.Files) > 0 {
		if y.sys, err = b.k.cfg.Remote.System(ctx, tenant, y.doc.Watch("")); err != nil {
			return nil, (&origin{sys: &System{Watch: y.doc.Watch("")}}).fault(err)
		}
		for _, name := range append([]string{path.Dir(y.sys.Work)}, y.doc.Files...) {
			real, err := files.Real(ctx, y.sys.Host.Files(), name)
			if err != nil {
				return nil, (&origin{sys: y.sys}).fault(err)
			}
			y.roots = append(y.roots, real)
		}
		y.own, y.roots = y.roots[0], y.roots[1:]
	}
	b.far[system] = y
	return y, nil
}

// onSystem returns where an input on a system leads. The error is a [job.SpecError] if inputs may
// not come from there: the path and what it leads to are in the folders that the document of the
// system allows, and not in Pawl's own.
func (b *border) onSystem(ctx context.Context, tenant string, p place, system, name string, seen bool) (o origin,
	err error,
) {
	y, err := b.farSide(ctx, tenant, p, system, seen)
	if err != nil {
		return o, err
	}
	if what, remedy := y.doc.Opens(name); what != "" {
		return o, wrong(p, what, remedy)
	}
	o = origin{fs: y.sys.Host.Files(), name: name, sys: y.sys}
	if o.real, err = files.Real(ctx, o.fs, name); err != nil {
		return o, o.fault(err)
	}
	err = y.admits(ctx, p, o.real, "copy what the program needs to a folder that jobs can name")
	return o, o.fault(err)
}

// admits returns an error unless the place, with its links followed, is one that jobs can name.
func (y *farSide) admits(ctx context.Context, p place, real, remedy string) error {
	shows, err := files.Shows(ctx, y.sys.Host.Files(), real)
	if err != nil {
		return err
	}
	switch {
	case shows:
		return wrong(p, "leads through /proc, where processes are shown and no files are", remedy)
	case !slices.ContainsFunc(y.roots, func(root string) bool { return below(real, root) }):
		return wrong(p, fmt.Sprintf("leads to %s, out of the folders of system %s that jobs can name (%s)", real,
			y.doc.Name, strings.Join(y.doc.Files, ", ")), remedy)
	case below(real, y.own):
		return wrong(p, "lies in "+y.own+", which is Pawl's own there", remedy)
	case below(y.own, real):
		return wrong(p, "holds "+y.own+", which is Pawl's own there", remedy)
	}
	return nil
}
