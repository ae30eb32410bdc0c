package files

import (
	"context"
	"io/fs"

	"github.com/pawl-jobs/pawl/job"
)

// Listing describes what is in a folder, or a file, with up to limit entries. It tells whether
// there are more.
func Listing(ctx context.Context, fsys FS, name string, limit int) (all []job.Listed, more bool, err error) {
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
			Name: Text(info.Name()), Type: job.ListedOther, Mode: info.Mode().String(),
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
