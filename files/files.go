// Package files is the contract for user data on a host or in an archive: job folders, inputs,
// results, and the markers that decide a launch.
//
// Its noun is [FS]. A name is a slash path that is absolute on the host and clean ([path.Clean]). A
// host with other paths translates them. A file appears under a name by [FS.Put], [FS.Link] or
// [FS.Rename], and it appears whole or not at all. So a reader never sees half a file, and a crash
// leaves at most a file with a temporary name, which [FS.List] hides.
//
// The work on whole files and folders is written once, above that interface: [Copy], [CopyMany],
// [Digest], [Tree]. An ability of only some file systems is an interface of its own: [Linker],
// [Mover], [QuickLinker], [Copier], [Adopter], [Namer], [Spreader], [Divided], [Sizer], [Moder],
// [Showing], [Stamper], [Filler], [Loader], [ReaderOfMany], [RemoverOfMany], and [Sparse] of an
// open file.
//
// [Source] is the contract for inputs that a URL names. It has no suite. What has no second names
// of files, such as WebDAV or an object store, can only be one of these: launches and archives need
// [FS.Link].
//
// The package imports the standard library and package job. Backends stand in packages of their
// own, such as files/local, and pass the suite in files/filestest. Package files/fake is a file
// system in memory, for tests, that misbehaves on command.
package files

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// FS is one file system.
//
// Workers, watchers and runners call it from many goroutines at once. Every method is safe for
// that. A call that failed, or whose answer was lost, may still have happened. Callers repeat it;
// the methods say what a repetition returns.
//
// Errors, all to be found by [errors.Is]: a missing name is [fs.ErrNotExist], a name that must not
// exist is [fs.ErrExist], and a name that the account may not touch is [fs.ErrPermission]. A
// malformed name is of kind [job.Invalid]. A file system that cannot be reached is of kind
// [job.Unavailable]. When a context ends, its error is returned; the call may have happened.
type FS interface {
	// Open opens a regular file for reading. It follows symbolic links. It refuses anything else,
	// such as a folder, a pipe or a device, with kind [job.Invalid], at once and without waiting: a
	// program may leave anything in its job's folder. An open file can be read to its end, also
	// after another file got its name.
	Open(ctx context.Context, name string) (io.ReadSeekCloser, error)

	// Put writes the content of r under name, and replaces a file of that name. The folder must
	// exist. Put writes a temporary file in the same folder, or aside, makes it durable and renames
	// it. After an error name is as it was, with one exception: if the rename could not be made
	// durable, name has the new content. Two Puts of one name do not mix: one of them wins.
	Put(ctx context.Context, name string, r io.Reader, o PutOptions) error

	// Stat describes the file or folder that name leads to. It follows symbolic links.
	Stat(ctx context.Context, name string) (fs.FileInfo, error)

	// List describes what is in a folder, one level deep, sorted by name. It does not follow
	// symbolic links: a link is described as a link. It leaves out temporary names (see
	// [Temporary]). A file that is made or removed during the call may be in the list or not. A
	// file that exists but cannot be described is [Undescribed].
	List(ctx context.Context, dir string) ([]fs.FileInfo, error)

	// Mkdir makes a folder and the folders above it. It is no error if the folder exists. It is an
	// error if a file has that name.
	Mkdir(ctx context.Context, dir string) error

	// Rename moves a file or a folder, in one step and durably. A file replaces a file of the new
	// name; anything else that is there stays, and is an error. Two names of one file may both
	// stay. Both names must be on the same file system. A repetition after success returns
	// fs.ErrNotExist.
	Rename(ctx context.Context, from, to string) error

	// Link gives a file a second name, in one step and durably. It never replaces: if the new name
	// exists, even for the same file, the error is fs.ErrExist. If many callers link to one name,
	// exactly one of them gets no error. After an error other than fs.ErrExist, the caller reads
	// the new name to learn who won.
	Link(ctx context.Context, from, to string) error

	// Remove removes a name and, if it is a folder, all below it. It does not follow symbolic
	// links, even if somebody replaces a folder by a link meanwhile. If a folder of its own account
	// may not be changed, it first gives itself the rights. A missing name is no error. The root is
	// refused, with kind [job.Invalid].
	//
	// Some things cannot be removed: files of another user, immutable files, and a mounted file
	// system with all that is in it. They stay and the rest goes. The error then names the first of
	// them and says why. It is of kind [job.Conflict] if a person has to help.
	Remove(ctx context.Context, name string) error
}

// A Namer is a file system that can list names more cheaply than List, which describes them.
// Callers use [Names].
type Namer interface {
	// Names returns the names in a folder: those that List describes, in the same order.
	Names(ctx context.Context, dir string) ([]string, error)
}

// Names returns the names in a folder, sorted. It lists the folder if the file system is no
// [Namer].
func Names(ctx context.Context, fsys FS, dir string) ([]string, error) {
	if n, ok := fsys.(Namer); ok {
		return n.Names(ctx, dir)
	}
	infos, err := fsys.List(ctx, dir)
	names := make([]string, len(infos))
	for i, f := range infos {
		names[i] = f.Name()
	}
	return names, err
}

// Mover is a file system that can rename like [FS.Rename], but without waiting for the disk. After
// a power failure the file may be under its old name. Callers use [Move].
type Mover interface {
	Move(ctx context.Context, from, to string) error
}

