// Package files is the contract for user data on a host or in an archive: job folders, inputs,
// results, and the markers by which a launch is decided.
//
// Its noun is [FS]. A name is a slash path, absolute on the host and clean ([path.Clean]); a host
// that has another idea of paths translates. What appears under a name by [FS.Put], [FS.Link] or
// [FS.Rename] appears whole or not at all, so a reader never meets half a file, and a crash leaves
// at most a temporary name, which [FS.List] hides.
//
// Above that seam stands, once for all backends, what is done with whole files and folders: [Copy],
// [Digest], [Tree]. What only some file systems can do is an interface of its own: [Linker],
// [Mover], [Adopter], [Namer], [Spreader], [Divided], [Sizer], [Moder], [Sparse], [Showing].
//
// The package imports the standard library and package job. Backends stand in packages of their own
// (files/local; an SFTP file system lives with its host) and pass the suite in files/filestest.
// files/fake is one that misbehaves on command.
package files

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// FS is one file system.
//
// Workers, watchers and runners call it, from many goroutines at once; every method is safe for
// that. A call that failed, or whose answer was lost, may have happened: callers repeat it, and say
// below what a repeat answers.
//
// Errors: a name that is not there is [fs.ErrNotExist], a name that must not be there is
// [fs.ErrExist], a name that the account may not touch is [fs.ErrPermission]; all are found by
// [errors.Is]. A malformed name is of kind [job.Invalid]. A file system that cannot be reached is
// of kind [job.Unavailable]. A context that ends gives its error; the call may then have happened.
type FS interface {
	// Open opens a regular file for reading; symbolic links are followed. Anything else (a folder,
	// a pipe, a device) is refused at once and never waited for: a job's folder holds whatever its
	// program left there.
	Open(ctx context.Context, name string) (io.ReadSeekCloser, error)

	// Put writes what r yields under name and replaces a file of that name. The folder must be
	// there. The content is written under a temporary name in the same folder, made durable, and
	// renamed; an error leaves name as it was (only an error of the last step, making the rename
	// durable, leaves the new content). Two Puts of one name do not mix: one of them stands in the
	// end.
	Put(ctx context.Context, name string, r io.Reader, o PutOptions) error

	// Stat describes what name leads to; symbolic links are followed.
	Stat(ctx context.Context, name string) (fs.FileInfo, error)

	// List describes what is in a folder, one level deep, sorted by name. Symbolic links are not
	// followed: a link is shown as a link. Temporary names (see [Temporary]) are left out. What is
	// made or removed meanwhile may be there or not. A name that it cannot describe is
	// [Undescribed].
	List(ctx context.Context, dir string) ([]fs.FileInfo, error)

	// Mkdir makes a folder and those above it. One that is there is no error; a file of that name
	// is one.
	Mkdir(ctx context.Context, dir string) error

	// Rename moves a file or a folder in one step and durably, and replaces a file of the new name.
	// Both names are on the same file system. A repeat after success answers fs.ErrNotExist.
	Rename(ctx context.Context, from, to string) error

	// Link gives a file a second name, in one step and durably; it never replaces: if the new name
	// is there, even as a name of the same file, the error is fs.ErrExist. Of many who link to one
	// name exactly one gets no error. After an error other than fs.ErrExist the caller reads the
	// new name to learn who won.
	Link(ctx context.Context, from, to string) error

	// Remove removes a name and, if it is a folder, all below it. Symbolic links are not followed,
	// also where somebody puts one in the place of a folder meanwhile. Folders of the own account
	// that may not be changed get the rights back first. A name that is not there is no error. What
	// cannot be removed stays, and the rest goes: another user's, what is immutable, and what is
	// mounted there, with all that is in it. The error then names the first that stays and why, and
	// is of kind [job.Conflict] where somebody has to lend a hand.
	Remove(ctx context.Context, name string) error
}

// A Namer is a file system that lists names for less than what it describes. Who needs only names
// calls [Names].
type Namer interface {
	// Names lists what is in a folder, as List does.
	Names(ctx context.Context, dir string) ([]string, error)
}

// Names lists what is in a folder.
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

// Mover is a file system that can rename as [FS.Rename] does, and leave it to the system when that
// reaches the disk. It is for what may also be under its old name after a power failure, and costs
// no wait. Not each backend has it.
type Mover interface {
	Move(ctx context.Context, from, to string) error
}

// Move renames, without a wait for the disk where the file system can.
func Move(ctx context.Context, fsys FS, from, to string) error {
	if m, ok := fsys.(Mover); ok {
		return m.Move(ctx, from, to)
	}
	return fsys.Rename(ctx, from, to)
}

// Adopter is a file system that can tell whether a file may still change. Not each backend can. Its
// values can be compared, and two that are equal are one file system.
type Adopter interface {
	// Adopt gives a regular file a second name, durably but for the name, if its content stands:
	// nobody has it open for writing, it has one name, and it belongs to the account, with no mode
	// but permissions. Else the error is [errors.ErrUnsupported], and so it is where the two names
	// are not on one file system or the file system cannot tell. It never replaces, as [FS.Link].
	Adopt(ctx context.Context, from, to string) error
}

// Spreader is a file system that takes a hint where to lay what is made. Not each backend does.
type Spreader interface {
	// Spread tells that the folders that will be made in a folder have nothing to do with one
	// another.
	Spread(ctx context.Context, dir string) error
}

// Spread makes a folder for folders that have nothing to do with one another, as those of many
// jobs, and tells the file system so, where it takes the hint.
func Spread(ctx context.Context, fsys FS, dir string) error {
	if err := fsys.Mkdir(ctx, dir); err != nil {
		return err
	}
	if s, ok := fsys.(Spreader); ok {
		s.Spread(ctx, dir) //nolint:errcheck // a hint
	}
	return nil
}

// Sizer is a file system that can tell how much fits on it. Not each backend can.
type Sizer interface {
	// Space tells of the file system on which name lies, for who is not root.
	Space(ctx context.Context, name string) (Space, error)
}

// Space is what there is on a file system.
type Space struct {
	Size   int64 // bytes for which there would be room, were nothing else there
	Free   int64 // bytes for which there is room
	NoFile bool  // there is no room for another file, however small
}

// PutOptions are the extras of [FS.Put]. The zero value writes a durable file of mode 0644.
type PutOptions struct {
	// Mode holds the permission bits of the new file, exactly: no umask applies. 0 means 0644.
	Mode fs.FileMode
	// NoSync leaves it to the system when the content reaches the disk. For what can be copied
	// again: after a power failure the file may be absent or empty.
	NoSync bool
	// Passing leaves it to the system when the name reaches the disk; the content is durable. For a
	// name that only serves to give the file another one, by [FS.Link] or [FS.Rename], or one
	// beside which another file is put after it.
	Passing bool
}

// Perm returns the permission bits to use.
func (o PutOptions) Perm() fs.FileMode {
	if o.Mode == 0 {
		return 0o644
	}
	return o.Mode.Perm()
}

// Check returns an error of kind [job.Invalid] unless name is an absolute clean slash path without
// a NUL. Backends call it first.
func Check(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) {
		return job.Errorf(job.Invalid, "%q is not an absolute, clean path", name)
	}
	return nil
}

const temporary = ".pawl-put-"

// TemporaryFor returns a fresh temporary name beside name, for a backend's Put. Its length does not
// depend on name's.
func TemporaryFor(name string) string { return path.Join(path.Dir(name), temporary+rand.Text()) }

// Temporary reports whether the last element of name is one that [TemporaryFor] made.
func Temporary(name string) bool { return strings.HasPrefix(path.Base(name), temporary) }
