package pawl

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A File is one file of a job's output.
type File struct {
	Path     string    `json:"path" doc:"Its path in the job's folder or its results, with slashes. A byte that is no UTF-8 is written as \\xNN, and so it is asked for."`
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified"`
	Problem  string    `json:"problem,omitempty" doc:"Why it cannot be looked at; then it may be a folder, and size and time say nothing."`
}

// fileAt returns what is said of a file.
func fileAt(name string, info fs.FileInfo) File {
	return File{Path: files.Text(name), Size: info.Size(), Modified: info.ModTime().UTC()}
}

// amiss returns what is said of a name that cannot be looked at.
func amiss(name string, err error) File {
	why := err.Error()
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		why = at.Err.Error()
	}
	return File{Path: files.Text(name), Problem: why}
}

// Output lists the regular files of a job, sorted by path: those in its folder while that is there, and its results
// after that. Links are not followed, and what Pawl itself keeps in the folder is left out. What cannot be looked at is
// among them, with its problem. The error is NotFound while
// the job has no files yet, and for a task.
func (s *Service) Output(ctx context.Context, id job.ID) ([]File, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.elsewhere(&j) {
		return fromPeer(ctx, s, &j, func(p Peer) ([]File, error) { return p.Output(ctx, id) })
	}
	f, err := s.filesOf(&j)
	if err != nil {
		return nil, err
	}
	list, err := below(ctx, f.FS, f.Folder, "")
	if errors.Is(err, fs.ErrNotExist) {
		return archived(ctx, f)
	}
	return list, err
}

// archived lists the files in a job's results that are its own and still there.
func archived(ctx context.Context, f engine.Files) ([]File, error) {
	if f.Archived == nil && f.Results != "" {
		all, err := below(ctx, f.FS, f.Results, "")
		if errors.Is(err, fs.ErrNotExist) {
			return []File{}, nil
		}
		return all, err
	}
	list := []File{}
	for _, name := range slices.Sorted(slices.Values(f.Archived)) {
		info, err := f.FS.Stat(ctx, path.Join(f.Results, name))
		switch {
		case err == nil && name != runner.Folder && !strings.HasPrefix(name, runner.Folder+"/"):
			list = append(list, fileAt(name, info))
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case files.Alone(err):
			list = append(list, amiss(name, err))
		default:
			return nil, err
		}
	}
	return list, nil
}

// OpenOutput opens one file of a job for reading, which the caller closes. A path that leads out of the job's folder, by
// itself or through a symbolic link, is Invalid.
func (s *Service) OpenOutput(ctx context.Context, id job.ID, name string) (File, io.ReadSeekCloser, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return File{}, nil, err
	}
	if s.elsewhere(&j) {
		return s.openThere(ctx, &j, name)
	}
	f, err := s.filesOf(&j)
	if err != nil {
		return File{}, nil, err
	}
	file, r, err := open(ctx, f, files.Name(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = job.Errorf(job.NotFound, "job %s has no file %s: see pawl output %s", j.ID, name, j.ID)
	case errors.Is(err, fs.ErrPermission):
		err = job.Errorf(job.Conflict, "job %s: %s may not be read by the user that runs Pawl: %w", j.ID, name, err)
	}
	return file, r, err
}

// filesOf returns where the files of a job are, which belongs to this machine.
func (s *Service) filesOf(j *job.Job) (engine.Files, error) {
	k, err := s.keeper(j)
	if err != nil {
		return engine.Files{}, err
	}
	return k.Files(j)
}

func (s *Service) keeper(j *job.Job) (engine.Keeper, error) {
	k, ok := s.cfg.Kinds[j.Kind].(engine.Keeper)
	switch {
	case ok:
		return k, nil
	case j.Program():
		return nil, job.Errorf(job.Unavailable, "this process does not keep the files of programs")
	}
	return nil, job.Errorf(job.NotFound, "job %s is a task and has no files and no log: see pawl history %s", j.ID, j.ID)
}

