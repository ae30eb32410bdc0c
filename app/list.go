package app

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// ListSystem lists a folder of a system, with up to limit entries. It lists what jobs can take as an
// input, so its errors are those of an input; see [job.System.Opens].
func (k *Kind) ListSystem(ctx context.Context, tenant, system, name string, limit int) (job.Listing, error) {
	l := job.Listing{System: system, Path: path.Clean("/" + name)}
	from, err := k.border().onSystem(ctx, tenant, place{"path", l.Path}, system, l.Path)
	if err == nil {
		l.Entries, l.More, err = List(ctx, from.fs, from.real, limit)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = job.Errorf(job.NotFound, "system://%s%s is not there", system, l.Path)
	}
	return l, err
}

// List describes what is in a folder, or a file, with up to limit entries. It tells whether there
// are more.
func List(ctx context.Context, fsys files.FS, name string, limit int) (all []job.Listed, more bool, err error) {
	info, err := fsys.Stat(ctx, name)
	list := []fs.FileInfo{info}
	if err == nil && info.IsDir() {
		list, err = fsys.List(ctx, name)
	}
	if err != nil {
		return nil, false, err
	}
	all = []job.Listed{}
	for _, info := range list[:min(len(list), limit)] {
		e := job.Listed{
			Name: files.Text(info.Name()), Type: job.ListedOther, Mode: info.Mode().String(),
			Modified: info.ModTime().UTC(),
		}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			e.Type, e.Size = job.ListedFile, info.Size()
		case mode.IsDir():
			e.Type = job.ListedFolder
		case mode&fs.ModeSymlink != 0:
			e.Type = job.ListedLink
		}
		all = append(all, e)
	}
	return all, len(list) > limit, nil
}
