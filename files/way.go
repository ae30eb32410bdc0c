package files

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// A Way makes way in a folder for files that are put there anew. A program had the folder
// meanwhile: it may have put a folder in the place of a file, or have taken rights away. What is
// not in the way stays. It is for one round of calls of Clear, before the files are put.
type Way struct {
	fsys   FS
	top    string
	listed map[string]map[string]fs.FileInfo // what is in folders, by name
}

// NewWay returns a way into the folder top.
func NewWay(fsys FS, top string) *Way {
	return &Way{fsys, top, map[string]map[string]fs.FileInfo{}}
}

// Clear makes way for an entry of a type: 0 for a file, [fs.ModeDir], or [fs.ModeSymlink]. name is
// the folder of the way, or below it. Clear removes whatever has the name and another type, and
// whatever else than a folder is on the way to it. The account gets back its rights to the folders.
func (w *Way) Clear(ctx context.Context, name string, kind fs.FileMode) error {
	at, rest := w.top, strings.Split(strings.TrimPrefix(strings.TrimPrefix(name, w.top), "/"), "/")
	info, err := w.fsys.Stat(ctx, w.top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for i := 0; err == nil; i++ {
		is, want := info.Mode().Type(), fs.ModeDir
		if last := i == len(rest) || rest[i] == ""; last && at != w.top {
			want = kind
		}
		if is != want {
			delete(w.listed[path.Dir(at)], path.Base(at))
			return w.fsys.Remove(ctx, at)
		}
		if is != fs.ModeDir {
			return nil
		}
		var list map[string]fs.FileInfo
		if list, err = w.list(ctx, at, info.Mode()); err != nil || i == len(rest) || rest[i] == "" || list[rest[i]] == nil {
			return err
		}
		at, info = path.Join(at, rest[i]), list[rest[i]]
	}
	return err
}

// list returns what is in a folder, to which the account gets back its rights.
func (w *Way) list(ctx context.Context, dir string, mode fs.FileMode) (map[string]fs.FileInfo, error) {
	if list := w.listed[dir]; list != nil {
		return list, nil
	}
	if mode&0o700 != 0o700 {
		if err := chmod(ctx, w.fsys, dir, mode|0o700); err != nil {
			return nil, err
		}
	}
	infos, err := w.fsys.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	list := map[string]fs.FileInfo{}
	for _, info := range infos {
		list[info.Name()] = info
	}
	w.listed[dir] = list
	return list, nil
}

// ClearTree makes way for a copy of a file, or of a folder with everything in it. Links to folders
// are copied as links. It is silent on what cannot be read of the original: who copies it meets
// that.
func (w *Way) ClearTree(ctx context.Context, from FS, real, to string) error {
	info, err := from.Stat(ctx, real)
	if err != nil || !info.IsDir() {
		return w.Clear(ctx, to, 0)
	}
	err = w.Clear(ctx, to, fs.ModeDir)
	if err == nil {
		Tree(ctx, from, real, func(e Entry) error { //nolint:errcheck // as said
			kind, link := e.Info.Mode().Type(), false
			if _, link = errors.AsType[*LinkError](e.Err); link {
				kind = fs.ModeSymlink
			}
			if link || e.Err == nil && kind&^fs.ModeDir == 0 { // anything else is not copied
				err = w.Clear(ctx, path.Join(to, e.Name), kind)
			}
			return err
		})
	}
	return err
}

// Unlink removes symbolic links that somebody put in the place of a folder, or of one in it. It is
// silent on what it cannot look at: who uses the folders meets that.
func Unlink(ctx context.Context, fsys FS, dir, inner string) error {
	if real, err := Real(ctx, fsys, inner); err == nil && real == inner {
		return nil
	}
	above, err := Real(ctx, fsys, path.Dir(dir))
	if err != nil {
		return nil //nolint:nilerr // as said
	}
	for _, at := range []string{dir, inner} {
		real, err := Real(ctx, fsys, at)
		if err != nil || real == path.Join(above, strings.TrimPrefix(at, path.Dir(dir))) {
			continue
		}
		if err := fsys.Remove(ctx, at); err != nil {
			return err
		}
	}
	return nil
}