// below lists the regular files in a folder and below it. name is the folder's path within root.
func below(ctx context.Context, fsys files.FS, root, name string) ([]File, error) {
	infos, err := fsys.List(ctx, path.Join(root, name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != "": // removed meanwhile
		return nil, nil
	case name != "" && files.Alone(err):
		return []File{amiss(name, err)}, nil
	case err != nil:
		return nil, err
	}
	list := []File{}
	for _, info := range infos {
		p := path.Join(name, info.Name())
		switch {
		case p == runner.Folder:
		case files.Fault(info) != nil:
			list = append(list, amiss(p, files.Fault(info)))
		case info.IsDir():
			more, err := below(ctx, fsys, root, p)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		case info.Mode().IsRegular():
			list = append(list, fileAt(p, info))
		}
	}
	return list, nil
}

// open opens a file in a job's folder, or else in its results. The error is fs.ErrNotExist where neither has it.
func open(ctx context.Context, f engine.Files, name string) (File, io.ReadSeekCloser, error) {
	if !inner(name) {
		return File{}, nil, outside(name)
	}
	for _, root := range []string{f.Folder, f.Results} {
		if root == "" || root == f.Results && f.Archived != nil && !slices.Contains(f.Archived, name) {
			continue
		}
		full, err := within(ctx, f.FS, root, name)
		if err == nil {
			file, r, err := openAt(ctx, f.FS, full)
			if err == nil {
				file.Path = files.Text(name)
				return file, r, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return File{}, nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return File{}, nil, err
		}
	}
	return File{}, nil, fs.ErrNotExist
}

func openAt(ctx context.Context, fsys files.FS, full string) (File, io.ReadSeekCloser, error) {
	r, err := fsys.Open(ctx, full)
	if err != nil {
		return File{}, nil, err
	}
	info, err := fsys.Stat(ctx, full)
	if err != nil {
		return File{}, nil, errors.Join(err, r.Close())
	}
	return File{Size: info.Size(), Modified: info.ModTime().UTC()}, r, nil
}

// inner reports whether a path is one of a file in a job's folder, as far as it says that itself.
func inner(name string) bool {
	return fs.ValidPath(strings.ToValidUTF8(name, "?")) && name != "." && !strings.ContainsRune(name, 0)
}

func outside(name string) error {
	return job.Errorf(job.Invalid, "%q is not the path of a file in the job's folder: give one without .. that no link leads out of it", name)
}

// within returns the name of a file in the folder root, with links followed where that can be done, and refuses one
// that is not below root. What Pawl keeps there for itself is as if it were not there: it holds the environment.
func within(ctx context.Context, fsys files.FS, root, name string) (string, error) {
	full := path.Join(root, name)
	if r, ok := fsys.(files.Linker); ok {
		var err error
		if root, err = r.Resolve(ctx, root); err != nil {
			return "", err
		}
		if full, err = r.Resolve(ctx, full); err != nil {
			return "", err
		}
		var inside bool
		if name, inside = strings.CutPrefix(full, strings.TrimSuffix(root, "/")+"/"); !inside {
			return "", outside(name)
		}
	} else if err := noLinks(ctx, fsys, root, name); err != nil {
		return "", err
	}
	if name == runner.Folder || strings.HasPrefix(name, runner.Folder+"/") {
		return "", fs.ErrNotExist
	}
	return full, nil
}

// noLinks refuses a path in root that has a symbolic link on its way.
func noLinks(ctx context.Context, fsys files.FS, root, name string) error {
	dir := root
next:
	for part := range strings.SplitSeq(name, "/") {
		infos, err := fsys.List(ctx, dir)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Name() == part {
				if info.Mode().Type() == fs.ModeSymlink {
					return outside(name)
				}
				dir = path.Join(dir, part)
				continue next
			}
		}
		return fs.ErrNotExist
	}
	return nil
}
