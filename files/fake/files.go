package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

var (
	_ files.FS     = (*FS)(nil)
	_ files.Linker = (*FS)(nil)
)

// A node is a file, a folder or a symbolic link. A file has a node for all of its names.
type node struct {
	mode     fs.FileMode
	modified time.Time
	content  []byte           // of a file; only ever appended to, so a part of it can be read without the lock
	target   string           // of a symbolic link
	inside   map[string]*node // of a folder
}

func folder() *node {
	return &node{mode: fs.ModeDir | 0o755, modified: time.Now(), inside: map[string]*node{}}
}

// A place is what a name leads to.
type place struct {
	name string // without symbolic links on the way
	in   *node  // the folder; nil for "/"
	node *node  // nil if nothing is there
}

// maxLinks is how many symbolic links are followed for one name, as on Linux.
const maxLinks = 40

// find goes the way of a name. If the last element is a link, it is followed only on request. Only
// the last element may be absent. Called with f.mu held.
func (f *FS) find(op, name string, follow bool) (place, error) {
	at := place{name: "/", node: f.root}
	links := 0
	for rest := elements(name); len(rest) > 0; {
		el := rest[0]
		rest = rest[1:]
		switch {
		case at.node == nil:
			return at, pathError(op, at.name, fs.ErrNotExist)
		case !at.node.mode.IsDir():
			return at, fmt.Errorf("%s %s: %w: %w", op, name, syscall.ENOTDIR, fs.ErrNotExist)
		}
		if el == ".." {
			above, err := f.find(op, path.Dir(at.name), false)
			if err != nil {
				return at, err
			}
			at = above
			continue
		}
		next := place{name: path.Join(at.name, el), in: at.node, node: at.node.inside[el]}
		if next.node == nil || next.node.target == "" || len(rest) == 0 && !follow {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return at, fmt.Errorf("%s %s: %w: %w", op, name, syscall.ELOOP, fs.ErrNotExist)
		}
		if path.IsAbs(next.node.target) {
			at = place{name: "/", node: f.root}
		}
		rest = append(elements(next.node.target), rest...)
	}
	return at, nil
}

// elements are the parts of a path that lead on.
func elements(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(el string) bool { return el == "" || el == "." })
}

// there is find for a name that must exist.
func (f *FS) there(op, name string, follow bool) (place, error) {
	at, err := f.find(op, name, follow)
	if err == nil && at.node == nil {
		err = pathError(op, at.name, fs.ErrNotExist)
	}
	return at, err
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func (p place) set(n *node) { p.in.inside[path.Base(p.name)] = n }
func (p place) clear()      { delete(p.in.inside, path.Base(p.name)) }

// Open opens a regular file.
func (f *FS) Open(ctx context.Context, name string) (r io.ReadSeekCloser, err error) {
	err = f.call(ctx, "Open", f.locked(func() error {
		at, err := f.there("open", name, true)
		if err != nil {
			return err
		}
		if !at.node.mode.IsRegular() {
			return job.Errorf(job.Invalid, "open %s: not a regular file but %s", name, at.node.mode.Type())
		}
		content := at.node.content
		if lie := f.lies[at.name].Content; lie != nil {
			content = lie(content)
		}
		r = opened{bytes.NewReader(content)}
		return nil
	}), name)
	if err != nil {
		return nil, err
	}
	return r, nil
}

type opened struct{ *bytes.Reader }

func (opened) Close() error { return nil }

// Put writes a file.
func (f *FS) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	return f.call(ctx, "Put", func() error {
		n := &node{mode: o.Perm()}
		var tmp place
		err := f.locked(func() (err error) {
			if tmp, err = f.find("put", o.TemporaryFor(name), false); err == nil {
				tmp.set(n)
			}
			return err
		})()
		if err != nil {
			return err
		}
		w := writer{f, n}
		if _, err = io.Copy(w, files.ContextReader(ctx, r)); err == nil {
			_, err = w.Write(nil) // so that a death at the last byte, or of no byte, is noticed
		}
		return f.locked(func() error {
			defer tmp.clear()
			if err == nil {
				err = f.rename("put", tmp.name, name)
			}
			return err
		})()
	}, name)
}

// A writer writes to a temporary file.
type writer struct {
	f *FS
	n *node
}

func (w writer) Write(p []byte) (n int, err error) {
	err = w.f.locked(func() (err error) {
		n, err = w.f.spend(len(p))
		w.n.content = append(w.n.content, p[:n]...)
		w.n.modified = time.Now()
		return err
	})()
	return n, err
}

