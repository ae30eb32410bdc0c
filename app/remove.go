package app

import (
	"context"
	"path"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// made are the folders that Pawl makes for a job, and may remove for it.
type made struct{ folder, results string }

// made returns the folders of a job. They follow from its id and tenant, because its documents may
// name any folder.
func (k *Kind) made(y *System, j *job.Job) (made, error) {
	if err := job.CheckTenant(j.Tenant); err != nil {
		return made{}, job.Errorf(job.Conflict, "the files of job %s have to be removed by hand: %w", j.ID, err)
	}
	return made{y.folder(j), path.Join(k.cfg.Archive, j.Tenant, j.ID.String())}, nil
}

// Remove implements [engine.Remover]. It removes the job's folder, its results in the service's own
// archive, and copies of results that were never published. Results in a folder of the user stay.
func (k *Kind) Remove(ctx context.Context, j *job.Job) error {
	y, err := k.system(ctx, j)
	if err != nil {
		return err
	}
	made, err := k.made(y, j)
	if err != nil {
		return err
	}
	s, err := k.open(ctx, j)
	if job.KindOf(err) == job.Unavailable {
		return err
	} else if err != nil {
		s = nil
	}
	// It may have ended while it was archived: then there are copies that no sweep finds once the
	// row is gone.
	if err := k.tidy(ctx, y, j.ID, s); err != nil {
		return stays("copies of results", j.ID, err)
	}
	if j.Launch > 0 && y.Runner != nil {
		if err := y.Runner.Clean(ctx, key(j), made.folder); err != nil {
			return stays("launch files", j.ID, err)
		}
	}
	for _, at := range []struct {
		fs   files.FS
		name string
	}{{y.Host.Files(), made.folder}, {k.cfg.Files, made.results}} {
		if err := files.RemoveAll(ctx, at.fs, at.name); err != nil {
			return stays("files", j.ID, err)
		}
	}
	return nil
}

// stays returns the error about files that could not be removed. It is of kind Conflict if a person
// has to help.
func stays(what string, id job.ID, err error) error {
	kind := job.Unavailable
	if job.KindOf(err) == job.Conflict {
		kind = job.Conflict
	}
	return job.Errorf(kind, "remove the %s of job %s: %w", what, id, err)
}