// Move renames a file or a folder. If the file system is a [Mover], it does not wait for the disk.
func Move(ctx context.Context, fsys FS, from, to string) error {
	if m, ok := fsys.(Mover); ok {
		return m.Move(ctx, from, to)
	}
	return fsys.Rename(ctx, from, to)
}

// QuickLinker is a file system that can link like [FS.Link] without waiting for the disk. After a
// power failure the new name may be missing. Callers use [QuickLink].
type QuickLinker interface {
	QuickLink(ctx context.Context, from, to string) error
}

// QuickLink gives a file a second name. If the file system is a [QuickLinker], it does not wait for
// the disk.
func QuickLink(ctx context.Context, fsys FS, from, to string) error {
	if q, ok := fsys.(QuickLinker); ok {
		return q.QuickLink(ctx, from, to)
	}
	return fsys.Link(ctx, from, to)
}

// Copier is a file system that copies its own files, so that their content does not have to be read
// and written. Two values of it that are equal must be one file system. Callers use [Copy].
type Copier interface {
	// CopyFile copies a regular file as [FS.Put] would write it, and returns its size. It calls
	// progress with the number of bytes of each part, unless that is nil. Its errors are those of
	// Open and of Put, and [errors.ErrUnsupported] if it cannot copy. Then it has called progress
	// with a negative number, if at all, so that the sum is 0.
	CopyFile(ctx context.Context, from, to string, o PutOptions, progress func(n int)) (size int64, err error)
}

// Adopter is a file system that can tell whether a file may still change. Two values of it that are
// equal must be one file system.
type Adopter interface {
	// Adopt gives a regular file a second name if its content cannot change any more. That is so if
	// nobody has it open for writing, it has only one name, it belongs to this account, and its
	// mode has nothing but permission bits. Otherwise the error is [errors.ErrUnsupported]. That is
	// also the error if the two names are not on one file system, or if the file system cannot
	// tell. The content is durable, the new name is not. Adopt never replaces, like [FS.Link].
	Adopt(ctx context.Context, from, to string) error
}

// Stamper is a file system that can set when a file was last changed.
type Stamper interface {
	FS
	// Stamp sets the time of the last change of files, to the second. Whoever changes the content of
	// one after that changes this time, too. Callers that then describe the files use [Stamped].
	Stamp(ctx context.Context, at time.Time, names ...string) error
}

// Spreader is a file system that takes a hint where to lay files on the disk. Callers use [Spread].
type Spreader interface {
	// Spread says that the folders that will be made in dir have nothing to do with one another.
	Spread(ctx context.Context, dir string) error
}

// Spread makes a folder whose subfolders have nothing to do with one another, such as the folders
// of many jobs. If the file system is a [Spreader], it gets that hint.
func Spread(ctx context.Context, fsys FS, dir string) error {
	if err := fsys.Mkdir(ctx, dir); err != nil {
		return err
	}
	if s, ok := fsys.(Spreader); ok {
		s.Spread(ctx, dir) //nolint:errcheck // a hint
	}
	return nil
}

// Sizer is a file system that can tell how much room it has.
type Sizer interface {
	// Space returns the room of the file system that has name, for users other than root.
	Space(ctx context.Context, name string) (Space, error)
}

// Space is the room of a file system.
type Space struct {
	Size   int64 // bytes that would fit if it were empty
	Free   int64 // bytes that fit now
	NoFile bool  // not even an empty file fits
	// ReadOnly says that nothing can be written, whatever is free.
	ReadOnly bool
}

// PutOptions are options of [FS.Put]. The zero value writes a durable file of mode 0644.
type PutOptions struct {
	// Mode holds the exact permission bits of the new file: no umask applies. Default: 0644.
	Mode fs.FileMode
	// NoSync does not wait until the content is on the disk. After a power failure the file may be
	// missing or empty. It is for files that can be copied again.
	NoSync bool
	// Passing waits until the content is on the disk, but not until the name is. It is for a name
	// that only serves to give the file another one, by [FS.Link] or [FS.Rename]. It is also for
	// the first of two files in a folder if the second is put after it without Passing.
	Passing bool
	// Aside is another folder of the same file system for the temporary file. It stays there if
	// this process or the connection dies meanwhile. It is for folders whose names programs read.
	// Default: the folder of the file.
	Aside string
}

// TemporaryFor returns a new temporary name for the Put of a backend.
func (o PutOptions) TemporaryFor(name string) string {
	if o.Aside != "" {
		name = path.Join(o.Aside, path.Base(name))
	}
	return TemporaryFor(name)
}

// Perm returns the permission bits that the new file gets.
func (o PutOptions) Perm() fs.FileMode {
	if o.Mode == 0 {
		return 0o644
	}
	return o.Mode.Perm()
}

// Check returns an error of kind [job.Invalid] unless name is an absolute, clean slash path without
// a NUL byte. Backends call it first.
func Check(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) {
		return job.Errorf(job.Invalid, "%q is not an absolute, clean path", name)
	}
	return nil
}

const temporary = ".pawl-put-"

// TemporaryFor returns a new temporary name in the folder of name, for the Put of a backend. Its
// length does not depend on name.
func TemporaryFor(name string) string { return path.Join(path.Dir(name), temporary+rand.Text()) }

// Temporary reports whether [TemporaryFor] made the last element of name.
func Temporary(name string) bool { return strings.HasPrefix(path.Base(name), temporary) }
