package app

import (
	"context"
	"errors"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// reach reaches the machine on which the archive of a job is. The error is a [job.SpecError] if
// results may not go there.
func (b *border) reach(ctx context.Context, s *program) error {
	if s.at == "" || s.depot != nil {
		return nil
	}
	p := place{archiveField, s.results()}
	y, err := b.farSide(ctx, s.job.Tenant, p, s.at, s.seen(s.given.Archive.To))
	if err != nil {
		return err
	}
	if what, remedy := y.doc.Opens(s.to); what != "" {
		return wrong(p, what, remedy)
	}
	s.far, s.depot = y, y.sys.Host.Files()
	return nil
}

// targetThere returns an error unless results may be put into a folder of the system of the
// archive. A folder is judged once in a step: whoever changes links there meanwhile has the rights
// of the programs there anyway.
func (b *border) targetThere(ctx context.Context, s *program, dir string) error {
	if b.judged[dir] {
		return nil
	}
	real, err := files.Real(ctx, s.depot, dir)
	if err == nil {
		err = s.far.admits(ctx, place{archiveField, "system://" + s.at + dir}, real,
			"name another folder that jobs can name, or leave archive.to out")
	}
	b.judged[dir] = err == nil
	return err
}

// faultOf marks an error of the machine that takes the results: it need not be that of the job. One
// of reading them is of the job's machine.
func (s *program) faultOf(err error) error {
	read, ok := errors.AsType[*files.ReadError](err)
	if err == nil || s.far == nil || ok && read != nil || job.KindOf(err) == job.Invalid {
		return err
	}
	return &sourceError{s.far.sys.Watch, err}
}
