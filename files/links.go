package files

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// Linker is a file system with symbolic links. Not each backend has them: who needs one asserts it
// of an [FS].
//
// What [FS] says of callers, repeats and errors holds here too.
type Linker interface {
	// Symlink makes name a symbolic link to target, in one step and durably, and replaces a
	// symbolic link of that name. Anything else of that name is fs.ErrExist and stays, unless it is
	// made in the very moment in which a link is being replaced. target is kept as it is given: it
	// need not be there, and one that is not absolute counts from the folder of name. An empty
	// target, or one with a NUL, is of kind [job.Invalid].
	Symlink(ctx context.Context, target, name string) error

	// Resolve returns the name of what name leads to, with every symbolic link on the way followed,
	// in name's folders as well. A name that leads nowhere, or in a circle, is fs.ErrNotExist.
	// Where a part of the way is not there, an [fs.PathError] in the error's chain has the part as
	// its Path: name itself if there is no link of that name.
	//
	// Links that a system makes up, as Linux does in /proc, are not followed: they lead to places
	// that have no name.
	Resolve(ctx context.Context, name string) (string, error)
}

// Resolve returns the name of what name leads to. A file system that is no [Linker] has no symbolic
// links, so there it is name itself. A name that leads nowhere is [fs.ErrNotExist].
func Resolve(ctx context.Context, fsys FS, name string) (string, error) {
	if l, ok := fsys.(Linker); ok {
		return l.Resolve(ctx, name)
	}
	_, err := fsys.Stat(ctx, name)
	if err != nil {
		return "", err
	}
	return name, nil
}

// Real returns where a name leads, with every symbolic link followed. What is not there yet keeps
// its name: of a link that leads nowhere, what it leads to.
func Real(ctx context.Context, fsys FS, name string) (string, error) {
	if _, ok := fsys.(Linker); !ok {
		return name, nil
	}
	real, err := Resolve(ctx, fsys, name)
	for rest := ""; ; {
		missing, ok := errors.AsType[*fs.PathError](err)
		if err == nil || !ok || !errors.Is(err, fs.ErrNotExist) || name == "/" {
			return path.Join(real, rest), err
		}
		var above string
		if above, err = Resolve(ctx, fsys, path.Dir(name)); err == nil {
			if at := path.Join(above, path.Base(name)); at != missing.Path { // a link of that name is there
				return path.Join(missing.Path, rest), nil
			}
		}
		real, rest, name = above, path.Join(path.Base(name), rest), path.Dir(name)
	}
}

// CheckTarget returns an error of kind [job.Invalid] unless a symbolic link can have the target.
// Backends call it first.
func CheckTarget(target string) error {
	if target == "" || strings.ContainsRune(target, 0) {
		return job.Errorf(job.Invalid, "%q cannot be the target of a symbolic link", target)
	}
	return nil
}
