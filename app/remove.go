package app

import (
	"context"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// Remove implements [engine.Remover]: it removes the job's folder, and its results where they lie in the service's own
// archive. Those in a folder of the user's stay.
func (k *Kind) Remove(ctx context.Context, j *job.Job) error {
	folder, results := Places(j)
	switch s, err := k.open(ctx, j); {
	case job.KindOf(err) == job.Unavailable:
		return err
	case err == nil:
		// It may have ended while it was prepared or archived: then there is a folder of which the row does not tell, or there
		// are copies that no sweep finds once the row is gone.
		folder, results = s.dir, s.to
		if err := k.tidy(ctx, j.ID, s.to); err != nil {
			return job.Errorf(job.Unavailable, "remove the copies of results of job %s: %w", j.ID, err)
		}
	}
	if j.Launch > 0 && k.cfg.Runner != nil && k.inWork(folder) {
		if err := k.cfg.Runner.Clean(ctx, key(j), folder); err != nil {
			return job.Errorf(job.Unavailable, "clean up behind job %s: %w", j.ID, err)
		}
	}
	for _, at := range []struct {
		fs         files.FS
		name, root string
	}{
		{k.cfg.Host.Files(), folder, k.cfg.Work},
		{k.cfg.Files, results, k.cfg.Archive},
	} {
		if at.root == "" || !strings.HasPrefix(at.name, at.root+"/") {
			continue
		}
		if err := at.fs.Remove(ctx, path.Clean(at.name)); err != nil {
			return job.Errorf(job.Unavailable, "remove the files of job %s: %w", j.ID, err)
		}
	}
	return nil
}
