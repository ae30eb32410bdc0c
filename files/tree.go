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
	Name string // relative to the root
	// Path is where the content is: absolute, and no part of it is a symbolic link.
	Path string
	// Info describes the content, so its name is that of Path.
	Info fs.FileInfo
	// Err is why there is no content. For a symbolic link it is a *[LinkError], and Path and Info
	// are then those of the link. For anything else it is the error of the file system.
	Err error
}

// LinkError says why a symbolic link is not followed. Users see it.
type LinkError struct {
	// Name is the name of the link. It begins with the name of the root.
	Name string
	// Target is where the link leads, or the part of the way that cannot be passed; "" if unknown.
	Target string
	Why    string // goes on after the target, such as "does not exist"
	// Folder is set for a link to a folder of the tree: it is the name under which Tree visits the
	// folder.
	Folder string
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

// Tree calls visit for everything below a folder, depth first and sorted by name. It visits a
// folder before its content. The root itself may be a symbolic link; it is not visited.
//
// A symbolic link to a file inside the root counts as that file. A folder is visited once, under
// its own name, since there may be endless ways to it through links. A link to a folder has an Err
// that names the folder. A link also has an Err if it leaves the root, leads nowhere, or leads to a
// folder that contains the link. visit decides whether to refuse or to skip it. Pipes, sockets and
// devices come with their mode.
//
// An entry that cannot be read has an Err, and the walk goes on. A folder that cannot be listed is
// visited twice, the second time with an Err. An error ends the walk only if it is not about a
// single entry: see [Alone].
//
// If visit returns [fs.SkipDir] for an entry, the walk skips what is below it. Any other error ends
// the walk and is returned as it is. If the root is missing, or is removed meanwhile, the error is
// [fs.ErrNotExist]. Other files that are made or removed meanwhile may be visited or not.
//
// Tree reads names one after another. It gives no protection against somebody who replaces folders
// by links meanwhile.
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
