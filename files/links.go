package files

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// Linker is a file system with symbolic links. What [FS] says about callers, repetitions and errors
// holds here too.
type Linker interface {
	// Symlink makes name a symbolic link to target, in one step and durably. It replaces a symbolic
	// link of that name. If name is anything else, the error is fs.ErrExist and name stays; only a
	// file that is made at the very moment of the replacement may be lost. target is kept as it is
	// given: it need not exist, and a relative target counts from the folder of name. An empty
	// target, or one with a NUL byte, is of kind [job.Invalid].
	Symlink(ctx context.Context, target, name string) error

	// Resolve returns the name that name leads to. It follows every symbolic link on the way, in
	// the folders of name too. A name that leads nowhere, or in a circle, is fs.ErrNotExist. If a
	// part of the way is missing, the error's chain has an [fs.PathError] with that part as its
	// Path; it is name itself if name does not exist.
	//
	// Resolve does not follow links that the system makes up, as Linux does in /proc. They lead to
	// places without a name.
	Resolve(ctx context.Context, name string) (string, error)
}

// Resolve returns the name that name leads to. A file system that is no [Linker] has no symbolic
// links, so the answer is name itself. A name that leads nowhere is [fs.ErrNotExist].
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

// Real returns the name that name leads to, with every symbolic link followed, even if it does not
// exist yet. For a link that leads nowhere it returns the missing name at its end.
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
