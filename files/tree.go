package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An Entry is one name below the root of a tree.
type Entry struct {
	Name string      // relative to the root
	Path string      // where its content is found: absolute, and no part of it is a symbolic link
	Info fs.FileInfo // of the content, so the name in it is that of Path
	// why there is no content: a *[LinkError] of a symbolic link, whose Path and Info are then the
	// link's; else what the file system says
	Err error
}

// LinkError says why a symbolic link is not followed. It is made for users.
type LinkError struct {
	Name   string // of the link, seen from the folder that holds the root: it begins with the root's own name
	Target string // what the link leads to, or the part of the way that cannot be passed; empty if that is not known
	Why    string // what is said of the target, such as "does not exist"
	Folder string // of a link to a folder of the tree: the name under which the folder is visited
}

func (e *LinkError) Error() string {
	if e.Target == "" {
		return fmt.Sprintf("%s is a symbolic link that %s", shown(e.Name), e.Why)
	}
	return fmt.Sprintf("%s is a symbolic link to %s, which %s", shown(e.Name), shown(e.Target), e.Why)
}

// shown is a name as it can stand in a sentence. Names of files may hold line ends and bytes that
// are no text.
func shown(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == '\uFFFD' || !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// Tree calls visit for everything below a folder: depth first, each folder before what is in it,
// sorted by name. The root itself may be a symbolic link; it is not visited.
//
// A symbolic link to a file inside the root counts as that file. A folder is visited once, under
// its own name: a link to one comes with an Err that names it, for the ways through links may be
// without number. A link that leaves the root, leads nowhere, or leads to a folder that holds the
// link itself, comes with an Err, too: it is for visit to refuse or to leave out. Pipes, sockets
// and devices come with their mode.
//
// What cannot be looked at comes with an Err, and the walk goes on. A folder that cannot be listed
// is visited twice, the second time with an Err. Only what says nothing of the one entry ends the
// walk: see [Alone].
//
// When visit returns [fs.SkipDir] for an entry, what is below it is left out. Any other error ends
// the walk and is returned as it is. A root that is not there, or is removed meanwhile, is
// [fs.ErrNotExist]; what else is made or removed meanwhile may be visited or not.
//
// Tree looks at names one after another. It does not withstand somebody who replaces folders by
// links meanwhile.
func Tree(ctx context.Context, fsys FS, root string, visit func(Entry) error) error {
	top, err := Resolve(ctx, fsys, root)
	if err != nil {
		return fmt.Errorf("walk %s: %w", root, err)
	}
	w := walk{fsys: fsys, visit: visit, top: top, base: path.Base(root)}
	list, err := fsys.List(ctx, top)
	if err != nil {
		return fmt.Errorf("walk %s: %w", top, err)
	}
	return w.folder(ctx, top, "", list)
}

type walk struct {
	fsys  FS
	visit func(Entry) error
	top   string   // the root, resolved
	base  string   // the root's name as it was given, for messages
	open  []string // the folders that are being walked, resolved
}

// folder visits what is in the folder dir, which is called name.
func (w *walk) folder(ctx context.Context, dir, name string, list []fs.FileInfo) error {
	w.open = append(w.open, dir)
	defer func() { w.open = w.open[:len(w.open)-1] }()

	for _, info := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := Entry{Name: path.Join(name, info.Name()), Path: path.Join(dir, info.Name()), Info: info, Err: Fault(info)}
		if e.Err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if err := w.follow(ctx, &e); errors.Is(err, errGone) {
				continue
			} else if err != nil {
				return fmt.Errorf("walk %s: %w", w.top, err)
			}
		}
		err := w.visit(e)
		if errors.Is(err, fs.SkipDir) {
			continue
		}
		if err == nil && e.Err == nil && e.Info.IsDir() {
			err = w.enter(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter visits what is in the folder of an entry.
func (w *walk) enter(ctx context.Context, e Entry) error {
	list, err := w.fsys.List(ctx, e.Path)
	switch {
	case err == nil:
		return w.folder(ctx, e.Path, e.Name, list)
	case errors.Is(err, fs.ErrNotExist):
		if _, err = w.fsys.Stat(ctx, w.top); err == nil {
			return nil // this folder alone is gone
		}
	case Alone(err):
		e.Err = err
		if err := w.visit(e); !errors.Is(err, fs.SkipDir) {
			return err
		}
		return nil
	}
	return fmt.Errorf("walk %s: %w", w.top, err)
}

var errGone = errors.New("the link is gone")

// follow makes the entry of a link that of its target, or gives it an Err.
func (w *walk) follow(ctx context.Context, e *Entry) error {
	refuse := func(target, why string) error {
		e.Err = &LinkError{Name: path.Join(w.base, e.Name), Target: target, Why: why}
		return nil
	}
	target, err := Resolve(ctx, w.fsys, e.Path)
	if err == nil && target != e.Path && !inside(target, w.top) {
		return refuse(target, "is outside of "+shown(w.base)) // and is not even looked at
	}
	var info fs.FileInfo
	if err == nil {
		info, err = w.fsys.Stat(ctx, target)
	}
	if err != nil {
		var at string
		if stopped, ok := errors.AsType[*fs.PathError](err); ok {
			at = stopped.Path
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && at == e.Path:
			return errGone
		case errors.Is(err, fs.ErrNotExist) && at == "":
			return refuse("", "leads nowhere")
		case errors.Is(err, fs.ErrNotExist):
			return refuse(at, "does not exist")
		case errors.Is(err, fs.ErrPermission):
			return refuse(at, "may not be read")
		case Alone(err):
			e.Err = err
			return nil
		}
		return err
	}
	if target == e.Path {
		return refuse("", "this file system cannot follow") // it shows links, and is no Linker
	}
	if info.IsDir() {
		if slices.ContainsFunc(w.open, func(dir string) bool { return inside(dir, target) }) {
			return refuse(target, "holds the link itself")
		}
		folder := strings.TrimPrefix(strings.TrimPrefix(target, w.top), "/")
		e.Err = &LinkError{
			Name: path.Join(w.base, e.Name), Target: target, Why: "is visited under its own name",
			Folder: folder,
		}
		return nil
	}
	e.Path, e.Info = target, info
	return nil
}

// inside reports whether a name is a folder or stands below it.
func inside(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}