// Stat describes what name leads to.
func (f *FS) Stat(ctx context.Context, name string) (info fs.FileInfo, err error) {
	err = f.call(ctx, "Stat", f.locked(func() error {
		at, err := f.there("stat", name, true)
		if err == nil {
			info = f.info(at.name, path.Base(name), at.node)
		}
		return err
	}), name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// List describes what is in a folder.
func (f *FS) List(ctx context.Context, dir string) (infos []fs.FileInfo, err error) {
	err = f.call(ctx, "List", f.locked(func() error {
		at, err := f.there("list", dir, true)
		if err != nil {
			return err
		}
		if !at.node.mode.IsDir() {
			return pathError("list", dir, syscall.ENOTDIR)
		}
		for _, base := range slices.Sorted(maps.Keys(at.node.inside)) {
			if !files.Temporary(base) {
				infos = append(infos, f.info(path.Join(at.name, base), base, at.node.inside[base]))
			}
		}
		return nil
	}), dir)
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// Mkdir makes a folder and those above it.
func (f *FS) Mkdir(ctx context.Context, dir string) error {
	return f.call(ctx, "Mkdir", f.locked(func() error {
		for name, rest := "", elements(dir); len(rest) > 0; rest = rest[1:] {
			name += "/" + rest[0]
			at, err := f.find("mkdir", name, true)
			switch {
			case err != nil:
				return err
			case at.node == nil:
				at.set(folder())
			case !at.node.mode.IsDir():
				return pathError("mkdir", name, syscall.ENOTDIR)
			}
		}
		return nil
	}), dir)
}

// Rename moves a file or a folder.
func (f *FS) Rename(ctx context.Context, from, to string) error {
	return f.call(ctx, "Rename", f.locked(func() error { return f.rename("rename", from, to) }), from, to)
}

// rename is called with f.mu held.
func (f *FS) rename(op, from, to string) error {
	src, err := f.there(op, from, false)
	if err != nil {
		return err
	}
	dst, err := f.find(op, to, false)
	switch {
	case err != nil:
		return err
	case src.node == dst.node:
		return nil // two names of one file stay, as on Linux
	case dst.node != nil && dst.node.mode.IsDir():
		return pathError(op, to, fs.ErrExist)
	case dst.node != nil && src.node.mode.IsDir():
		return pathError(op, to, syscall.ENOTDIR)
	case src.node == f.root || strings.HasPrefix(dst.name, src.name+"/"):
		return pathError(op, to, syscall.EINVAL)
	}
	src.clear()
	dst.set(src.node)
	return nil
}

// Link gives a file a second name.
func (f *FS) Link(ctx context.Context, from, to string) error {
	return f.call(ctx, "Link", f.locked(func() error {
		src, err := f.there("link", from, false)
		if err != nil {
			return err
		}
		dst, err := f.find("link", to, false)
		switch {
		case err != nil:
			return err
		case dst.node != nil:
			return pathError("link", to, fs.ErrExist)
		case src.node.mode.IsDir():
			return pathError("link", from, fs.ErrPermission)
		}
		dst.set(src.node)
		return nil
	}), from, to)
}

// Remove removes a name and all below it.
func (f *FS) Remove(ctx context.Context, name string) error {
	return f.call(ctx, "Remove", f.locked(func() error {
		if name == "/" {
			return job.Errorf(job.Invalid, "remove %s: refused", name)
		}
		at, err := f.there("remove", name, false)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			at.clear()
		}
		return err
	}), name)
}

// Symlink makes or replaces a symbolic link.
func (f *FS) Symlink(ctx context.Context, target, name string) error {
	return f.call(ctx, "Symlink", f.locked(func() error {
		if err := files.CheckTarget(target); err != nil {
			return err
		}
		at, err := f.find("symlink", name, false)
		if err != nil {
			return err
		}
		if at.node != nil && at.node.target == "" {
			return pathError("symlink", name, fs.ErrExist)
		}
		at.set(&node{mode: fs.ModeSymlink | 0o777, modified: time.Now(), target: target})
		return nil
	}), name)
}

// Resolve follows symbolic links.
func (f *FS) Resolve(ctx context.Context, name string) (resolved string, err error) {
	err = f.call(ctx, "Resolve", f.locked(func() error {
		at, err := f.there("resolve", name, true)
		resolved = at.name
		return err
	}), name)
	if err != nil {
		return "", err
	}
	return resolved, nil
}

// info describes the node of a name. Called with f.mu held.
func (f *FS) info(name, base string, n *node) fs.FileInfo {
	i := info{base, int64(len(n.content) + len(n.target)), n.mode, n.modified}
	if lie := f.lies[name].Size; lie != nil {
		i.size = lie(i.size)
	}
	return i
}

type info struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.modified }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
