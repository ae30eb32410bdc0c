package app

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// ListSystem lists a folder of a system, with up to limit entries. It lists what jobs can take as
// an input, so its errors are those of an input; see [job.System.Opens].
func (k *Kind) ListSystem(ctx context.Context, tenant, system, name string, limit int) (job.Listing, error) {
	l := job.Listing{System: system, Path: path.Clean("/" + name)}
	b, at := k.border(), place{"path", l.Path}
	if y, err := b.farSide(ctx, tenant, at, system, false); err == nil && y.doc.Host.Kind != job.HostSSH {
		return l, wrong(at, "is on the machine of the service, and pawl ls lists other machines", "use ls there")
	}
	from, err := b.onSystem(ctx, tenant, at, system, l.Path, false)
	if err == nil {
		l.Entries, l.More, err = files.Listing(ctx, from.fs, from.real, limit)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = job.Errorf(job.NotFound, "system://%s%s is not there", system, l.Path)
	}
	return l, err
}
