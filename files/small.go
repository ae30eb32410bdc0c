package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Where each call costs a round trip, many small files are put, read and removed in one. What these
// interfaces do can also be done by the methods of [FS], and is done so where they cannot do it:
// they are for what is usual, and their errors say no more than that it was not.

// MaxSmall is the most bytes of a file that [Filler] and [Loader] take along.
const MaxSmall = 64 << 10

// A Filler is a file system that makes several files and folders in one round trip.
type Filler interface {
	// Fill makes files and folders that are not there yet, in the order given, and the folders
	// above them. If one of the names is there already, nothing is made and the error is
	// [fs.ErrExist].
	//
	// A file is not made in one step. So Fill is for a folder that nobody else looks into yet, and
	// after another error each file may be there, whole or in part.
	Fill(ctx context.Context, list []Small) error
}

// A Small is a file or a folder that a [Filler] makes.
type Small struct {
	Name string
	// Mode is [fs.ModeDir] for a folder, which gets mode 0755 less the umask. Otherwise it has the
	// exact permission bits of the file.
	Mode    fs.FileMode
	Content []byte
	// NoSync is that of [PutOptions].
	NoSync bool
}

// A Loader is a file system that describes a folder with all below it, and reads the small files in
// it, in one round trip. Callers use [Load].
type Loader interface {
	// Load looks at a folder. It is for one in which nothing changes, and that is not large:
	// otherwise the error is [errors.ErrUnsupported].
	Load(ctx context.Context, dir string) (*Loaded, error)
}

// A RemoverOfMany is a file system that removes several names in one round trip. Callers use
// [RemoveAll].
type RemoverOfMany interface {
	// RemoveAll removes each of the names, like [FS.Remove].
	RemoveAll(ctx context.Context, names []string) error
}

// RemoveAll removes several names. It goes on after an error, and returns all errors together.
func RemoveAll(ctx context.Context, fsys FS, names ...string) error {
	if r, ok := fsys.(RemoverOfMany); ok {
		return r.RemoveAll(ctx, names)
	}
	errs := make([]error, len(names))
	for i, name := range names {
		errs[i] = fsys.Remove(ctx, name)
	}
	return errors.Join(errs...)
}

// Load returns a file system that tells what was in a folder when Load looked, as far as that is
// known from one round trip. For the rest it asks fsys. It is fsys itself where that costs no round
// trips, and where the folder cannot be looked at in one.
func Load(ctx context.Context, fsys FS, dir string) FS {
	l, ok := fsys.(Loader)
	if !ok {
		return fsys
	}
	loaded, err := l.Load(ctx, dir)
	if err != nil {
		return fsys
	}
	return loaded
}

// A Loaded is what a [Loader] has read. It implements [FS] and [Linker].
type Loaded struct {
	FS                 // it is asked for what is not here
	named, real string // the folder, as it was named, and after links were followed
	files       map[string]*loadedFile
}

type loadedFile struct {
	info    fs.FileInfo
	content []byte
	read    bool // content is what is in it
	below   []fs.FileInfo
}

// NewLoaded returns a Loaded of a folder. real is the name that dir leads to, and fsys is asked for
// what is not in it.
func NewLoaded(fsys FS, dir, real string, info fs.FileInfo) *Loaded {
	return &Loaded{FS: fsys, named: dir, real: real, files: map[string]*loadedFile{real: {info: info}}}
}

// Add adds what is in the folder. A folder comes before what is in it. name is relative to the
// folder, and content is nil unless the file was read. It reports whether that makes sense.
func (l *Loaded) Add(name string, info fs.FileInfo, content []byte) bool {
	full := path.Join(l.real, name)
	above := l.files[path.Dir(full)]
	if name == "" || path.Join("/", name) != "/"+name || above == nil || !above.info.IsDir() || l.files[full] != nil {
		return false
	}
	l.files[full] = &loadedFile{info: info, content: content, read: content != nil}
	if !Temporary(name) {
		above.below = append(above.below, info)
	}
	return true
}

// at returns what is known of a name.
func (l *Loaded) at(name string) *loadedFile {
	if rest, ok := strings.CutPrefix(name+"/", l.named+"/"); ok {
		name = path.Join(l.real, rest)
	}
	return l.files[name]
}

// Open reads from what was loaded.
func (l *Loaded) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if f := l.at(name); f != nil && f.read && ctx.Err() == nil {
		return loadedReader{bytes.NewReader(f.content)}, nil
	}
	return l.FS.Open(ctx, name)
}

type loadedReader struct{ *bytes.Reader }

func (loadedReader) Close() error { return nil }

// Stat describes what was loaded.
func (l *Loaded) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if f := l.at(name); f != nil && f.info.Mode().Type() != fs.ModeSymlink && ctx.Err() == nil {
		return f.info, nil
	}
	return l.FS.Stat(ctx, name)
}

// List lists what was loaded.
func (l *Loaded) List(ctx context.Context, dir string) ([]fs.FileInfo, error) {
	f := l.at(dir)
	if f == nil || !f.info.IsDir() || ctx.Err() != nil {
		return l.FS.List(ctx, dir)
	}
	return slices.SortedFunc(slices.Values(f.below),
		func(a, b fs.FileInfo) int { return strings.Compare(a.Name(), b.Name()) }), nil
}

// Symlink implements [Linker].
func (l *Loaded) Symlink(ctx context.Context, target, name string) error {
	if s, ok := l.FS.(Linker); ok {
		return s.Symlink(ctx, target, name)
	}
	return errors.ErrUnsupported
}

// Resolve implements [Linker].
func (l *Loaded) Resolve(ctx context.Context, name string) (string, error) {
	if f := l.at(name); f != nil && f.info.Mode().Type() != fs.ModeSymlink && ctx.Err() == nil {
		if rest, ok := strings.CutPrefix(name+"/", l.named+"/"); ok {
			name = path.Join(l.real, rest)
		}
		return name, nil
	}
	return Resolve(ctx, l.FS, name)
}

// ReadMany implements [ReaderOfMany].
func (l *Loaded) ReadMany(ctx context.Context, names []string) ([][]byte, error) {
	contents := make([][]byte, len(names))
	for i, name := range names {
		f := l.at(name)
		if f == nil || !f.read {
			if r, ok := l.FS.(ReaderOfMany); ok {
				return r.ReadMany(ctx, names)
			}
			return nil, errors.ErrUnsupported
		}
		contents[i] = f.content
	}
	return contents, ctx.Err()
}
